from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.quirks import WireQuirks
from tailrace.messages import ErrorDelta, FinishDelta, TextDelta, ToolCallDelta, Usage, UsageDelta
from tailrace.wire.anthropic.completion import completion_from_body
from tailrace.wire.anthropic.decode import AnthropicDecoder
from tailrace.wire.sse import MAX_EVENT_BYTES
from wire.anthropic.anthropic_events import (
    block_delta,
    block_start,
    block_stop,
    decode,
    event,
    json_piece,
    message_end,
    message_start,
    text_block,
    tool_start,
)
from wire.recordings import split_at


def error_in(raw: bytes, *, cut: bool = False) -> ErrorDelta:
    deltas, _, decoder = decode(raw, cut=cut)
    errors = [delta for delta in deltas if isinstance(delta, ErrorDelta)]
    assert len(errors) == 1
    assert deltas[-1] is errors[0]
    assert not decoder.complete
    return errors[0]


# ── a plain answer ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_plain_answer_is_its_deltas_and_the_body_a_call_without_streaming_returns() -> None:
    deltas, body, decoder = decode(message_start() + text_block(0, "Hel", "lo") + message_end(output_tokens=5))
    assert deltas == [
        UsageDelta(Usage(12, 1)),
        TextDelta("Hel"),
        TextDelta("lo"),
        UsageDelta(Usage(12, 5)),
        FinishDelta("end_turn"),
    ]
    assert decoder.complete
    assert body == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 5},
    }


def test_the_body_can_be_asked_for_at_any_time() -> None:
    decoder = AnthropicDecoder()
    assert decoder.rebuilt_body()["content"] == []
    decoder.feed(message_start() + block_start(0, type="text", text="") + block_delta(0, "text_delta", text="Hel"))
    decoder.feed(block_delta(0, "citations_delta", citation=1))
    before = decoder.rebuilt_body()["content"]
    decoder.feed(block_delta(0, "text_delta", text="lo") + block_delta(0, "citations_delta", citation=2))
    assert before == [{"type": "text", "text": "Hel", "citations": [1]}]
    assert decoder.rebuilt_body()["content"] == [{"type": "text", "text": "Hello", "citations": [1, 2]}]


def test_text_that_stands_in_the_start_of_a_block_is_not_lost() -> None:
    raw = message_start() + block_start(0, type="text", text="Hel") + block_delta(0, "text_delta", text="lo")
    deltas, body, _ = decode(raw + block_stop(0) + message_end())
    assert [delta for delta in deltas if isinstance(delta, TextDelta)] == [TextDelta("Hel"), TextDelta("lo")]
    assert body["content"] == [{"type": "text", "text": "Hello"}]


def test_unknown_fields_of_the_message_and_its_delta_are_kept() -> None:
    delta = {"stop_reason": "end_turn", "container": {"id": "c1"}, "novel": 7}
    raw = message_start(provider="bedrock") + event(
        "message_delta", delta=delta, usage={"output_tokens": 2, "cost": 0.5}, context_management={"applied_edits": []}
    )
    body = decode(raw + event("message_stop"))[1]
    assert body["provider"] == "bedrock"
    assert (body["container"], body["novel"]) == ({"id": "c1"}, 7)
    assert body["context_management"] == {"applied_edits": []}
    assert body["usage"] == {"input_tokens": 12, "output_tokens": 2, "cost": 0.5}


def test_a_second_message_start_does_not_begin_the_answer_anew() -> None:
    raw = message_start() + text_block(0, "one") + message_start(id="msg_2") + text_block(1, " two") + message_end()
    _, body, _ = decode(raw)
    assert (body["id"], completion_from_body(body).text) == ("msg_1", "one two")


def test_a_fallback_names_the_model_that_answers() -> None:
    fallback = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}
    body = decode(message_start(model="a") + block_start(0, **fallback) + block_stop(0) + message_end())[1]
    assert (body["model"], body["content"]) == ("b", [fallback])


def test_blocks_that_the_message_started_with_come_first() -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    deltas, body, _ = decode(message_start(content=[call]) + text_block(0, "then") + message_end("tool_use"))
    assert body["content"] == [call, {"type": "text", "text": "then"}]
    assert ToolCallDelta(0, "t", "f") in deltas
    assert ToolCallDelta(0, arguments='{"a":1}') in deltas


