"""Tailrace as a conversation agent of Home Assistant.

Nothing of Home Assistant is imported before an entry is set up: the modules that need none of it (`client`, `images`,
`log_view`, `sse`, `talks`, `yes_no`) can then be used and tested without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homeassistant.core import HomeAssistant

    from .assistant import TailraceEntry

PLATFORMS = ["conversation"]


async def async_setup_entry(hass: HomeAssistant, entry: TailraceEntry) -> bool:
    """Sets the entry up also while the server is away: the agent then says so when it is spoken to."""
    from .assistant import Assistant

    entry.runtime_data = await Assistant.open(hass, entry)
    await hass.config_entries.async_forward_entry_setups(entry, PLATFORMS)
    entry.runtime_data.tell_unheard()
    return True


async def async_unload_entry(hass: HomeAssistant, entry: TailraceEntry) -> bool:
    await entry.runtime_data.save()
    return bool(await hass.config_entries.async_unload_platforms(entry, PLATFORMS))


async def async_remove_entry(hass: HomeAssistant, entry: TailraceEntry) -> None:
    from .kept import Kept

    await (await Kept.open(hass, entry)).remove(hass, entry)
