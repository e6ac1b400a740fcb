"""The live tail: the newest entries of one run, and the viewers that wait for the next.

Owns waking and sharing, nothing else. The journal publishes committed entries to it; it never reads storage itself.
There is one `Tail` per run for any number of viewers. A viewer is a cursor: no queue, no task, no copy. One that has
everything is handed what is committed by a call, without waking a task (decision 21).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from tailrace.errors import CursorAhead, JournalError, RunNotFound
from tailrace.events import AnyEvent, Entry, RunFinished
from tailrace.journal.waiters import Waiters
from tailrace.ports import Batch, LogPage

WINDOW_ENTRIES = 64  # kept for viewers that are nearly up to date; the others read from storage
LONG_BYTES = 4096  # a batch counts in a window once more for each so many stored bytes
PAGE_ENTRIES = 1024  # the most that a viewer far behind is given at a time
PAGE_LINES = 256  # the same for a viewer of entries as they are stored
PAGE_BYTES = 64 * 1024
AT_ONCE = 100  # live viewers that are offered a batch in one tick of the loop
PAUSE_S = 20e-6  # for each of more viewers, between two rounds: about twice what the socket of one takes
MAX_PAUSE_S = 0.025  # a delay that no person notices

NOTHING = Batch()


class LiveViewers:
    """The viewers of one run that have everything up to their cursors, and when they are offered what is published.

    Up to `AT_ONCE` viewers have it in the tick of the commit. More have it in rounds: `AT_ONCE` in each tick, and then
    a pause, in which what is published is held for the next round. Its length depends on the number of viewers alone,
    so that every machine offers the same pieces. 1,000 viewers, against a callback per 100 viewers: -70 % CPU per
    viewer and token at 200 tokens/s (0.7 in place of 2.3 µs), -45 % at 100/s; a timer beside it is 4 ms late (p99) in
    place of 12 (`python -m bench fast_paths`).
    """

    __slots__ = ("_held", "_held_bytes", "_held_entries", "_next", "_not_before", "_viewers")

    def __init__(self) -> None:
        self._viewers: dict[Viewer[Any], None] = {}  # in the order in which they came
        self._held: list[Batch] = []  # each follows upon the one before
        self._held_entries = self._held_bytes = 0
        self._next: asyncio.Handle | None = None  # the next tick of a round, or the next round
        self._not_before = 0.0  # the next round

    def add(self, viewer: Viewer[Any]) -> None:
        """It has all that is published so far, also what is held for the others."""
        self._viewers[viewer] = None

    def remove(self, viewer: Viewer[Any]) -> None:
        self._viewers.pop(viewer, None)
        if self._next is not None and not self._viewers:
            self._end_rounds()  # the next viewer may be on another loop

    def resync(self) -> None:
        """Every viewer reads the tail again, which has what is held too."""
        if self._next is not None or self._held:
            self._end_rounds()
        for viewer in (*self._viewers,):
            viewer.resync()

    def offer(self, batch: Batch) -> None:
        """The batch follows upon the one before, unless `resync` was called in between."""
        if self._next is None:
            if len(self._viewers) <= AT_ONCE:
                _offer((*self._viewers,), batch)
                return
            loop = asyncio.get_running_loop()
            if loop.time() >= self._not_before:
                self._offer_part(batch, (*self._viewers,), 0)
                return
            self._next = loop.call_at(self._not_before, self._begin_round)
        self._held.append(batch)
        self._held_entries += len(batch)
        self._held_bytes += batch.stored_bytes
        if not _is_page(self._held_entries, self._held_bytes):
            self.resync()  # too long to hand over: they read it page by page

    def _begin_round(self) -> None:
        self._next, batch = None, _joined(self._held)
        self._drop_held()
        self._offer_part(batch, (*self._viewers,), 0)

    def _offer_part(self, batch: Batch, viewers: tuple[Viewer[Any], ...], start: int) -> None:
        end = start + AT_ONCE
        self._next, loop = None, asyncio.get_running_loop()
        _offer(viewers[start:end], batch)
        if end < len(viewers):
            self._next = loop.call_soon(self._offer_part, batch, viewers, end)
            return
        self._not_before = loop.time() + min(MAX_PAUSE_S, len(viewers) * PAUSE_S)
        if self._held:
            self._next = loop.call_at(self._not_before, self._begin_round)

    def _end_rounds(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._drop_held()

    def _drop_held(self) -> None:
        self._held, self._held_entries, self._held_bytes = [], 0, 0


def _offer(viewers: Iterable[Viewer[Any]], batch: Batch) -> None:
    """A viewer that came while the batch was held has its beginning already, or all of it. No call but that of `take`
    for each viewer: -20 % CPU of the interpreter per viewer and token (`python -m bench fanout`)."""
    after, last, kind = batch[0].seq - 1, batch[-1].seq, batch[-1].event.__class__
    rests: dict[int, Batch] = {}
    class_before: type[Viewer[Any]] | None = None
    whole: Batch | LogPage | None = None  # the batch, as viewers of that class are given it
    for viewer in viewers:
        take, cursor, page = viewer.take, viewer.cursor, None
        if cursor >= last:
            continue
        if take is not None and kind not in viewer.excepted and cursor >= after:
            if cursor == after:
                if viewer.__class__ is not class_before:
                    class_before, whole = viewer.__class__, viewer.given(batch)
                page = whole
            else:
                rest = rests.get(cursor) or rests.setdefault(cursor, _cut((batch,), batch[cursor - after :]))
                page = viewer.given(rest)
        try:
            if page is not None and take is not None and take(page):
                viewer.cursor = last
            else:
                viewer.resync()
        except Exception as exc:  # noqa: BLE001 - the viewer's own, raised where it waits
            viewer.fail(exc)


def _joined(batches: Sequence[Batch]) -> Batch:
    """Keeps what their commits have encoded: some viewers need nothing else."""
    if len(batches) == 1:
        return batches[0]
    joined = _cut(batches, [entry for batch in batches for entry in batch])
    if all(batch.stored for batch in batches):
        joined.stored = b"\n".join([batch.stored.removesuffix(b"\n") for batch in batches])  # a bus may end none
    return joined


def _cut(batches: Sequence[Batch], entries: Sequence[Entry]) -> Batch:
    """The entries at the end of these batches. What is encoded there is not encoded again."""
    cut = Batch(entries)
    cut.sources = tuple(batches)
    return cut


def _weight(batch: Batch) -> int:
    return len(batch) + (len(batch.stored) + batch.unjoined_bytes) // LONG_BYTES


def _is_page(entries: int, stored_bytes: int) -> bool:
    return entries == 1 or (entries <= PAGE_LINES and stored_bytes <= PAGE_BYTES)


class Tail(Waiters):
    """The committed entries of one run. `last_seq` grows by `publish` and `skip_to`."""

    __slots__ = (
        *("_batches", "_kept", "_shared", "_window"),
        *("closed", "ended", "failure", "last_seq", "live", "unreadable"),
    )

    def __init__(
        self, first: Batch = NOTHING, *, last_seq: int = 0, ended: bool = False, window: int | None = WINDOW_ENTRIES
    ) -> None:
        super().__init__()
        self.last_seq = first[-1].seq if first else last_seq
        self.ended = ended  # no entry will follow `last_seq`
        self.closed = False  # the journal is closed: no viewer will be woken again
        self.failure: JournalError | None = None  # why no entry follows for now: they cannot be written
        self.unreadable: JournalError | None = None  # why what another process has written cannot be read
        self._window = window  # None keeps everything
        self._batches = [first] if first else []
        self._kept = len(first)
        self._shared: tuple[int, Batch] = (0, NOTHING)  # the newest joined batch and the cursor it was made for
        self.live = LiveViewers()

    def wake(self) -> None:
        """Every viewer reads the state again."""
        super().wake()
        self.live.resync()

    def publish(self, batch: Batch) -> None:
        """Adds committed entries and wakes the viewers. Entries that it has already are not added again; where entries
        in between are missing, viewers read them from storage."""
        if batch[0].seq != self.last_seq + 1:
            if batch[-1].seq <= self.last_seq:
                return
            if batch[0].seq > self.last_seq:
                self.forget()
                self.live.resync()
            else:
                batch = Batch(batch[self.last_seq + 1 - batch[0].seq :])
        last = batch[-1]
        self.last_seq = last.seq
        self.ended = last.event.__class__ is RunFinished
        self.failure = None
        self._batches.append(batch)
        self._kept += _weight(batch)
        if self._window is not None and self._kept > 2 * self._window:
            self._shrink(self._window)
        self.live.offer(batch)
        if self.ended:
            self.wake()
        elif self.event is not None:
            super().wake()

    def _shrink(self, window: int) -> None:
        drop = 0
        while self._kept > window and drop < len(self._batches) - 1:
            self._kept -= _weight(self._batches[drop])
            drop += 1
        del self._batches[:drop]
        if self._kept > 8 * window:
            self.forget()  # one text of megabytes: not also held in memory after it was offered

    def close(self) -> None:
        self.closed = True
        self.wake()

    def fail(self, error: JournalError) -> None:
        """Raises the error in viewers that have everything, until `skip_to` or the next entry."""
        self.failure = error
        self.wake()

    def forget(self) -> None:
        """Drops the entries and keeps `last_seq`: viewers read them from storage from here on."""
        self._batches, self._kept, self._shared = [], 0, (0, NOTHING)

    def skip_to(self, seq: int) -> None:
        """Entries up to `seq` were committed by another process: viewers read them from storage. A failure is over."""
        self.failure = None
        if seq > self.last_seq:
            self.forget()
            self.last_seq = seq
            self.wake()

    def entries(self) -> list[Entry]:
        """All that it has."""
        return [entry for batch in self._batches for entry in batch]

    def entries_after(self, after: int) -> Batch | None:
        """The entries after this cursor, at most a page; None where the tail no longer has them all."""
        if after >= self.last_seq:
            return NOTHING
        batches = self._batches
        if not batches or batches[0][0].seq > after + 1:
            return None
        if batches[-1][0].seq == after + 1:
            return batches[-1]
        cursor, shared = self._shared
        if cursor == after and shared and shared[-1].seq == self.last_seq:
            return shared
        joined = self._join(after)
        self._shared = (after, joined)
        return joined

    def _join(self, after: int) -> Batch:
        start = bisect_right(self._batches, after + 1, key=lambda batch: batch[0].seq) - 1
        head = self._batches[start]
        entries, end = list(head[after + 1 - head[0].seq :]), start + 1
        while len(entries) < PAGE_ENTRIES and end < len(self._batches):
            entries += self._batches[end]
            end += 1
        return _cut(self._batches[start:end], entries)


class Source(Protocol):
    """The journal, as a viewer needs it."""

    async def attach(self, run_id: str) -> Tail:
        """The one tail of this run. Raises `RunNotFound`."""

    async def last_seq(self, run_id: str) -> int:
        """The newest entry in storage. The tail of the run gets it soon, if it has not yet."""

    async def page(self, run_id: str, after: int) -> Batch:
        """Entries from storage for a cursor that the tail no longer covers."""

    async def stored_page(self, run_id: str, after: int) -> LogPage:
        """The same as they are stored: at most `PAGE_LINES` and, but for one entry, `PAGE_BYTES`. It ends where a
        multiple of `PAGE_LINES` does, so that viewers that began at different places come to share their pages."""

    async def snapshot(self, run_id: str) -> Entry:
        """The folded state now."""


P = TypeVar("P", Batch, LogPage)


class Viewer(ABC, Generic[P]):
    """A cursor in one run. Cancelling a wait does not move it: the next one goes on from the same place."""

    __slots__ = ("_over", "_run_id", "_snapshot", "_source", "_tail", "cursor", "excepted", "take")

    def __init__(self, source: Source, run_id: str, after: int, *, snapshot: bool) -> None:
        self._source = source
        self._run_id = run_id
        self._snapshot = snapshot
        self._tail: Tail | None = None
        self.take: Callable[[P], bool] | None = None  # while the viewer is live
        self.excepted: Collection[type[AnyEvent]] = ()  # events that end `follow`
        self._over: asyncio.Future[None] | None = None  # set when it no longer is
        self.cursor = after

    @abstractmethod
    def given(self, batch: Batch) -> P | None:
        """A batch of the tail as the viewer is given it; None where it takes a page from storage instead."""

    @abstractmethod
    async def _from_storage(self) -> P: ...

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> P:
        if self._tail is None:
            self._tail = await self._attach()
        page: P | None = None
        if self._snapshot:
            page = self.given(Batch((await self._source.snapshot(self._run_id),)))
            self._snapshot = False
        while not page:
            page = await self._next(self._tail)
        self.cursor = page[-1].seq
        return page

    async def follow(self, take: Callable[[P], bool], *, except_for: Collection[type[AnyEvent]] = ()) -> None:
        """See `ports.LogViewer`."""
        tail = self._tail
        if tail is None or self.cursor != tail.last_seq or tail.ended or tail.closed or tail.failure or tail.unreadable:
            return
        self.take, self.excepted, self._over = take, except_for, asyncio.get_running_loop().create_future()
        tail.live.add(self)
        try:
            await self._over
        finally:
            tail.live.remove(self)
            self.take = self._over = None

    def fail(self, error: Exception) -> None:
        """`take` has raised this error: the viewer is no longer live."""
        self.take = None
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    def resync(self) -> None:
        """Something else than a batch has come: a failure, the end, entries that are in storage alone."""
        self.take = None
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def _attach(self) -> Tail:
        """The run's tail. It gets a commit a little later than storage, so a cursor that was read from storage may be
        ahead of the tail; only a cursor ahead of storage names no entry."""
        tail = await self._source.attach(self._run_id)
        if self.cursor > tail.last_seq and not self._snapshot:
            stored = await self._source.last_seq(self._run_id)
            if self.cursor > stored:
                raise CursorAhead(f"run {self._run_id} has {stored} entries; the cursor says {self.cursor}")
        return tail

    async def _next(self, tail: Tail) -> P | None:
        """The next entries; None where they have only just arrived."""
        batch = tail.entries_after(self.cursor)
        if batch is not None and not batch:
            if tail.ended or tail.closed:
                raise StopAsyncIteration
            if (failure := tail.failure or tail.unreadable) is not None:
                raise failure
            await tail.next_time().wait()
            return None
        page = self.given(batch) if batch is not None else None
        if page is None and not (page := await self._from_storage()):
            raise RunNotFound(f"run {self._run_id} was deleted")
        return page


class EntryViewer(Viewer[Batch]):
    """Given decoded entries."""

    __slots__ = ()

    def given(self, batch: Batch) -> Batch:
        return batch

    async def _from_storage(self) -> Batch:
        return await self._source.page(self._run_id, self.cursor)


class PageViewer(Viewer[LogPage]):
    """Given entries as they are stored."""

    __slots__ = ()

    def given(self, batch: Batch) -> LogPage | None:
        return batch.page if len(batch) == 1 or _is_page(len(batch), batch.stored_bytes) else None

    async def _from_storage(self) -> LogPage:
        return await self._source.stored_page(self._run_id, self.cursor)


class ViewedJournal(Source, Protocol):
    """Base of the journals: their viewers."""

    def tail(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> EntryViewer:
        return EntryViewer(self, run_id, after, snapshot=snapshot)

    def tail_pages(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> PageViewer:
        return PageViewer(self, run_id, after, snapshot=snapshot)


def next_page_end(after: int) -> int:
    """The last entry of the page that begins after this one."""
    return (after // PAGE_LINES + 1) * PAGE_LINES
