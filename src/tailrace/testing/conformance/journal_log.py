"""What every `LogTail` must do; a part of `JournalConformance`."""

from __future__ import annotations

import asyncio

import pytest

from tailrace import events
from tailrace.errors import CursorAhead, RunNotFound
from tailrace.journal.fold import fold, is_fact
from tailrace.journal.viewed_lines import sse_with_reasoning, sse_without_reasoning
from tailrace.messages import Usage, assistant
from tailrace.ports import Durability, Journal, NewRun, StoredLine
from tailrace.testing.conformance.sample_runs import (
    every_line,
    everything,
    finished_run,
    finished_sequence,
    refused,
    started,
    written,
)
from tailrace.testing.conformance.wall_clock import WallClock


class LogTailConformance:
    """Tails, cursors, snapshots, facts and times."""

    async def test_I104_a_viewer_sees_everything_once_and_the_end(self, journal: Journal) -> None:
        run, lease = await started(journal)
        watching = asyncio.ensure_future(everything(journal.tail(run.id)))
        for text in ("a", "b", "c"):
            await written(journal, lease, [events.MessageChunk(text)])
        await journal.seal(lease, events.RunFinished("completed", "abc"))
        seen = await watching
        assert seen == list(await journal.read(run.id))
        assert [entry.seq for entry in seen] == [1, 2, 3, 4, 5]
        assert await everything(journal.tail(run.id)) == seen
        assert await everything(journal.tail(run.id, after=4)) == seen[4:]
        assert await everything(journal.tail(run.id, after=5)) == []

    async def test_viewers_at_the_same_place_share_one_batch(self, journal: Journal) -> None:
        run, lease = await started(journal)
        await written(journal, lease, [events.MessageChunk("a")])
        first, second = journal.tail(run.id, after=1), journal.tail(run.id, after=1)
        await written(journal, lease, [events.MessageChunk("b"), events.ReasoningChunk("hm")])
        batch = await anext(first)
        assert await anext(second) is batch
        shown = batch.page.framed(sse_without_reasoning)
        assert shown == b"".join(
            b"id: %d\nevent: message_chunk\ndata: %b\n\n" % (entry.seq, events.entry_to_json(entry))
            for entry in batch[:2]
        )
        assert batch.page.framed(sse_with_reasoning).startswith(shown + b"id: 4\nevent: reasoning_chunk\ndata: ")

    async def test_H97_a_cursor_resumes_as_often_as_it_must(self, journal: Journal) -> None:
        run, lease = await started(journal)
        await written(journal, lease, [events.MessageChunk("a")])
        for _ in range(3):  # dropped and back, with nothing new in between
            viewer = journal.tail(run.id, after=2)
            waiting = asyncio.ensure_future(anext(viewer))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await written(journal, lease, [events.MessageChunk("b")])
        assert await anext(viewer) == (events.Entry(3, events.MessageChunk("b")),)

    async def test_a_cursor_ahead_of_the_log_is_said(self, journal: Journal) -> None:
        run = await finished_run(journal)
        await refused(CursorAhead, anext(journal.tail(run.id, after=run.last_seq + 1)))

    async def test_L141_pages_have_what_a_tail_has_as_it_is_stored(self, journal: Journal) -> None:
        run, lease = await started(journal)
        live = asyncio.ensure_future(every_line(journal.tail_pages(run.id)))
        for number in range(300):
            journal.append(
                lease, [events.MessageChunk(f"{number} "), events.ReasoningChunk("hm")], attempt=1 + number // 100
            )
            if number % 50 == 0:
                await journal.commit(lease)
        await journal.seal(lease, events.RunFinished("completed", "".join(f"{number} " for number in range(300))))
        lines = [StoredLine(each.seq, each.attempt, events.to_json(each.event)) for each in await journal.read(run.id)]
        assert await live == lines
        for after in (0, 1, 100, 255, 256, 600, 601):
            pages = [page async for page in journal.tail_pages(run.id, after=after)]
            assert [line for page in pages for line in page] == lines[after:]
            assert max(map(len, pages)) <= 256
        assert (await every_line(journal.tail_pages(run.id, snapshot=True)))[0].type == b"snapshot"
        await refused(CursorAhead, anext(journal.tail_pages(run.id, after=len(lines) + 1)))
        await refused(RunNotFound, anext(journal.tail_pages("run_0")))

    async def test_a_snapshot_and_its_tail_lose_and_repeat_nothing(self, journal: Journal) -> None:
        run, lease = await started(journal)
        await written(journal, lease, [events.MessageChunk("a"), events.UsageRecorded(Usage(1, 2))])
        journal.append(lease, [events.MessageChunk("b")])  # not committed: in the snapshot only once it is
        viewer = journal.tail(run.id, snapshot=True)
        (begin,) = await anext(viewer)
        assert isinstance(begin.event, events.Snapshot)
        assert begin == fold((await journal.read(run.id))[: begin.seq]).entry()
        await written(journal, lease, [events.MessageChunk("c")])
        await journal.seal(lease, events.RunFinished("completed", "abc", Usage(1, 2)))
        rest = await everything(viewer)
        whole = await journal.read(run.id)
        assert rest == list(whole[begin.seq :])
        assert fold([begin, *rest]).snapshot() == fold(whole).snapshot()
        assert await journal.snapshot(run.id) == fold(whole).entry()

    async def test_F76_leaving_a_tail_early_leaves_nothing_behind(self, journal: Journal) -> None:
        run, lease = await started(journal)
        tasks = asyncio.all_tasks()
        async for _ in journal.tail(run.id):
            break
        await written(journal, lease, [events.MessageChunk("a")])
        assert asyncio.all_tasks() == tasks

    async def test_closing_ends_waiting_viewers(self, journal: Journal) -> None:
        run, _ = await started(journal)
        watching = asyncio.ensure_future(everything(journal.tail(run.id, after=1)))
        await asyncio.sleep(0)
        await journal.close()
        assert await watching == []

    async def test_H98_a_cursor_into_what_was_compacted_gets_a_snapshot(self, journal: Journal) -> None:
        run = await finished_run(journal)
        before = await journal.read(run.id)
        facts = await journal.facts(run.id)
        assert facts == [entry for entry in before if is_fact(entry.event)]
        compacted = await journal.compact(run.id)
        assert (compacted.first_seq, compacted.last_seq) == (run.last_seq, run.last_seq)
        for after in range(run.last_seq - 1):
            seen = await everything(journal.tail(run.id, after=after))
            assert [entry.seq for entry in seen] == [run.last_seq - 1, run.last_seq]
            assert seen[0] == fold(before[:-1]).entry()
            assert await journal.read(run.id, after=after) == tuple(seen)
            assert fold(seen).snapshot() == fold(before).snapshot()
        assert await everything(journal.tail(run.id, after=run.last_seq - 1)) == list(before[-1:])
        assert await journal.facts(run.id) == facts
        assert await journal.snapshot(run.id) == fold(before).entry()
        assert await journal.compact(run.id) == compacted

    async def test_a_sequence_s_output_is_the_same_wherever_it_is_read(self, journal: Journal) -> None:
        run, entries, finished = await finished_sequence(journal)
        assert tuple(entries) == await journal.read(run.id)
        assert fold(entries).output == finished.output
        for _ in range(2):  # as it ended, and compacted
            assert (await journal.get(run.id)).finished == finished
            assert [known.finished for known in await journal.runs()] == [finished]
            assert await journal.facts(run.id) == [entry for entry in entries if is_fact(entry.event)]
            assert await journal.read(run.id, after=run.last_seq - 1) == tuple(entries[-1:])
            assert await journal.snapshot(run.id) == fold(entries).entry()
            last = (await every_line(journal.tail_pages(run.id)))[-1]
            assert last == StoredLine(entries[-1].seq, entries[-1].attempt, events.to_json(entries[-1].event))
            await journal.compact(run.id)
        kept = (fold(entries[:-1]).entry(), entries[-1])
        assert await journal.read(run.id) == kept
        assert [events.from_json(line.json) for line in await every_line(journal.tail_pages(run.id))] == [
            entry.event for entry in kept
        ]

    async def test_the_facts_of_several_runs_come_in_the_order_asked_for(self, journal: Journal) -> None:
        runs = [await finished_run(journal) for _ in range(3)]
        open_run, lease = await started(journal, NewRun("call", durability="memory"))
        await written(journal, lease, [events.MessageChunk("a"), events.UsageRecorded(Usage(1, 2))])
        await journal.compact(runs[1].id)
        run_ids = [runs[2].id, open_run.id, runs[0].id, runs[1].id]
        assert await journal.facts_of_runs(run_ids) == [await journal.facts(run_id) for run_id in run_ids]
        assert await journal.facts_of_runs([]) == []
        await refused(RunNotFound, journal.facts_of_runs([runs[0].id, "run_0"]))

    @pytest.mark.parametrize("durability", ["memory", "committed", "fsync"])
    async def test_each_commit_has_its_time_and_keeps_it(
        self, journal: Journal, wall_clock: WallClock, durability: Durability
    ) -> None:
        began = wall_clock.now
        run, lease = await journal.start(NewRun("agent", durability=durability), "me")
        assert lease is not None
        commits: list[list[events.AnyEvent]] = [
            [events.MessageChunk("Hel"), events.MessageChunk("lo")],  # 2, 3
            [events.ToolOutputRecorded("call", "terminal", "done")],  # 4
            [events.MessageRecorded(assistant("Hello")), events.MessageChunk("!")],  # 5, 6
        ]
        for written_together in commits:
            wall_clock.now += 2.0
            journal.append(lease, written_together)
            await journal.commit(lease)
        live = [(1, began), (2, began + 2.0), (4, began + 4.0), (5, began + 6.0)]
        assert await journal.times(run.id) == live
        wall_clock.now += 2.0
        await journal.seal(lease, events.RunFinished("completed", "Hello!"))
        assert await journal.times(run.id) == [*live, (7, began + 8.0)]
        wall_clock.now += 60.0
        await journal.compact(run.id)
        facts = [entry.seq for entry in await journal.facts(run.id)]
        assert facts == [1, 4, 5, 7]
        assert await journal.times(run.id) == [(1, began), (4, began + 4.0), (5, began + 6.0), (7, began + 8.0)]

    async def test_only_a_run_that_exists_has_times(self, journal: Journal) -> None:
        with pytest.raises(RunNotFound):
            await journal.times("run_0")
