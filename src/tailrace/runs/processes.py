"""The processes that stay and share one journal: each shows by a heartbeat that it lives, and sees which others do.

A heartbeat is a number in the journal's small state that keeps changing. Clocks of machines differ, so no time is
stored: a process counts as gone when its heartbeat has not changed for `lease_s` by the watcher's own monotonic clock,
or when the journal knows that it is dead. One whose own heartbeat is that old must expect to have been replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from types import TracebackType
from typing import Self

import msgspec

from tailrace.errors import JournalError
from tailrace.journal.key_values import KeyValues
from tailrace.journal.storage_wait import warning_level
from tailrace.messages import Value
from tailrace.ports import Journal, Run
from tailrace.runs.lease import LEASE_S, RENEWALS_PER_LEASE

log = logging.getLogger("tailrace.runs")
FORGOTTEN_AFTER_LEASES = 30  # a process that has been gone for so long is removed
HEARTBEATS = "processes.heartbeats"
HANDED_OVER = ("processes.handed_over", "newest")


class Heartbeat(Value):
    """What the small state has of a process, by its owner's name."""

    beat: int = 0
    process: str = ""  # `Journal.process`
    serves: tuple[str, ...] = ()  # the accounts of chat platforms that it can poll
    leaving: bool = False  # it is about to end: it goes on with nothing
    group: str = ""  # the processes that one parent has started, and ends together


class _Seen(msgspec.Struct):
    heartbeat: Heartbeat
    since: float  # when it was first seen like this, on the loop's clock


