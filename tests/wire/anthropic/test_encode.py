from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message as SdkMessage
from anthropic.types import ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st

from tailrace.messages import (
    AnyDelta,
    Completion,
    Dialect,
    ErrorDelta,
    FinishDelta,
    JsonObject,
    Message,
    Native,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from tailrace.wire.anthropic.completion import completion_from_body
from tailrace.wire.anthropic.encode import StreamEncoder, encode_body
from tailrace.wire.failure import anthropic_error_body
from tailrace.wire.reasoning_seal import seal
from tailrace.wire.sse import SseDecoder
from wire.anthropic.anthropic_events import decode
from wire.headers import header


def encode(deltas: list[AnyDelta], source: Dialect = "anthropic", **fields: Any) -> bytes:
    encoder = StreamEncoder(header(source, "msg_1", **fields))
    return encoder.encode(deltas) + encoder.close()


def sdk_reads(raw: bytes) -> SdkMessage:
    """What the official client makes of these bytes."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=raw)

    transport = httpx2.MockTransport(answer)
    with (
        httpx2.Client(transport=transport) as http,
        anthropic.Anthropic(api_key="k", base_url="http://test", http_client=http, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=5, messages=[{"role": "user", "content": "?"}]) as stream,
    ):
        return stream.get_final_message()


def events(raw: bytes) -> list[JsonObject]:
    """The events' data; each is named by its type."""
    decoded = SseDecoder().feed(raw)
    bodies: list[JsonObject] = [json.loads(event.data) for event in decoded]
    assert [event.event for event in decoded] == [body["type"] for body in bodies]
    return bodies


def assert_grammar(raw: bytes) -> None:
    """message_start, then one block at a time with indexes 0, 1, 2 …, then message_delta and message_stop."""
    seen = events(raw)
    assert [event["type"] for event in (seen[0], *seen[-2:])] == ["message_start", "message_delta", "message_stop"]
    open_, begun = None, 0
    for event in seen[1:-2]:
        if event["type"] == "content_block_start":
            assert (open_, event["index"]) == (None, begun)
            open_, begun = begun, begun + 1
        else:
            assert event["index"] == open_
            assert event["type"] in {"content_block_delta", "content_block_stop"}
            open_ = None if event["type"] == "content_block_stop" else open_
    assert open_ is None


ANSWER: list[AnyDelta] = [
    UsageDelta(Usage(10, 1)),
    ReasoningDelta("hm, "),
    ReasoningDelta(""),
    ReasoningDelta("żółw"),
    TextDelta("Look"),
    TextDelta("ing\u2028 🐢"),
    ToolCallDelta(0, "t0", "get_weather"),
    ToolCallDelta(0, arguments='{"city": '),
    ToolCallDelta(0, arguments='"Kraków"}'),
    ToolCallDelta(1, "t1", "get_time"),
    ToolCallDelta(1, arguments="{}"),
    UsageDelta(Usage(10, 42, cache_read_tokens=5, cache_write_tokens=6, reasoning_tokens=7)),
    FinishDelta("tool_use"),
]


def test_the_official_client_reads_what_was_meant() -> None:
    raw = encode(ANSWER)
    assert_grammar(raw)
    message = sdk_reads(raw)
    assert message.to_dict(mode="json") == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm, żółw", "signature": seal("", "")},
            {"type": "text", "text": "Looking\u2028 🐢"},
            {"type": "tool_use", "id": "t0", "name": "get_weather", "input": {"city": "Kraków"}},
            {"type": "tool_use", "id": "t1", "name": "get_time", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 42,
            "cache_creation_input_tokens": 6,
            "cache_read_input_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 7},
        },
    }


def test_the_first_event_can_be_sent_before_there_is_a_delta() -> None:
    encoder = StreamEncoder(header("anthropic", "msg_1"))
    first = encoder.start()
    assert [event["type"] for event in events(first)] == ["message_start"]
    assert encoder.start() == b""
    assert_grammar(first + encoder.encode([TextDelta("Hi")]) + encoder.close())


def test_an_answer_of_nothing_is_still_a_message() -> None:
    raw = encode([])
    assert_grammar(raw)
    assert sdk_reads(raw).content == []


def test_B33_calls_whose_pieces_come_in_turns_are_sent_one_after_the_other() -> None:
    turns: list[AnyDelta] = [
        ToolCallDelta(0, "t0", "a"),
        ToolCallDelta(1, "t1", "b"),
        ToolCallDelta(0, arguments='{"x":'),
        ToolCallDelta(1, arguments='{"y":'),
        ToolCallDelta(0, arguments="1}"),
        ToolCallDelta(1, arguments="2}"),
        ToolCallDelta(2, "t2", "c", "{}"),
        TextDelta("done"),
    ]
    raw = encode(turns)
    assert_grammar(raw)
    blocks = sdk_reads(raw).content
    calls = [(block.id, block.name, block.input) for block in blocks if isinstance(block, ToolUseBlock)]
    assert calls == [("t0", "a", {"x": 1}), ("t1", "b", {"y": 2}), ("t2", "c", {})]
    assert [block.type for block in blocks] == ["tool_use", "tool_use", "tool_use", "text"]


