from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.turns import Note, NoteArgs, event_of, stage
from tailrace.agent.tool_runner import MAX_FILES_BYTES
from tailrace.agent.turn import Turn, TurnLimits
from tailrace.config.sections import CallPolicy
from tailrace.events import (
    AnyEvent,
    Commentary,
    GatewayNotice,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    from_json,
    to_json,
)
from tailrace.messages import Dialect, Message, ModelRequest, ToolCall, ToolFile, ToolResult, Usage, assistant, user
from tailrace.ports import NewRun, Signal, ToolContext, ToolOutcome
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


async def test_B34_arguments_that_are_no_object_are_answered_not_run(tmp_path: Path) -> None:
    script = [reply(call("note", '["a"]')), reply("I see.")]
    async with stage(tmp_path, *script) as s:
        played = await s.play()
    assert s.note.notes == []
    (output,) = played.of(ToolOutputRecorded)
    assert isinstance(output, ToolOutputRecorded)
    assert (output.ok, "not executed" in output.output) == (False, True)
    assert played.finished.status == "completed"


@pytest.mark.parametrize(
    ("made", "said"),
    [(call("nothing", {}), "There is no tool named 'nothing'"), (call("note", {"text": 3}), "Invalid arguments")],
)
async def test_B35_calls_that_make_no_sense_are_answered(tmp_path: Path, made: Any, said: str) -> None:
    async with stage(tmp_path, reply(made), reply("I see.")) as s:
        played = await s.play()
    (output,) = played.of(ToolOutputRecorded)
    assert isinstance(output, ToolOutputRecorded)
    assert said in output.output
    assert not output.ok


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


async def test_a_stop_while_a_tool_runs_ends_the_tool(tmp_path: Path) -> None:
    began = asyncio.Event()

    class Slow(Note):
        async def execute(self, args: Any, context: Any) -> Any:
            now = asyncio.get_running_loop().time
            worked_until = now() + 0.002
            while now() < worked_until:
                pass
            began.set()
            await asyncio.Event().wait()

    async with stage(tmp_path, reply(call("note", {"text": "a"}), call("note", {"text": "b"})), note=Slow()) as s:
        run_id, runner = await s.start()
        running = asyncio.ensure_future(runner.run(user("go")))
        await began.wait()
        await s.journal.signal(run_id, Signal("stop"))
        finished = await running
        played = await s.played(run_id, finished)
    outputs = [e.output for e in played.events if isinstance(e, ToolOutputRecorded)]
    assert finished.status == "stopped"
    assert "may or may not have taken effect" in outputs[0]
    assert "was not executed" in outputs[1]
    ended = [e for e in played.events if isinstance(e, ToolCallFinished)]
    assert [e.ok for e in ended] == [False]
    assert ended[0].duration >= 0.002  # how long it had run


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


class _Broken(Note):
    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        return ToolOutcome("half a pair: \ud83d")


async def test_A18_a_lone_surrogate_from_a_tool_is_replaced(tmp_path: Path) -> None:
    async with stage(tmp_path, reply(call("note", {"text": "a"})), reply("I see."), note=_Broken()) as it:
        played = await it.play()
        asked = it.server.requests[1].json()["messages"]
    assert played.finished.status == "completed"
    assert asked[-1]["content"] == "half a pair: \ufffd"


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


class _Drawing(Note):
    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        files = (
            ToolFile("chart.png", "image/png", b"\x89PNG"),
            ToolFile("all.bin", "application/octet-stream", bytes(MAX_FILES_BYTES)),
            ToolFile("notes.txt", "text/plain", b"the key is sk-very-secret-key"),
        )
        return ToolOutcome("drawn", files=files)


