"""When the live viewers of a run are offered what is published: few at once, many in rounds with a pause. On a loop
whose clock the tests turn: no machine is too slow for them."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from tailrace.errors import JournalError
from tailrace.events import Entry, MessageChunk, RunFinished, to_json
from tailrace.journal import live_tail
from tailrace.journal.live_tail import (
    AT_ONCE,
    MAX_PAUSE_S,
    PAGE_BYTES,
    PAGE_LINES,
    PAUSE_S,
    EntryViewer,
    PageViewer,
    Tail,
)
from tailrace.journal.viewed_lines import sse_without_reasoning
from tailrace.ports import Batch, LogPage

MANY = 3 * AT_ONCE


class TurnedLoop(asyncio.SelectorEventLoop):
    """Its time goes on when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.failures: list[object] = []
        self.set_exception_handler(lambda _loop, context: self.failures.append(context))

    def time(self) -> float:
        return self.now

    def run_tick(self) -> None:
        self.call_soon(self.stop)
        self.run_forever()

    def run_ready(self) -> None:
        """Tick after tick, as many as it takes to do all that is due now."""
        for _ in range(50):
            self.run_tick()


class Storage:
    """What a viewer asks besides its tail."""

    def __init__(self, tail: Tail, log: list[Entry]) -> None:
        self._tail = tail
        self._log = log
        self.reads = 0

    async def attach(self, _run_id: str) -> Tail:
        return self._tail

    async def last_seq(self, _run_id: str) -> int:
        return self._tail.last_seq

    async def page(self, _run_id: str, after: int) -> Batch:
        return Batch(self._log[after:])

    async def stored_page(self, _run_id: str, after: int) -> LogPage:
        self.reads += 1
        return Batch(self._log[after : after + 20]).page

    async def snapshot(self, _run_id: str) -> Entry:
        raise NotImplementedError


class Watched:
    """One run, its log and those who watch it; `seen` is what each of them was given, by the call and by the
    iteration."""

    def __init__(self, loop: TurnedLoop) -> None:
        self.loop = loop
        self.tail = Tail()
        self.log: list[Entry] = []
        self.storage = Storage(self.tail, self.log)
        self.seen: list[list[int]] = []
        self.pages: list[LogPage] = []
        self.batches: list[Batch] = []
        self.encode: Callable[[Batch], bytes] = lambda _batch: b""  # as its commits encode what they write
        self.refuses: Callable[[int], bool] = lambda _viewer: False
        self.decoding: set[int] = set()  # the viewers that are given decoded entries
        self.tasks: list[asyncio.Task[None]] = []
        self.say("first")

    def say(self, *texts: str) -> None:
        self._publish([Entry(len(self.log) + n, MessageChunk(text)) for n, text in enumerate(texts, 1)])

    def finish(self) -> None:
        self._publish([Entry(len(self.log) + 1, RunFinished("completed", ""))])

    def _publish(self, entries: list[Entry]) -> None:
        """In a tick of its own: what it asks the loop for comes after it."""
        self.log += entries
        batch = Batch(entries)
        batch.stored = self.encode(batch)
        self.loop.call_soon(self.tail.publish, batch)
        self.loop.run_tick()

    def watch(self, viewers: int) -> None:
        self.tasks += [self.loop.create_task(self._watch(len(self.tasks) + n)) for n in range(viewers)]
        self.seen += [[] for _ in range(viewers)]
        self.loop.run_ready()

    async def _watch(self, number: int) -> None:
        kind = EntryViewer if number in self.decoding else PageViewer
        viewer: EntryViewer | PageViewer = kind(self.storage, "run", 0, snapshot=False)
        seen = self.seen[number]

        def take(page: LogPage | Batch) -> bool:
            if self.refuses(number):
                return False
            if isinstance(page, LogPage):
                self.pages.append(page)
            else:
                self.batches.append(page)
            seen.extend(line.seq for line in page)
            return True

        async for page in viewer:
            seen.extend(line.seq for line in page)
            await viewer.follow(take)

    def after(self, seconds: float) -> None:
        self.loop.now += seconds
        self.loop.run_ready()

    def having(self, seq: int) -> int:
        """How many viewers have this entry."""
        return sum(seq in seen for seen in self.seen)

    def end_well(self) -> None:
        """Everyone has everything, once and in order."""
        self.finish()
        self.loop.run_ready()
        assert all(task.done() for task in self.tasks)
        whole = [entry.seq for entry in self.log]
        assert all(seen == whole for seen in self.seen)
        self.after(1.0)  # nothing is left that the loop would do
        assert not self.loop.failures


