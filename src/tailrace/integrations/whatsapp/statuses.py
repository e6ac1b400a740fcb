"""What WhatsApp has told the webhook of messages: the only way to learn what became of a send without a reply (G80).

Each message carries its key, and WhatsApp repeats it in every status of that message. Knows no HTTP. What it heard is
this process's alone: a status that another process was called with is not known here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeAlias

from tailrace.delivery.port import Refused, Sent

MAX_REMEMBERED = 4096  # messages; the oldest are forgotten first

Outcome: TypeAlias = Sent | Refused


class MessagesTold:
    """What became of the messages that WhatsApp has told of, by their keys."""

    def __init__(self, *, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self._awaited: dict[str, asyncio.Event] = {}

    @property
    def has_any(self) -> bool:
        """Whether statuses come to this process at all."""
        return bool(self._outcomes)

    def is_awaited(self, key: str) -> bool:
        """Whether the send of this message is still to be settled."""
        return key in self._awaited

    def add(self, told: Iterable[tuple[str, Outcome]]) -> None:
        """`told`: keys, each with what became of its message. Calls overtake each other: a failure is the last word."""
        for key, outcome in told:
            if not isinstance(self._outcomes.get(key), Refused):
                self._outcomes[key] = outcome
            self._outcomes.move_to_end(key)
            if len(self._outcomes) > self._limit:
                self._outcomes.popitem(last=False)
            if key in self._awaited:
                self._awaited[key].set()

    async def outcome_of(self, key: str, *, within_s: float) -> Outcome | None:
        """What became of the message with this key, as soon as WhatsApp tells of it; None when it does not in time."""
        if key not in self._outcomes:
            self._awaited[key] = asyncio.Event()
            try:
                async with asyncio.timeout(within_s):
                    await self._awaited[key].wait()
            except TimeoutError:
                pass
            finally:
                del self._awaited[key]
        return self._outcomes.get(key)