# ── A: the wire format ───────────────────────────────────────────────────────────────────────────────────────

EVERYTHING = b"".join(
    (
        b"\xef\xbb\xbf: hello\n\n",
        message_start(provider="ünï"),
        event("ping"),
        block_start(0, type="thinking", thinking="", signature=""),
        block_delta(0, "thinking_delta", thinking="hm\u2028 🐢"),
        block_delta(0, "signature_delta", signature="sig=="),
        block_stop(0).replace(b"\n", b"\r\n"),
        block_start(1, type="text", text="", citations=[]),
        block_delta(1, "text_delta", text="żółw "),
        block_delta(1, "citations_delta", citation={"type": "char_location", "cited_text": "x"}),
        'event: content_block_delta\ndata: {"delta":{"text":"\u2029🐢","type":"text_delta"},'
        '"index":1,"type":"content_block_delta"}\n\n'.encode(),
        block_stop(1),
        tool_start(2),
        json_piece(2, ""),
        tool_start(3, "get_time"),
        json_piece(3, '{"zone": "Euro'),
        json_piece(2, '{"city": "Kraków"}'),
        json_piece(3, 'pe/Warsaw"}'),
        block_stop(3),
        block_stop(2),
        message_end("tool_use", output_tokens=40),
        b"event: data\ndata: [DONE]\n\n",
    )
)
WHOLE = decode(EVERYTHING)


def test_A01_A02_byte_by_byte_is_the_same() -> None:
    deltas, body, decoder = decode(EVERYTHING[i : i + 1] for i in range(len(EVERYTHING)))
    assert (deltas, body, decoder.complete) == (WHOLE[0], WHOLE[1], True)


@given(cuts=st.lists(st.integers(0, len(EVERYTHING)), max_size=12))
def test_A01_any_split_gives_the_same_deltas_and_body(cuts: list[int]) -> None:
    assert decode(split_at(EVERYTHING, cuts))[:2] == WHOLE[:2]


@given(end=st.integers(0, len(EVERYTHING) - 1), cuts=st.lists(st.integers(0, len(EVERYTHING)), max_size=4))
def test_A01_A15_a_stream_cut_anywhere_is_the_same_however_it_was_split(end: int, cuts: list[int]) -> None:
    cut = EVERYTHING[:end]
    deltas, body, decoder = decode(split_at(cut, cuts))
    whole = decode(cut)
    assert (deltas, body, decoder.complete) == (whole[0], whole[1], whole[2].complete)
    assert decoder.complete or (isinstance(deltas[-1], ErrorDelta) and deltas[-1].cut)


def test_A10_A12_pings_comments_and_unknown_events_are_ignored() -> None:
    noise = (
        b": keep-alive\n\n"
        b"data:\n\ndata: : keepalive\n\n"
        b'event: ping\ndata: {"type": "ping"}\n\ndata: {"type": "ping"}\n\n'
        b'event: from_the_future\ndata: {"type": "from_the_future", "index": 0}\n\n'
        b"event: from_the_future\ndata: not even JSON\n\n"
    )
    raw = noise + message_start() + noise + text_block(0, "Hi") + noise + message_end() + noise
    assert decode(raw)[:2] == decode(message_start() + text_block(0, "Hi") + message_end())[:2]


def test_A12_events_without_their_event_line_are_read_by_their_type() -> None:
    bare = b"\n".join(line for line in EVERYTHING.split(b"\n") if not line.startswith(b"event: "))
    assert decode(bare)[:2] == WHOLE[:2]


def test_A12_data_without_its_type_is_read_by_the_event_line() -> None:
    raw = message_start() + text_block(0, "Hi") + b"event: message_stop\ndata: {}\n\n"
    assert decode(raw)[2].complete


def test_A08_data_in_several_lines_is_one_event() -> None:
    start = message_start() + block_start(0, type="text", text="")
    two_lines = (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,\n'
        b'data: "delta":{"type":"text_delta","text":"Hi"}}\n\n'
    )
    assert TextDelta("Hi") in decode(start + two_lines)[0]