@pytest.fixture
def watched() -> Iterator[Watched]:
    loop = TurnedLoop()
    watched = Watched(loop)
    yield watched
    for task in watched.tasks:
        task.cancel()
    loop.run_ready()
    loop.close()


def test_few_viewers_have_each_token_in_the_tick_of_its_commit(watched: Watched) -> None:
    watched.watch(AT_ONCE)
    for seq in range(2, 30):
        watched.say("x")  # the clock stands still, and the loop does nothing else
        assert watched.having(seq) == AT_ONCE
    watched.end_well()


def test_a_token_costs_a_further_viewer_the_call_of_its_own_function_alone(watched: Watched) -> None:
    calls: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename == live_tail.__file__:
            calls.append(frame.f_code.co_name)

    counted: list[list[str]] = []
    for viewers in (1, AT_ONCE // 2):
        watched.watch(viewers)
        sys.setprofile(note)
        try:
            watched.say("x")
        finally:
            sys.setprofile(None)
        counted.append(calls[:])
        calls.clear()
    assert watched.having(watched.log[-1].seq) == 1 + AT_ONCE // 2
    assert counted[0] == counted[1] != []
    watched.end_well()


def test_many_viewers_have_a_token_in_a_few_ticks(watched: Watched) -> None:
    watched.watch(MANY)
    watched.say("x")
    assert watched.having(2) == AT_ONCE  # others are served before the rest
    watched.loop.run_ready()
    assert watched.having(2) == MANY
    watched.end_well()


def test_what_comes_in_the_pause_after_a_round_goes_out_in_one_piece(watched: Watched) -> None:
    watched.watch(MANY)
    watched.say("x")
    watched.loop.run_ready()
    watched.pages.clear()
    for _ in range(5):
        watched.say("x")
        watched.after(MANY * PAUSE_S / 6)
        assert not watched.pages
    watched.after(MANY * PAUSE_S / 6)
    assert [[line.seq for line in page] for page in watched.pages] == [[3, 4, 5, 6, 7]] * MANY
    assert len({id(page) for page in watched.pages}) == 1  # made and encoded once
    watched.after(1.0)
    watched.say("x")
    watched.loop.run_ready()
    assert watched.having(8) == MANY  # after a pause a token does not wait
    watched.end_well()


@pytest.mark.parametrize("last_line_end", [b"\n", b"", None], ids=["rows", "messages", "not encoded"])
def test_what_commits_have_encoded_is_encoded_in_one_piece_too(watched: Watched, last_line_end: bytes | None) -> None:
    watched.decoding = set(range(MANY))
    if last_line_end is not None:
        watched.encode = lambda batch: b"\n".join(to_json(entry.event) for entry in batch) + last_line_end
    watched.watch(MANY)
    watched.say("x")
    watched.loop.run_ready()
    watched.batches.clear()
    watched.say("y")
    watched.say("z", "z")
    watched.after(MANY * PAUSE_S)
    assert len(watched.batches) == MANY
    piece = watched.batches[0]
    assert piece.lines == [to_json(entry.event) for entry in watched.log[2:]]
    assert piece.stored.splitlines() == (piece.lines if last_line_end is not None else [])
    watched.end_well()


def test_what_comes_within_a_round_is_in_the_next(watched: Watched) -> None:
    watched.watch(MANY)
    watched.say("x")
    watched.say("y")
    watched.loop.run_ready()
    assert watched.having(2) == MANY
    assert watched.having(3) == 0
    watched.after(MANY * PAUSE_S)
    assert watched.having(3) == MANY
    watched.end_well()


def test_nobody_waits_longer_than_the_longest_pause(watched: Watched) -> None:
    watched.watch(int(2 * MAX_PAUSE_S / PAUSE_S))
    watched.say("x")
    watched.loop.run_ready()
    watched.say("y")
    watched.after(MAX_PAUSE_S)
    assert watched.having(3) == len(watched.seen)


def test_the_end_of_a_run_waits_for_no_pause(watched: Watched) -> None:
    watched.watch(MANY)
    watched.say("x")
    watched.loop.run_ready()
    watched.say("held")
    watched.end_well()
    assert watched.storage.reads == 0


def test_a_failure_is_told_after_what_was_held(watched: Watched) -> None:
    watched.watch(MANY)
    watched.say("x")
    watched.loop.run_ready()
    watched.say("held")
    watched.loop.call_soon(watched.tail.fail, JournalError("no space"))
    watched.loop.run_ready()
    assert watched.having(3) == MANY
    assert {str(task.exception()) for task in watched.tasks} == {"no space"}


def test_a_viewer_that_comes_while_something_is_held_has_nothing_twice(watched: Watched) -> None:
    watched.watch(MANY)
    watched.say("x")
    watched.loop.run_ready()
    watched.say("held")
    watched.watch(2)
    watched.say("held for all")
    watched.pages.clear()
    watched.after(MANY * PAUSE_S)
    assert [line.seq for line in watched.pages[-1]] == [4]
    assert watched.pages[-1] is watched.pages[-2]
    assert watched.pages[-1].framed(sse_without_reasoning) in watched.pages[0].framed(sse_without_reasoning)
    watched.end_well()


def test_nothing_is_held_for_viewers_that_have_all_left(watched: Watched) -> None:
    watched.watch(MANY)
    watched.say("x")
    watched.loop.run_ready()
    watched.say("held")
    for task in watched.tasks:
        task.cancel()
    watched.loop.run_ready()
    watched.watch(1)
    watched.say("for one")  # the clock stands still: as if the loop of the others were closed
    assert watched.seen[-1] == [1, 2, 3, 4]


@pytest.mark.parametrize("texts", [["x"] * (PAGE_LINES + 1), ["x" * (PAGE_BYTES // 2)] * 3], ids=["entries", "bytes"])
def test_more_than_a_page_is_not_held(watched: Watched, texts: list[str]) -> None:
    watched.watch(MANY)
    watched.say("x")
    watched.loop.run_ready()
    for text in texts:
        watched.say(text)
    watched.loop.run_ready()  # no time has passed
    assert watched.having(PAGE_LINES // 2 if len(texts) > PAGE_LINES else 4) == MANY
    watched.end_well()


def test_entries_that_storage_alone_has_are_read_there_in_their_order(watched: Watched) -> None:
    watched.watch(MANY)
    watched.say("x")
    watched.loop.run_ready()
    watched.say("held")
    watched.log.append(Entry(len(watched.log) + 1, MessageChunk("of another process")))
    watched.say("after it")
    watched.loop.run_ready()
    assert watched.storage.reads
    watched.end_well()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_everyone_has_everything_once_and_in_order(watched: Watched, seed: int) -> None:
    chance = random.Random(seed)
    watched.decoding = {number for number in range(MANY) if chance.random() < 0.3}
    watched.watch(chance.choice((AT_ONCE - 3, AT_ONCE + 3, MANY)))
    slow = {number for number in range(MANY) if chance.random() < 0.02}
    watched.refuses = lambda number: number in slow and chance.random() < 0.5
    for _ in range(60):
        match chance.randrange(6):
            case 0 | 1 | 2:
                watched.say(*["x"] * chance.choice((1, 1, 1, 5, 40)))
            case 3:
                watched.after(chance.choice((0.0, 0.002, 0.03)))
            case 4 if len(watched.tasks) < 2 * MANY:
                watched.watch(chance.randrange(5))
            case _:
                watched.loop.run_tick()  # in the middle of a round
    watched.end_well()
