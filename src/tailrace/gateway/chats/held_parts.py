"""Parts of messages that are not whole yet, kept in the journal until the whole is asked (G89).

The platform was told that each of them was taken and delivers none again: without this a process that is killed while
it waits for the next part would lose those before it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from tailrace.delivery.port import MessageReceived
from tailrace.errors import CorruptLog
from tailrace.gateway.inbound import PASTE_GAP_S, part_ids
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Value
from tailrace.ports import Journal

log = logging.getLogger("tailrace.gateway")
NAMESPACE = "chats.held"


class Joined(Value):
    """What was forwarded after a comment, and is one question with it: `update_id` is of the former."""

    update_id: str
    follows: str  # the run before that of the comment alone; empty: there is none


class HeldPart(Value):
    owner: str  # the process that waits for the next part
    at: float  # wall clock; parts are joined in this order
    message: MessageReceived
    joined: Joined | None = None


class FailedParts:
    """What could not be asked in one look at the parts: those that follow it may be of the same message, and are not
    asked without it."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, str], float] = {}  # of the newest, by place and sender

    def add(self, part: HeldPart) -> None:
        self._at[part.message.place.key, part.message.sender.id] = part.at

    def holds_up(self, part: HeldPart) -> bool:
        failed_at = self._at.get((part.message.place.key, part.message.sender.id))
        if failed_at is None or part.at > failed_at + PASTE_GAP_S:
            return False
        self.add(part)
        return True


class HeldParts:
    """Those of one account, by the update that brought them."""

    def __init__(self, journal: Journal, account: str, owner: str) -> None:
        self._parts = KeyValues(journal, NAMESPACE, HeldPart)
        self._prefix = f"{account} "
        self._owner = owner
        self._waiting: set[str] = set()  # updates whose parts this process holds in memory too
        self._last_at = 0.0
        self._unreadable: set[str] = set()  # keys whose values the log has named

    async def keep(self, update_id: str, message: MessageReceived, joined: Joined | None) -> HeldPart:
        """`message` is what the update brought, below the comment that it was joined with. Returns what is kept: where
        a process that was killed has joined the same update with a comment, that, since the comment does not come
        again."""
        self._last_at = max(time.time(), self._last_at + 1e-6)
        part = HeldPart(self._owner, self._last_at, message, joined)
        self._waiting.add(update_id)
        try:
            return await self._put(self._prefix + update_id, part)
        except BaseException:
            self._waiting.discard(update_id)
            raise

    async def _put(self, key: str, part: HeldPart) -> HeldPart:
        def change(before: HeldPart | None) -> HeldPart:
            if before is None or before.joined is None or part.joined is not None:
                return part
            return replace(before, owner=self._owner)

        try:
            kept = await self._parts.update(key, change)
        except CorruptLog as exc:  # of the same update, which has come again
            log.error("%s; it is moved to %s.unreadable", exc, NAMESPACE)  # noqa: TRY400
            await self._parts.set_aside(key)
            kept = await self._parts.update(key, change)
        return kept or part

    async def release(self, whole: MessageReceived) -> None:
        """The whole was asked. Its first part goes last: the whole has its id, so what a process that is killed leaves
        here is the same run."""
        for update_id in reversed(self.let_go(whole)):
            await self.drop(update_id)

    def let_go(self, whole: MessageReceived) -> list[str]:
        """The whole is no longer waited with, and could not be asked: its kept parts are `left` from now on."""
        kept = [update_id for update_id in part_ids(whole) if update_id in self._waiting]
        self._waiting.difference_update(kept)
        return kept

    async def drop(self, update_id: str) -> None:
        await self._parts.update(self._prefix + update_id, lambda _: None)

    def waits(self, update_id: str) -> bool:
        return update_id in self._waiting

    async def left(self, is_gone: Callable[[str], Awaitable[bool]]) -> dict[str, HeldPart]:
        """The parts that no process waits with any more, by their updates, in the order in which they came. One that
        cannot be read stays where it is: another version of Tailrace may have written it."""
        values, unreadable = await self._parts.readable()
        for key in sorted(unreadable.keys() - self._unreadable):
            if key.startswith(self._prefix):
                log.error("%s; the part of a message that it holds is not asked", unreadable[key])
        self._unreadable = set(unreadable)
        parts = {key: part for key, part in values.items() if key.startswith(self._prefix)}
        owners = {part.owner for part in parts.values()} - {self._owner}
        gone = {self._owner} | {owner for owner in owners if await is_gone(owner)}
        found = {key.removeprefix(self._prefix): part for key, part in parts.items() if part.owner in gone}
        in_order = sorted(found.items(), key=lambda item: item[1].at)
        return {update_id: part for update_id, part in in_order if update_id not in self._waiting}
