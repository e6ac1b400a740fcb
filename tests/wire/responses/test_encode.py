"""What we send as a Responses server, held against the official SDK's types and its own accumulator."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tailrace.messages import (
    AnyDelta,
    Completion,
    Delta,
    Dialect,
    ErrorDelta,
    FinishDelta,
    JsonObject,
    Message,
    Native,
    NativeDelta,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Stop,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from tailrace.wire.failure import failure
from tailrace.wire.responses.completion import completion_from_body
from tailrace.wire.responses.decode import ResponsesDecoder
from tailrace.wire.responses.encode import StreamEncoder, encode_body
from tailrace.wire.sse import SseDecoder
from wire.headers import header

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def encoded(
    deltas: list[AnyDelta], *, stop: Stop | None = None, source: Dialect = "responses"
) -> tuple[bytes, StreamEncoder]:
    encoder = StreamEncoder(header(source, "resp_1"))
    return encoder.encode(deltas) + encoder.close(stop), encoder


def events_of(raw: bytes) -> list[JsonObject]:
    """The events, each checked: valid for the SDK, named as its line says, numbered without a gap."""
    sent = SseDecoder().feed(raw)
    events: list[JsonObject] = [json.loads(event.data) for event in sent]
    assert [event["type"] for event in events] == [event.event for event in sent]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        EVENT.validate_python(event)
    return events


def client_of(raw: bytes) -> openai.OpenAI:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=raw)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="x", base_url="http://localhost/v1", max_retries=0, http_client=http)


def as_the_sdk_holds_it(raw: bytes) -> Any:
    with client_of(raw) as client, client.responses.stream(model="m", input="x") as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def decoded(raw: bytes) -> tuple[list[AnyDelta], ResponsesDecoder]:
    decoder = ResponsesDecoder()
    return decoder.feed(raw) + decoder.close(), decoder


FULL: list[AnyDelta] = [
    ReasoningDelta("th"),
    ReasoningDelta("ink"),
    TextDelta("Hel"),
    TextDelta("lo"),
    ToolCallDelta(0, "c1", "look", '{"a"'),
    ToolCallDelta(1, "c2", "see"),
    ToolCallDelta(0, arguments=":1}"),
    ToolCallDelta(1, arguments="{}"),
    TextDelta("So: "),
    RefusalDelta("no."),
    UsageDelta(Usage(9, 7, 4, 1, 3)),
    FinishDelta("stop"),
]


def test_H95_the_whole_grammar_as_the_sdk_reads_it() -> None:
    raw, encoder = encoded(FULL)
    assert [event["type"].removeprefix("response.") for event in events_of(raw)] == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added"),
        *("reasoning_summary_text.delta", "reasoning_summary_text.delta", "reasoning_summary_text.done"),
        *("reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done", "function_call_arguments.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
        *("content_part.added", "refusal.delta", "refusal.done", "content_part.done", "output_item.done"),
        "completed",
    ]
    final = as_the_sdk_holds_it(raw)
    assert final.output_text == "HelloSo: "
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call", "message"]
    assert [item.arguments for item in final.output if item.type == "function_call"] == ['{"a":1}', "{}"]
    assert (final.status, final.usage.total_tokens) == ("completed", 16)
    assert Response.model_validate(encoder.response).output_text == final.output_text


def test_a_whole_call_ends_before_the_next_begins() -> None:
    raw, _ = encoded([ToolCallDelta(0, "c1", "look", "{}"), ToolCallDelta(1, "c2", "see", "{}")])
    names = [event["type"].removeprefix("response.") for event in events_of(raw)]
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    assert names[2:-1] == call * 2


def test_start_comes_once_and_first() -> None:
    encoder = StreamEncoder(header("responses", "resp_1", fields={"instructions": "Be brief."}))
    raw = encoder.start() + encoder.start() + encoder.encode([TextDelta("a")]) + encoder.close() + encoder.close()
    events = events_of(raw)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0]["response"]["instructions"] == "Be brief."
    assert events[-1]["response"]["instructions"] == "Be brief."


def test_an_empty_answer_is_complete() -> None:
    final = as_the_sdk_holds_it(encoded([])[0])
    assert (final.status, final.output) == ("completed", [])


@pytest.mark.parametrize(
    ("source", "finish", "stop", "reason"),
    [
        ("chat", "length", None, "max_output_tokens"),
        ("anthropic", "max_tokens", None, "max_output_tokens"),
        ("chat", "content_filter", None, "content_filter"),
        ("chat", "stop", "length", "max_output_tokens"),
        ("chat", "stop", "filter", "content_filter"),
    ],
)
def test_D56_an_answer_cut_short_is_incomplete(source: Dialect, finish: str, stop: Stop | None, reason: str) -> None:
    raw, encoder = encoded([ToolCallDelta(0, "c", "look", '{"a'), FinishDelta(finish)], stop=stop, source=source)
    last = events_of(raw)[-1]
    assert (last["type"], last["response"]["incomplete_details"]) == ("response.incomplete", {"reason": reason})
    assert encoder.response["output"][0]["status"] == "incomplete"


def test_H94_an_error_is_said_and_nothing_ends_cleanly() -> None:
    error = failure("overloaded", code="overloaded_error")
    raw, encoder = encoded([TextDelta("Hel"), ToolCallDelta(0, "c", "look", '{"a'), error, TextDelta("more")])
    names = [event["type"] for event in events_of(raw)]
    assert names[-2:] == ["error", "response.failed"]
    assert not any(name.startswith("response.function_call_arguments.done") for name in names)
    assert encoder.response["error"] == {"code": "server_error", "message": "overloaded"}
    assert encoder.response["output"][1]["arguments"] == '{"a'
    assert encoder.close() == b""
    with pytest.raises(openai.APIError, match="overloaded"):
        as_the_sdk_holds_it(raw)
    deltas, decoder = decoded(raw)
    assert deltas[-1] == ErrorDelta("retryable", "overloaded", "overloaded_error", 529)
    assert completion_from_body(decoder.rebuilt_body()).text == "Hel"


def test_A18_a_lone_surrogate_cannot_break_the_stream() -> None:
    raw, encoder = encoded([TextDelta("a\ud800")])
    assert decoded(raw)[0][0] == TextDelta("a\ufffd")
    assert encoder.response["output"][0]["content"][0]["text"] == "a\ufffd"


def test_other_choices_have_no_form_here() -> None:
    raw, _ = encoded([TextDelta("a"), TextDelta("b", choice=1), FinishDelta("length", choice=1)])
    assert as_the_sdk_holds_it(raw).output_text == "a"


# ── decode of encode ─────────────────────────────────────────────────────────────────────────────────────────

texts = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=8)
spoken: st.SearchStrategy[AnyDelta] = st.one_of(
    st.builds(TextDelta, texts), st.builds(ReasoningDelta, texts), st.builds(RefusalDelta, texts)
)


@st.composite
def answers(draw: st.DrawFn) -> list[AnyDelta]:
    """Texts of all kinds, and calls whose pieces may come in turns."""
    deltas = draw(st.lists(spoken, max_size=8))
    calls = draw(st.lists(st.lists(texts, min_size=1, max_size=4), max_size=3))
    deltas += [ToolCallDelta(i, f"call_{i}", f"tool_{i}") for i in range(len(calls))]
    turns = draw(st.permutations([i for i, pieces in enumerate(calls) for _ in pieces]))
    left = [iter(pieces) for pieces in calls]
    deltas += [ToolCallDelta(i, arguments=next(left[i])) for i in turns]
    usage = st.builds(Usage, *(st.integers(0, 2**40) for _ in range(5)))
    return [*deltas, UsageDelta(draw(usage)), FinishDelta("completed")]


@given(answers())
def test_decoding_gives_back_what_was_encoded(deltas: list[AnyDelta]) -> None:
    raw, encoder = encoded(deltas)
    again, decoder = decoded(raw)
    again = [d for d in again if not isinstance(d, NativeDelta)]  # where one part ends and the next begins
    assert [d for d in again if not is_head(d)] == [d for d in deltas if not is_head(d)]
    assert [d for d in again if is_head(d)] == [d for d in deltas if is_head(d)]
    assert decoder.rebuilt_body() == encoder.response
    events_of(raw)


def is_head(delta: Delta) -> bool:
    return isinstance(delta, ToolCallDelta) and bool(delta.name)


# ── bodies ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_body_of_this_dialect_is_its_own() -> None:
    body = {"id": "r", "output": [], "status": "completed", "novel": 1}
    ours = {"id": "resp_9", "model": "m"}
    assert encode_body(completion_from_body(body), header("responses", "resp_9")).items() >= {**body, **ours}.items()


def test_a_completion_of_another_dialect() -> None:
    parts = (
        Reasoning("hm", "anthropic", {"type": "thinking"}),
        Native("anthropic", {"type": "server_tool_use"}),
        Text("Hello"),
        ToolCall("c1", "look", '{"a":1}'),
        Refusal("no"),
    )
    completion = Completion(
        *("anthropic", {}, Message("assistant", parts), "msg_1", "claude", "tool_use", "tools"),
        usage=Usage(10, 5, cache_read_tokens=3, cache_write_tokens=2),
    )
    body = encode_body(completion, header("anthropic", "resp_9", model="claude"))
    response = Response.model_validate(body)
    assert (response.id, response.model, response.status, response.output_text) == (
        *("resp_9", "claude", "completed"),
        "Hello",
    )
    assert body["usage"]["input_tokens"] == 15  # here the cached ones count among them
    again = completion_from_body(body)
    assert (again.text, again.reasoning, again.refusal) == ("Hello", "hm", "no")
    assert again.tool_calls == completion.tool_calls


@pytest.mark.parametrize(("stop", "status"), [("end", "completed"), ("length", "incomplete"), ("pause", "incomplete")])
def test_how_a_completion_of_another_dialect_ended(stop: Stop, status: str) -> None:
    completion = Completion("chat", {}, Message("assistant", (Text("a"),)), stop=stop)
    assert encode_body(completion, header("chat", "resp_9"))["status"] == status


def test_L140_time_is_linear_in_the_cited_blocks_of_one_text() -> None:
    page = NativeDelta("anthropic", {"cited": {"pages": {"https://rhine.example/": "The Rhine"}, "length": 1}})

    def seconds(blocks: int) -> float:
        encoder, start = StreamEncoder(header("anthropic", "resp_1")), time.process_time()
        for _ in range(blocks):
            encoder.encode([TextDelta("x"), page])
        return time.process_time() - start

    small = min(seconds(4_000) for _ in range(3))
    large = min(seconds(40_000) for _ in range(3))
    assert large < 40 * small  # ten times the blocks; joining the text for each takes a hundred times as long
