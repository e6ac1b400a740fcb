"""Turns against the misbehaving provider over a real socket: what is shown, what is stored and what is run of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.turns import event_of, stage
from tailrace.agent.turn import Finish, Turn, TurnLimits
from tailrace.config.sections import CallPolicy
from tailrace.events import (
    AnyEvent,
    Commentary,
    GatewayNotice,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    NotExecuted,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    ToolCallChunk,
    ToolCallFinished,
)
from tailrace.messages import Dialect, Message, ToolResult, Usage, assistant, user
from tailrace.ports import NewRun, Signal
from tailrace.runs.signals import stop_failure, stop_signal
from tailrace.testing.clock import driven
from tailrace.testing.provider import Break, Offset, Reply, Scenario, call, reply, think

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
LONG = "x" * 400
CALLS = reply("I will note it.", call("note", {"text": LONG}))
IN_THE_CALL = Break("cut", Offset(70, per_cent=True))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_is_shown_as_it_comes_and_stored_as_it_was(tmp_path: Path, dialect: Dialect) -> None:
    async with stage(tmp_path, reply(think("hm"), "Hello there."), dialect=dialect) as s:
        played = await s.play()
    assert played.finished.status == "completed"
    assert played.shown == played.finished.output == "Hello there."
    assert "".join(e.text for e in played.of(ReasoningChunk) if isinstance(e, ReasoningChunk)) == "hm"
    assert played.of(MessageStop) == [MessageStop(final=True)]
    assert isinstance(played.events[-1], RunFinished)
    assert isinstance(played.events[-2], MessageStop)
    assert played.finished.usage.output_tokens > 0


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_tool_call_runs_once_between_two_messages(tmp_path: Path, dialect: Dialect) -> None:
    async with stage(
        tmp_path, reply("I will note it.", call("note", {"text": "a"})), reply("Done."), dialect=dialect
    ) as s:
        played = await s.play()
        second = s.server.requests[1].json()
    assert s.note.notes == ["a"]
    assert played.finished.output == "Done."
    assert played.of(ToolCallChunk) == [ToolCallChunk("note", "a", {"text": "a"}, 0)]
    (finished,) = played.of(ToolCallFinished)
    assert isinstance(finished, ToolCallFinished)
    assert (finished.ok, finished.index) == (True, 0)
    assert "noted a" in str(second)
    ignored = ("AttemptStarted", "UsageRecorded", "ToolArgumentsChunk")
    order = [n for n in played.names if n not in ignored]
    assert order == [
        "RunStarted",
        "MessageRecorded",
        "MessageChunk",
        "MessageRecorded",
        "MessageStop",
        "ToolCallChunk",
        "ToolOutputRecorded",
        "ToolCallFinished",
        "MessageChunk",
        "MessageRecorded",
        "MessageStop",
        "RunFinished",
    ]


LOST = NotExecuted("note", "", "the stream broke off before the call was whole", "lost")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_B38_a_call_cut_every_time_is_named_and_never_run(tmp_path: Path, dialect: Dialect) -> None:
    script = [Scenario(reply=CALLS, broken=IN_THE_CALL)] * 3
    async with stage(tmp_path, *script, dialect=dialect) as s:
        played = await s.play()
    warning = (
        "⚠ Stream stalled mid tool-call (note); the action was not executed. Ask me to retry if you want to continue."
    )
    assert s.note.notes == []
    assert played.finished.status == "incomplete"
    assert played.finished.output == played.shown == f"I will note it.\n\n{warning}"
    recorded = played.of(MessageRecorded)[-1]
    assert isinstance(recorded, MessageRecorded)
    assert recorded.message.text == played.shown
    assert recorded.message.tool_calls == ()
    assert played.finished.not_executed == (LOST,)
    assert len(s.server.requests) == 3


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_B38_with_a_good_attempt_left_the_call_is_made_once_and_the_text_appears_once(
    tmp_path: Path, dialect: Dialect
) -> None:
    script: list[Scenario | Reply] = [Scenario(reply=CALLS, broken=IN_THE_CALL), CALLS, reply("Done.")]
    async with stage(tmp_path, *script, dialect=dialect) as s:
        played = await s.play()
    assert s.note.notes == [LONG]
    assert played.shown == "I will note it.Done."
    assert played.finished.status == "completed"
    assert played.finished.output == "Done."


async def test_E63_text_only_and_cut_for_good_stands_without_a_warning(tmp_path: Path) -> None:
    text = "One two three four five six seven eight nine ten"
    cut = Scenario(reply=reply(text), broken=Break("cut", Offset(60, per_cent=True)))
    async with stage(tmp_path, cut, "status-500", "status-500") as s:
        played = await s.play()
    assert played.finished.status == "incomplete"
    assert played.finished.output == played.shown
    assert played.shown
    assert text.startswith(played.shown)
    assert "⚠" not in played.shown


async def test_E63_text_that_was_cut_goes_on_without_a_seam(tmp_path: Path) -> None:
    text = "One two three four five six seven eight nine ten"
    cut = Scenario(reply=reply(text), broken=Break("cut", Offset(60, per_cent=True)))
    async with stage(tmp_path, cut, reply(text)) as s:
        played = await s.play()
    assert (played.shown, played.finished.output, played.finished.status) == (text, text, "completed")


@driven
async def test_E59_a_stall_is_announced_and_recovered_from(tmp_path: Path) -> None:
    stalled = Scenario(reply=CALLS, broken=Break("stall", Offset(70, per_cent=True)))
    policy = CallPolicy(idle_timeout_s=240, max_attempts=2)
    async with stage(tmp_path, stalled, stalled, call_policy=policy) as s:
        played = await s.play()
    notices = [event.text for event in played.events if isinstance(event, GatewayNotice)]
    assert notices == ["⚠️ No response from provider for 240s … Reconnecting…"]
    assert "(note); the action was not executed" in played.shown
    assert played.finished.status == "incomplete"
    assert s.note.notes == []


async def test_a_provider_that_refuses_fails_the_run_with_its_reason(tmp_path: Path) -> None:
    async with stage(tmp_path, "status-401") as s:
        played = await s.play()
    assert played.finished.status == "failed"
    assert played.finished.error is not None
    assert played.finished.error.message.startswith("faulty: ")
    assert played.of(MessageStop) == [MessageStop(final=True)]


async def test_text_that_came_whole_before_a_tool_is_commentary(tmp_path: Path) -> None:
    whole = Scenario(reply=reply("I will note it.", call("note", {"text": "a"})), instead="no-streaming")
    async with stage(tmp_path, whole, whole, reply("Done.")) as s:
        played = await s.play()
    assert played.of(Commentary) == [Commentary("I will note it.")]
    assert played.finished.output == "Done."


@pytest.mark.parametrize("at", [0, 40, 70])
async def test_F68_a_stop_keeps_the_text_and_leaves_a_valid_history(tmp_path: Path, at: int) -> None:
    silent = Scenario(reply=CALLS, broken=Break("stall", Offset(at, per_cent=True)))
    async with stage(tmp_path, silent) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        request = await s.server.request(0)
        if at:
            await event_of(s, run_id, MessageChunk)
        await s.journal.signal(run_id, Signal("stop"))
        finished = await running
        played = await s.played(run_id, finished)
        await request.over.wait()
    assert request.disconnected_at is not None
    assert finished.status == "stopped"
    assert finished.output == played.shown
    assert s.note.notes == []
    assert played.of(MessageStop)[-1] == MessageStop(final=True)


@pytest.mark.parametrize("signals", [(), (stop_signal(by="telegram:7"),), (stop_signal(by="ann", newer=True),)])
@driven
async def test_who_stopped_a_run_is_known_after_a_crash_before_its_seal(
    tmp_path: Path, signals: tuple[Signal, ...]
) -> None:
    async with stage(tmp_path) as s:
        run, lease = await s.journal.start(NewRun("agent", session="s"), "me")
        assert lease is not None
        events: list[AnyEvent] = [
            MessageRecorded(user("go")),
            MessageChunk("One"),
            MessageRecorded(assistant("One"), "stopped"),
        ]
        s.journal.append(lease, events)
        await s.journal.commit(lease)
        for signal in signals:
            await s.journal.signal(run.id, signal)
        turn = Turn()
        turn.replay(await s.journal.read(run.id))
        loop = asyncio.get_running_loop()
        began = loop.time()
        finished = await s.runner(lease, turn).run()
        assert loop.time() - began < 1  # nothing is waited for
        played = await s.played(run.id, finished)
    known = stop_failure(signals[0]) if signals else RunFailure("stopped", "interrupted")
    assert (finished.status, finished.output, finished.error) == ("stopped", "One", known)
    assert played.events[1:] == [*events, MessageStop(final=True), finished]


async def test_a_run_that_was_cancelled_goes_on_from_its_facts(tmp_path: Path) -> None:
    text = "One two three four five six seven eight nine ten"
    stalled = Scenario(reply=reply(text), broken=Break("stall", Offset(60, per_cent=True)))
    async with stage(tmp_path, stalled, reply(text)) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        await event_of(s, run_id, MessageChunk)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        lease = await s.journal.claim(run_id, "me")
        turn = Turn()
        turn.replay(await s.journal.read(run_id))
        finished = await s.runner(lease, turn).run()
        played = await s.played(run_id, finished)
    assert (played.shown, finished.output, finished.status) == (text, text, "completed")


async def test_J113_J114_a_secret_never_reaches_the_log(tmp_path: Path) -> None:
    key = "sk-very-secret-key"
    script = [reply(f"It is {key} , ok", call("note", {"text": key})), reply("Done.")]
    async with stage(tmp_path, *script, secrets=[key]) as s:
        played = await s.play()
    assert key not in str(played.events)
    assert "[redacted]" in played.shown
    assert s.note.notes == ["[redacted]"]


async def test_budgets_end_a_turn_with_words(tmp_path: Path) -> None:
    again = reply(call("note", {"text": "a"}))
    async with stage(tmp_path, again, again, limits=TurnLimits(max_calls=2)) as s:
        played = await s.play()
    assert played.finished.status == "incomplete"
    assert "stopped after 2 model calls" in played.finished.output
    assert s.note.notes == ["a", "a"]


async def test_a_token_budget_reaches_the_call_in_flight(tmp_path: Path) -> None:
    """What is left of it is all that the model may write; used up, the turn says so."""
    script = [Reply(reply(call("note", {"text": "a"})).blocks, usage=Usage(400, 300)), reply("Done.")]
    async with stage(tmp_path, *script, limits=TurnLimits(max_tokens=1000)) as s:
        played = await s.play()
        asked = [request.json() for request in s.server.requests]
    assert played.finished.output == "Done."
    assert [body["max_tokens"] for body in asked] == [1000, 300]
    async with stage(tmp_path, *script, limits=TurnLimits(max_tokens=700)) as s:
        played = await s.play()
    assert played.finished.status == "incomplete"
    assert "stopped after 700 tokens" in played.finished.output


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("said", "shown", "status"),
    [
        ("The <think> tag is for thoughts.", "The <think> tag is for thoughts.", "completed"),
        ("  1. Write `<think>`.", "  1. Write `<think>`.", "completed"),
        ("<thought>Hm.</thought>\nYes.", "Yes.", "completed"),
        ("<think>Hm, and no end", "", "incomplete"),
        ("<think>Hm.</think>\n\n", "", "incomplete"),
    ],
)
async def test_M150_C43_what_is_shown_of_an_answer_with_tags(
    tmp_path: Path, said: str, shown: str, status: str, whole: bool
) -> None:
    """Streamed or whole. An answer that is nothing but thoughts is told as incomplete."""
    scenario = Scenario(reply=reply(said), instead="no-streaming" if whole else None)
    async with stage(tmp_path, *[scenario] * 2) as it:
        played = await it.play()
    assert (played.shown, played.finished.output, played.finished.status) == (shown, shown, status)
    assert (played.finished.error is None) == (status == "completed")


async def test_the_askers_own_tools_come_back_to_them(tmp_path: Path) -> None:
    async with stage(tmp_path, reply("Look.", call("theirs", {"x": 1})), foreign=("theirs",)) as s:
        _, runner = await s.start()
        finished = await runner.run(user("go"))
    assert finished.status == "completed"
    assert [c.name for due in runner.turn.due() if isinstance(due, Finish) for c in due.calls] == ["theirs"]


async def test_the_history_of_a_tool_turn_is_whole(tmp_path: Path) -> None:
    async with stage(tmp_path, reply(call("note", {"text": "a"}, id="c1")), reply("Done.")) as s:
        _, runner = await s.start()
        await runner.run(user("go"))
        messages = runner.turn.messages
    assert messages[0] == user("go")
    assert messages[2] == Message("tool", (ToolResult("c1", "noted a"),))
    assert messages[3] == assistant("Done.")
