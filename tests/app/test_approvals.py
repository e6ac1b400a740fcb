"""Approvals that hold beyond one call: after a restart, and in every process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from server.http_server import config_for
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.app.approvals import (
    MAX_TEXT,
    AlwaysApproval,
    AlwaysApprovals,
    JournalApprovals,
    QuestionsElsewhere,
    WaitingApproval,
    find_approval,
)
from tailrace.errors import TailraceError
from tailrace.events import ApprovalAnswered, ApprovalAsked, Decision, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.open_journal import open_journal
from tailrace.messages import user
from tailrace.ports import Journal, NewRun, Run
from tailrace.testing.conformance.sample_runs import started
from tailrace.testing.provider import FaultyProvider, call, reply


def asked_about(digest: str) -> ApprovalAsked:
    return ApprovalAsked(f"apr_{digest}", "terminal", "rm -rf build", digest, "ann", directory="/srv/a", session="s")


async def approve(approvals: JournalApprovals, digest: str, decision: Decision) -> None:
    await approvals.remember(asked_about(digest), ApprovalAnswered(f"apr_{digest}", decision, "ann"))


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
            await approve(approvals, "d1", "always")
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
                approve(memory, f"d{number}-{index}", "always")
                for number in range(20)
                for index, memory in enumerate(memories)
            )
        )
        assert {approval.id for approval in await AlwaysApprovals(one).listed()} == {
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
    await approve(approvals, "d4", "session")
    assert await approvals.holds("d4")
    other, _ = await started(journal, NewRun("agent", session="t"))
    assert not await JournalApprovals(journal, other).holds("d1")


async def test_without_a_session_an_approval_is_the_run_s_own() -> None:
    journal = MemoryJournal()
    run = await run_with_answer(journal, "", "d1", "session")
    assert await JournalApprovals(journal, run).holds("d1")
    other, _ = await started(journal, NewRun("agent"))
    assert not await JournalApprovals(journal, other).holds("d1")


# ── what is known of them ────────────────────────────────────────────────────────────────────────────────────


async def test_always_is_kept_with_what_was_shown_to_whom_and_when() -> None:
    journal = MemoryJournal()
    run, _ = await started(journal, NewRun("agent", session="s"))
    before = round(time.time(), 3)
    for digest, decision in (("d1", "always"), ("d2", "session"), ("d3", "once")):
        await approve(JournalApprovals(journal, run), digest, decision)  # type: ignore[arg-type]
    [kept] = await AlwaysApprovals(journal).listed()
    assert before <= kept.at <= round(time.time(), 3)
    assert msgspec.structs.replace(kept, at=1.0) == AlwaysApproval(
        "d1", "terminal", "rm -rf build", "/srv/a", requester="ann", by="ann", run_id=run.id, at=1.0
    )


async def test_a_long_command_is_kept_as_far_as_it_is_read() -> None:
    journal = MemoryJournal()
    run, _ = await started(journal, NewRun("agent"))
    asked = ApprovalAsked("a1", "post", "x" * 100_000, "d1", directory="/" + "y" * 5000)
    await JournalApprovals(journal, run).remember(asked, ApprovalAnswered("a1", "always"))
    [kept] = await AlwaysApprovals(journal).listed()
    assert kept.command == "x" * (MAX_TEXT - 1) + "…"
    assert len(kept.directory) == MAX_TEXT


async def test_what_is_taken_back_in_one_process_is_asked_about_in_another_at_once(tmp_path: Path) -> None:
    async with (
        open_journal("sqlite:///t.db", tmp_path / "t.db") as server,
        open_journal("sqlite:///t.db", tmp_path / "t.db") as operator,
    ):
        run, _ = await started(server, NewRun("agent"))
        approvals = JournalApprovals(server, run)
        for digest in ("d1", "d2"):
            await approve(approvals, digest, "always")
            assert await approvals.holds(digest)
        always = AlwaysApprovals(operator)
        first = find_approval(await always.listed(), "d1")
        await always.forget(first)
        assert [await approvals.holds(digest) for digest in ("d1", "d2")] == [False, True]
        assert [approval.id for approval in await AlwaysApprovals(server).listed()] == ["d2"]
        await always.forget(first)  # again is nothing
        await always.forget(find_approval(await always.listed(), "d2"))
        assert await server.list_values("approvals.always") == {}


async def test_what_is_given_again_while_it_is_taken_back_holds() -> None:
    journal = MemoryJournal()
    always = AlwaysApprovals(journal)
    old, new = AlwaysApproval("d1", "terminal", at=1.0), AlwaysApproval("d1", "terminal", at=2.0)
    await always.add(old)
    await always.add(new)
    await always.forget(old)  # as it was listed before
    assert await always.listed() == [new]


def test_an_approval_is_named_by_the_beginning_of_its_id() -> None:
    approvals = [AlwaysApproval("abc1"), AlwaysApproval("abd2"), AlwaysApproval("f00")]
    assert find_approval(approvals, " ABC ").id == "abc1"
    assert find_approval(approvals, "f").id == "f00"
    for word in ("", " ", "e", "abc12"):
        with pytest.raises(TailraceError, match="there is no approval"):
            find_approval(approvals, word)
    with pytest.raises(TailraceError, match="several approvals begin with 'ab': abc1, abd2; write more of the id"):
        find_approval(approvals, "ab")


@pytest.mark.parametrize(
    ("requester", "server", "is_asked"),
    [
        ("ann", "", True),
        ("cli", "", False),  # asked where the run is shown
        ("telegram:7", "", False),  # asked in the chat
        ("ann", "server: {keys: [{name: ann, key_env: ANN}]}\n", False),  # no key answers in a terminal
    ],
)
async def test_N168_whose_questions_are_asked_at_another_surface(
    tmp_path: Path, requester: str, server: str, is_asked: bool
) -> None:
    script = [reply(call("terminal", {"command": "rm -rf ./x"})), reply("I see.")]
    async with FaultyProvider(script=script) as provider:
        config = config_for(provider, tmp_path, config=server, env={"ANN": "ann-key-0123456789"})
        async with open_app(config, directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("?"), requester=requester, reachable=True))
            async for _ in app.journal.tail(run.id):
                if listed := await app.waiting.listed():
                    break
            surface = AskedSurface()
            questions = QuestionsElsewhere(app.agents, app.waiting, app.config, "cli", lambda: app.stored_keys)
            assert questions.is_asked(listed[0]) == is_asked
            if not is_asked:
                await app.agents.stop(run.id)
                return
            watching = asyncio.create_task(questions.watch(surface))
            assert await surface.next_change() == [run.id]
            await questions.answer(listed[0].asked.approval_id, "deny")
            assert await surface.next_change() == []
            assert (await app.agents.finished(run.id)).output == "I see."
            watching.cancel()


class AskedSurface:
    """A surface that notes what it asks."""

    def __init__(self) -> None:
        self.waiting: list[WaitingApproval] = []
        self._changed = asyncio.Event()

    def ask(self, waiting: WaitingApproval) -> None:
        self.waiting.append(waiting)
        self._changed.set()

    def take_away(self, waiting: WaitingApproval, answer: ApprovalAnswered | None) -> None:
        assert answer is not None
        assert (answer.decision, answer.by) == ("deny", "cli")
        self.waiting.remove(waiting)
        self._changed.set()

    async def next_change(self) -> list[str]:
        async with asyncio.timeout(20):
            await self._changed.wait()
        self._changed.clear()
        return [waiting.run.id for waiting in self.waiting]
