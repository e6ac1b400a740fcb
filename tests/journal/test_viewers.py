"""Many viewers, slow viewers, viewers that come and go: everyone gets everything, once, in order."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from events.test_events import FACTS, STREAM_EVENTS
from journal.stores import Store
from tailrace.events import AnyEvent, Entry, GatewayNotice, MessageChunk, RunFinished, entry_to_json, event_type
from tailrace.journal.live_tail import LONG_BYTES, PAGE_BYTES, PAGE_ENTRIES, WINDOW_ENTRIES, Tail
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.sqlite.schema import connect
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.page_cache import PageCache
from tailrace.journal.stored.rows import rows_of
from tailrace.journal.viewed_lines import sse_with_reasoning, sse_without_reasoning, without_reasoning
from tailrace.ports import Batch, Journal, Lease, LogPage, LogViewer, NewRun, StoredLine
from tailrace.testing.conformance.sample_runs import started, written


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    journal: Journal
    if request.param == "memory":
        journal = MemoryJournal()
    else:
        postgres = request.param == "postgres"
        url = request.getfixturevalue("postgres_url") if postgres else f"sqlite:///{tmp_path / 'runs.db'}"
        journal = await Store(url).open()
    yield journal
    await journal.close()


async def write(journal: Journal, lease: Lease, events: int) -> None:
    for number in range(events):
        journal.append(lease, [MessageChunk(f"{number} ")])
        if number % 7 == 0:
            await journal.commit(lease)
        elif number % 3 == 0:
            await asyncio.sleep(0)
    output = "".join(f"{number} " for number in range(events))
    await journal.seal(lease, RunFinished("completed", output))


async def numbers_seen(viewer: AsyncIterator[Batch]) -> list[int]:
    """The seqs alone: what a thousand viewers saw must fit into this test too."""
    return [entry.seq async for batch in viewer for entry in batch]


async def test_a_thousand_viewers_of_one_run(journal: Journal) -> None:
    run, lease = await started(journal)
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(numbers_seen(journal.tail(run.id))) for _ in range(1000)]
        group.create_task(write(journal, lease, 100))
    assert all(task.result() == list(range(1, 103)) for task in watching)


async def test_a_thousand_runs_with_a_viewer_each(journal: Journal) -> None:
    async with asyncio.TaskGroup() as group:
        watching = []
        for _ in range(1000):
            run, lease = await started(journal, NewRun("call"))
            watching.append(group.create_task(numbers_seen(journal.tail(run.id))))
            group.create_task(write(journal, lease, 8))
    assert all(task.result() == list(range(1, 11)) for task in watching)


async def test_F72_F73_stalled_viewers_cost_a_cursor_and_lose_nothing(store: Store) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    viewers = [journal.tail(run.id) for _ in range(100)]
    for viewer in viewers:
        assert [entry.seq for entry in await anext(viewer)] == [1]
    await write_windows(journal, lease, 1)  # what the tail keeps by itself is there from here on
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    more = [journal.tail(run.id, after=1) for _ in range(1000)]
    for viewer in more:
        await anext(viewer)  # each holds its place and asks for nothing more
    await write_windows(journal, lease, 8)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown / len(more) < 1024, f"{grown / len(more):.0f} bytes per stalled viewer"
    written = 9 * WINDOW_ENTRIES
    await journal.seal(lease, RunFinished("completed", "x" * written))
    for viewer in viewers:
        assert await numbers_seen(viewer) == list(range(2, written + 3))
    await journal.close()


async def write_windows(journal: Journal, lease: Lease, windows: int) -> None:
    for _ in range(windows * WINDOW_ENTRIES // 64):
        journal.append(lease, [MessageChunk("x")] * 64)
        await journal.commit(lease)


async def test_H97_a_thousand_disconnects_and_resumes(journal: Journal) -> None:
    chance = random.Random(97)
    run, lease = await started(journal)
    seen: list[Entry] = []

    async def flaky() -> None:
        drops = 0
        while not seen or not isinstance(seen[-1].event, RunFinished):
            viewer = journal.tail(run.id, after=seen[-1].seq if seen else 0)
            if drops < 1000 and chance.random() < 0.9:
                drops += 1
                asking = asyncio.ensure_future(anext(viewer))
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                if not asking.done():  # dropped before anything new came
                    asking.cancel()
                    await asyncio.wait([asking])
                    continue
                seen.extend(asking.result())
            else:
                seen.extend(await anext(viewer))

    async with asyncio.TaskGroup() as group:
        group.create_task(flaky())
        group.create_task(write(journal, lease, 400))
    assert seen == list(await journal.read(run.id))


async def test_a_viewer_far_behind_reads_by_the_page(store: Store) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    written = 2 * PAGE_ENTRIES + 10
    journal.append(lease, [MessageChunk("x")] * written)
    await journal.seal(lease, RunFinished("completed", "x" * written))
    await journal.close()
    journal = await store.open()
    batches = [batch async for batch in journal.tail(run.id)]
    assert [len(batch) for batch in batches] == [PAGE_ENTRIES, PAGE_ENTRIES, 12]
    assert [entry.seq for batch in batches for entry in batch] == list(range(1, written + 3))
    await journal.close()


async def test_L141_a_page_of_the_tail_is_as_short_as_one_from_storage(store: Store) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    viewer = journal.tail_pages(run.id)
    await anext(viewer)
    for _ in range(4):
        journal.append(lease, [MessageChunk("x" * (PAGE_BYTES // 2))])
        await journal.commit(lease)
    journal.append(lease, [MessageChunk("x" * 2 * PAGE_BYTES)])
    await journal.seal(lease, RunFinished("completed", "x" * 4 * PAGE_BYTES))
    pages = [page async for page in viewer]
    assert [line.seq for page in pages for line in page] == list(range(2, 8))
    assert all(len(page) == 1 or sum(len(line.json) for line in page) <= PAGE_BYTES for page in pages)
    snapshot = await anext(journal.tail_pages(run.id, snapshot=True))
    assert [line.type for line in snapshot] == [b"snapshot"]  # however long it is
    await journal.close()


async def test_L141_the_cache_of_pages_is_bounded_by_their_length() -> None:
    cache = PageCache(max_pages=8, max_bytes=1000)
    loads: list[int] = []

    def load(after: int, size: int) -> asyncio.Future[LogPage]:
        loads.append(after)
        loaded: asyncio.Future[LogPage] = asyncio.get_running_loop().create_future()
        loaded.set_result(LogPage([StoredLine(after + 1, 1, b"x" * size)]))
        return loaded

    async def read(after: int, size: int) -> None:
        await cache.page("run", after, partial(load, after, size))
        await asyncio.sleep(0)  # it is kept by a callback of the future

    for after in range(4):
        await read(after, 400)
    assert cache.stored_bytes == 800
    await read(3, 400)
    assert loads == [0, 1, 2, 3]  # the newest are kept
    await read(9, 5000)  # longer than all may be together: shared while it is read, and not kept
    assert cache.stored_bytes <= 1000
    cache.forget("run")
    assert cache.stored_bytes == 0


async def test_F74_the_loop_goes_on_while_the_disk_does_not(tmp_path: Path) -> None:
    """Another process holds the write lock: appends return, ticks go on, and nothing is shown until it is written."""
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(journal)
    other = connect(tmp_path / "runs.db", writer=True)
    other.execute("BEGIN IMMEDIATE")
    viewer = journal.tail(run.id, after=1)
    watching = asyncio.ensure_future(anext(viewer))
    for _ in range(100):
        journal.append(lease, [MessageChunk("x")])
        await asyncio.sleep(0)
    assert not watching.done()
    assert (await journal.get(run.id)).last_seq == 1  # a read does not wait for the write
    other.execute("COMMIT")
    other.close()
    await journal.commit(lease)
    assert (await watching)[0].seq == 2
    await journal.close()


async def test_F75_the_tail_keeps_a_window_however_long_the_run() -> None:
    tail = Tail(last_seq=0)
    for seq in range(1, 20 * WINDOW_ENTRIES):
        tail.publish(Batch((Entry(seq, MessageChunk("x")),)))
        assert tail.entries_after(seq - 1) == (Entry(seq, MessageChunk("x")),)
    kept = [after for after in range(20 * WINDOW_ENTRIES) if tail.entries_after(after)]
    assert WINDOW_ENTRIES <= len(kept) <= 2 * WINDOW_ENTRIES
    assert tail.entries_after(0) is None


async def test_O178_a_window_of_long_entries_is_a_short_one() -> None:
    tail = Tail(last_seq=0)
    for seq in range(1, WINDOW_ENTRIES):
        batch = Batch((Entry(seq, MessageChunk("x")),))
        batch.stored = bytes(LONG_BYTES * WINDOW_ENTRIES)
        tail.publish(batch)
        assert tail.entries_after(seq - 1) == batch
    assert sum(bool(tail.entries_after(after)) for after in range(WINDOW_ENTRIES)) <= 2


async def test_batches_are_taken_whole_and_joined_once() -> None:
    tail = Tail(last_seq=0)
    for seq in (1, 3, 5):
        tail.publish(Batch((Entry(seq, MessageChunk("a")), Entry(seq + 1, MessageChunk("b")))))
    joined = tail.entries_after(2)
    assert joined is not None
    assert [entry.seq for entry in joined] == [3, 4, 5, 6]
    assert tail.entries_after(2) is joined
    middle = tail.entries_after(3)
    assert middle is not None
    assert [entry.seq for entry in middle] == [4, 5, 6]
    assert tail.entries_after(6) == ()


def frames_of(entries: Iterable[Entry]) -> bytes:
    """Each entry as a server-sent event, encoded by itself."""
    return b"".join(
        b"id: %d\nevent: %b\ndata: %b\n\n" % (entry.seq, event_type(entry.event).encode(), entry_to_json(entry))
        for entry in entries
    )


@settings(deadline=None)
@given(
    events=st.lists(st.tuples(STREAM_EVENTS | FACTS, st.integers(1, 3)), min_size=1, max_size=12),
    cuts=st.sets(st.integers(1, 11)),
)
def test_what_a_commit_encoded_is_what_viewers_are_sent(events: list[tuple[AnyEvent, int]], cuts: set[int]) -> None:
    entries = [Entry(seq, event, attempt) for seq, (event, attempt) in enumerate(events, 1)]
    tail = Tail(window=None)
    edges = [0, *sorted(cut for cut in cuts if cut < len(entries)), len(entries)]
    for start, end in pairwise(edges):
        batch = Batch(entries[start:end])
        batch.stored = b"".join(row.events for row in rows_of(batch))
        tail.publish(batch)
    for after in range(len(entries)):
        batch = tail.entries_after(after) or Batch()
        assert list(batch) == entries[after:]
        for page in (batch.page, Batch(entries[after:]).page):
            assert page.framed(sse_with_reasoning) == frames_of(batch)
            assert page.framed(sse_without_reasoning) == frames_of(without_reasoning(batch))


async def test_a_commit_s_batch_is_not_encoded_again_for_its_viewers(store: Store) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    viewer = journal.tail(run.id, after=1)
    journal.append(lease, [MessageChunk("a")])
    journal.append(lease, [MessageChunk("b")], attempt=2)
    batch = await anext(viewer)
    assert batch.stored == b'{"type":"message_chunk","text":"a"}\n{"type":"message_chunk","text":"b"}\n'
    assert batch.page.framed(sse_without_reasoning) == frames_of(batch)
    await journal.close()


# ── live viewers ─────────────────────────────────────────────────────────────────────────────────────────────


async def live(viewer: LogViewer[LogPage], take: Callable[[LogPage], bool]) -> asyncio.Task[None]:
    """The viewer, up to date and handed what is committed from here on."""
    await anext(viewer)
    watching = asyncio.ensure_future(viewer.follow(take))
    await asyncio.sleep(0)
    return watching


async def test_a_live_viewer_is_handed_what_is_committed(journal: Journal) -> None:
    run, lease = await started(journal)
    seen: list[int] = []

    def take(page: LogPage) -> bool:
        seen.extend(line.seq for line in page)
        return True

    viewer = journal.tail_pages(run.id)
    watching = await live(viewer, take)
    for _ in range(3):
        await written(journal, lease, [MessageChunk("a"), MessageChunk("b")])
    await journal.seal(lease, RunFinished("completed", "ab" * 3))
    await watching
    assert seen == [2, 3, 4, 5, 6, 7, 8]
    with pytest.raises(StopAsyncIteration):
        await anext(viewer)


async def test_what_a_live_viewer_refuses_is_given_by_the_iteration(journal: Journal) -> None:
    run, lease = await started(journal)
    offered: list[int] = []

    def refuse(page: LogPage) -> bool:
        offered.append(page[-1].seq)
        return False

    viewer = journal.tail_pages(run.id)
    watching = await live(viewer, refuse)
    await written(journal, lease, [MessageChunk("a")])
    await watching
    await written(journal, lease, [MessageChunk("b")])
    assert offered == [2]
    assert [line.seq for line in await anext(viewer)] == [2, 3]


async def test_a_live_viewer_is_told_its_own_error_and_others_go_on(journal: Journal) -> None:
    run, lease = await started(journal)
    seen: list[int] = []

    def fail(_page: LogPage) -> bool:
        raise ValueError("mine")

    def take(page: LogPage) -> bool:
        seen.append(page[-1].seq)
        return True

    failing = await live(journal.tail_pages(run.id), fail)
    other = await live(journal.tail_pages(run.id), take)
    await written(journal, lease, [MessageChunk("a")])
    with pytest.raises(ValueError, match="mine"):
        await failing
    assert seen == [2]
    other.cancel()
    await asyncio.wait([other])
    await written(journal, lease, [MessageChunk("b")])
    assert seen == [2]  # a viewer that was cancelled is handed nothing more


async def test_a_live_viewer_ends_with_its_journal(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, _ = await started(journal)
    viewer = journal.tail_pages(run.id)
    watching = await live(viewer, lambda _page: True)
    await journal.close()
    await watching
    with pytest.raises(StopAsyncIteration):
        await anext(viewer)


async def test_a_page_too_long_to_hand_over_is_read_from_storage(store: Store) -> None:
    journal = await store.open()
    run, lease = await started(journal)
    viewer = journal.tail_pages(run.id)
    watching = await live(viewer, lambda _page: True)
    await written(journal, lease, [MessageChunk("x")] * 300)
    await watching
    assert len(await anext(viewer)) <= 256
    await journal.close()


async def test_O178_a_commit_of_megabytes_is_written_and_no_longer_held(store: Store) -> None:
    def encoded_bytes() -> int:
        made = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/journal/stored/rows.py")])
        return sum(trace.size for trace in made.traces)

    journal = await store.open()
    run, lease = await started(journal)
    viewer, texts = journal.tail_pages(run.id, after=1), [MessageChunk(text * 2**20) for text in "abc"]
    tracemalloc.start()
    try:
        journal.append(lease, texts)
        await journal.commit(lease)
        async with asyncio.timeout(10):
            while encoded_bytes() > 2**20:  # noqa: ASYNC110 - the thread that wrote them may be in its last lines
                await asyncio.sleep(0)
    finally:
        tracemalloc.stop()
    assert [entry.event for _ in texts for entry in (await anext(viewer)).entries] == texts
    await journal.close()


async def test_O178_a_tail_holds_no_commits_of_megabytes(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(journal)
    viewer = journal.tail(run.id)
    assert await anext(viewer)
    tracemalloc.start()
    try:
        for letter in "abcdefgh":
            await written(journal, lease, [GatewayNotice("sample", letter * 2**20) for _ in "ab"])
        gc.collect()
        made = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in made.traces) <= 3 * 2**20  # the last commit alone
    await journal.close()


async def test_a_token_costs_a_live_viewer_a_few_calls_and_no_task(tmp_path: Path) -> None:
    """By counting: the calls from one commit until a thousand viewers have it, less those where there are none."""
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    run, lease = await started(journal)
    watching: list[asyncio.Task[None]] = []
    taken, all_have_it = 0, asyncio.Event()

    def take(page: LogPage) -> bool:
        nonlocal taken
        taken += 1
        if taken == len(watching):
            all_have_it.set()
        return bool(page.framed(sse_without_reasoning))

    async def calls_of_a_commit() -> int:
        nonlocal taken
        calls = taken = 0
        all_have_it.clear()

        def count(_frame: object, what: str, _argument: object) -> None:
            nonlocal calls
            calls += what == "call"

        sys.setprofile(count)
        try:
            await written(journal, lease, [MessageChunk("x")])
            if watching:
                await all_have_it.wait()
        finally:
            sys.setprofile(None)
        return calls

    alone = await calls_of_a_commit()
    watching += [await live(journal.tail_pages(run.id, after=1), take) for _ in range(1000)]
    await calls_of_a_commit()
    assert (await calls_of_a_commit() - alone) / len(watching) < 8
    assert not any(task.done() for task in watching)
    for task in watching:
        task.cancel()
    await asyncio.wait(watching)
    await journal.close()


async def test_L148_a_committed_run_and_its_viewers_leave_no_cycle_behind(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")

    async def one_run() -> None:
        run, lease = await started(journal)
        watching = [await live(journal.tail_pages(run.id), bool) for _ in range(5)]
        behind = await live(journal.tail_pages(run.id), lambda _page: False)
        gone = await live(journal.tail_pages(run.id), bool)
        await written(journal, lease, [MessageChunk("a")])
        gone.cancel()
        await journal.seal(lease, RunFinished("completed", "a"))
        await asyncio.wait([*watching, behind, gone])

    await one_run()
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            await one_run()
        await asyncio.sleep(0)
        assert gc.collect() == 0
    finally:
        gc.enable()
    await journal.close()
