"""Every recorded stream of the Messages API against what the official SDK made of the same bytes."""

from __future__ import annotations

import random
import zlib

import pytest

from tailrace.messages import (
    AnyDelta,
    Completion,
    ErrorDelta,
    FinishDelta,
    JsonObject,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    UsageDelta,
    user,
)
from tailrace.wire.anthropic.completion import completion_from_body
from tailrace.wire.anthropic.provider_request import encode_request
from wire.anthropic.anthropic_events import decode
from wire.recordings import Recording, load, needs_recordings, random_pieces

RECORDINGS = load("anthropic")
every_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.id)

# Where our answer is not the SDK's, and why.
NO_LAST_BLANK = {
    "anthropic-sdk-python.fallback-response.55a19e07",
    "anthropic-sdk-python.incomplete-partial-json-response.40d58d0d",
    "rig.streaming-prompt-caching-reuses-tool-cache.560c92ac",
}  # A15: the file ends before the blank line that would dispatch message_stop; it counts where the body had an end
TOOL_INPUT_CUT = {
    "anthropic-sdk-python.incomplete-partial-json-response.40d58d0d"
}  # B34: the SDK completes the object it has seen the beginning of; ours stays the text that came
USAGE_KEPT = {
    "dd-trace-js.claude-agent-sdk-v1-messages-beta-true-post-1a9e.8f1fdaf3": {"iterations"},
    "rig.gateway-message-delta-metadata.b0c7ddef": {"cache_creation", "cost", "cost_details", "is_byok"},
}  # fields of message_delta's usage that the SDK drops because it does not know them
SDK_FAILED = {
    "rig.gateway-message-delta-metadata.b0c7ddef"
}  # the gateway adds `data: [DONE]` after message_stop, and the SDK takes it for JSON; the answer was whole

# Where a recorded non-streaming answer has other fields than the rebuilt one: it is of an older version of the API, or
# written by hand, and the fields stand in the stream's own bytes (or are missing there).
OTHER_SHAPE = {
    "ai.anthropic-advisor-stop-reasons.dcad4f45": {
        "stop_details",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    },
    "ai.anthropic-fallback.b7d6a087": {"stop_details"},
    "openllmetry.test-anthropic-tools-streaming-with-events-with.97265cfa": {
        "service_tier",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    },
    "weave.test-beta-anthropic-stream.dbca6355": {
        "service_tier",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    },
}


def tool_uses(body: JsonObject) -> list[JsonObject]:
    """All of them, the provider's own included, with the fields that the expectations name."""
    names = ("id", "name", "type", "input")
    return [{n: block.get(n) for n in names} for block in body["content"] if block["type"].endswith("tool_use")]


@needs_recordings
def test_the_recordings_and_the_reasons_are_all_there() -> None:
    ids = {recording.id for recording in RECORDINGS}
    assert len(ids) >= 121
    assert (NO_LAST_BLANK | TOOL_INPUT_CUT | USAGE_KEPT.keys() | SDK_FAILED | OTHER_SHAPE.keys()) <= ids
    assert {recording.id for recording in RECORDINGS if not recording.expected["ok"]} == SDK_FAILED


@every_recording
def test_it_says_what_the_SDK_read(recording: Recording) -> None:
    expected = recording.expected["result"]
    deltas, body, decoder = decode(recording.raw)
    completion = completion_from_body(body)
    assert decoder.complete
    assert not any(isinstance(delta, ErrorDelta) for delta in deltas)
    assert decode(recording.raw, cut=True)[2].complete is (recording.id not in NO_LAST_BLANK)
    assert completion.text == (expected["text"] or "")
    assert completion.reasoning == (expected["reasoning"] or "")
    assert (completion.id, completion.model) == (expected["id"], expected["model"])
    assert completion.finish_reason == expected["finish_reason"]
    assert body.get("stop_sequence") == expected["stop_sequence"]
    assert [block["type"] for block in body["content"]] == expected["blocks"]
    assert sum(len(block.get("citations") or ()) for block in body["content"]) == expected["citations"]
    if recording.id in TOOL_INPUT_CUT:
        assert [call.parsed() for call in completion.tool_calls] == [None]
    else:
        assert tool_uses(body) == expected["tool_calls"]
    kept = USAGE_KEPT.get(recording.id, set())
    assert {n: v for n, v in body["usage"].items() if v is not None and n not in kept} == {
        n: v for n, v in expected["usage"].items() if v is not None and n not in kept
    }
    assert kept <= body["usage"].keys()


