"""What providers of the field do to an answer that is nearly right: one unreadable event, tool calls that are announced
and do not come, nothing at all, a count of zero."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from providers.faulty_calls import ASK, DIALECTS, Told, faulty
from tailrace.errors import EMPTY_ANSWER, PeerError
from tailrace.messages import Dialect, TextDelta, Usage
from tailrace.testing.provider import Reply, Scenario, call, reply

AGAIN: Any = {"backoff_s": 0.001}
TEXT = " ".join(f"word{number}" for number in range(40))


class Skips(Told):
    def __init__(self) -> None:
        super().__init__()
        self.skipped: list[str] = []

    def event_skipped(self, provider: str, reason: str) -> None:
        self.skipped.append(provider)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("edits", [("unreadable",), ("unreadable", "unknown-events")])
async def test_N157_one_unreadable_event_is_skipped_and_the_rest_is_kept(
    dialect: Dialect, edits: tuple[str, ...]
) -> None:
    model = "+".join(["long", *edits])
    async with faulty() as bench:
        result = await bench.call(bench.route(dialect, model=model, **AGAIN), told=(told := Skips()))
        asked = len(bench.server.requests)
    words = result.completion.text.split()
    assert (asked, told.skipped, result.incomplete) == (1, ["faulty"], None)
    assert len(words) > 1900, "what came is paid for, and kept"
    assert told.text == result.completion.text or dialect == "responses", "its last event has the whole text"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_N157_no_event_of_a_tool_call_is_skipped(dialect: Dialect) -> None:
    async with faulty("tools+unreadable", "tools") as bench:
        result = await bench.call(bench.route(dialect, **AGAIN), told=(told := Skips()))
    assert [outcome.error is None for outcome in result.attempts] == [False, True]
    assert [one.name for one in result.completion.tool_calls] == ["get_weather"]
    assert told.skipped == []


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("answer", [reply(stop="tools"), Reply()], ids=["announced", "nothing"])
async def test_N158_an_answer_without_calls_or_text_is_asked_for_again_then_whole_then_elsewhere(
    dialect: Dialect, answer: Reply
) -> None:
    script = [answer, answer, answer, reply("From the stand-in.")]
    async with faulty(*script) as bench:
        routes = [bench.route(dialect, **AGAIN), bench.route(dialect, "stand-in", **AGAIN)]
        result = await bench.call(*routes)
        streamed = [request.json().get("stream", False) for request in bench.server.requests]
    assert result.completion.text == "From the stand-in."
    assert streamed == [True, True, False, True]
    assert [outcome.error.code for outcome in result.attempts if outcome.error] == [EMPTY_ANSWER] * 3


async def test_N158_the_whole_answer_has_the_call_that_the_stream_has_lost() -> None:
    lost, whole = reply(stop="tools"), reply(call("get_time", "{}"))
    async with faulty(lost, lost, whole) as bench:
        result = await bench.call(bench.route(**AGAIN))
    assert [one.name for one in result.completion.tool_calls] == ["get_time"]


async def test_N158_text_before_calls_that_do_not_come_is_gone_on_from() -> None:
    said = reply("Let me look.", stop="tools")
    async with faulty(said, reply("Let me look. Here it is.", call("get_time", "{}"))) as bench:
        result = await bench.call(bench.route(**AGAIN), told=(told := Told()))
    assert told.text == result.completion.text == "Let me look. Here it is."
    assert [one.name for one in result.completion.tool_calls] == ["get_time"]


async def test_N158_nothing_but_empty_answers_is_an_error() -> None:
    async with faulty(Reply(), Reply(), Reply()) as bench:
        with pytest.raises(PeerError, match="is empty"):
            await bench.call(bench.route(**AGAIN))


async def test_a_stop_string_or_the_token_limit_may_leave_nothing() -> None:
    async with faulty(Reply(), Reply(stop="length")) as bench:
        stopped = await bench.call(bench.route(**AGAIN), request=msgspec.structs.replace(ASK, stop=("\n",)))
        cut = await bench.call(bench.route(**AGAIN))
    assert (len(stopped.attempts), len(cut.attempts)) == (1, 1)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_N171_a_count_of_zero_is_zero(dialect: Dialect) -> None:
    answer = Scenario(reply=msgspec.structs.replace(reply(TEXT), usage=Usage()))
    async with faulty(answer) as bench:
        result = await bench.call(bench.route(dialect, **AGAIN), told=(told := Told()))
    (attempt,) = told.attempts
    assert attempt.usage == result.usage == Usage()
    assert [delta.text for delta in told.seen if isinstance(delta, TextDelta)]
