"""The sentences that the integration says itself, in the language of the speaker; English where there is none."""

from __future__ import annotations

from homeassistant.core import HomeAssistant
from homeassistant.helpers.translation import async_get_translations

from .const import DOMAIN
from .yes_no import languages_of


async def sentence(hass: HomeAssistant, language: str, key: str, **values: str) -> str:
    """The sentence of `common` in the translations; `{name}` in it is replaced by the value of that name."""
    english = found = await _written(hass, "en", key)
    for asked in languages_of(language):
        found = await _written(hass, asked, key)
        if found != english:
            break
    for placeholder, value in values.items():
        found = found.replace(f"{{{placeholder}}}", value)
    return found


async def _written(hass: HomeAssistant, language: str, key: str) -> str:
    """In English where the language has none: Home Assistant fills in what is not translated."""
    written = await async_get_translations(hass, language, "common", [DOMAIN])
    return str(written.get(f"component.{DOMAIN}.common.{key}", key))
