"""What every `RunStore` must know of sessions; a part of `JournalConformance`."""

from __future__ import annotations

import asyncio

from tailrace.events import MessageChunk, MessageStop, RunFinished, UsageRecorded
from tailrace.messages import SpentTokens, Usage
from tailrace.ports import Journal, NewRun, Run
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
        kept = NewRun("agent", session="s", durability="memory")
        third, _ = await journal.start(kept, "me")
        assert (await asyncio.wait_for(waiting, 10.0)).id == third.id
        session = await journal.session("s", "agent")
        assert session is not None
        assert (session.runs, session.newest.id) == (3, third.id)
        assert [each.id for each in (await journal.sessions("agent")).sessions] == ["s", "t"]