async def test_files_of_a_tool_are_on_record_for_the_user(tmp_path: Path) -> None:
    """Without secrets, and within bounds; what does not fit is named to the model. They survive the log's JSON."""
    script = (reply(call("note", {"text": "a"})), reply("Here it is."))
    async with stage(tmp_path, *script, note=_Drawing(), secrets=["sk-very-secret-key"]) as it:
        played = await it.play()
    (fact,) = (event for event in played.events if isinstance(event, ToolOutputRecorded))
    assert fact == ToolOutputRecorded(
        fact.call_id,
        "note",
        f"drawn\n[all.bin: {MAX_FILES_BYTES} bytes, too large to be shown]",
        files=(
            ToolFile("chart.png", "image/png", b"\x89PNG"),
            ToolFile("notes.txt", "text/plain", b"the key is [redacted]"),
        ),
    )
    assert from_json(to_json(fact)) == fact
    (told,) = (event for event in played.events if isinstance(event, GatewayNotice))
    assert (told.kind, told.extra) == ("file_left_out", {"name": "all.bin", "bytes": MAX_FILES_BYTES})
    assert told.text == "all.bin (8.0 MiB) is not shown: the files of one tool call may have 8 MiB."
    finished = next(event for event in played.events if isinstance(event, ToolCallFinished))
    assert played.events.index(told) == played.events.index(finished) + 1, "below the tool's line"
    (asked,) = [message for message in it.server.requests[1].json()["messages"] if message["role"] == "user"][1:]
    assert asked["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}]


async def test_parallel_tools_run_side_by_side(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    class Meeting(Note):
        async def execute(self, args: Any, context: Any) -> Any:
            await both.wait()
            return await super().execute(args, context)

    script = [reply(call("note", {"text": "a"}), call("note", {"text": "b"})), reply("Done.")]
    async with stage(tmp_path, *script, note=Meeting(parallel=True)) as s:
        played = await s.play()
    assert sorted(s.note.notes) == ["a", "b"]
    assert played.finished.status == "completed"


async def test_a_full_context_is_compressed_between_calls(tmp_path: Path) -> None:
    history = [user("a" * 4000), assistant("b" * 4000), user("c"), assistant("d")]
    async with stage(tmp_path, reply("They spoke of a and b."), reply("Hi."), context_tokens=2000) as s:
        played = await s.play("And now?", history)
        asked = s.server.requests[1].json()
    assert played.finished.output == "Hi."
    assert "HistoryCompressed" in played.names
    assert "They spoke of a and b." in str(asked)
    assert "a" * 100 not in str(asked)


async def test_a_history_that_cannot_be_summarised_stays_as_it_is(tmp_path: Path) -> None:
    history = [user("a" * 4000), assistant("b" * 4000), user("c"), assistant("d")]
    script: list[str | Reply] = ["status-400", reply(call("note", {"text": "x"})), reply("Hi.")]
    async with stage(tmp_path, *script, context_tokens=2000) as s:
        played = await s.play("And now?", history)
        asked = [request.json() for request in s.server.requests]
    assert played.finished.output == "Hi."
    assert [event.kind for event in played.events if isinstance(event, GatewayNotice)] == [
        "compressing",
        "compression_failed",
    ]
    assert len(asked) == 3  # tried once, not before each call
    assert "a" * 4000 in str(asked[1])


async def test_a_history_that_the_provider_finds_too_long_is_summarised_and_the_question_asked_again(
    tmp_path: Path,
) -> None:
    history = [user("a" * 4000), assistant("b" * 4000), user("c"), assistant("d")]
    async with stage(tmp_path, "status-413", reply("They spoke of a and b."), reply("Hi.")) as s:
        played = await s.play("And now?", history)
        refused, _, asked = (str(request.json()["messages"]) for request in s.server.requests)
    assert (played.finished.status, played.finished.output, played.shown) == ("completed", "Hi.", "Hi.")
    assert ("a" * 4000 in refused, "a" * 100 in asked) == (True, False)
    assert ("They spoke of a and b." in asked, "And now?" in asked) == (True, True)


TOO_MUCH = "0123456789" * 1000


class _Chatty(Note):
    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        return ToolOutcome(TOO_MUCH)


async def test_what_a_tool_gave_is_shortened_where_it_is_too_long_for_the_model(tmp_path: Path) -> None:
    history = [user("a"), assistant("b")]
    script: list[str | Reply] = [reply(call("note", {"text": "a"})), "status-413", reply("Noted.")]
    async with stage(tmp_path, *script, note=_Chatty()) as s:
        played = await s.play("Note it.", history)
        refused, asked = (request.json()["messages"] for request in s.server.requests[1:])
    assert (played.finished.status, played.finished.output) == ("completed", "Noted.")
    assert [message["role"] for message in asked] == [message["role"] for message in refused]
    given = asked[-1]["content"]
    assert given.startswith("0123456789")
    assert "characters are left out: all of it is too long for you" in given
    assert len(given) < 4000
    assert [event.kind for event in played.events if isinstance(event, GatewayNotice)] == ["shortened"]
    assert TOO_MUCH in str(played.of(ToolOutputRecorded)), "the log has all of it"


async def test_a_history_is_summarised_from_parts_of_what_tools_gave_where_all_of_it_is_too_long(
    tmp_path: Path,
) -> None:
    asked_for = Message("assistant", (ToolCall("c1", "note", "{}"),))
    history = [user("a"), asked_for, Message("tool", (ToolResult("c1", TOO_MUCH),)), assistant("b")]
    script: list[str | Reply] = ["status-413", "status-413", reply("They noted much."), reply("Hi.")]
    async with stage(tmp_path, *script) as s:
        played = await s.play("And now?", history)
        summarised, asked = (str(request.json()["messages"]) for request in s.server.requests[2:])
    assert played.finished.output == "Hi."
    assert (TOO_MUCH in summarised, "characters are left out" in summarised) == (False, True)
    assert ("They noted much." in asked, "0123456789" in asked) == (True, False)


async def test_what_tools_gave_is_shortened_until_it_fits_where_no_part_of_it_can_be_summarised(tmp_path: Path) -> None:
    asked_for = Message("assistant", (ToolCall("c1", "note", "{}"),))
    history = [user("a"), asked_for, Message("tool", (ToolResult("c1", TOO_MUCH * 2),)), assistant("b")]
    script: list[str | Reply] = ["status-413", "status-413", "status-413", "status-413", reply("Hi.")]
    async with stage(tmp_path, *script) as s:
        played = await s.play("And now?", history)
        asked = [len(str(request.json()["messages"])) for request in s.server.requests]
    assert (played.finished.status, played.finished.output) == ("completed", "Hi.")
    assert asked[0] > 20_000 > asked[3] > 5000 > asked[4]
    notices = [event.kind for event in played.events if isinstance(event, GatewayNotice)]
    assert notices == ["compressing", "compression_failed", "shortened", "shortened"]


@pytest.mark.parametrize(
    ("script", "question", "asked"),
    [
        (["status-413"], "long " * 2000, 1),  # the question is what is too long
        (["status-413", "status-413"], "And now?", 2),  # no summary
        (["status-413", reply("In short."), "status-413"], "And now?", 3),  # the tools alone are too long
    ],
)
async def test_a_request_that_no_summary_makes_short_enough_fails(
    tmp_path: Path, script: list[str | Reply], question: str, asked: int
) -> None:
    history = [user("a" * 4000), assistant("b" * 4000), user("c"), assistant("d")]
    async with stage(tmp_path, *script) as s:
        played = await s.play(question, history)
        assert len(s.server.requests) == asked
    assert played.finished.error is not None
    assert (played.finished.status, played.finished.error.status) == ("failed", 413)


@pytest.mark.parametrize(("script", "context_tokens"), [(["status-413"], 128_000), ([], 2000)])
async def test_a_summary_that_uses_up_the_tokens_of_the_turn_ends_it_with_words(
    tmp_path: Path, script: list[str | Reply], context_tokens: int
) -> None:
    history = [user("a" * 4000), assistant("b" * 4000), user("c"), assistant("d")]
    script = [*script, Reply(reply("In short.").blocks, usage=Usage(900, 200))]
    async with stage(tmp_path, *script, limits=TurnLimits(max_tokens=1000), context_tokens=context_tokens) as s:
        played = await s.play("And now?", history)
        assert len(s.server.requests) == len(script), "no model is asked for an answer of no tokens"
    assert played.finished.status == "incomplete"
    assert "stopped after 1100 tokens" in played.finished.output


async def test_a_summary_holds_no_thoughts_and_no_schema_binds_it(tmp_path: Path) -> None:
    history = [user("a" * 4000), assistant("b" * 4000), user("c"), assistant("d")]
    async with stage(tmp_path, reply("<think>hm</think>They spoke."), reply("{}"), context_tokens=2000) as s:
        s.request = ModelRequest("ok", (), response_schema={"type": "object"})
        await s.play("And now?", history)
        first, second = (request.json() for request in s.server.requests)
    assert "response_format" not in first
    assert "response_format" in second
    assert second["messages"][0]["content"][0]["text"].endswith("]\nThey spoke.\n\n")


async def test_the_askers_own_tools_come_back_to_them(tmp_path: Path) -> None:
    async with stage(tmp_path, reply("Look.", call("theirs", {"x": 1})), foreign=("theirs",)) as s:
        _, runner = await s.start()
        finished = await runner.run(user("go"))
    assert finished.status == "completed"
    assert [c.name for c in runner.foreign_calls] == ["theirs"]


async def test_the_history_of_a_tool_turn_is_whole(tmp_path: Path) -> None:
    async with stage(tmp_path, reply(call("note", {"text": "a"}, id="c1")), reply("Done.")) as s:
        _, runner = await s.start()
        await runner.run(user("go"))
        messages = runner.turn.messages
    assert messages[0] == user("go")
    assert messages[2] == Message("tool", (ToolResult("c1", "noted a"),))
    assert messages[3] == assistant("Done.")