def test_calls_that_follow_each_other_do_not_wait() -> None:
    encoder = StreamEncoder(header("anthropic", "msg_1"))
    encoder.encode([ToolCallDelta(0, "t0", "a", '{"x":1}')])
    begun = events(encoder.encode([ToolCallDelta(1, "t1", "b")]))
    assert [event["type"] for event in begun] == ["content_block_stop", "content_block_start"]


def test_many_calls_cut_in_the_middle_are_told_without_end_or_repetition() -> None:
    deltas = [ToolCallDelta(index, f"t{index}", "f", '{"a":') for index in range(3000)]
    raw = encode([*deltas, FinishDelta("length")])
    assert_grammar(raw)
    calls = completion_from_body(decode(raw)[1]).tool_calls
    assert [call.id for call in calls] == [delta.id for delta in deltas]
    assert not any(call.parsed() for call in calls)


@pytest.mark.parametrize(
    ("source", "said", "reason"),
    [
        ("chat", [FinishDelta("stop")], "end_turn"),
        ("chat", [FinishDelta("length")], "max_tokens"),
        ("chat", [FinishDelta("tool_calls")], "tool_use"),
        ("chat", [FinishDelta("content_filter")], "refusal"),
        ("responses", [FinishDelta("completed")], "end_turn"),
        ("responses", [FinishDelta("max_output_tokens")], "max_tokens"),
        ("anthropic", [FinishDelta("stop_sequence")], "stop_sequence"),
        ("anthropic", [FinishDelta("pause_turn")], "pause_turn"),
        ("anthropic", [], "end_turn"),
        ("chat", [FinishDelta("stop"), ToolCallDelta(0, "t", "f", "{}")], "tool_use"),  # B36
    ],
)
def test_the_end_is_told_in_the_words_of_the_dialect(source: Dialect, said: list[AnyDelta], reason: str) -> None:
    assert sdk_reads(encode(said, source)).stop_reason == reason


def test_the_server_may_know_better_how_it_ended() -> None:
    encoder = StreamEncoder(header("anthropic", "msg_1"))
    raw = encoder.encode([TextDelta("cut"), FinishDelta("stop")]) + encoder.close("length")
    assert sdk_reads(raw).stop_reason == "max_tokens"


def test_H94_an_error_in_the_middle_is_told_and_nothing_hides_it() -> None:
    encoder = StreamEncoder(header("anthropic", "msg_1"))
    raw = encoder.encode([TextDelta("Hel"), ErrorDelta("retryable", "busy", "overloaded", 529), TextDelta("lo")])
    assert encoder.close() == encoder.encode([TextDelta("more")]) == b""
    assert events(raw)[-1] == {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    assert b"message_stop" not in raw
    with pytest.raises(anthropic.APIStatusError, match="busy"):
        sdk_reads(raw)
    deltas = decode(raw)[0]
    assert deltas[-1] == ErrorDelta("retryable", "busy", "overloaded_error", 529)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorDelta("permanent", "no", "authentication_error", 401), "authentication_error"),
        (ErrorDelta("permanent", "no", "invalid_api_key", 401), "authentication_error"),
        (ErrorDelta("permanent", "no", "context_length_exceeded", 400), "invalid_request_error"),
        (ErrorDelta("retryable", "no", "", 503), "overloaded_error"),
        (ErrorDelta("retryable", "no", "stream_cut", cut=True), "api_error"),
        (ErrorDelta("retryable", "no", "rate_limit_exceeded", 429), "rate_limit_error"),
        (ErrorDelta("retryable", "no", "rate_limit_exceeded", 502), "rate_limit_error"),  # in mid-answer
        (ErrorDelta("retryable", "no", "server_is_overloaded", 502), "overloaded_error"),
        (ErrorDelta("retryable", "no", "server_is_overloaded"), "overloaded_error"),
        (ErrorDelta("retryable", "no", "server_error", 502), "api_error"),
    ],
)
def test_D52_errors_in_the_words_of_the_dialect(error: ErrorDelta, kind: str) -> None:
    message = "prompt is too long: no" if error.code == "context_length_exceeded" else "no"
    assert anthropic_error_body(error) == {"type": "error", "error": {"type": kind, "message": message}}


def test_a_refusal_is_text_and_other_choices_have_no_place() -> None:
    raw = encode([RefusalDelta("I cannot."), TextDelta("second", choice=1), FinishDelta("length", choice=1)])
    message = sdk_reads(raw)
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "I cannot."}]
    assert message.stop_reason == "end_turn"


def test_A18_a_lone_surrogate_does_not_break_the_stream() -> None:
    raw = encode([TextDelta("a\ud83d"), TextDelta("\ude00b"), ToolCallDelta(0, "t", "f", '{"x": "\ud800"}')])
    completion = completion_from_body(decode(raw)[1])
    assert completion.text == "a\ufffd\ufffdb"
    assert completion.tool_calls[0].parsed() == {"x": "\ufffd"}


