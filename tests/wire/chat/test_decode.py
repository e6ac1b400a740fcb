"""The chat decoder against what servers do to the format, the answer and its end."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.config.quirks import WireQuirks
from tailrace.messages import (
    ErrorDelta,
    FinishDelta,
    NativeDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from tailrace.wire.chat.decode import ChatDecoder
from wire.chat.chat_streams import DONE, HEAD, calls, chunk, decoded, event, piece
from wire.recordings import split_at

HELLO = chunk({"role": "assistant", "content": "Hel"}) + chunk({"content": "lo"}) + chunk(finish="stop") + DONE
SAMPLE = b"".join(
    [
        b": connected\r\n\r\n",
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hmm \u2028 żółw"}),
        chunk({"content": "Zażółć "}),
        chunk({"content": "gęślą 🐢"}),
        chunk({"content": " jaźń"}),
        chunk({"content": "two"}, index=1),
        calls(piece("", name="f", index=0, id="a")),
        calls(piece('{"x":', index=0), piece("{}", name="g", index=1, id="b")),
        calls(piece(' "\\u017c"}', index=0)),
        chunk(finish="tool_calls"),
        chunk(finish="stop", index=1),
        event({**HEAD, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
        DONE,
    ]
)
WHOLE = decoded(SAMPLE)


def test_the_deltas_of_the_sample() -> None:
    assert WHOLE.deltas == [
        ReasoningDelta("Hmm \u2028 żółw"),
        TextDelta("Zażółć "),
        TextDelta("gęślą 🐢"),
        TextDelta(" jaźń"),
        TextDelta("two", choice=1),
        ToolCallDelta(0, "a", "f", ""),
        ToolCallDelta(0, arguments='{"x":'),
        ToolCallDelta(1, "b", "g", "{}"),
        ToolCallDelta(0, arguments=' "\\u017c"}'),
        FinishDelta("tool_calls"),
        FinishDelta("stop", choice=1),
        UsageDelta(Usage(3, 4), {"prompt_tokens": 3, "completion_tokens": 4}),
    ]
    assert WHOLE.complete


@given(cuts=st.lists(st.integers(0, len(SAMPLE)), max_size=9))
def test_O178_an_answer_that_is_looked_at_while_it_grows_is_the_same(cuts: list[int]) -> None:
    decoder, pieces = ChatDecoder(), split_at(SAMPLE, cuts)
    for data in pieces:
        decoder.feed(data)
        assert decoder.rebuilt_body() == decoder.rebuilt_body()
    assert decoder.rebuilt_body() == WHOLE.body


@given(cuts=st.lists(st.integers(0, len(SAMPLE)), max_size=40))
def test_A01_A02_any_split_gives_the_same(cuts: list[int]) -> None:
    assert decoded(split_at(SAMPLE, cuts)) == WHOLE


def test_A01_byte_by_byte_and_every_two_way_split() -> None:
    assert decoded([SAMPLE[i : i + 1] for i in range(len(SAMPLE))]) == WHOLE
    assert all(decoded([SAMPLE[:cut], SAMPLE[cut:]]) == WHOLE for cut in range(len(SAMPLE)))


def test_A03_A04_line_ends_of_every_kind_and_separators_that_are_none() -> None:
    raw = chunk({"content": "a\u2028b\u2029c\x85d"}) + chunk(finish="stop") + DONE
    for end in (b"\r\n", b"\r"):
        assert decoded(raw.replace(b"\n", end)).text == "a\u2028b\u2029c\x85d"
    assert decoded(raw.replace(b"\n", b"\r\n")).complete


FRAMING = {
    "A05 a byte order mark": b"\xef\xbb\xbf" + HELLO,
    "A06 no space after data:": HELLO.replace(b"data: ", b"data:"),
    "A08 several data lines": HELLO.replace(b'"choices"', b'\ndata: "choices"'),
    "A09 comments as keep-alive": b": OPENROUTER PROCESSING\n\n" + HELLO.replace(b"\n\n", b"\n\n: ping\n\n"),
    "A10 a comment as data": b"data: : keepalive\n\n" + HELLO,
    "A10 empty data": b"data:\n\ndata: \n\n" + HELLO,
    "A11 an id, a comment and a blank line": b"id: 4\n: hi\n\n" + HELLO,
    "A12 pings and unknown events": b'event: ping\ndata: {"type": "ping"}\n\nevent: novel\ndata: <x>\n\n' + HELLO,
    "A12 an unknown event that is JSON": b'event: novel\ndata: {"id": "not ours", "error": "nor that"}\n\n' + HELLO,
    "A12 unknown fields": HELLO.replace(b"data: ", b"priority: 1\ndata: "),
    "A12 chunks under a name": HELLO.replace(b"data: {", b"event: completion\ndata: {"),
    "A16 no choices": event({**HEAD, "choices": []}) + HELLO,
    "A16 choices absent": event(HEAD) + event({**HEAD, "choices": None}) + HELLO,
    "a choice that is no object": event({**HEAD, "choices": [None, 7, "x"]}) + HELLO,
    "a delta that is null": event({**HEAD, "choices": [{"index": 0, "delta": None}]}) + HELLO,
    "[DONE] with spaces": HELLO.replace(b"[DONE]", b"[DONE] "),
    "chunks after [DONE]": HELLO + chunk({"content": "!"}) + b"data: broken\n\n",
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMING)
def test_the_same_answer_whatever_is_around_it(name: str) -> None:
    said = decoded(FRAMING[name])
    assert (said.text, said.complete, said.errors) == ("Hello", True, [])
    assert said.body == decoded(HELLO).body


def test_A07_a_colon_in_the_payload() -> None:
    assert decoded(chunk({"content": "data: a: b"}) + DONE).text == "data: a: b"


def test_A13_bytes_are_utf8_whatever_the_headers_say() -> None:
    said = decoded(chunk({"content": "naïve"}).replace("ï".encode(), b"\xef") + chunk({"content": "ï"}) + DONE)
    assert said.text == "na\ufffdveï"
    assert said.complete


@pytest.mark.parametrize("glue", [b"", b" ", b",", b"\ndata: "])
def test_A14_two_objects_in_one_event_are_an_error(glue: bytes) -> None:
    one = json.dumps({**HEAD, "choices": []}).encode()
    said = decoded(chunk({"content": "a"}) + b"data: " + one + glue + one + b"\n\n" + HELLO)
    assert said.text == "a"
    assert [(e.kind, e.code, e.cut) for e in said.errors] == [("retryable", "protocol_error", False)]
    assert not said.complete


@pytest.mark.parametrize("missing", [1, 2])
def test_A15_a_done_that_lacks_only_its_blank_line_counts_where_the_body_has_an_end(missing: int) -> None:
    said = decoded(HELLO[:-missing])
    assert (said.text, said.errors, said.complete) == ("Hello", [], True)
    assert said.body == decoded(HELLO).body


@pytest.mark.parametrize(("missing", "cut"), [(1, True), (2, True), (3, False), (3, True)])
def test_A15_D48_any_other_unfinished_event_is_dropped_and_the_stream_is_cut(missing: int, cut: bool) -> None:
    said = decoded(HELLO[:-missing], cut=cut)
    assert said.text == "Hello"
    assert [(e.kind, e.cut) for e in said.errors] == [("retryable", True)]
    assert not said.complete


def test_A15_text_whose_event_is_unfinished_is_dropped() -> None:
    said = decoded(chunk({"content": "a"}) + chunk({"content": "b"})[:-1])
    assert (said.text, said.complete) == ("a", False)


def test_A15_the_finish_reason_is_the_terminal_event_of_a_provider_that_sends_no_done() -> None:
    raw = chunk({"content": "Hi"}) + chunk({}, "stop")[:-1]
    assert decoded(raw, WireQuirks(ends_without_done=True)).complete
    assert not decoded(raw, WireQuirks(ends_without_done=True), cut=True).complete
    assert not decoded(raw).complete


def test_A17_text_that_repeats_itself_is_a_quirk_and_not_a_guess() -> None:
    raw = b"".join(chunk({"content": text}) for text in ("na", "nana", "nanana", "nanana")) + DONE
    assert decoded(raw).text == "na" * 9
    quirk = WireQuirks(cumulative_text=True)
    assert decoded(raw, quirk).text == "nanana"
    assert decoded(raw, quirk).completion.text == "nanana"


def test_A18_a_lone_surrogate_is_replaced_also_where_two_deltas_share_a_pair() -> None:
    raw = chunk({"content": "a"}) + b"".join(
        chunk({"content": "@"}).replace(b"@", escape)
        for escape in (b"x\\ud83d", b"\\ude00y", b"\\ud83d\\ude00", b"\\\\ud800")
    )
    said = decoded(raw + DONE)
    assert said.text == "ax\ufffd\ufffdy😀\\ud800"
    assert said.completion.text == said.text
    said.text.encode()


def test_A19_a_page_in_place_of_a_stream_is_one_error() -> None:
    for raw in (b"<!doctype html>\n<p>\n\n</p>", b'{"id": "x", "choices": []}', b"", b"\x00\x01\xff" * 99):
        said = decoded(raw)
        assert [(e.kind, e.cut) for e in said.errors] == [("retryable", True)]
        assert "without a single chunk" in said.errors[0].message


def test_A20_an_endless_line_is_refused_with_what_came_before_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = ChatDecoder()
    monkeypatch.setattr(decoder._sse, "_max", 2000)
    deltas = decoder.feed(chunk({"content": "a"}))
    for _ in range(10):
        deltas += decoder.feed(b"x" * 1000)
    assert deltas[0] == TextDelta("a")
    assert [(d.kind, d.code) for d in deltas[1:] if isinstance(d, ErrorDelta)] == [("retryable", "protocol_error")]
    assert decoder.feed(HELLO) == []
    assert decoder.close() == []


def test_A21_the_last_usage_wins_wherever_it_stands() -> None:
    def usage(n: int) -> dict[str, int]:
        return {"prompt_tokens": 10, "completion_tokens": n}

    said = decoded(
        chunk({"content": "a"}, usage=usage(1))
        + chunk({"content": "b"}, usage=usage(1))
        + chunk({"content": "c"}, usage=None)
        + chunk(finish="stop", usage=usage(2))
        + event({**HEAD, "choices": [], "usage": {**usage(3), "cost": 0.5}})
        + event({"usage": usage(4)})
        + DONE
    )
    counted = [d.usage for d in said.deltas if isinstance(d, UsageDelta)]
    assert counted == [Usage(10, n) for n in (1, 2, 3, 4)]
    assert said.body["usage"] == usage(4)
    assert said.completion.usage == Usage(10, 4)
    assert said.text == "abc"


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "think"},
        {"reasoning": "think"},
        {"thinking": "think"},
        {"reasoning": "think", "reasoning_content": "think"},
        {"reasoning": "think", "reasoning_details": [{"type": "reasoning.text", "text": "think", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "think", "index": 0}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "think"}]}]},
        {"content": [{"type": "thinking", "thinking": "think"}]},
    ],
)
def test_C41_reasoning_is_read_wherever_it_stands_and_told_once(delta: dict[str, object]) -> None:
    said = decoded(chunk(delta) + chunk(delta) + chunk({"content": "42"}) + chunk(finish="stop") + DONE)
    told = [delta for delta in said.deltas if not isinstance(delta, NativeDelta)]
    assert told == [ReasoningDelta("think"), ReasoningDelta("think"), TextDelta("42"), FinishDelta("stop")]
    assert (said.completion.reasoning, said.completion.text) == ("thinkthink", "42")


def test_C46_a_budget_spent_on_reasoning_shows_as_length() -> None:
    completion = decoded(chunk({"reasoning": "long"}) + chunk({"content": ""}, "length") + DONE).completion
    assert (completion.text, completion.reasoning, completion.stop) == ("", "long", "length")


def test_refusal_is_told_as_such() -> None:
    said = decoded(chunk({"refusal": "I ca"}) + chunk({"refusal": "nnot"}) + chunk(finish="stop") + DONE)
    assert said.deltas == [RefusalDelta("I ca"), RefusalDelta("nnot"), FinishDelta("stop")]
    assert (said.completion.refusal, said.completion.text) == ("I cannot", "")


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reason", [None, "stop", "tool_calls"])
def test_D48_no_done_is_a_cut_whatever_the_finish_reason(reason: str | None) -> None:
    """Behind a finish reason the usage may still be on its way. A provider that never sends `[DONE]` is a quirk."""
    raw = chunk({"content": "Hel"}) + chunk(finish=reason)
    said = decoded(raw)
    assert said.errors == [ErrorDelta("retryable", "the stream ended without [DONE]", code="stream_cut", cut=True)]
    assert not said.complete
    known = decoded(raw, WireQuirks(ends_without_done=True))
    assert known.complete is (reason is not None)
    assert bool(known.errors) is (reason is None)


def test_D48_every_strict_prefix_is_cut_and_keeps_the_text_that_came() -> None:
    for end in range(len(SAMPLE) - 1):
        said = decoded(SAMPLE[:end], cut=True)
        assert not said.complete
        assert [e.cut for e in said.errors] == [True]
        assert WHOLE.text.startswith(said.text)


def test_D49_done_without_a_finish_reason_is_complete() -> None:
    said = decoded(chunk({"content": "Hi"}) + DONE)
    assert (said.complete, said.errors, said.completion.finish_reason) == (True, [], "")


ERRORS = {
    "object": ({"error": {"message": "no", "type": "server_error", "code": None}}, "retryable", 500),
    "with choices": (
        {**HEAD, "error": {"code": 400, "message": "no"}, "choices": [{"index": 0, "delta": {"content": ""}}]},
        "permanent",
        400,
    ),
    "rate limit by number": ({"error": {"code": 429, "message": "no"}}, "retryable", 429),
    "by type": ({"error": {"message": "no", "type": "invalid_request_error"}}, "permanent", 400),
    "bad key": ({"error": {"message": "no", "code": "invalid_api_key"}}, "permanent", 401),
    "text": ({"error": "no"}, "retryable", None),
    "vllm": ({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, "permanent", 400),
    "in the choice": (
        {**HEAD, "choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "no"}}]}, "retryable", 502,
    ),
    "x_groq": ({**HEAD, "choices": [], "x_groq": {"error": "no"}}, "retryable", None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "prefix"),
    [(name, b"") for name in ERRORS] + [(name, b"event: error\n") for name in ("object", "by type", "text", "vllm")],
)
def test_D50_D51_D53_an_error_inside_a_200_stream_is_typed_and_final(name: str, prefix: bytes) -> None:
    payload, kind, status = ERRORS[name]
    said = decoded(chunk({"content": "Hel"}) + prefix + event(payload) + HELLO)
    assert said.deltas[0] == TextDelta("Hel")
    assert said.errors == [said.deltas[-1]]
    assert (said.errors[0].kind, said.errors[0].status, said.errors[0].message) == (kind, status, "no")
    assert not said.complete
    assert said.completion.text == "Hel"


def test_D50_an_error_event_that_is_not_json() -> None:
    said = decoded(chunk({"content": "Hel"}) + b"event: error\ndata: upstream went away\n\n" + DONE)
    assert [(e.kind, e.message) for e in said.errors] == [("retryable", "upstream went away")]


def test_D50_error_null_is_none_and_finish_reason_error_is_one() -> None:
    assert decoded(chunk({"content": "a"}, error=None) + DONE).complete
    said = decoded(chunk({"content": "a"}) + chunk(finish="error") + DONE)
    assert not said.complete
    assert [e.kind for e in said.errors] == ["retryable"]


def test_D58_text_and_usage_after_the_finish_reason_are_read() -> None:
    said = decoded(
        chunk({"content": "a"}) + chunk(finish="stop") + chunk({"content": "b"}, "stop")
        + chunk({"content": "c"}, usage={"prompt_tokens": 1, "completion_tokens": 2}) + DONE
    )  # fmt: skip
    assert (said.text, said.completion.finish_reason, said.completion.usage) == ("abc", "stop", Usage(1, 2))
    assert [d for d in said.deltas if isinstance(d, FinishDelta)] == [FinishDelta("stop")]


def test_nothing_is_read_after_the_end_and_close_is_idempotent() -> None:
    decoder = ChatDecoder()
    decoder.feed(HELLO)
    body = decoder.rebuilt_body()
    assert decoder.feed(HELLO) == decoder.close() == decoder.close() == []
    assert decoder.rebuilt_body() == body


def test_a_body_asked_for_in_the_middle_is_not_changed_by_what_follows() -> None:
    parts = [part + b"\n\n" for part in SAMPLE.split(b"\n\n") if part.strip()]
    decoder = ChatDecoder()
    seen = []
    for part in parts:
        decoder.feed(part)
        body = decoder.rebuilt_body()
        seen.append((body, json.dumps(body)))
    assert all(json.dumps(body) == text for body, text in seen)


def test_cost_per_token_does_not_grow_with_the_answer() -> None:
    token = chunk({"content": " word"})

    def seconds(tokens: int) -> float:
        decoder, start = ChatDecoder(), time.process_time()
        for _ in range(tokens):
            decoder.feed(token)
        decoder.rebuilt_body()
        return time.process_time() - start

    small = min(seconds(1_000) for _ in range(5))
    # Fifty times the tokens; were each to cost as much as the text before it is long, it would be 2,500 times the time.
    assert min(seconds(50_000) for _ in range(3)) < 500 * small
