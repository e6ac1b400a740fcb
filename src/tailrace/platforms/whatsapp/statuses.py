"""Which messages WhatsApp has told the webhook of: the only way to learn what became of a send without a reply (G80).

Each message carries its key, and WhatsApp repeats it in every status of that message. Knows no HTTP. What it heard is
this process's alone: a status that another process was called with is not known here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

MAX_REMEMBERED = 4096  # messages; the oldest are forgotten first
SAMPLE = 8  # sends that tell whether statuses come to this process
ENOUGH = 2  # sends that were told of, where nothing was heard since


class Heard(NamedTuple):
    """What there was at one moment: the keys of the newest messages that were sent, and how many statuses had come."""

    sent: tuple[str, ...]
    statuses: int


class MessagesTold:
    """The ids of the messages that WhatsApp has told of, by their keys."""

    def __init__(self, *, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._ids: OrderedDict[str, str] = OrderedDict()
        self._awaited: dict[str, asyncio.Event] = {}
        self._statuses = 0  # that ever came
        self._sent: deque[str] = deque(maxlen=SAMPLE)  # keys of the newest messages that were sent for certain

    def sent(self, key: str) -> None:
        """The message with this key was sent for certain: a status of it is due."""
        self._sent.append(key)

    def so_far(self) -> Heard:
        return Heard(tuple(self._sent), self._statuses)

    def reach_us(self, since: Heard) -> bool:
        """Whether this process has by now heard of each of the messages that were the newest then: only so does it mean
        something that it hears nothing of one. Where several processes have the webhook, each hears a part, and may by
        chance have heard of a single one."""
        enough = len(since.sent) >= ENOUGH or (len(since.sent) > 0 and self._statuses > since.statuses)
        return enough and all(key in self._ids for key in since.sent)

    def add(self, told: Iterable[tuple[str, str]]) -> None:
        """`told`: keys, each with the id of its message."""
        for key, message_id in told:
            self._statuses += 1
            self._ids[key] = message_id
            self._ids.move_to_end(key)
            if len(self._ids) > self._limit:
                self._ids.popitem(last=False)
            if key in self._awaited:
                self._awaited[key].set()

    async def id_of(self, key: str, *, within_s: float) -> str | None:
        """The id of the message with this key, as soon as WhatsApp tells of it; None when it does not in time."""
        if key not in self._ids:
            self._awaited[key] = asyncio.Event()
            try:
                async with asyncio.timeout(within_s):
                    await self._awaited[key].wait()
            except TimeoutError:
                pass
            finally:
                del self._awaited[key]
        return self._ids.get(key)