def test_cached_tokens_are_counted_beside_the_input() -> None:
    usage = UsageDelta(Usage(100, 5, cache_read_tokens=80))
    assert sdk_reads(encode([usage], source="chat")).usage.input_tokens == 20
    assert sdk_reads(encode([usage], source="anthropic")).usage.input_tokens == 100


# ── decode ∘ encode ──────────────────────────────────────────────────────────────────────────────────────────

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
arguments = st.dictionaries(
    texts, st.none() | st.integers(-(2**53), 2**53) | texts | st.lists(texts, max_size=2), max_size=3
)


@st.composite
def answers(draw: st.DrawFn) -> list[AnyDelta]:
    """Deltas of one answer as any dialect's decoder may give them."""
    deltas: list[AnyDelta] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "call"]), max_size=6)):
        if kind == "call":
            said = json.dumps(draw(arguments), ensure_ascii=draw(st.booleans()))
            cut = draw(st.integers(0, len(said)))
            deltas.append(ToolCallDelta(calls, f"toolu_{calls}", draw(st.sampled_from(["a", "b"]))))
            deltas += [ToolCallDelta(calls, arguments=piece) for piece in (said[:cut], said[cut:])]
            calls += 1
        else:
            made = TextDelta if kind == "text" else ReasoningDelta
            deltas += [made(piece) for piece in draw(st.lists(texts, max_size=3))]
    tokens = st.integers(0, 10**9)
    usage = Usage(draw(tokens), draw(tokens), draw(tokens), draw(tokens), draw(tokens))
    return [
        *deltas,
        UsageDelta(usage),
        FinishDelta("tool_use" if calls else draw(st.sampled_from(["end_turn", "max_tokens"]))),
    ]


def joined(deltas: list[AnyDelta]) -> list[tuple[str, ...]]:
    """What the deltas say, however it was cut: adjacent pieces of one kind joined, empty ones left out."""
    said: list[list[str]] = []
    for delta in deltas:
        match delta:
            case TextDelta(text) | ReasoningDelta(text):
                key, piece = [type(delta).__name__], text
            case ToolCallDelta(index, id_, name, piece):
                key = ["call", str(index)]
                if id_:
                    said.append([*key, id_, name, ""])
            case _:
                continue
        if piece and said and said[-1][: len(key)] == key:
            said[-1][-1] += piece
        elif piece:
            said.append([*key, piece])
    return [tuple(entry) for entry in said]


@given(answers())
def test_what_is_encoded_decodes_to_the_same(deltas: list[AnyDelta]) -> None:
    raw = encode(deltas)
    assert_grammar(raw)
    decoded, body, decoder = decode(raw)
    assert decoder.complete
    assert joined(decoded) == joined(deltas)
    assert decoded[-2:] == deltas[-2:]
    assert json.loads(json.dumps(body)) == body


@given(answers())
def test_the_official_client_and_our_decoder_read_the_same(deltas: list[AnyDelta]) -> None:
    raw = encode(deltas)
    theirs = sdk_reads(raw).to_dict(mode="json")
    ours = decode(raw)[1]
    assert {**theirs, "stop_details": None} == {**ours, "stop_details": None}


# ── whole bodies ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_completion_of_this_dialect_is_its_own_body() -> None:
    body = decode(encode(ANSWER))[1]
    assert encode_body(completion_from_body(body), header("anthropic", "ours")) == {**body, "id": "ours", "model": "m"}


def test_a_completion_of_another_dialect_says_the_same_here() -> None:
    completion = Completion(
        dialect="responses",
        body={},
        message=Message(
            "assistant",
            (
                Reasoning("hm", "responses", {"type": "reasoning"}),
                Reasoning("", "responses", {"type": "reasoning"}),
                Native("responses", {"type": "web_search_call"}),
                Text("Looking.\n"),
                Refusal("Not that."),
                ToolCall("call|1", "f", '{"a": 1}'),
                ToolCall("call_2", "g", '{"cut'),
            ),
        ),
        id="resp_1",
        model="gpt",
        finish_reason="completed",
        stop="end",
        usage=Usage(100, 20, cache_read_tokens=60, reasoning_tokens=4),
    )
    body = encode_body(completion, header("responses", "msg_9", model="gpt"))
    assert body == {
        "id": "msg_9",
        "type": "message",
        "role": "assistant",
        "model": "gpt",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": seal("", "")},
            {"type": "text", "text": "Looking.\n"},
            {"type": "text", "text": "Not that."},
            {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "call_2", "name": "g", "input": {"INVALID_JSON": '{"cut'}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 40,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 60,
            "output_tokens": 20,
            "output_tokens_details": {"thinking_tokens": 4},
        },
    }
    assert SdkMessage.model_validate(body).stop_reason == "tool_use"
