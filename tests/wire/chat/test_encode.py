"""Answers for clients of our own server: decoding what was encoded gives the answer back."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.messages import (
    AnyDelta,
    Completion,
    Dialect,
    ErrorDelta,
    EventDelta,
    EventRunDelta,
    FinishDelta,
    Message,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageDelta,
)
from tailrace.wire.chat.completion import completion_from_body, usage_body
from tailrace.wire.chat.encode import StreamEncoder
from tailrace.wire.chat.encode_body import encode_body
from tailrace.wire.dialects import CHAT
from tailrace.wire.sse import SseDecoder
from wire.chat.chat_streams import DONE, Said, chunk, decoded
from wire.headers import header


def encoder(source: Dialect = "chat", **fields: Any) -> StreamEncoder:
    return StreamEncoder(header(source, "chatcmpl-1", created=7, **fields))


def streamed(*deltas: AnyDelta, **fields: Any) -> bytes:
    writer = encoder(**fields)
    return writer.encode(deltas) + writer.close()


def events(raw: bytes) -> list[Any]:
    return [json.loads(e.data) if e.data != b"[DONE]" else "[DONE]" for e in SseDecoder().feed(raw)]


HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}


def said(delta: object, reason: str | None = None, **more: object) -> dict[str, object]:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}


def test_the_chunks_of_an_answer() -> None:
    raw = streamed(
        ReasoningDelta("hm"), TextDelta('"Hi"\n'), ToolCallDelta(0, "a", "f"), ToolCallDelta(0, arguments="{}"),
        FinishDelta("tool_calls"), UsageDelta(Usage(2, 3, 1, 0, 1)),
    )  # fmt: skip
    assert events(raw) == [
        said({"role": "assistant", "content": None}),
        said({"reasoning_content": "hm"}),
        said({"content": '"Hi"\n'}),
        said({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
        said({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
        said({}, "tool_calls"),
        "[DONE]",
    ]


def test_thoughts_alone_have_an_empty_content() -> None:
    assert events(streamed(ReasoningDelta("hm"), FinishDelta("length"))) == [
        said({"role": "assistant", "content": None}),
        said({"reasoning_content": "hm"}),
        said({"content": ""}, "length"),
        "[DONE]",
    ]


def test_a_call_that_got_no_arguments_has_an_empty_object() -> None:
    called = (ToolCallDelta(0, "a", "f"), ToolCallDelta(1, "b", "g"), ToolCallDelta(1, arguments='{"x":1}'))
    pieces = [
        event["choices"][0] for event in events(streamed(*called, FinishDelta("tool_use"), source="anthropic"))[:-1]
    ]
    assert [piece["delta"] for piece in pieces[-2:]] == [
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]
    cut = [
        event["choices"][0]["delta"]
        for event in events(streamed(*called, FinishDelta("max_tokens"), source="anthropic"))[:-1]
    ]
    assert {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]} not in cut


def test_H93_the_usage_chunk_has_no_choices_and_comes_last() -> None:
    raw = streamed(
        TextDelta("Hi"),
        FinishDelta("stop"),
        UsageDelta(Usage(1, 1)),
        UsageDelta(Usage(2, 3, 1, 0, 1)),
        include_usage=True,
    )
    *chunks, usage, done = events(raw)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert usage == {
        **HEAD,
        "choices": [],
        "usage": {
            "prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 1}, "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }  # fmt: skip
    assert done == "[DONE]"


def test_anthropics_usage_is_counted_as_this_dialect_counts() -> None:
    usage = Usage(10, 5, cache_read_tokens=100, cache_write_tokens=20)
    raw = streamed(UsageDelta(usage), include_usage=True, source="anthropic")
    assert events(raw)[-2]["usage"]["prompt_tokens"] == 130


def test_H94_a_failure_ends_in_an_error_frame_and_no_done() -> None:
    error = ErrorDelta("retryable", "overloaded", code="overloaded_error", status=529)
    raw = streamed(TextDelta("Hel"), error, TextDelta("lo"), FinishDelta("stop"))
    assert events(raw)[2:] == [
        {"error": {"message": "overloaded", "type": "server_error", "param": None, "code": "overloaded_error"}}
    ]
    back = decoded(raw)
    assert (back.text, back.complete, back.errors[0].message) == ("Hel", False, "overloaded")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorDelta("permanent", "no", status=401), "authentication_error"),
        (ErrorDelta("permanent", "no"), "invalid_request_error"),
        (ErrorDelta("retryable", "no", status=429), "rate_limit_error"),
        (ErrorDelta("retryable", "no", cut=True), "server_error"),
    ],
)
def test_D50_an_error_we_send_reads_as_the_same_kind(error: ErrorDelta, kind: str) -> None:
    raw = streamed(error)
    assert events(raw)[0]["error"]["type"] == kind
    assert decoded(raw).errors[0].kind == error.kind


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
choices = st.integers(0, 2)
plain = st.one_of(*(st.builds(kind, texts, choices) for kind in (TextDelta, ReasoningDelta, RefusalDelta)))


@st.composite
def answers(draw: st.DrawFn) -> list[AnyDelta]:
    """Deltas as a decoder hands them out: calls begin with id and name and have arguments; every choice finishes,
    at the end."""
    deltas: list[AnyDelta] = [TextDelta("first"), *draw(st.lists(plain, max_size=12))]
    called: set[int] = set()
    for choice in draw(st.sets(choices)):
        for index in range(draw(st.integers(0, 2))):
            begun = draw(st.sampled_from(["", "{"]))
            deltas.append(ToolCallDelta(index, f"id{index}", draw(texts), begun, choice))
            pieces = draw(st.lists(texts, min_size=0 if begun else 1, max_size=3))
            deltas += [ToolCallDelta(index, arguments=text, choice=choice) for text in pieces]
            called.add(choice)
    for choice in sorted(
        {delta.choice for delta in deltas if not isinstance(delta, (UsageDelta, ErrorDelta, EventDelta, EventRunDelta))}
    ):
        reasons = ["tool_calls", "length"] if choice in called else ["stop", "length", "content_filter"]
        deltas.append(FinishDelta(draw(st.sampled_from(reasons)), choice))
    return deltas


@given(deltas=answers(), usage=st.builds(Usage, *[st.integers(0, 9)] * 5), include=st.booleans())
def test_decoding_what_was_encoded_gives_the_same_deltas(deltas: list[AnyDelta], usage: Usage, include: bool) -> None:
    back = decoded(streamed(*deltas, UsageDelta(usage), include_usage=include))
    assert back.complete
    assert back.deltas == [*deltas, *([UsageDelta(usage, usage_body(usage, CHAT))] if include else [])]


@given(deltas=answers(), cuts=st.lists(st.integers(0, 30), max_size=4))
def test_how_deltas_are_batched_does_not_show(deltas: list[AnyDelta], cuts: list[int]) -> None:
    writer, edges = encoder(), [0, *sorted(min(cut, len(deltas)) for cut in cuts), len(deltas)]
    batched = b"".join(writer.encode(deltas[a:b]) for a, b in itertools.pairwise(edges)) + writer.close()
    assert batched == streamed(*deltas)


def rebuilt(raw: bytes) -> Said:
    """The answer, streamed once more by us."""
    first = decoded(raw)
    return decoded(streamed(*first.deltas, include_usage=True))


def test_an_answer_relayed_is_the_same_answer() -> None:
    raw = chunk({"reasoning": "hm"}) + chunk({"content": "Hi"}) + chunk(finish="stop") + DONE
    first, second = decoded(raw).completion, rebuilt(raw).completion
    assert (second.text, second.reasoning, second.finish_reason) == (first.text, first.reasoning, first.finish_reason)


def test_a_completion_of_this_dialect_is_its_own_body() -> None:
    body = {"id": "x", "novel": 1, "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}]}
    told = encode_body(completion_from_body(body), header("chat", "ours"))
    message = {"role": "assistant", "content": "Hi", "refusal": None}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]  # what every choice has
    ours = {"id": "ours", "model": "m", "created": 5}
    assert told == {**body, "object": "chat.completion", "choices": choices, **ours}


@pytest.mark.parametrize(
    ("stop", "reason"),
    [("end", "stop"), ("length", "length"), ("tools", "tool_calls"), ("filter", "content_filter"), ("unknown", "stop")],
)
def test_a_completion_of_another_dialect_as_a_body(stop: Any, reason: str) -> None:
    parts = (Reasoning("hm", "anthropic", {}), Text("Hi"), ToolCall("a", "f", '{"x":1}'))
    usage = Usage(10, 5, cache_read_tokens=3)
    completion = Completion("anthropic", {}, Message("assistant", parts), id="msg_1", model="c", stop=stop, usage=usage)
    body = encode_body(completion, header("anthropic", "ours", model="c"))
    assert body == {
        "id": "ours", "object": "chat.completion", "created": 5, "model": "c",
        "choices": [{
            "index": 0,
            "message": {
                "role": "assistant", "content": "Hi", "refusal": None, "reasoning_content": "hm",
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}],
            },
            "logprobs": None,
            "finish_reason": reason,
        }],
        "usage": {"prompt_tokens": 13, "completion_tokens": 5, "total_tokens": 18,
                  "prompt_tokens_details": {"cached_tokens": 3}},
    }  # fmt: skip
    back = completion_from_body(body)
    assert (back.text, back.reasoning, back.tool_calls) == ("Hi", "hm", completion.tool_calls)


def reasons(raw: bytes) -> list[str]:
    said = [e["choices"][0]["finish_reason"] for e in events(raw) if e != "[DONE]" and e["choices"]]
    return [reason for reason in said if reason]


def test_the_reasons_of_other_dialects_are_put_into_this_ones_words() -> None:
    said = (FinishDelta("tool_use"), FinishDelta("max_tokens", choice=1), FinishDelta("novel", choice=2))
    raw = streamed(*said, source="anthropic")
    assert reasons(raw) == ["tool_calls", "length", "novel"]


def test_there_is_always_one_reason_and_whoever_closes_may_give_it() -> None:
    assert reasons(encoder().close()) == ["stop"]
    assert reasons(streamed(ToolCallDelta(0, "a", "f"), FinishDelta("stop"))) == ["tool_calls"]
    writer = encoder()
    raw = writer.encode([TextDelta("Hel"), FinishDelta("stop"), TextDelta("lo")]) + writer.close("length")
    assert reasons(raw) == ["length"]
    assert decoded(raw).text == "Hello"
    assert writer.close() == writer.encode([TextDelta("late")]) == b""


def test_the_role_can_be_sent_before_there_is_anything_to_say() -> None:
    writer = encoder()
    first = writer.start()
    assert events(first) == [said({"role": "assistant", "content": ""})]
    assert writer.start() == b""
    assert first + writer.encode([TextDelta("Hi")]) == encoder().encode([TextDelta("Hi")])


@given(
    head=st.permutations(list(HEAD)),
    more=st.dictionaries(
        st.sampled_from(["service_tier", "system_fingerprint", "provider"]), st.one_of(st.none(), st.text(max_size=4))
    ),
    behind=st.dictionaries(st.sampled_from(["service_tier", "obfuscation", "usage"]), st.none()),
    id=st.text(max_size=6),
    include=st.booleans(),
)
def test_a_relayed_chunk_is_the_providers_but_for_its_id_and_model(
    head: list[str],
    more: dict[str, str | None],
    behind: dict[str, None],
    id: str,  # noqa: A002 - the field's name
    include: bool,
) -> None:
    """However its head is written: most are read without decoding them."""
    theirs = {"id": id, "object": "chat.completion.chunk", "created": 12, "model": "up-1"}
    delta = {"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}
    sent = {name: theirs[name] for name in head} | more | {"choices": [delta]} | behind
    writer = encoder(include_usage=include)
    event = EventDelta("chat", "", json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode())
    [told] = events(writer.encode([event, TextDelta("Hi")]))
    expected = {**sent, "id": "chatcmpl-1", "model": "m"}
    if not include and "usage" in expected:
        del expected["usage"]
    assert told == expected
    names = [name for name in expected if name not in ("created", "choices")]
    assert next(iter(told)) == "created"
    assert [name for name in told if name not in ("created", "choices")] == names