class Processes:
    """This process among the others. Use it as an async context manager, as often as needed: the heartbeat goes on
    until the last block is left."""

    def __init__(self, journal: Journal, owner: str, *, lease_s: float = LEASE_S) -> None:
        self.owner = owner
        self.interval_s = lease_s / RENEWALS_PER_LEASE
        self.lapses = 0  # how often others may have taken this process for dead
        self._journal = journal
        self._lease_s = lease_s
        self._heartbeats = KeyValues(journal, HEARTBEATS, Heartbeat)
        self._own = Heartbeat(process=journal.process)
        self._written: Heartbeat | None = None  # what the journal has of this process, where that is certain
        self._beat_at: float | None = None  # just before the newest heartbeat was written
        self._seen: dict[str, _Seen] = {}  # the others
        self._users = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._ends_with_group = False
        self._hand_over = asyncio.Event()  # replaced at each one
        self.hand_overs = 0  # announcements received

    # ── this process ─────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        self._users += 1
        if self._users == 1:
            with self._logged():
                await self._beat()
                await self.look()
            self._tasks = [asyncio.create_task(self._keep_beating()), asyncio.create_task(self._listen())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if self._users:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._beat_at = self._written = None
        with self._logged():
            await self._heartbeats.update(self.owner, lambda _: None)

    @property
    def entered(self) -> bool:
        return self._users > 0

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        """Storage may be back before others take this process for dead."""
        try:
            yield
        except JournalError as exc:
            log.log(warning_level(exc), "the heartbeat of this process was not written: %s", exc)
        except Exception:
            log.exception("the heartbeat of this process was not written")

    @property
    def is_current(self) -> bool:
        """Whether no other process can take this one for dead."""
        return self._beat_at is not None and _now() - self._beat_at < self._lease_s

    def join_group(self, group: str) -> None:
        """Announces that this process was started together with others. To be called before the first heartbeat."""
        self._own = msgspec.structs.replace(self._own, group=group)

    def end_with_group(self) -> None:
        """From now on no process of the same group counts as a successor: it ends too."""
        self._ends_with_group = True

    async def serve(self, account: str) -> None:
        """Announces that this process can poll an account of a chat platform."""
        await self._change(serves=(*self._own.serves, account))

    async def leave(self) -> None:
        """Announces that this process is about to end: no run is handed over to it any more. It still counts as
        living."""
        await self._change(leaving=True)

    async def _change(self, **fields: object) -> None:
        self._own = msgspec.structs.replace(self._own, **fields)
        await self._beat()

    async def _beat(self) -> None:
        began = _now()
        self._own = own = msgspec.structs.replace(self._own, beat=self._own.beat + 1)
        written, self._written = self._written, None
        if written is None or not await self._heartbeats.replace(written, self.owner, own):
            await self._heartbeats.update(self.owner, lambda _: own)
        self._written = own
        if self._beat_at is not None and began - self._beat_at >= self._lease_s:
            self.lapses += 1
        self._beat_at = began

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(self.interval_s)
            with self._logged():
                await self._beat()
                await self.look()

    # ── the others ───────────────────────────────────────────────────────────────────────────────────────────

    async def look(self) -> None:
        """Reads the heartbeats of the others. Those that ended long ago are removed."""
        found = await self._heartbeats.all()
        found.pop(self.owner, None)
        for owner in self._seen.keys() - found.keys():
            del self._seen[owner]
        for owner, heartbeat in found.items():
            self._note(owner, heartbeat)
            if _now() - self._seen[owner].since > self._lease_s * FORGOTTEN_AFTER_LEASES:
                await self._heartbeats.update(owner, lambda now, old=heartbeat: None if now == old else now)  # type: ignore[misc]

    def _note(self, owner: str, heartbeat: Heartbeat) -> None:
        seen = self._seen.get(owner)
        if seen is None or seen.heartbeat != heartbeat:
            self._seen[owner] = _Seen(heartbeat, _now())

    async def is_gone(self, owner: str) -> bool:
        """Whether another process has ended, is dead, or has hung for longer than a lease."""
        heartbeat = await self._heartbeats.get(owner)
        if heartbeat is None:
            return True  # it has ended in order, or was removed
        self._note(owner, heartbeat)
        return not self._lives(owner)

    def _lives(self, owner: str) -> bool:
        seen = self._seen[owner]
        return _now() - seen.since < self._lease_s and not self._journal.is_dead(seen.heartbeat.process)

    @property
    def living(self) -> dict[str, Heartbeat]:
        """This process, and the others that live as far as it knows, by their owners."""
        return {self.owner: self._own} | {
            owner: seen.heartbeat for owner, seen in self._seen.items() if self._lives(owner)
        }

    def successors(self, serving: str = "") -> Sequence[str]:
        """The other processes that would go on with runs of this one; with `serving` those that can poll this account,
        too."""
        return [
            owner
            for owner, seen in self._seen.items()
            if self._lives(owner)
            and not seen.heartbeat.leaving
            and not (self._ends_with_group and seen.heartbeat.group == self._own.group)
            and (not serving or serving in seen.heartbeat.serves)
        ]

    def is_next(self, run_id: str) -> bool:
        """Whether it is this process that goes on with the run. All processes that see the same others agree, and each
        gets about the same share of runs."""
        if self._own.leaving:
            return False
        return max((self.owner, *self.successors()), key=lambda owner: _rank(owner, run_id)) == self.owner

    # ── runs that are handed over ────────────────────────────────────────────────────────────────────────────

    async def announce_hand_over(self) -> None:
        """Runs were released, or await a process that can execute them: the others look for them at once."""
        namespace, key = HANDED_OVER
        await KeyValues(self._journal, namespace, str).update(key, lambda _: secrets.token_hex(8))

    async def wait_for_hand_over(self, timeout_s: float, *, received: int) -> None:
        """Returns when more hand-overs were announced than `received`, or after so long."""
        if self.hand_overs > received:
            return
        event = self._hand_over
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()

    async def _listen(self) -> None:
        known: bytes | None = None
        while True:
            try:
                known = await self._journal.next_value(*HANDED_OVER, known)
                await self.look()  # the process that hands over has announced its end
            except Exception as exc:  # noqa: BLE001 - without it runs are found a little later
                log.log(warning_level(exc), "hand-overs of other processes are not received: %s", exc)
                await asyncio.sleep(self.interval_s)
            self.hand_overs += 1
            event, self._hand_over = self._hand_over, asyncio.Event()
            event.set()


class RunShare:
    """Which abandoned runs this process goes on with, in one look after the other. A run that it has left to another
    process for longer than `patience_s` is free for all."""

    def __init__(self, processes: Processes, *, patience_s: float) -> None:
        self._processes = processes
        self._patience_s = patience_s
        self._before: dict[str, float] = {}  # runs of the last look that were left to others, and since when
        self._left: dict[str, float] = {}  # of this one

    def begin_look(self) -> None:
        self._before, self._left = self._left, {}

    def has(self, run: Run) -> bool:
        left_at = self._before.get(run.id, _now())
        if self._processes.is_next(run.id) or _now() - left_at >= self._patience_s:
            return True
        self._left[run.id] = left_at
        return False


def _rank(owner: str, run_id: str) -> bytes:
    """Rendezvous hashing: a process that comes or goes changes only its own share."""
    return blake2b(f"{owner}\0{run_id}".encode(), digest_size=8).digest()


def _now() -> float:
    return asyncio.get_running_loop().time()
