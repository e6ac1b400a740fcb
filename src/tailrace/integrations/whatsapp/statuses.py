"""What WhatsApp has told the webhook of messages: the only way to learn what became of a send without a reply (G80).

Each message carries its key, and WhatsApp repeats it in every status of that message. Knows no HTTP. What it heard is
this process's alone: a status that another process was called with is not known here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from tailrace.delivery.port import Refused, Sent

MAX_REMEMBERED = 4096  # messages; the oldest are forgotten first
SAMPLE = 8  # sends that tell whether statuses come to this process
ENOUGH = 2  # sends that were told of, where nothing was heard since

Outcome: TypeAlias = Sent | Refused


class Heard(NamedTuple):
    """What there was at one moment: the keys of the newest messages that were sent, and how many statuses had come."""

    sent: tuple[str, ...]
    statuses: int


class MessagesTold:
    """What became of the messages that WhatsApp has told of, by their keys."""

    def __init__(self, *, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._outcomes: OrderedDict[str, Outcome] = OrderedDict()
        self._awaited: dict[str, asyncio.Event] = {}
        self._statuses = 0  # that ever came
        self._sent: deque[str] = deque(maxlen=SAMPLE)  # keys of the newest messages that were sent for certain

    def sent(self, key: str) -> None:
        """The message with this key was sent for certain: a status of it is due."""
        self._sent.append(key)

    def is_awaited(self, key: str) -> bool:
        """Whether the send of this message is still to be settled."""
        return key in self._awaited

    def so_far(self) -> Heard:
        return Heard(tuple(self._sent), self._statuses)

    def reach_us(self, since: Heard) -> bool:
        """Whether this process has by now heard of each of the messages that were the newest then: only so does it mean
        something that it hears nothing of one. Where several processes have the webhook, each hears a part, and may by
        chance have heard of a single one."""
        enough = len(since.sent) >= ENOUGH or (len(since.sent) > 0 and self._statuses > since.statuses)
        return enough and all(key in self._outcomes for key in since.sent)

    def add(self, told: Iterable[tuple[str, Outcome]]) -> None:
        """`told`: keys, each with what became of its message. Calls overtake each other: a failure is the last word."""
        for key, outcome in told:
            self._statuses += 1
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
