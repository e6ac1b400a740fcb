"""Approvals that hold beyond one call: after a restart, and in every process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tailrace.app.approvals import JournalApprovals, always_approved
from tailrace.events import ApprovalAnswered, ApprovalAsked, Decision, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.open_journal import open_journal
from tailrace.ports import Journal, NewRun, Run
from tailrace.testing.conformance.journal import started


async def run_with_answer(journal: Journal, session: str, digest: str, decision: Decision) -> Run:
    run, lease = await started(journal, NewRun("agent", session=session))
    asked = ApprovalAsked(f"apr_{digest}", "terminal", "rm -rf build", digest)
    journal.append(lease, [asked, ApprovalAnswered(asked.approval_id, decision)])
    await journal.seal(lease, RunFinished("completed"))
    return run


async def test_what_is_always_allowed_holds_after_a_restart(tmp_path: Path) -> None:
    for approved in (False, True):
        async with open_journal("sqlite:///t.db", tmp_path / "t.db") as journal:
            run, _ = await started(journal, NewRun("agent"))
            approvals = JournalApprovals(journal, run)
            assert await approvals.holds("d1") is approved
            await approvals.remember("d1", "always")
            assert await JournalApprovals(journal, run).holds("d1")
            assert not await approvals.holds("d2")


async def test_two_processes_that_approve_at_once_lose_nothing(tmp_path: Path) -> None:
    async with (
        open_journal("sqlite:///t.db", tmp_path / "t.db") as one,
        open_journal("sqlite:///t.db", tmp_path / "t.db") as two,
    ):
        run, _ = await started(one, NewRun("agent"))
        memories = [JournalApprovals(one, run), JournalApprovals(two, run)]
        await asyncio.gather(
            *(
                memory.remember(f"d{number}-{index}", "always")
                for number in range(20)
                for index, memory in enumerate(memories)
            )
        )
        assert set(await always_approved(one).all()) == {
            f"d{number}-{index}" for number in range(20) for index in (0, 1)
        }
        assert await memories[0].holds("d7-1"), "what the other process approved is known here"


async def test_a_session_s_approvals_are_read_from_its_log() -> None:
    journal = MemoryJournal()
    for digest, decision in (("d1", "session"), ("d2", "once"), ("d3", "deny")):
        await run_with_answer(journal, "s", digest, decision)  # type: ignore[arg-type]
    for _ in range(60):  # more than a page
        run, _ = await started(journal, NewRun("agent", session="s"))
    approvals = JournalApprovals(journal, run)
    assert [digest for digest in ("d1", "d2", "d3") if await approvals.holds(digest)] == ["d1"]
    await approvals.remember("d4", "session")
    assert await approvals.holds("d4")
    other, _ = await started(journal, NewRun("agent", session="t"))
    assert not await JournalApprovals(journal, other).holds("d1")


async def test_without_a_session_an_approval_is_the_run_s_own() -> None:
    journal = MemoryJournal()
    run = await run_with_answer(journal, "", "d1", "session")
    assert await JournalApprovals(journal, run).holds("d1")
    other, _ = await started(journal, NewRun("agent"))
    assert not await JournalApprovals(journal, other).holds("d1")
