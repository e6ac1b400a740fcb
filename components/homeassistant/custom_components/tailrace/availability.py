"""Whether the server takes work, asked every half minute, and more often while it is away."""

from __future__ import annotations

import logging
from datetime import timedelta

from homeassistant.config_entries import ConfigEntry
from homeassistant.core import HomeAssistant
from homeassistant.exceptions import ConfigEntryAuthFailed
from homeassistant.helpers.update_coordinator import DataUpdateCoordinator, UpdateFailed

from .client import KeyMayNot, KeyRefused, TailraceClient, TailraceError
from .const import DOMAIN

_USUAL = timedelta(seconds=30)
_AWAY = timedelta(seconds=5)
_LOGGER = logging.getLogger(__name__)


class Availability(DataUpdateCoordinator[None]):
    """A refused key asks the user for another one."""

    def __init__(self, hass: HomeAssistant, entry: ConfigEntry, client: TailraceClient) -> None:
        super().__init__(hass, _LOGGER, config_entry=entry, name=DOMAIN, update_interval=_USUAL)
        self._client = client

    async def _async_update_data(self) -> None:
        try:
            await self._client.ready()
        except (KeyRefused, KeyMayNot) as exc:
            raise ConfigEntryAuthFailed(str(exc)) from exc
        except TailraceError as exc:
            self.update_interval = _AWAY
            raise UpdateFailed(f"the server is not reachable: {exc}") from exc
        self.update_interval = _USUAL

    def failed(self, failure: TailraceError) -> None:
        """A request just failed: nobody has to wait for the next look to see it."""
        self.async_set_update_error(failure)
        if self.config_entry is not None:  # the next look would else be as far away as it was; it also asks for a key
            self.config_entry.async_create_background_task(self.hass, self.async_refresh(), f"{DOMAIN} look")
