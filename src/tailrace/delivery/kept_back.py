"""Answers that a platform takes once the person has written again: kept in the journal until then.

WhatsApp takes none more than a day after the person's last message, and says so at once or later.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from tailrace.delivery.port import Place
from tailrace.errors import CorruptLog
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Value
from tailrace.ports import Journal

log = logging.getLogger("tailrace.delivery")
KEPT_BACK: Final = "This could not be sent before you wrote again:"  # above what is sent then
NAMESPACE: Final = "chats.kept_back"
MAX_KEPT = 20  # answers of one place; the oldest are left out first: they are in the conversation


class KeptDeliveries(Value):
    deliveries: tuple[str, ...] = ()


class KeptBack:
    """Those of one account, by place."""

    def __init__(self, journal: Journal, account: str) -> None:
        self._kept = KeyValues(journal, NAMESPACE, KeptDeliveries)
        self._prefix = f"{account} "

    async def add(self, place: Place, delivery: str) -> None:
        """Raises `JournalError`."""

        def added(kept: KeptDeliveries | None) -> KeptDeliveries:
            others = [one for one in (kept or KeptDeliveries()).deliveries if one != delivery]
            return KeptDeliveries((*others, delivery)[-MAX_KEPT:])

        await self.of(place)  # one that cannot be read makes room
        await self._kept.update(self._prefix + place.key, added)

    async def of(self, place: Place) -> tuple[str, ...]:
        """The deliveries, the oldest first. Raises `JournalError`."""
        key = self._prefix + place.key
        try:
            return (await self._kept.get(key) or KeptDeliveries()).deliveries
        except CorruptLog as exc:  # the person has written something, and that is answered all the same
            log.error("%s; it is moved to %s.unreadable", exc, NAMESPACE)  # noqa: TRY400
            await self._kept.set_aside(key)
            return ()

    async def remove(self, place: Place, deliveries: Collection[str]) -> None:
        """Raises `JournalError`."""

        def left(kept: KeptDeliveries | None) -> KeptDeliveries | None:
            others = tuple(one for one in (kept or KeptDeliveries()).deliveries if one not in deliveries)
            return KeptDeliveries(others) if others else None

        await self._kept.update(self._prefix + place.key, left)


async def is_kept_back(journal: Journal, delivery: str) -> bool:
    """Whether the answer is sent when the person writes again. Raises `JournalError`."""
    kept, _ = await KeyValues(journal, NAMESPACE, KeptDeliveries).readable()
    return any(delivery in value.deliveries for value in kept.values())
