"""A conversation that is too long for its model: its history is summarised, or what tools gave is shortened; over a
real socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.turns import Note, NoteArgs, stage
from tailrace.agent.turn import TurnLimits
from tailrace.events import GatewayNotice, ToolOutputRecorded
from tailrace.messages import Message, ModelRequest, ToolCall, ToolResult, Usage, assistant, user
from tailrace.ports import ToolContext, ToolOutcome
from tailrace.testing.provider import Reply, call, reply

TOO_MUCH = "0123456789" * 1000


class _Chatty(Note):
    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        return ToolOutcome(TOO_MUCH)


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
