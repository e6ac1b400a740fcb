"""Every recorded chat stream, against the official SDK's reading of the same bytes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tailrace.config.quirks import WireQuirks
from tailrace.messages import JsonObject, ReasoningDelta, RefusalDelta, TextDelta
from tailrace.wire.chat.completion import completion_from_body
from tailrace.wire.failure import failure_in
from tailrace.wire.peer_json import decode_object
from wire.chat.chat_streams import decoded
from wire.recordings import Recording, load, needs_recordings, random_pieces

RECORDINGS = load("chat")
STREAMS = [r for r in RECORDINGS if r.meta["status"] == 200]
ERRORS = [r for r in RECORDINGS if r.meta["status"] != 200]

_THINKING_PARTS = "the SDK does not know Mistral's content parts of type `thinking`"
_USAGE_IN_X_GROQ = "Groq's usage stands in `x_groq.usage` where none was asked for; the SDK does not look there"
# Where our reading is not the SDK's: what the bytes say instead of it, and why.
DIFFERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ai.mistral-reasoning.761d1310": (
        "the SDK refuses list content without an index; the wire goes on to text, finish reason and usage",
        {"text": "2 + 2 = 4", "reasoning": "The user is asking for 2+2. This is basic arithmetic. 2+2=4.",
         "finish_reason": "stop", "usage": (10, 46)},
    ),
    "ai.mistral-tool-call.251172fe": (
        "the SDK fails on a tool call without an index (B23) and never reaches the usage beside it",
        {"usage": (124, 22)},
    ),
    "dd-trace-py.azure-chat-completion-streamed.305b2d69": (
        "the SDK fails on a choice without a delta (Azure's content filter)",
        {"wire": True},
    ),
    "dd-trace-py.mistral-v1-chat-completions-post-ccfa08da.de13927b": (
        _THINKING_PARTS,
        {"reasoning": 'Okay, the user has asked "What is 2+2?" This is a simple arithmetic question. I know that 2+2 '
         "equals 4. So, the answer should be straightforward."},
    ),
    "openllmetry.test-writer-async-streaming-chat-multiple-tool-c.613416cb": (
        "the SDK asserts that `index` grows by one; Writer goes from call to call as it likes",
        {"wire": True},
    ),
    "prism.stream-reasoning-model-1-1.112f2ee8": (_THINKING_PARTS, {"reasoning": ...}),
    "pydantic-ai.test-mistral-model-thinking-part-iter.62f5d73f": (_THINKING_PARTS, {"reasoning": ...}),
    "pydantic-ai.test-snowflake-thinking-streaming.01b9c5ae": (
        "the SDK's reading keeps `reasoning` and `reasoning_content`; Snowflake has `reasoning_details` alone (C41)",
        {"reasoning": "15 * 27 = 405"},
    ),
    "pydantic-ai.test-openrouter-stream-error.9c47feac": (
        "the error in mid-stream ends the answer (D50); the usage is in the chunk that brings it",
        {"usage": (43, 10), "error": ("permanent", 400)},
    ),
    "pydantic-ai.test-tool-use-failed-error-streaming-with-text.924ea98e": (
        "`event: error` in a 200 stream is an error (D50), permanent by its type; the text before it is kept",
        {"error": ("permanent", 400)},
    ),
    "agentops.test-groq-provider.13f155bf": (_USAGE_IN_X_GROQ, {"usage": (26, 41)}),
    "langchain.test-code-interpreter.b5295b68": (_USAGE_IN_X_GROQ, {"usage": (512, 154)}),
    "lmnr-python.test-chat-streaming-legacy.9ff75e94": (_USAGE_IN_X_GROQ, {"usage": (18, 73)}),
    "openinference.testtokencounts-test-groq.98ef4359": (_USAGE_IN_X_GROQ, {"usage": (12, 26)}),
    "weave.test-agent-run-with-function-call.04cabf6d": (
        "the predecessor of tool calls has no id; it is a call all the same, under an id made from the answer's",
        {"tool_calls": [("call_435mNvqfk5c4Mtjr8c2ogJPI_0", "Calculator", '{"a":3,"b":4}')]},
    ),
}  # fmt: skip


def said_by_sdk(choice: JsonObject) -> dict[str, Any]:
    return {
        "text": choice.get("text") or "",
        "reasoning": choice.get("reasoning") or "",
        "refusal": choice.get("refusal") or None,
        "tool_calls": [(c["id"], c["name"], c["arguments"] or "{}") for c in choice["tool_calls"]],
        "finish_reason": choice["finish_reason"] or "",
    }


def counts(usage: JsonObject | None) -> tuple[int, int]:
    return ((usage or {}).get("prompt_tokens") or 0, (usage or {}).get("completion_tokens") or 0)


@needs_recordings
@pytest.mark.parametrize("recording", STREAMS, ids=lambda r: r.id)
def test_the_answer_is_the_one_expected(recording: Recording) -> None:
    said = decoded(recording.raw)
    expected = recording.expected["result"]
    _, instead = DIFFERS.get(recording.id, ("", {}))
    choices = (recording.expected["wire"] if instead.get("wire") else expected)["choices"]
    assert [c["index"] for c in said.body["choices"]] == [c["index"] for c in choices]
    for choice, body in zip(choices, said.body["choices"], strict=True):
        completion = completion_from_body({**said.body, "choices": [body]})
        want = said_by_sdk(choice) | {k: v for k, v in instead.items() if k in said_by_sdk(choice)}
        got = {
            "text": completion.text,
            "reasoning": completion.reasoning,
            "refusal": completion.refusal,
            "tool_calls": [(c.id, c.name, c.arguments) for c in completion.tool_calls],
            "finish_reason": completion.finish_reason,
        }
        assert got == {k: got[k] if v is ... else v for k, v in want.items()}
        assert got["reasoning"] or want["reasoning"] is not ...
        index = body["index"]
        streamed = {
            kind: "".join(d.text for d in said.deltas if isinstance(d, kind) and d.choice == index)
            for kind in (TextDelta, ReasoningDelta, RefusalDelta)
        }
        assert streamed == {
            TextDelta: completion.text,
            ReasoningDelta: completion.reasoning,
            RefusalDelta: completion.refusal or "",
        }
    usage = recording.expected["wire"]["usage"] if instead.get("wire") else expected["usage"]
    total = completion_from_body(said.body).usage
    assert (total.input_tokens, total.output_tokens) == instead.get("usage", counts(usage))
    if len(choices) == 1:
        named = [(id_, name, arguments or "{}") for id_, name, arguments in said.streamed_calls]
        assert [call[1:] for call in named] == [call[1:] for call in said.calls]


@needs_recordings
@pytest.mark.parametrize("recording", STREAMS, ids=lambda r: r.id)
def test_D48_D50_a_stream_is_complete_where_its_terminal_event_was_dispatched(recording: Recording) -> None:
    """`[DONE]` is the dialect's terminal event. Seven recordings end in one whose blank line is missing (A15): it
    counts where the body had an end of its own. Seven others end with a finish reason and no `[DONE]` (Perplexity,
    Writer, a host behind Hugging Face): by the bytes alone they are cut, as one would be that lost its usage chunk to
    a broken connection. That a provider never sends more is knowledge about the provider, and so a quirk."""
    features = recording.meta["features"]
    error = DIFFERS.get(recording.id, ("", {}))[1].get("error")
    said = decoded(recording.raw)
    if error:
        assert [(e.kind, e.status, e.cut) for e in said.errors] == [(*error, False)]
        assert not said.complete
        return
    ended = "done" in features
    assert said.complete is ended
    assert decoded(recording.raw, cut=True).complete is (ended and "no_trailing_blank_line" not in features)
    assert [(e.kind, e.cut) for e in said.errors] == ([] if ended else [("retryable", True)])
    assert decoded(recording.raw, WireQuirks(ends_without_done=True)).complete


@needs_recordings
@pytest.mark.parametrize("recording", ERRORS, ids=lambda r: r.id)
def test_D53_a_plain_error_in_place_of_a_stream_is_permanent(recording: Recording) -> None:
    """The status says that no stream came; its body is classified, not decoded. Fed to a decoder all the same, it is
    a stream without a single chunk."""
    error = failure_in(decode_object(recording.raw), status=recording.meta["status"])
    assert error is not None
    assert (error.kind, error.status) == ("permanent", recording.meta["status"])
    said = decoded(recording.raw)
    assert (said.complete, said.body["choices"], len(said.errors)) == (False, [], 1)


@needs_recordings
@pytest.mark.parametrize("recording", STREAMS, ids=lambda r: r.id)
def test_A01_A02_fifty_random_splits_give_the_same(recording: Recording) -> None:
    rng = random.Random(recording.id)
    whole = decoded(recording.raw)
    for _ in range(50):
        assert decoded(random_pieces(recording.raw, rng)) == whole
    if lengths := recording.meta.get("segment_lengths"):  # as the network delivered it
        edges = [0]
        for length in lengths:
            edges.append(edges[-1] + length)
        assert decoded([recording.raw[a:b] for a, b in itertools.pairwise(edges)]) == whole


@needs_recordings
@pytest.mark.parametrize("recording", STREAMS, ids=lambda r: r.id)
def test_templates_change_nothing(recording: Recording) -> None:
    assert decoded(recording.raw) == decoded(recording.raw, templates=False)


STREAM_ONLY = {"delta", "obfuscation", "p", "token_id"}


@needs_recordings
@pytest.mark.parametrize("recording", [r for r in STREAMS if r.meta.get("nonstream")], ids=lambda r: r.id)
def test_the_body_has_the_shape_of_the_unstreamed_answer(recording: Recording) -> None:
    """Another run of the same request, so wording and optional fields differ: the types of what both have must not,
    and nothing that only streams have may be left."""
    body, plain = decoded(recording.raw).body, recording.meta["nonstream"]
    assert body["object"] == "chat.completion"
    for ours, theirs in _levels(body, plain):
        assert not STREAM_ONLY & ours.keys()
        for field in ours.keys() & theirs.keys():
            if ours[field] is not None and theirs[field] is not None and field not in ("arguments", "created", "cost"):
                assert type(ours[field]) is type(theirs[field]), field
    assert completion_from_body(plain).message.role == "assistant"


def _levels(body: JsonObject, plain: JsonObject) -> list[tuple[JsonObject, JsonObject]]:
    pairs = [(body, plain)]
    for ours, theirs in zip(body["choices"], plain["choices"], strict=False):
        pairs += [(ours, theirs), (ours["message"], theirs["message"])]
        pairs += list(
            zip(ours["message"].get("tool_calls") or [], theirs["message"].get("tool_calls") or [], strict=False)
        )
    return pairs
