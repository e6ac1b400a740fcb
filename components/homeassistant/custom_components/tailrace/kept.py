"""What one entry keeps: on disk over a restart of Home Assistant, in memory while its entry is reloaded. An answer that
is being spoken goes on through a reload, and is neither told a second time nor written over what came after it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from homeassistant.config_entries import ConfigEntry
from homeassistant.core import HomeAssistant
from homeassistant.helpers.storage import Store

from .const import DOMAIN
from .talks import Talks

_STORE_VERSION = 1
_SAVE_DELAY_S = 2.0


@dataclass
class Kept:
    """Open it with `open`. `followers`: who tells the rest of a run later, by run. `spoken`: runs whose answers are
    being spoken. `cancelled`: when a person last cancelled an answer, by talk. Once `removed`, nothing is
    written any more."""

    store: Store[dict[str, Any]]
    talks: Talks
    followers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    spoken: set[str] = field(default_factory=set)
    cancelled: dict[str, float] = field(default_factory=dict)
    removed: bool = False

    @classmethod
    async def open(cls, hass: HomeAssistant, entry: ConfigEntry[Any]) -> Kept:
        opened: dict[str, Kept] = hass.data.setdefault(DOMAIN, {})
        if entry.entry_id not in opened:
            store: Store[dict[str, Any]] = Store(hass, _STORE_VERSION, f"{DOMAIN}.{entry.entry_id}", private=True)
            opened[entry.entry_id] = cls(store, Talks.from_dict(await store.async_load() or {}))
        return opened[entry.entry_id]

    async def save(self) -> None:
        """Whoever opens the entry next finds all of it."""
        if not self.removed:
            await self.store.async_save(self.talks.as_dict())

    def save_soon(self) -> None:
        if not self.removed:
            self.store.async_delay_save(self.talks.as_dict, _SAVE_DELAY_S)

    async def remove(self, hass: HomeAssistant, entry: ConfigEntry[Any]) -> None:
        self.removed = True
        hass.data[DOMAIN].pop(entry.entry_id, None)
        await self.store.async_remove()
