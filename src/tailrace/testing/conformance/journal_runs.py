"""What every `RunStore` must do; a part of `JournalConformance`."""

from __future__ import annotations

import asyncio

import pytest

from tailrace import events
from tailrace.errors import OutputMismatch, RunNotFound, RunOwned, RunParked, RunSealed, StaleEpoch
from tailrace.events import MessageChunk, MessageStop, RunFinished, UsageRecorded
from tailrace.journal.fold import fold
from tailrace.messages import SpentTokens, Usage
from tailrace.ports import CRASH_LOOP, Journal, NewRun, Run, Signal
from tailrace.testing.conformance import sample_runs
from tailrace.testing.conformance.wall_clock import WallClock


def question(text: str, session: str) -> NewRun:
    return NewRun("agent", {"message": {"role": "user", "parts": [{"type": "text", "text": text}]}}, session=session)


async def answered(journal: Journal, new: NewRun, answer: str = "", *used: UsageRecorded) -> Run:
    run, lease = await journal.start(new, "me")
    assert lease is not None
    journal.append(lease, [MessageChunk(answer), *used, MessageStop(final=True)])
    usage = sum((each.usage for each in used), Usage())
    await journal.seal(lease, RunFinished("completed", answer, usage))
    return await journal.get(run.id)


async def found(journal: Journal, search: str) -> list[str]:
    page = await journal.sessions("agent", search=search)
    assert page.next is None
    return [session.id for session in page.sessions]


class SessionsConformance:
    """Sessions, their totals and their next run."""

    async def test_the_session_that_was_asked_last_comes_first(self, journal: Journal, wall_clock: WallClock) -> None:
        runs = []
        for name in ("a", "b", "c", "a", ""):
            wall_clock.now += 1.0
            runs.append(await answered(journal, question(f"in {name}", name), "ok"))
        await journal.create(NewRun("sequence", session="instances/x"))
        await journal.create(question("not answered yet", "c"))
        page = await journal.sessions("agent", limit=2)
        assert [(session.id, session.runs) for session in page.sessions] == [("c", 2), ("a", 2)]
        c, a = page.sessions
        assert (c.first, c.newest.state, c.under_way) == (runs[2], "pending", (c.newest.id,))
        assert (a.first, a.newest, a.under_way) == (runs[0], runs[3], ())
        rest = await journal.sessions("agent", before=page.next, limit=2)
        assert ([session.id for session in rest.sessions], rest.next) == (["b"], None)
        assert await journal.session("a", "agent") == a
        for name, kind in (("none", "agent"), ("instances/x", "agent"), ("a", "sequence"), ("", "agent")):
            assert await journal.session(name, kind) is None

    async def test_what_a_session_has_spent_is_counted_by_model(self, journal: Journal) -> None:
        first = await answered(
            journal,
            question("?", "s"),
            "x",
            UsageRecorded(Usage(10, 1), "one", "small"),
            UsageRecorded(Usage(20, 2), "two", "large"),
            UsageRecorded(Usage(30, 3), "one", "small"),
        )
        assert first.finished is not None
        assert first.finished.spent == (
            SpentTokens("one", "small", Usage(40, 4)),
            SpentTokens("two", "large", Usage(20, 2)),
        )
        await answered(journal, question("?", "s"), "y", UsageRecorded(Usage(5, 5), "two", "large"))
        await answered(journal, question("free", "s"), "z")
        session = await journal.session("s", "agent")
        assert session is not None
        assert (session.runs, session.usage) == (3, Usage(65, 11))
        assert session.spent == (SpentTokens("one", "small", Usage(40, 4)), SpentTokens("two", "large", Usage(25, 7)))

    async def test_a_search_looks_in_questions_and_answers(self, journal: Journal) -> None:
        await answered(journal, question("Where is\n“Grüße aus 100%_Köln”?", "a"), "On the shelf.")
        await answered(journal, question("message kind input", "b"), "A SHELF, of course. Ärger!")
        await answered(journal, question("1000 nothing", "c"), "Nothing.")
        await answered(journal, question("later in the same", "a"), "ok")
        assert await found(journal, "shelf") == ["a", "b"]
        assert await found(journal, "GRÜẞE AUS") == ["a"]
        assert await found(journal, "ÄRGER") == ["b"]
        assert await found(journal, "100%_") == ["a"]
        assert await found(journal, "message") == ["b"]  # not the names of stored fields
        for wild in ("%helf", "1_0 ", "0%n", "\\", "“nothing”", "agent", "\0", "'"):
            assert await found(journal, wild) == [], wild
        page = await journal.sessions("agent", search="shelf", limit=1)
        assert [session.id for session in page.sessions] == ["a"]
        assert page.next is not None
        rest = await journal.sessions("agent", search="shelf", before=page.next)
        assert ([session.id for session in rest.sessions], rest.next) == (["b"], None)

    async def test_the_next_run_of_a_session_can_be_waited_for(self, journal: Journal, wall_clock: WallClock) -> None:
        waiting = asyncio.ensure_future(journal.next_run("s", "agent", ""))
        await asyncio.sleep(0)
        await journal.create(question("elsewhere", "t"))
        await journal.create(NewRun("call", session="s"))
        first = await journal.create(question("first", "s"))
        assert (await asyncio.wait_for(waiting, 10.0)).id == first.id
        second, _ = await journal.start(question("second", "s"), "me")
        assert (await journal.next_run("s", "agent", "")).id == first.id
        assert (await journal.next_run("s", "agent", first.id)).id == second.id
        waiting = asyncio.ensure_future(journal.next_run("s", "agent", second.id))
        await asyncio.sleep(0)
        wall_clock.now += 1.0
        third, lease = await journal.start(NewRun("agent", session="s", durability="memory"), "me")
        assert lease is not None
        await journal.seal(lease, RunFinished("completed"))  # a session need not have a run in memory before its end
        assert (await asyncio.wait_for(waiting, 10.0)).id == third.id
        session = await journal.session("s", "agent")
        assert session is not None
        assert (session.runs, session.newest.id) == (3, third.id)
        assert [each.id for each in (await journal.sessions("agent")).sessions] == ["s", "t"]