def test_A08_a_line_that_is_no_data_line_is_no_part_of_the_data() -> None:
    """The JSON would be whole if the second line counted; to the specification it is an unknown field."""
    split = b'event: content_block_delta\ndata: {"index":0,\n"delta":{"type":"text_delta","text":"x"}}\n\n'
    assert error_in(message_start() + block_start(0, type="text", text="") + split).code == "protocol_error"


def test_A14_two_objects_glued_into_one_event_are_an_error() -> None:
    glued = b'data: {"type":"ping"}{"type":"message_stop"}\n\n'
    assert error_in(message_start() + glued).code == "protocol_error"


@pytest.mark.parametrize("quirk", [False, True])
def test_A17_text_that_repeats_itself_is_taken_so_only_where_the_provider_is_known_for_it(quirk: bool) -> None:
    raw = message_start() + text_block(0, "a", "ab", "abc") + text_block(1, "abc", "abcd") + message_end()
    text = completion_from_body(decode(raw, WireQuirks(cumulative_text=quirk))[1]).text
    assert text == ("abcabcd" if quirk else "aababcabcabcd")


def test_A18_lone_surrogates_and_broken_UTF8_are_replaced_on_the_way_in() -> None:
    raw = (
        message_start()
        + block_start(0, type="text", text="")
        + b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"a\\ud83d b\xff c\\ud83d\\ude00"}}\n\n'
        + block_stop(0)
        + tool_start(1)
        + json_piece(1, '{"path": "x\\ud800y"}')
        + block_stop(1)
        + message_end("tool_use")
    )
    deltas, body, _ = decode(raw)
    completion = completion_from_body(body)
    assert TextDelta("a\ufffd b\ufffd c😀") in deltas
    assert completion.text == "a\ufffd b\ufffd c😀"
    assert completion.tool_calls[0].parsed() == {"path": "x\ufffdy"}
    json.dumps(body, ensure_ascii=False).encode()  # sendable


def test_A20_an_event_without_end_is_refused() -> None:
    decoder = AnthropicDecoder()
    decoder.feed(message_start())
    chunk = b"x" * (4 << 20)
    deltas = [delta for _ in range(MAX_EVENT_BYTES // len(chunk) + 1) for delta in decoder.feed(chunk)]
    assert [type(delta) for delta in deltas] == [ErrorDelta]
    assert decoder.close() == []


def test_A21_usage_is_replaced_and_never_added_up() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7, "output_tokens": 1}
    raw = (
        message_start(usage={**usage, "service_tier": "standard"})
        + text_block(0, "Hi")
        + event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 4})
        + event(
            "message_delta",
            delta={"stop_reason": "end_turn"},
            usage={
                "input_tokens": None,
                "cache_read_input_tokens": 95,
                "output_tokens": 9,
                "output_tokens_details": {"thinking_tokens": 2},
            },
        )
        + event("message_stop")
    )
    deltas, body, _ = decode(raw)
    final = Usage(input_tokens=3, output_tokens=9, cache_read_tokens=95, cache_write_tokens=7, reasoning_tokens=2)
    assert [delta.usage for delta in deltas if isinstance(delta, UsageDelta)][-1] == final
    assert completion_from_body(body).usage == final
    assert body["usage"]["service_tier"] == "standard"


# ── D: ends and errors ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", [b"", block_stop(0), event("message_delta", delta={"stop_reason": "end_turn"})])
def test_D48_without_message_stop_the_answer_was_cut(end: bytes) -> None:
    raw = message_start() + block_start(0, type="text", text="") + block_delta(0, "text_delta", text="Hel") + end
    error = error_in(raw)
    assert (error.kind, error.cut) == ("retryable", True)
    assert "message_stop" in error.message
    assert completion_from_body(decode(raw)[1]).text == "Hel"


@pytest.mark.parametrize("missing", [1, 2])
def test_A15_a_message_stop_that_lacks_only_its_blank_line_counts_where_the_body_has_an_end(missing: int) -> None:
    raw = message_start() + text_block(0, "Hi") + message_end()
    deltas, body, decoder = decode(raw[:-missing])
    assert decoder.complete
    assert (deltas, body) == decode(raw)[:2]
    assert error_in(raw[:-missing], cut=True).cut


