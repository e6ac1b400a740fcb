"""Runs that ended in memory, on their way to storage: several at once, and off their callers' way.

The first after a pause is stored at once. What ends within `INTERVAL_S` of it is stored together with it: a hand-over
to the writer costs more than the write. A run that somebody waits for is never held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from tailrace.errors import JournalError
from tailrace.events import Entry
from tailrace.journal.stored.commit_times import Times
from tailrace.ports import Run

INTERVAL_S: Final = 0.05


class EndedRun(msgspec.Struct, frozen=True):
    """All of a run that has ended."""

    run: Run
    entries: Sequence[Entry]
    times: Times


Recorded: TypeAlias = Callable[[JournalError | None], None]
RecordRuns: TypeAlias = Callable[[Sequence[EndedRun]], Awaitable[Sequence[JournalError | None]]]
"""Stores these runs; returns why each of them was not stored, None where it was."""


class EndedRuns:
    """The queue."""

    def __init__(self, record: RecordRuns) -> None:
        self._record = record
        self._waiting: list[tuple[EndedRun, Recorded]] = []
        self._not_before = 0.0  # the loop's clock: when the next group may go
        self._timer: asyncio.TimerHandle | None = None
        self._sent_soon = False  # in this tick of the loop
        self._storing: set[asyncio.Task[None]] = set()

    def add(self, ended: EndedRun, then: Recorded, *, at_once: bool) -> None:
        """Stores the run soon, and then calls `then`, which must not raise. `at_once`: somebody waits for it."""
        self._waiting.append((ended, then))
        if self._sent_soon or (self._timer is not None and not at_once):
            return
        loop = asyncio.get_running_loop()
        if at_once or loop.time() >= self._not_before:
            self._sent_soon = True
            loop.call_soon(self._send)
        else:
            self._timer = loop.call_at(self._not_before, self._send)

    def _send(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sent_soon = False
        self._not_before = loop.time() + INTERVAL_S
        group, self._waiting = self._waiting, []
        if group:
            task = loop.create_task(self._store(group))
            self._storing.add(task)
            task.add_done_callback(self._storing.discard)

    async def _store(self, group: Sequence[tuple[EndedRun, Recorded]]) -> None:
        errors: Sequence[JournalError | None]
        try:
            errors = await self._record([ended for ended, _ in group])
        except JournalError as error:
            errors = [error] * len(group)
        except Exception as exc:  # noqa: BLE001 - each run's caller is told; the queue must go on
            errors = [JournalError(f"ended runs could not be stored: {exc!r}")] * len(group)
        for (_, then), why in zip(group, errors, strict=True):
            then(why)

    async def flush(self) -> None:
        """Returns when everything added is stored, or could not be. For readers: a run that has ended is on record."""
        if self._waiting:
            self._send()
        if self._storing:
            await asyncio.wait(self._storing)
