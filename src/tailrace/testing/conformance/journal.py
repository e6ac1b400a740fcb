"""What every journal must do: subclass `JournalConformance`, give it a `journal` fixture, run it under pytest.

    class TestMyJournal(JournalConformance):
        @pytest.fixture
        async def journal(self, wall_clock):
            journal = await MyJournal.open(..., clock=wall_clock)
            yield journal
            await journal.close()

The suite drives `wall_clock` and never sleeps. It needs pytest and pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence

import pytest

from tailrace.errors import (
    CursorAhead,
    OutputMismatch,
    RunNotFound,
    RunOwned,
    RunParked,
    RunSealed,
    StaleEpoch,
)
from tailrace.events import (
    AnyEvent,
    AttemptDiscarded,
    Entry,
    GatewayNotice,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
    Snapshot,
    StepFailed,
    StepFinished,
    StepStarted,
    UsageRecorded,
    entry_to_json,
    from_json,
    to_json,
)
from tailrace.journal.fold import SEQUENCE, fold, is_fact, outputs_text
from tailrace.journal.viewed_lines import sse_with_reasoning, sse_without_reasoning
from tailrace.messages import Usage, assistant
from tailrace.ports import (
    Batch,
    Journal,
    Lease,
    LogPage,
    NewRun,
    Run,
    Signal,
    StoredLine,
)
from tailrace.testing.conformance.journal_claims import ClaimsConformance
from tailrace.testing.conformance.journal_sessions import SessionsConformance
from tailrace.testing.conformance.journal_times import TimesConformance
from tailrace.testing.conformance.journal_values import KeyValuesConformance
from tailrace.testing.conformance.wall_clock import WallClock

NEW = NewRun("agent", {"text": "hi"}, model="m", session="s")


async def started(journal: Journal, new: NewRun = NEW, owner: str = "me") -> tuple[Run, Lease]:
    run, lease = await journal.start(new, owner)
    assert lease is not None
    return run, lease


async def written(journal: Journal, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
    seq = journal.append(lease, events, attempt=attempt)
    await journal.commit(lease)
    return seq


async def finished_run(journal: Journal, texts: Sequence[str] = ("Hel", "lo"), new: NewRun = NEW) -> Run:
    run, lease = await started(journal, new)
    for text in texts:
        await written(journal, lease, [MessageChunk(text)])
    output = "".join(texts)
    journal.append(lease, [MessageStop(final=True), MessageRecorded(assistant(output))])
    await journal.seal(lease, RunFinished("completed", output))
    return await journal.get(run.id)


async def finished_sequence(journal: Journal) -> tuple[Run, list[Entry], RunFinished]:
    """A sequence with a step that finished twice, one that failed, and its entries as a viewer saw them live."""
    run, lease = await started(journal, NewRun(SEQUENCE))
    watching = asyncio.ensure_future(everything(journal.tail(run.id)))
    answer = {"message": {"content": "It is 42.", "role": "assistant"}, "usage": {"output_tokens": 7}}
    await written(journal, lease, [StepStarted("ask"), LlmDelta("ask", "It is"), LlmDelta("ask", " 42.")])
    await written(journal, lease, [StepFinished("ask", "early"), StepStarted("sum", 2), StepFinished("ask", answer)])
    await written(journal, lease, [StepFinished("sum", [1, None]), StepFailed("send", RunFailure("retryable", "no"))])
    output = outputs_text({"ask": answer, "sum": [1, None]})
    finished = RunFinished("failed", output, Usage(1, 7), RunFailure("retryable", "no"), at=5.0)
    await journal.seal(lease, finished)
    return await journal.get(run.id), await watching, finished


async def everything(viewer: AsyncIterator[Batch]) -> list[Entry]:
    return [entry async for batch in viewer for entry in batch]


async def every_line(viewer: AsyncIterator[LogPage]) -> list[StoredLine]:
    return [line async for page in viewer for line in page]


async def refused(error: type[Exception], *attempts: Awaitable[object]) -> None:
    for attempt in attempts:
        with pytest.raises(error):
            await attempt


def texts_of(entries: Sequence[Entry]) -> list[str]:
    return [entry.event.text for entry in entries if isinstance(entry.event, MessageChunk)]


class _Life:
    """Creating, claiming, giving back."""

    async def test_a_run_begins_with_run_started(self, journal: Journal, wall_clock: WallClock) -> None:
        run = await journal.create(NEW)
        assert (run.state, run.last_seq, run.first_seq, run.claims, run.owner) == ("pending", 1, 1, 0, "")
        assert run == await journal.get(run.id)
        assert await journal.read(run.id) == (Entry(1, RunStarted("agent", "m", "s", wall_clock.now)),)

    async def test_an_idempotency_key_names_one_run(self, journal: Journal) -> None:
        new = NewRun("call", idempotency_key="k")
        run = await journal.create(new)
        assert await journal.create(new) == run
        assert await journal.start(new, "me") == (run, None)
        assert await journal.runs() == [run]

    async def test_an_unknown_run_is_said(self, journal: Journal) -> None:
        await refused(
            RunNotFound,
            journal.get("run_0"),
            journal.read("run_0"),
            journal.claim("run_0", "me"),
            journal.facts("run_0"),
            journal.snapshot("run_0"),
            journal.signal("run_0", Signal("stop")),
            journal.compact("run_0"),
            journal.delete("run_0"),
            anext(journal.tail("run_0")),
        )

    async def test_the_second_claimant_is_told_who_owns_the_run(self, journal: Journal) -> None:
        run, _ = await started(journal, owner="first")
        with pytest.raises(RunOwned) as refusal:
            await journal.claim(run.id, "second")
        assert refusal.value.owner == "first"
        assert (await journal.get(run.id)).owner == "first"

    async def test_a_run_whose_lease_expired_may_be_claimed_by_others(
        self, journal: Journal, wall_clock: WallClock
    ) -> None:
        run, old = await started(journal)
        await written(journal, old, [MessageChunk("a")])
        await journal.renew(old, lease_s=40.0)
        wall_clock.now += 39.0
        await refused(RunOwned, journal.claim(run.id, "other"))
        assert await journal.orphans() == []
        wall_clock.now += 2.0
        assert [orphan.id for orphan in await journal.orphans()] == [run.id]
        new = await journal.claim(run.id, "other")
        assert new.epoch > old.epoch
        assert (await journal.get(run.id)).kills == 1
        with pytest.raises(StaleEpoch):
            journal.append(old, [MessageChunk("late")])
        finished = RunFinished("completed", "a")
        await refused(StaleEpoch, journal.renew(old), journal.commit(old), journal.seal(old, finished))
        assert await written(journal, new, [MessageChunk("b")]) == 3
        assert texts_of(await journal.read(run.id)) == ["a", "b"]

    async def test_a_released_run_is_free_at_once(self, journal: Journal) -> None:
        run, lease = await started(journal)
        journal.append(lease, [MessageChunk("a")])
        await journal.release(lease)
        assert (await journal.get(run.id)).state == "pending"
        with pytest.raises(StaleEpoch):
            journal.append(lease, [MessageChunk("b")])
        await journal.claim(run.id, "other")
        run = await journal.get(run.id)
        assert (run.kills, run.owner, run.last_seq) == (0, "other", 2)
        await journal.release(lease)  # the old lease: nothing happens
        assert (await journal.get(run.id)).owner == "other"

    async def test_I102_a_parked_run_waits_for_a_person(self, journal: Journal) -> None:
        run, lease = await started(journal)
        await journal.park(lease, RunFailure("crash_loop", "it kept crashing"))
        run = await journal.get(run.id)
        assert (run.state, run.parked) == ("parked", RunFailure("crash_loop", "it kept crashing"))
        assert (await journal.read(run.id))[-1].event == GatewayNotice("parked", "it kept crashing")
        assert await journal.orphans() == []
        await refused(RunParked, journal.claim(run.id, "other"))
        assert (await journal.unpark(run.id)).state == "pending"
        await journal.claim(run.id, "other")

    async def test_runs_are_listed_newest_first_and_by_page(self, journal: Journal, wall_clock: WallClock) -> None:
        runs = []
        for number in range(5):
            wall_clock.now += 1.0
            runs.append(await journal.create(NewRun("agent" if number % 2 else "call", session=f"s{number % 2}")))
        runs.reverse()
        assert await journal.runs() == runs
        assert await journal.runs(limit=2) == runs[:2]
        assert await journal.runs(limit=2, before=runs[1].id) == runs[2:4]
        assert await journal.runs(session="s1") == [run for run in runs if run.new.session == "s1"]
        assert await journal.runs(kind="call") == [run for run in runs if run.new.kind == "call"]
        assert await journal.runs(states={"running"}) == []
        assert await journal.runs(states={"pending", "running"}) == runs
        assert await journal.orphans() == runs[::-1]


class _Writing:
    """Appending, sealing, signals."""

    async def test_H99_entries_are_numbered_without_gaps(self, journal: Journal) -> None:
        run, lease = await started(journal)
        assert journal.append(lease, []) == 1
        assert journal.append(lease, [MessageChunk("a"), MessageChunk("b")]) == 3
        assert journal.append(lease, [MessageChunk("c")], attempt=2) == 4
        await journal.commit(lease)
        entries = await journal.read(run.id)
        assert [(entry.seq, entry.attempt) for entry in entries] == [(1, 1), (2, 1), (3, 1), (4, 2)]
        assert (await journal.get(run.id)).last_seq == 4
        assert await journal.read(run.id, after=2, limit=1) == entries[2:3]
        assert await journal.read(run.id, after=4) == ()

    async def test_a_sealed_run_takes_nothing_more(self, journal: Journal) -> None:
        run, lease = await started(journal)
        finished = RunFinished("completed", "", Usage(3, 4), at=5.0)
        assert await journal.seal(lease, finished) == Entry(2, finished)
        run = await journal.get(run.id)
        assert (run.state, run.finished, run.last_seq, run.owner) == ("completed", finished, 2, "")
        await refused(RunSealed, journal.commit(lease), journal.renew(lease), journal.seal(lease, finished))
        with pytest.raises(RunSealed):
            journal.append(lease, [MessageChunk("late")])
        await refused(RunSealed, journal.claim(run.id, "other"))
        await journal.release(lease)
        assert await journal.get(run.id) == run
        assert await journal.orphans() == []

    async def test_a_run_that_is_sealed_soon_ends_without_a_caller_that_waits(self, journal: Journal) -> None:
        (run, lease), told = await started(journal), asyncio.get_running_loop().create_future()
        journal.seal_soon(lease, RunFinished("completed"), told.set_result)
        assert (await told, (await journal.get(run.id)).state) == (None, "completed")

    async def test_sealing_refuses_an_output_that_the_log_does_not_show(self, journal: Journal) -> None:
        run, lease = await started(journal)
        journal.append(lease, [MessageChunk("wrong"), AttemptDiscarded()])
        journal.append(lease, [MessageChunk("right")], attempt=2)
        await refused(OutputMismatch, journal.seal(lease, RunFinished("completed", "wrongright")))
        assert (await journal.get(run.id)).state == "running"
        await journal.seal(lease, RunFinished("completed", "right"))
        entries = await journal.read(run.id)
        assert isinstance(entries[-1].event, RunFinished)
        assert fold(entries).output == entries[-1].event.output

    async def test_sealing_after_another_claim_checks_the_whole_log(
        self, journal: Journal, wall_clock: WallClock
    ) -> None:
        run, lease = await started(journal)
        await written(journal, lease, [MessageChunk("Hel")])
        wall_clock.now += 31.0
        lease = await journal.claim(run.id, "other")
        journal.append(lease, [MessageChunk("lo")], attempt=2)
        await refused(OutputMismatch, journal.seal(lease, RunFinished("completed", "lo")))
        await journal.seal(lease, RunFinished("completed", "Hello"))

    async def test_durability_in_memory_is_recorded_at_the_end(self, journal: Journal) -> None:
        new = NewRun("call", durability="memory", idempotency_key="m")
        run, lease = await started(journal, new)
        viewer = journal.tail(run.id)
        await written(journal, lease, [MessageChunk("a")])
        assert [entry.seq for entry in await anext(viewer)] == [1, 2]
        assert await journal.create(new) == await journal.get(run.id)
        await journal.seal(lease, RunFinished("completed", "a"))
        assert (await journal.get(run.id)).new.durability == "memory"
        assert [entry.seq for entry in await journal.read(run.id)] == [1, 2, 3]
        assert [entry.seq for entry in await everything(viewer)] == [3]

    async def test_a_signal_reaches_the_owner_of_the_run(self, journal: Journal) -> None:
        run, lease = await started(journal)
        assert await journal.kept_signals(lease) == []  # without a wait
        waiting = asyncio.ensure_future(journal.signals(lease))
        await asyncio.sleep(0)
        sent = await journal.signal(run.id, Signal("stop", {"why": "enough"}, by="a person"))
        assert await waiting == [sent]
        assert sent.id > 0
        more = await journal.signal(run.id, Signal("go"))
        assert await journal.signals(lease, after=sent.id) == [more]
        await journal.release(lease)
        await refused(StaleEpoch, journal.signals(lease), journal.kept_signals(lease))
        lease = await journal.claim(run.id, "other")
        assert await journal.signals(lease) == await journal.kept_signals(lease) == [sent, more]

    async def test_a_wait_for_signals_ends_with_the_lease_or_the_run(
        self, journal: Journal, wall_clock: WallClock
    ) -> None:
        run, lease = await started(journal)
        fenced = asyncio.ensure_future(journal.signals(lease))
        await asyncio.sleep(0)
        wall_clock.now += 31.0
        lease = await journal.claim(run.id, "other")
        await refused(StaleEpoch, fenced)
        ended = asyncio.ensure_future(journal.signals(lease))
        await asyncio.sleep(0)
        await journal.seal(lease, RunFinished("stopped"))
        await refused(RunSealed, ended, journal.signal(run.id, Signal("stop")), journal.kept_signals(lease))


class _Viewing:
    """Tails, cursors, snapshots."""

    async def test_I104_a_viewer_sees_everything_once_and_the_end(self, journal: Journal) -> None:
        run, lease = await started(journal)
        watching = asyncio.ensure_future(everything(journal.tail(run.id)))
        for text in ("a", "b", "c"):
            await written(journal, lease, [MessageChunk(text)])
        await journal.seal(lease, RunFinished("completed", "abc"))
        seen = await watching
        assert seen == list(await journal.read(run.id))
        assert [entry.seq for entry in seen] == [1, 2, 3, 4, 5]
        assert await everything(journal.tail(run.id)) == seen
        assert await everything(journal.tail(run.id, after=4)) == seen[4:]
        assert await everything(journal.tail(run.id, after=5)) == []

    async def test_viewers_at_the_same_place_share_one_batch(self, journal: Journal) -> None:
        run, lease = await started(journal)
        await written(journal, lease, [MessageChunk("a")])
        first, second = journal.tail(run.id, after=1), journal.tail(run.id, after=1)
        await written(journal, lease, [MessageChunk("b"), ReasoningChunk("hm")])
        batch = await anext(first)
        assert await anext(second) is batch
        shown = batch.page.framed(sse_without_reasoning)
        assert shown == b"".join(
            b"id: %d\nevent: message_chunk\ndata: %b\n\n" % (entry.seq, entry_to_json(entry)) for entry in batch[:2]
        )
        assert batch.page.framed(sse_with_reasoning).startswith(shown + b"id: 4\nevent: reasoning_chunk\ndata: ")

    async def test_H97_a_cursor_resumes_as_often_as_it_must(self, journal: Journal) -> None:
        run, lease = await started(journal)
        await written(journal, lease, [MessageChunk("a")])
        for _ in range(3):  # dropped and back, with nothing new in between
            viewer = journal.tail(run.id, after=2)
            waiting = asyncio.ensure_future(anext(viewer))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await written(journal, lease, [MessageChunk("b")])
        assert await anext(viewer) == (Entry(3, MessageChunk("b")),)

    async def test_a_cursor_ahead_of_the_log_is_said(self, journal: Journal) -> None:
        run = await finished_run(journal)
        await refused(CursorAhead, anext(journal.tail(run.id, after=run.last_seq + 1)))

    async def test_L141_pages_have_what_a_tail_has_as_it_is_stored(self, journal: Journal) -> None:
        run, lease = await started(journal)
        live = asyncio.ensure_future(every_line(journal.tail_pages(run.id)))
        for number in range(300):
            journal.append(lease, [MessageChunk(f"{number} "), ReasoningChunk("hm")], attempt=1 + number // 100)
            if number % 50 == 0:
                await journal.commit(lease)
        await journal.seal(lease, RunFinished("completed", "".join(f"{number} " for number in range(300))))
        lines = [StoredLine(each.seq, each.attempt, to_json(each.event)) for each in await journal.read(run.id)]
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
        await written(journal, lease, [MessageChunk("a"), UsageRecorded(Usage(1, 2))])
        journal.append(lease, [MessageChunk("b")])  # not committed: in the snapshot only once it is
        viewer = journal.tail(run.id, snapshot=True)
        (begin,) = await anext(viewer)
        assert isinstance(begin.event, Snapshot)
        assert begin == fold((await journal.read(run.id))[: begin.seq]).entry()
        await written(journal, lease, [MessageChunk("c")])
        await journal.seal(lease, RunFinished("completed", "abc", Usage(1, 2)))
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
        await written(journal, lease, [MessageChunk("a")])
        assert asyncio.all_tasks() == tasks

    async def test_closing_ends_waiting_viewers(self, journal: Journal) -> None:
        run, _ = await started(journal)
        watching = asyncio.ensure_future(everything(journal.tail(run.id, after=1)))
        await asyncio.sleep(0)
        await journal.close()
        assert await watching == []


class _Keeping:
    """Compacting and deleting."""

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
            assert last == StoredLine(entries[-1].seq, entries[-1].attempt, to_json(entries[-1].event))
            await journal.compact(run.id)
        kept = (fold(entries[:-1]).entry(), entries[-1])
        assert await journal.read(run.id) == kept
        assert [from_json(line.json) for line in await every_line(journal.tail_pages(run.id))] == [
            entry.event for entry in kept
        ]

    async def test_the_facts_of_several_runs_come_in_the_order_asked_for(self, journal: Journal) -> None:
        runs = [await finished_run(journal) for _ in range(3)]
        open_run, lease = await started(journal, NewRun("call", durability="memory"))
        await written(journal, lease, [MessageChunk("a"), UsageRecorded(Usage(1, 2))])
        await journal.compact(runs[1].id)
        run_ids = [runs[2].id, open_run.id, runs[0].id, runs[1].id]
        assert await journal.facts_of_runs(run_ids) == [await journal.facts(run_id) for run_id in run_ids]
        assert await journal.facts_of_runs([]) == []
        await refused(RunNotFound, journal.facts_of_runs([runs[0].id, "run_0"]))

    async def test_what_is_due_for_compaction_can_be_listed(self, journal: Journal, wall_clock: WallClock) -> None:
        old = await finished_run(journal)
        wall_clock.now += 10.0
        new = await finished_run(journal)
        cutoff = wall_clock.now - 5.0
        wall_clock.now += 1.0
        open_run, _ = await started(journal)
        assert await journal.runs(ended_before=cutoff, compacted=False) == [old]
        old = await journal.compact(old.id)
        assert await journal.runs(ended_before=cutoff, compacted=False) == []
        assert await journal.runs(compacted=True) == [old]
        assert await journal.runs(compacted=False) == [await journal.get(open_run.id), new]

    async def test_only_what_has_ended_is_compacted_or_deleted(self, journal: Journal) -> None:
        run, lease = await started(journal, NewRun("call", idempotency_key="d"))
        await refused(RunOwned, journal.compact(run.id), journal.delete(run.id))
        await journal.seal(lease, RunFinished("completed"))
        await journal.delete(run.id)
        await refused(RunNotFound, journal.get(run.id))
        assert await journal.runs() == []
        again = await journal.create(NewRun("call", idempotency_key="d"))
        assert again.id != run.id


class JournalConformance(
    _Life, _Writing, _Viewing, _Keeping, ClaimsConformance, TimesConformance, KeyValuesConformance, SessionsConformance
):
    """Needs a fixture `journal`: an empty one that takes its time from the fixture `wall_clock`."""

    @pytest.fixture
    def wall_clock(self) -> WallClock:
        return WallClock()