def test_A15_any_other_event_without_its_blank_line_did_not_come() -> None:
    raw = message_start() + text_block(0, "Hi") + message_end()
    assert error_in(raw[:-3]).cut  # the last brace is missing
    assert error_in((message_start() + text_block(0, "Hi")).removesuffix(b"\n")).cut


@pytest.mark.parametrize("raw", [b"", b"\x00\xff" * 50, b'data: {"object":"chat.completion.chunk"}\n\n'])
def test_D48_a_stream_of_something_else_says_so(raw: bytes) -> None:
    assert error_in(raw).message == "the stream ended without a single event of the dialect"


OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'


def test_D50_D51_overloaded_in_the_middle_is_retryable_by_its_type() -> None:
    raw = message_start() + block_start(0, type="text", text="") + block_delta(0, "text_delta", text="Hel")
    deltas, body, decoder = decode(raw + OVERLOADED + message_end())
    assert deltas[-1] == ErrorDelta("retryable", "Overloaded", "overloaded_error", 529)
    assert not decoder.complete
    assert decoder.feed(message_end()) == []
    assert decoder.close() == []
    assert body["content"] == [{"type": "text", "text": "Hel"}]


def test_D52_an_error_as_the_first_event_stands_for_an_HTTP_status() -> None:
    assert decode(OVERLOADED)[0] == [ErrorDelta("retryable", "Overloaded", "overloaded_error", 529)]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("invalid_request_error", 400),
        ("authentication_error", 401),
        ("permission_error", 403),
        ("not_found_error", 404),
        ("request_too_large", 413),
    ],
)
def test_D53_what_will_fail_again_is_permanent(kind: str, status: int) -> None:
    error = error_in(message_start() + event("error", error={"type": kind, "message": "no"}))
    assert (error.kind, error.code, error.status, error.cut) == ("permanent", kind, status, False)


@pytest.mark.parametrize("kind", ["api_error", "rate_limit_error", "timeout_error", "overloaded_error", "novel_error"])
def test_D50_what_may_pass_is_retryable(kind: str) -> None:
    error = error_in(message_start() + event("error", error={"type": kind, "message": "later"}))
    assert (error.kind, error.code, error.message) == ("retryable", kind, "later")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'data: {"error": {"message": "upstream died", "code": 502}}\n\n', "upstream died"),
        (b'event: error\ndata: {"type":"overloaded_error","message":"busy"}\n\n', "busy"),
        (b"event: error\ndata: upstream connect error\n\n", "upstream connect error"),
        (b'event: error\ndata: {"error": "just text"}\n\n', "just text"),
    ],
)
def test_D50_gateways_word_their_errors_as_they_like(raw: bytes, message: str) -> None:
    error = error_in(message_start() + raw)
    assert (error.kind, error.message) == ("retryable", message)


def test_D58_what_comes_after_the_stop_reason_is_still_read() -> None:
    end = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})
    late = event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 4})
    _, body, _ = decode(message_start() + end + text_block(0, "late") + late + event("message_stop"))
    assert (completion_from_body(body).text, body["stop_reason"], body["usage"]["output_tokens"]) == (
        "late",
        "end_turn",
        4,
    )


@pytest.mark.parametrize(
    "raw",
    [
        event("content_block_delta"),
        event("content_block_delta", index=0, delta=None),
        event("content_block_delta", index="x", delta={"type": "text_delta", "text": 5}),
        event("content_block_delta", index=0, delta={"type": ["text_delta"], "text": "x", "citation": {}}),
        event("content_block_start", index=0),
        event("content_block_start", index=None, content_block={"type": 5, "text": 1}),
        event("content_block_stop", index=99),
        event("message_start", message=[]),
        event("message_start", message={"content": 5, "usage": 5}),
        event("message_delta", delta=5, usage=5),
        event("message_delta"),
        b'data: {"type": ["x"]}\n\n',
        b'event: content_block_delta\ndata: {"a":' + b"[" * 5000 + b"\n\n",
    ],
)
def test_events_of_the_wrong_shape_break_nothing(raw: bytes) -> None:
    for stream in (raw + message_end(), message_start() + text_block(0, "Hi") + raw + message_end()):
        deltas, body, decoder = decode(stream)
        assert decoder.complete != any(isinstance(delta, ErrorDelta) for delta in deltas)
        json.dumps(body)
        completion_from_body(body)
