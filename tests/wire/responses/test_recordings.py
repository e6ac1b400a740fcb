"""Every recorded Responses stream: decoded as the official SDK does, or better, and why."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from tailrace.messages import (
    AnyDelta,
    Completion,
    ErrorDelta,
    FinishDelta,
    JsonObject,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from tailrace.wire.failure import failure_in
from tailrace.wire.peer_json import decode_object
from tailrace.wire.responses.completion import completion_from_body
from tailrace.wire.responses.decode import ResponsesDecoder
from tailrace.wire.sse import SseDecoder, encode_event
from wire.recordings import Recording, load, needs_recordings, random_pieces

pytestmark = needs_recordings

RECORDINGS = load("responses")


def each_of(recordings: Iterable[Recording]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recording", [pytest.param(r, id=r.id) for r in recordings])


# Recordings whose answer is an error, and which one.
ERRORS = {
    "prism.stream-rate-limited-1.af3bea4b": ("retryable", 429, "rate_limit_exceeded"),  # D50 D52: an `error` event
    "prism.stream-unknown-error-responses-1.94fe697b": ("retryable", None, "unknown-error"),  # the same, unknown code
    "mirascope.wraps-api-errors-on-stream-call.034fb994": ("permanent", 400, "model_not_found"),  # D53: no stream
}
# Where the SDK holds another answer than ours; `wire` beside the expectation is the plain sum of the deltas.
EMPTY_TERMINAL = "D54: response.completed has no output; the SDK believes it, the streamed items are the answer"
NOT_COMPLETED = "D56: the SDK raises without response.completed; the answer is there, as incomplete"
BETTER_THAN_THE_SDK = {
    "rig.cached-oauth-allows-noninteractive-streaming-com.dd55d74f": EMPTY_TERMINAL,
    "rig.default-instructions-merge-with-explicit-preambl.6520b84a": EMPTY_TERMINAL,
    "rig.explicit-preamble-and-mid-conversation-system-me.a02bb666": EMPTY_TERMINAL,
    "rig.parallel-tool-calls-single-turn-nonstreaming.8c3f5f03": EMPTY_TERMINAL,
    "rig.reasoning-session-two-tool-calls-streaming.5ddcafd5": EMPTY_TERMINAL,
    "rig.sequential-tool-calls-nonstreaming.38e463c0": EMPTY_TERMINAL,
    "rig.sequential-tool-calls-nonstreaming.8628cc1f": EMPTY_TERMINAL,
    "rig.store-false-and-prompt-cache-fields-roundtrip.54389ef4": EMPTY_TERMINAL,
    "rig.unicode-arguments-streaming.f004104c": EMPTY_TERMINAL,
    "rust-genai.custom-grammar-tool-response-000.52243b71": EMPTY_TERMINAL,
}
AS_THE_TERMINAL_EVENT_SAYS = {
    "dd-trace-py.response-stream-incomplete.3d2d4a61": NOT_COMPLETED,
    "mirascope.async-stream.d7bb25ea": NOT_COMPLETED,
    "rig.incomplete-mid-tool-call.66e30f61": NOT_COMPLETED,
    "rig.responses-streaming-reasoning-budget-exhausted.f25820a2": NOT_COMPLETED,
    "ruby-llm.providers-bedrock-mantle-responses-chat-streams.6cca30d3": (
        "its first content_index is 1 and the SDK indexes its own list by it; ours goes by the item"
    ),
}
NO_STATUS = {
    "opentelemetry-js-contrib.openai-streaming-responses-records-usage.1c71b443": (
        "the response has no status and the SDK no finish reason; the event is named response.completed"
    )
}
# B40: what was streamed is not the beginning of what `done` says. The answer is right, the deltas cannot be unsaid.
DELTAS_DIFFER_FROM_DONE = {
    "ai.openai-shell-container-1.75b82d3e": "written by hand: the deltas hold another text",
    "braintrust-sdk-javascrip.flue-v0-8-latest.ac3c23d3": "a path was scrubbed in `done`, not in the deltas",
    "braintrust-sdk-javascrip.flue-v0-8-latest.bb8f3871": "a path was scrubbed in `done`, not in the deltas",
}


@functools.cache
def decoded(raw: bytes) -> tuple[list[AnyDelta], JsonObject, bool]:
    return decode([raw])


def decode(pieces: list[bytes]) -> tuple[list[AnyDelta], JsonObject, bool]:
    decoder = ResponsesDecoder()
    deltas = [delta for piece in pieces for delta in decoder.feed(piece)] + decoder.close()
    return deltas, decoder.rebuilt_body(), decoder.complete


def text_of(deltas: list[AnyDelta], kind: type[TextDelta | ReasoningDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, kind))


def calls_of(deltas: list[AnyDelta]) -> list[tuple[str, str, str]]:
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            call = calls.setdefault(delta.index, ["", "", ""])
            for i, piece in enumerate((delta.id, delta.name, delta.arguments)):
                call[i] += piece
    return [(call[0], call[1], call[2]) for _, call in sorted(calls.items())]


def summary(completion: Completion) -> JsonObject:
    """What the expectations hold, of ours."""
    return {
        "id": completion.id or None,
        "model": completion.model,
        "items": [item["type"] for item in completion.body["output"]],
        "text": completion.text or None,
        "refusal": completion.refusal,
        "reasoning": completion.reasoning or None,
        "tool_calls": [(call.id, call.name, call.arguments) for call in completion.tool_calls],
        "finish_reason": completion.finish_reason or None,
        "incomplete_details": completion.body.get("incomplete_details"),
        "usage": completion.body.get("usage"),
    }


def expected_summary(recording: Recording) -> JsonObject:
    result: JsonObject = recording.expected["result"]
    calls = [(call["id"], call["name"], call["arguments"]) for call in result["tool_calls"]]
    fields = {**result, "tool_calls": calls, "text": result["text"] or None}
    del fields["error"]
    return fields


@each_of(r for r in RECORDINGS if r.id not in ERRORS)
def test_the_answer_is_the_expected_one(recording: Recording) -> None:
    _, body, complete = decoded(recording.raw)
    ours, expected = summary(completion_from_body(body)), expected_summary(recording)
    if recording.id in BETTER_THAN_THE_SDK:
        assert expected["items"] == []
        wire = recording.expected["wire"]
        expected |= {"items": ours["items"], "text": wire["text"] or None}
        expected["tool_calls"] = [(call["id"], call["name"], call["arguments"]) for call in wire["tool_calls"]]
        assert ours["items"]
    elif recording.id in NO_STATUS:
        assert expected["finish_reason"] is None
        expected["finish_reason"] = "completed"
    elif recording.id not in AS_THE_TERMINAL_EVENT_SAYS:
        assert recording.expected["ok"]
    assert ours == expected
    assert complete


@each_of(RECORDINGS)
def test_the_deltas_say_what_the_body_says(recording: Recording) -> None:
    deltas, body, complete = decoded(recording.raw)
    completion = completion_from_body(body)
    calls = [(call.id, call.name, call.arguments) for call in completion.tool_calls]
    alike = (text_of(deltas, TextDelta), calls_of(deltas)) == (completion.text, calls)
    assert alike == (recording.id not in DELTAS_DIFFER_FROM_DONE)
    assert text_of(deltas, ReasoningDelta) == completion.reasoning
    if complete:
        assert [d.reason for d in deltas if isinstance(d, FinishDelta)] == [completion.finish_reason]
        assert [d.usage for d in deltas if isinstance(d, UsageDelta)] == [completion.usage]


@each_of(r for r in RECORDINGS if r.id in ERRORS)
def test_D50_D52_D53_errors_are_typed(recording: Recording) -> None:
    error: AnyDelta | None
    if recording.meta["status"] >= 400:  # no stream at all: the HTTP layer asks the same classifier
        error = failure_in(decode_object(recording.raw), status=recording.meta["status"])
    else:
        deltas, _, complete = decoded(recording.raw)
        error = deltas[-1]
        assert not complete
    assert isinstance(error, ErrorDelta)
    assert (error.kind, error.status, error.code) == ERRORS[recording.id]
    assert error.message in recording.expected["error"]["message"]


@each_of(RECORDINGS)
def test_A01_A02_fifty_random_chunkings_give_the_same(recording: Recording) -> None:
    whole = decoded(recording.raw)
    rng = random.Random(recording.id)
    for _ in range(50):
        assert decode(random_pieces(recording.raw, rng)) == whole


# ── the rebuild, held against what the provider itself says is the whole ─────────────────────────────────────

UNSTABLE = ("encrypted_content", "fingerprint")  # made anew for each event that holds them
# What the terminal event itself says otherwise than `output_item.done` does.
ENDS_DIFFER = {
    "mastra.core-src-tools-provider-tools-e2e.39dc1a61": "two more sources of the web search",
    "pydantic-ai.test-openai-responses-raw-cot-stream-openrouter.f8ca48aa": "another id for the same item",
}
# What only `done` events bring, so that without them it is missing or older.
ONLY_IN_DONE = {
    "ai.lmstudio-tool-call-1.9ed91bc7": {"arguments"},  # sent whole
    "ai.lmstudio-tool-call-2.1c86eef9": {"arguments"},
    "ai.openai-custom-tool-1.eaa62948": {"status"},
    "ai.programmatic-tool-calling-1.aeaaa893": {"status"},  # in progress in a completed response
    "braintrust-sdk-javascrip.openai-codex-v0-wrapped.bf623b60": {"internal_chat_message_metadata_passthrough"},
    "pydantic-ai.test-openai-responses-raw-cot-stream-openrouter.f8ca48aa": {"id"},
    "rig.openai-responses-stream-against-openrouter-compl.7ec55a08": {"format"},
    "ruby-llm.providers-bedrock-mantle-responses-chat-streams.6cca30d3": {"content"},  # logprobs of `added` alone
}
STREAMED_ITEMS = {"message", "reasoning", "function_call", "custom_tool_call"}


def events_of(raw: bytes) -> list[JsonObject]:
    return [json.loads(event.data) for event in SseDecoder().feed(raw) if event.data[:1] == b"{"]


def terminal_output(events: list[JsonObject]) -> list[JsonObject]:
    ended = [e for e in events if e["type"] in ("response.completed", "response.incomplete")]
    return ended[-1]["response"].get("output") or [] if ended else []


def without(events: list[JsonObject], *dropped: str) -> bytes:
    """The stream again, its terminal event without output, and without the events whose names end so."""
    raw = b""
    for event in events:
        kept = dict(event)
        if event["type"] in ("response.completed", "response.incomplete"):
            kept["response"] = {**event["response"], "output": []}
        if not event["type"].endswith(dropped):
            raw += encode_event(json.dumps(kept), event=event["type"])
    return raw


def but(items: list[JsonObject], *left_out: str) -> list[JsonObject]:
    return [{key: value for key, value in item.items() if key not in left_out} for item in items]


WITH_OUTPUT = [recording for recording in RECORDINGS if terminal_output(events_of(recording.raw))]
STREAMED_ALIKE = [recording for recording in WITH_OUTPUT if recording.id not in DELTAS_DIFFER_FROM_DONE]


@each_of(r for r in WITH_OUTPUT if r.id not in ENDS_DIFFER)
def test_D54_the_items_alone_give_the_terminal_events_output(recording: Recording) -> None:
    events = events_of(recording.raw)
    deltas, body, complete = decode([without(events)])
    assert complete
    assert but(body["output"], *UNSTABLE) == but(terminal_output(events), *UNSTABLE)
    assert deltas == decoded(recording.raw)[0]


@each_of(STREAMED_ALIKE)
def test_D54_the_pieces_alone_give_the_terminal_events_items(recording: Recording) -> None:
    """No `done` of any kind: each item is what was announced and what it grew into."""
    events = events_of(recording.raw)
    _, body, complete = decode([without(events, ".done")])
    ours, theirs = body["output"], terminal_output(events)
    assert complete
    assert [item["type"] for item in ours] == [item["type"] for item in theirs]
    left_out = (*UNSTABLE, *ONLY_IN_DONE.get(recording.id, ()))
    streamed = [(a, b) for a, b in zip(ours, theirs, strict=True) if b["type"] in STREAMED_ITEMS]
    assert but([a for a, _ in streamed], *left_out) == but([b for _, b in streamed], *left_out)


@each_of(STREAMED_ALIKE)
def test_D55_nothing_announced_and_nothing_repeated_gives_the_same_text(recording: Recording) -> None:
    events = events_of(recording.raw)
    bare = without(events, ".done", "item.added", "part.added")
    completion, whole = completion_from_body(decode([bare])[1]), completion_from_body(decoded(recording.raw)[1])
    assert (completion.text, completion.reasoning, completion.refusal) == (whole.text, whole.reasoning, whole.refusal)
    assert citations(completion.body["output"]) == citations(terminal_output(events))


def citations(items: list[JsonObject]) -> list[Any]:
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    return [part.get("annotations", []) for part in parts if part.get("text")]


@each_of(WITH_OUTPUT)
def test_D48_D57_a_stream_without_its_end_is_cut_and_keeps_what_came(recording: Recording) -> None:
    cut = without(events_of(recording.raw), "response.completed", "response.incomplete")
    deltas, body, complete = decode([cut])
    assert isinstance(deltas[-1], ErrorDelta)
    assert (deltas[-1].cut, deltas[-1].kind, complete) == (True, "retryable", False)
    completion = completion_from_body(body)
    assert completion.finish_reason == ""
    assert completion.text == completion_from_body(decoded(recording.raw)[1]).text


@each_of(r for r in RECORDINGS if "output" in (r.meta.get("nonstream") or ()))
def test_a_recorded_non_streaming_answer_is_read_alike(recording: Recording) -> None:
    body = recording.meta["nonstream"]
    completion = completion_from_body(body)
    assert completion.body is body
    assert completion.finish_reason == body["status"]
    assert completion.message.parts
    assert completion.usage.input_tokens == body["usage"]["input_tokens"]
