"""The sentences that the integration says itself, in the language of the speaker; English where there is none."""

from __future__ import annotations

from homeassistant.core import HomeAssistant
from homeassistant.helpers.translation import async_get_translations

from .const import DOMAIN


async def sentence(hass: HomeAssistant, language: str, key: str, **values: str) -> str:
    """The sentence of `common` in the translations; `{name}` in it is replaced by the value of that name."""
    name = f"component.{DOMAIN}.common.{key}"
    for asked in dict.fromkeys((language, language.partition("-")[0], "en")):
        if found := (await async_get_translations(hass, asked, "common", [DOMAIN])).get(name):
            for placeholder, value in values.items():
                found = found.replace(f"{{{placeholder}}}", value)
            return str(found)
    return key
