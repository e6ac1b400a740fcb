"""Who may approve what in a turn, and what a denial, a time-out and a crash make of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from agent.turns import Note, event_of, stage
from tailrace.agent.safety.approval import ApprovalMemory, ApprovalPolicy, ApprovalScope, Asker
from tailrace.agent.turn import Turn
from tailrace.events import ApprovalAnswered, ApprovalAsked, ToolOutputRecorded
from tailrace.messages import user
from tailrace.ports import Effect, Signal
from tailrace.testing.clock import driven
from tailrace.testing.provider import Reply, Scenario, call, reply
from tailrace.testing.provider import scenario as named


async def test_J108_nobody_to_ask_means_no(tmp_path: Path) -> None:
    note = Note(effect=Effect("command", "rm -rf build"))
    async with stage(tmp_path, reply(call("note", {"text": "a"})), reply("Not done."), note=note) as s:
        played = await s.play()
    assert note.notes == []
    (answered,) = played.of(ApprovalAnswered)
    assert isinstance(answered, ApprovalAnswered)
    assert (answered.decision, answered.by) == ("deny", "no surface")


@pytest.mark.parametrize("scenario", ["ok", "no-streaming"])
async def test_J112_a_streamed_call_asks_as_one_that_came_whole(tmp_path: Path, scenario: str) -> None:
    note = Note(effect=Effect("command", "rm -rf build"))
    asks = msgspec.structs.replace(named(scenario), reply=reply(call("note", {"text": "a"})))
    script: list[Scenario | Reply] = (
        [asks, asks, reply("All right.")] if scenario == "no-streaming" else [asks, reply("All right.")]
    )
    async with stage(tmp_path, *script, note=note, asker=Asker("ann", reachable=False)) as s:
        played = await s.play()
        streamed = [request.json().get("stream", False) for request in s.server.requests]
    assert streamed == ([True, False, False] if scenario == "no-streaming" else [True, True])
    assert [event.decision for event in played.events if isinstance(event, ApprovalAnswered)] == ["deny"]
    assert note.notes == []


async def test_J110_J111_only_the_requester_approves_exactly_what_runs(tmp_path: Path) -> None:
    note = Note(effect=Effect("command", "rm -rf build\u202e"))
    asker = Asker("ann", timeout_s=30)
    async with stage(tmp_path, reply(call("note", {"text": "a"})), reply("Done."), note=note, asker=asker) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        asked = await event_of(s, run_id, ApprovalAsked)
        assert asked.command == "rm -rf build\\u{202e}"
        answer = {"approval_id": asked.approval_id, "decision": "once"}
        await s.journal.signal(run_id, Signal("approval", answer, by="mallory"))
        await s.journal.signal(run_id, Signal("approval", answer, by="ann"))
        finished = await running
        played = await s.played(run_id, finished)
    assert note.notes == ["a"]
    assert played.of(ApprovalAnswered) == [ApprovalAnswered(asked.approval_id, "once", "ann")]


async def test_a_denial_says_why_to_the_model_and_to_viewers(tmp_path: Path) -> None:
    note = Note(effect=Effect("command", "rm -rf build"))
    script = [reply(call("note", {"text": "a"})), reply("I see.")]
    secret = "hunter2-hunter2"
    async with stage(tmp_path, *script, note=note, asker=Asker("ann", timeout_s=30), secrets=[secret]) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        asked = await event_of(s, run_id, ApprovalAsked)
        answer = {"approval_id": asked.approval_id, "decision": "deny", "reason": f"use {secret}\u202e instead."}
        await s.journal.signal(run_id, Signal("approval", answer, by="ann"))
        played = await s.played(run_id, await running)
        read = s.server.requests[1].json()["messages"][-1]["content"]
    assert asked.expires_at - asked.asked_at == pytest.approx(30)
    (answered,) = played.of(ApprovalAnswered)
    assert isinstance(answered, ApprovalAnswered)
    assert (answered.by, secret in answered.reason) == ("ann", False)
    assert "Not executed: denied by the user: use [" in read
    assert (secret in read, read.endswith("\\u{202e} instead.")) == (False, True)
    (output,) = played.of(ToolOutputRecorded)
    assert isinstance(output, ToolOutputRecorded)
    assert output.not_executed is not None
    assert (output.not_executed.kind, answered.reason in output.not_executed.reason) == ("denied", True)


@driven
async def test_J108_a_time_out_is_told_as_one(tmp_path: Path) -> None:
    note = Note(effect=Effect("command", "rm -rf build"))
    script = [reply(call("note", {"text": "a"})), reply("I see.")]
    async with stage(tmp_path, *script, note=note, asker=Asker("ann", timeout_s=60)) as s:
        played = await s.play()
    (output,) = played.of(ToolOutputRecorded)
    assert isinstance(output, ToolOutputRecorded)
    assert output.output == "Not executed: it needs an approval, and no answer came within 60 s."
    assert output.not_executed is not None
    assert output.not_executed.kind == "no_answer"


@pytest.mark.parametrize(("by", "kind"), [("timeout", "no_answer"), ("ann", "denied")])
async def test_I106_who_denied_it_before_a_crash_is_known_after_it(tmp_path: Path, by: str, kind: str) -> None:
    note = Note(effect=Effect("command", "rm -rf build"))
    script = [reply(call("note", {"text": "a"})), reply("I see.")]
    async with stage(tmp_path, *script, note=note, asker=Asker("ann", timeout_s=30)) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        asked = await event_of(s, run_id, ApprovalAsked)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        turn = Turn()
        turn.replay(await s.journal.read(run_id))
        turn.apply(ApprovalAnswered(asked.approval_id, "deny", by))
        finished = await s.runner(await s.journal.claim(run_id, "me"), turn).run()
        played = await s.played(run_id, finished)
    (output,) = played.of(ToolOutputRecorded)
    assert isinstance(output, ToolOutputRecorded)
    assert output.not_executed is not None
    assert output.not_executed.kind == kind


async def test_M152_a_directory_that_is_replaced_after_the_approval_makes_it_void(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("a")
    note = Note(effect=Effect("command", "rm -rf build", "link"))
    policy = ApprovalPolicy(scope=ApprovalScope("ann", str(tmp_path)))
    script = [reply(call("note", {"text": "a"})), reply("Done.")]
    async with stage(tmp_path, *script, note=note, asker=Asker("ann", timeout_s=30), policy=policy) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        asked = await event_of(s, run_id, ApprovalAsked)
        assert asked.directory == str(tmp_path / "a")
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("b")
        answer = {"approval_id": asked.approval_id, "decision": "session"}
        await s.journal.signal(run_id, Signal("approval", answer, by="ann"))
        await running
    assert note.notes == []


@pytest.mark.parametrize(("effect", "times_asked"), [("rm -rf build", 1), ("rm -rf other", 2)])
async def test_I106_an_answer_that_came_while_nobody_executed_the_run_counts(
    tmp_path: Path, effect: str, times_asked: int
) -> None:
    """As long as exactly what was asked about would run (J111)."""
    script = [reply(call("note", {"text": "a"})), reply("Done.")]
    note = Note(effect=Effect("command", "rm -rf build"))
    async with stage(tmp_path, *script, note=note, asker=Asker("ann", timeout_s=0.2)) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        asked = await event_of(s, run_id, ApprovalAsked)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        answer = {"approval_id": asked.approval_id, "decision": "once"}
        await s.journal.signal(run_id, Signal("approval", answer, by="ann"))
        note._effect = Effect("command", effect)
        turn = Turn()
        turn.replay(await s.journal.read(run_id))
        finished = await s.runner(await s.journal.claim(run_id, "me"), turn).run()
        played = await s.played(run_id, finished)
    assert len(played.of(ApprovalAsked)) == times_asked
    assert note.notes == (["a"] if times_asked == 1 else [])


async def test_an_always_of_before_a_crash_is_for_its_call_alone(tmp_path: Path) -> None:
    """It may have been taken back since."""
    script = [reply(call("note", {"text": "a"})), reply("Done.")]
    note, memory = Note(effect=Effect("command", "rm -rf build")), ApprovalMemory()
    policy = ApprovalPolicy(memory=memory)
    async with stage(tmp_path, *script, note=note, asker=Asker("ann", timeout_s=30), policy=policy) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        asked = await event_of(s, run_id, ApprovalAsked)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        lease = await s.journal.claim(run_id, "me")
        s.journal.append(lease, [ApprovalAnswered(asked.approval_id, "always", "ann")])
        await s.journal.commit(lease)
        turn = Turn()
        turn.replay(await s.journal.read(run_id))
        await s.runner(lease, turn).run()
    assert note.notes == ["a"]
    assert not await memory.holds(asked.digest)


async def test_the_hard_list_is_refused_whatever_the_mode(tmp_path: Path) -> None:
    note = Note(effect=Effect("command", "rm -rf /"))
    async with stage(
        tmp_path, reply(call("note", {"text": "a"})), reply("No."), note=note, policy=ApprovalPolicy("yolo")
    ) as s:
        played = await s.play()
    assert note.notes == []
    assert played.of(ApprovalAsked) == []