@every_recording
def test_its_deltas_and_its_body_say_the_same(recording: Recording) -> None:
    deltas, body, _ = decode(recording.raw)
    completion = completion_from_body(body)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == completion.text
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == completion.reasoning
    assert [delta.reason for delta in deltas if isinstance(delta, FinishDelta)] == [completion.finish_reason]
    assert [delta.usage for delta in deltas if isinstance(delta, UsageDelta)][-1] == completion.usage
    assert_same_calls(deltas, completion)


def assert_same_calls(deltas: list[AnyDelta], completion: Completion) -> None:
    pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    for index, call in enumerate(completion.tool_calls):
        own = [piece for piece in pieces if piece.index == index]
        streamed = ToolCall(own[0].id, own[0].name, "".join(piece.arguments for piece in own))
        assert (streamed.id, streamed.name, streamed.parsed()) == (call.id, call.name, call.parsed())
    assert len({piece.index for piece in pieces}) == len(completion.tool_calls)


@every_recording
def test_A01_fifty_other_ways_to_deliver_it_change_nothing(recording: Recording) -> None:
    whole = decode(recording.raw)[:2]
    rng = random.Random(zlib.crc32(recording.id.encode()))
    for _ in range(50):
        assert decode(random_pieces(recording.raw, rng))[:2] == whole


@pytest.mark.parametrize(
    "recording", [r for r in RECORDINGS if r.meta.get("nonstream")], ids=lambda recording: recording.id
)
def test_it_has_the_shape_of_a_recorded_answer_without_streaming(recording: Recording) -> None:
    rebuilt, recorded = decode(recording.raw)[1], recording.meta["nonstream"]
    other = OTHER_SHAPE.get(recording.id, set())
    assert (rebuilt.keys() ^ recorded.keys()) <= other
    assert (rebuilt["usage"].keys() ^ recorded["usage"].keys()) <= other
    ours, theirs = fields_by_type(rebuilt), fields_by_type(recorded)
    for kind in ours.keys() & theirs.keys():
        assert ours[kind] & theirs[kind]


@every_recording
def test_C45_its_answer_can_be_sent_back_as_it_came(recording: Recording) -> None:
    """Block by block, but for what the API refuses or takes for granted."""
    body = decode(recording.raw)[1]
    question, answer = user("?"), completion_from_body(body).message
    sent = encode_request(ModelRequest("m", (question, answer, user("Go on."))), stream=True)["messages"]
    if recording.id in TOOL_INPUT_CUT:
        assert sent[1]["content"][-1]["input"].keys() == {"INVALID_JSON"}
    else:
        replayed = [without_defaults(block) for block in body["content"] if not is_refused(block)]
        assert [turn["content"] for turn in sent if turn["role"] == "assistant"] == ([replayed] if replayed else [])


def is_refused(block: JsonObject) -> bool:
    match block["type"]:
        case "text":
            return not block["text"].strip()
        case "thinking":
            return not block.get("signature")
        case _:
            return False


def without_defaults(block: JsonObject) -> JsonObject:
    defaults: JsonObject = {"citations": ([], None), "caller": ({"type": "direct"},)}
    if block["type"] not in {"text", "tool_use"}:
        return block
    return {name: value for name, value in block.items() if value not in defaults.get(name, ())}


def fields_by_type(body: JsonObject) -> dict[str, set[frozenset[str]]]:
    fields: dict[str, set[frozenset[str]]] = {}
    for block in body["content"]:
        fields.setdefault(block["type"], set()).add(frozenset(block))
    return fields