class RunStoreConformance:
    """Creating, claiming, releasing, writing, listing, compacting and deleting runs."""

    async def test_a_run_begins_with_run_started(self, journal: Journal, wall_clock: WallClock) -> None:
        run = await journal.create(sample_runs.NEW)
        assert (run.state, run.last_seq, run.first_seq, run.claims, run.owner) == ("pending", 1, 1, 0, "")
        assert run == await journal.get(run.id)
        assert await journal.read(run.id) == (events.Entry(1, events.RunStarted("agent", "m", "s", wall_clock.now)),)

    async def test_an_idempotency_key_names_one_run(self, journal: Journal) -> None:
        new = NewRun("call", idempotency_key="k")
        run = await journal.create(new)
        assert await journal.create(new) == run
        assert await journal.start(new, "me") == (run, None)
        assert await journal.runs() == [run]

    async def test_an_unknown_run_is_said(self, journal: Journal) -> None:
        await sample_runs.refused(
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
        run, _ = await sample_runs.started(journal, owner="first")
        with pytest.raises(RunOwned) as refusal:
            await journal.claim(run.id, "second")
        assert refusal.value.owner == "first"
        assert (await journal.get(run.id)).owner == "first"

    async def test_a_run_whose_lease_expired_may_be_claimed_by_others(
        self, journal: Journal, wall_clock: WallClock
    ) -> None:
        run, old = await sample_runs.started(journal)
        await sample_runs.written(journal, old, [events.MessageChunk("a")])
        await journal.renew(old, lease_s=40.0)
        wall_clock.now += 39.0
        await sample_runs.refused(RunOwned, journal.claim(run.id, "other"))
        assert await journal.orphans() == []
        wall_clock.now += 2.0
        assert [orphan.id for orphan in await journal.orphans()] == [run.id]
        new = await journal.claim(run.id, "other")
        assert new.epoch > old.epoch
        assert (await journal.get(run.id)).kills == 1
        with pytest.raises(StaleEpoch):
            journal.append(old, [events.MessageChunk("late")])
        finished = events.RunFinished("completed", "a")
        await sample_runs.refused(StaleEpoch, journal.renew(old), journal.commit(old), journal.seal(old, finished))
        assert await sample_runs.written(journal, new, [events.MessageChunk("b")]) == 3
        assert sample_runs.texts_of(await journal.read(run.id)) == ["a", "b"]

    async def test_a_released_run_is_free_at_once(self, journal: Journal) -> None:
        run, lease = await sample_runs.started(journal)
        journal.append(lease, [events.MessageChunk("a")])
        await journal.release(lease)
        assert (await journal.get(run.id)).state == "pending"
        with pytest.raises(StaleEpoch):
            journal.append(lease, [events.MessageChunk("b")])
        await journal.claim(run.id, "other")
        run = await journal.get(run.id)
        assert (run.kills, run.owner, run.last_seq) == (0, "other", 2)
        await journal.release(lease)  # the old lease: nothing happens
        assert (await journal.get(run.id)).owner == "other"

    async def test_I102_a_parked_run_waits_for_a_person(self, journal: Journal) -> None:
        run, lease = await sample_runs.started(journal)
        await journal.park(lease, events.RunFailure("crash_loop", "it kept crashing"))
        run = await journal.get(run.id)
        assert (run.state, run.parked) == ("parked", events.RunFailure("crash_loop", "it kept crashing"))
        assert (await journal.read(run.id))[-1].event == events.GatewayNotice("parked", "it kept crashing")
        assert await journal.orphans() == []
        await sample_runs.refused(RunParked, journal.claim(run.id, "other"))
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

    async def test_I102_a_run_is_not_parked_by_an_old_count(self, journal: Journal, wall_clock: WallClock) -> None:
        """An owner that seemed dead comes back between the count and the park."""
        run, first = await journal.start(NewRun("agent"), "0")
        assert first is not None
        wall_clock.now += 31.0
        await journal.claim(run.id, "1")
        wall_clock.now += 31.0
        last = await journal.claim(run.id, "2")
        counted = (await journal.get(run.id)).kills
        await journal.release(first)
        await journal.park(last, events.RunFailure(CRASH_LOOP, "it kept crashing"), kills=counted)
        run = await journal.get(run.id)
        assert (counted, run.state, run.parked, run.kills) == (2, "pending", None, 1)
        await journal.claim(run.id, "3")

    async def test_I102_an_owner_that_comes_back_has_not_died(self, journal: Journal, wall_clock: WallClock) -> None:
        """A busy machine renews its leases too late: an owner that is refused and releases has lived all the time."""
        run, first = await journal.start(NewRun("agent"), "0")
        assert first is not None
        leases = [first]
        for number in (1, 2, 3):
            wall_clock.now += 31.0
            leases.append(await journal.claim(run.id, str(number)))
        assert (await journal.get(run.id)).kills == 3
        await journal.release(first)
        await journal.release(first)  # the same one again
        assert (await journal.get(run.id)).kills == 2
        await journal.park(leases[3], events.RunFailure(CRASH_LOOP, "it kept crashing"))
        await journal.release(leases[3])  # it has parked the run itself
        assert (await journal.get(run.id)).state == "parked"
        await journal.release(leases[1])
        run = await journal.get(run.id)
        assert (run.state, run.parked, run.kills) == ("pending", None, 1)
        await journal.release(leases[2])
        assert (await journal.get(run.id)).kills == 0
        await journal.claim(run.id, "4")

    async def test_a_writer_appends_until_its_lease_is_lost(self, journal: Journal) -> None:
        run, lease = await journal.start(NewRun("agent"), "me")
        assert lease is not None
        write = journal.writer(lease)
        write(1, [events.MessageChunk("a")])
        journal.append(lease, [events.MessageChunk("b")])
        write(2, [events.MessageChunk("c"), events.MessageChunk("d")])
        await journal.commit(lease)
        entries = (await journal.read(run.id))[1:]
        assert [entry.event for entry in entries] == [events.MessageChunk(text) for text in "abcd"]
        assert [entry.attempt for entry in entries] == [1, 1, 2, 2]
        await journal.release(lease)
        other = await journal.claim(run.id, "other")
        for late in (write, journal.writer(lease)):
            with pytest.raises(StaleEpoch):
                late(2, [events.MessageChunk("late")])
        await journal.seal(other, events.RunFinished("completed", "abcd"))
        with pytest.raises(RunSealed):
            journal.writer(other)(2, [events.MessageChunk("late")])

    async def test_H99_entries_are_numbered_without_gaps(self, journal: Journal) -> None:
        run, lease = await sample_runs.started(journal)
        assert journal.append(lease, []) == 1
        assert journal.append(lease, [events.MessageChunk("a"), events.MessageChunk("b")]) == 3
        assert journal.append(lease, [events.MessageChunk("c")], attempt=2) == 4
        await journal.commit(lease)
        entries = await journal.read(run.id)
        assert [(entry.seq, entry.attempt) for entry in entries] == [(1, 1), (2, 1), (3, 1), (4, 2)]
        assert (await journal.get(run.id)).last_seq == 4
        assert await journal.read(run.id, after=2) == entries[2:]
        assert await journal.read(run.id, after=4) == ()

    async def test_a_sealed_run_takes_nothing_more(self, journal: Journal) -> None:
        run, lease = await sample_runs.started(journal)
        finished = events.RunFinished("completed", "", Usage(3, 4), at=5.0)
        assert await journal.seal(lease, finished) == events.Entry(2, finished)
        run = await journal.get(run.id)
        assert (run.state, run.finished, run.last_seq, run.owner) == ("completed", finished, 2, "")
        await sample_runs.refused(RunSealed, journal.commit(lease), journal.renew(lease), journal.seal(lease, finished))
        with pytest.raises(RunSealed):
            journal.append(lease, [events.MessageChunk("late")])
        await sample_runs.refused(RunSealed, journal.claim(run.id, "other"))
        await journal.release(lease)
        assert await journal.get(run.id) == run
        assert await journal.orphans() == []

    async def test_a_run_that_is_sealed_soon_ends_without_a_caller_that_waits(self, journal: Journal) -> None:
        (run, lease), told = await sample_runs.started(journal), asyncio.get_running_loop().create_future()
        journal.seal_soon(lease, events.RunFinished("completed"), told.set_result)
        assert (await told, (await journal.get(run.id)).state) == (None, "completed")

    async def test_sealing_refuses_an_output_that_the_log_does_not_show(self, journal: Journal) -> None:
        run, lease = await sample_runs.started(journal)
        journal.append(lease, [events.MessageChunk("wrong"), events.AttemptDiscarded()])
        journal.append(lease, [events.MessageChunk("right")], attempt=2)
        await sample_runs.refused(OutputMismatch, journal.seal(lease, events.RunFinished("completed", "wrongright")))
        assert (await journal.get(run.id)).state == "running"
        await journal.seal(lease, events.RunFinished("completed", "right"))
        entries = await journal.read(run.id)
        assert isinstance(entries[-1].event, events.RunFinished)
        assert fold(entries).output == entries[-1].event.output

    async def test_sealing_after_another_claim_checks_the_whole_log(
        self, journal: Journal, wall_clock: WallClock
    ) -> None:
        run, lease = await sample_runs.started(journal)
        await sample_runs.written(journal, lease, [events.MessageChunk("Hel")])
        wall_clock.now += 31.0
        lease = await journal.claim(run.id, "other")
        journal.append(lease, [events.MessageChunk("lo")], attempt=2)
        await sample_runs.refused(OutputMismatch, journal.seal(lease, events.RunFinished("completed", "lo")))
        await journal.seal(lease, events.RunFinished("completed", "Hello"))

    async def test_durability_in_memory_is_recorded_at_the_end(self, journal: Journal) -> None:
        new = NewRun("call", durability="memory", idempotency_key="m")
        run, lease = await sample_runs.started(journal, new)
        viewer = journal.tail(run.id)
        await sample_runs.written(journal, lease, [events.MessageChunk("a")])
        assert [entry.seq for entry in await anext(viewer)] == [1, 2]
        assert await journal.create(new) == await journal.get(run.id)
        await journal.seal(lease, events.RunFinished("completed", "a"))
        assert (await journal.get(run.id)).new.durability == "memory"
        assert [entry.seq for entry in await journal.read(run.id)] == [1, 2, 3]
        assert [entry.seq for entry in await sample_runs.everything(viewer)] == [3]

    async def test_what_is_due_for_compaction_can_be_listed(self, journal: Journal, wall_clock: WallClock) -> None:
        old = await sample_runs.finished_run(journal)
        wall_clock.now += 10.0
        new = await sample_runs.finished_run(journal)
        cutoff = wall_clock.now - 5.0
        wall_clock.now += 1.0
        open_run, _ = await sample_runs.started(journal)
        assert await journal.runs(ended_before=cutoff, compacted=False) == [old]
        old = await journal.compact(old.id)
        assert await journal.runs(ended_before=cutoff, compacted=False) == []
        assert await journal.runs(compacted=True) == [old]
        assert await journal.runs(compacted=False) == [await journal.get(open_run.id), new]

    async def test_only_what_has_ended_is_compacted_or_deleted(self, journal: Journal) -> None:
        run, lease = await sample_runs.started(journal, NewRun("call", idempotency_key="d"))
        await sample_runs.refused(RunOwned, journal.compact(run.id), journal.delete(run.id))
        await journal.seal(lease, events.RunFinished("completed"))
        await journal.delete(run.id)
        await sample_runs.refused(RunNotFound, journal.get(run.id))
        assert await journal.runs() == []
        again = await journal.create(NewRun("call", idempotency_key="d"))
        assert again.id != run.id
