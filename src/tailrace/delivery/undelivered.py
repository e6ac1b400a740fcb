"""Answers that a platform refused and takes once the person has written again: their deliveries, in the journal.

A platform may refuse every message more than a day after the person's last one, at once or with a later status. The
whole answer is then sent once more, so a part that had arrived may appear twice.
"""

from __future__ import annotations

import logging
from typing import Final

from tailrace.delivery.port import Place
from tailrace.errors import CorruptLog
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Value
from tailrace.ports import Journal

log = logging.getLogger("tailrace.delivery")
SENT_AGAIN: Final = "This could not be sent before you wrote again:"  # stands above the first of them
NAMESPACE: Final = "chats.undelivered"
MAX_UNDELIVERED = 20  # answers of one place; the oldest are dropped first: they are in the conversation


class _Ids(Value):
    deliveries: tuple[str, ...] = ()


class Undelivered:
    """The deliveries of one account that are to be sent again, by place. Every method raises `JournalError`."""

    def __init__(self, journal: Journal, account: str) -> None:
        self._values = KeyValues(journal, NAMESPACE, _Ids)
        self._prefix = f"{account} "

    async def add(self, place: Place, delivery: str) -> None:
        """The ids sort by when the deliveries began; a platform reports lost messages in any order."""
        await self.of(place)  # moves an unreadable value aside
        await self._values.update(
            self._prefix + place.key,
            lambda ids: _Ids(tuple(sorted({*(ids or _Ids()).deliveries, delivery})[-MAX_UNDELIVERED:])),
        )

    async def of(self, place: Place) -> tuple[str, ...]:
        """The oldest first."""
        key = self._prefix + place.key
        try:
            return (await self._values.get(key) or _Ids()).deliveries
        except CorruptLog as exc:  # the person's new message is answered all the same
            log.error("%s; it is moved to %s.unreadable", exc, NAMESPACE)  # noqa: TRY400
            await self._values.set_aside(key)
            return ()

    async def remove(self, place: Place, delivery: str) -> None:
        """It was sent again, or never will be."""

        def left(ids: _Ids | None) -> _Ids | None:
            others = tuple(one for one in (ids or _Ids()).deliveries if one != delivery)
            return _Ids(others) if others else None

        await self._values.update(self._prefix + place.key, left)
