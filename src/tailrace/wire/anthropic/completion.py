"""A Messages API body, rebuilt from a stream or not, as a `Completion`: what each block means, and what is kept of
it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tailrace.messages import Completion, JsonObject, Message, Native, Part, Reasoning, Stop, Text, ToolCall, Usage
from tailrace.wire.peer_json import count_of, object_of, objects_of, text_of

STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tools",
    "refusal": "filter",
    "pause_turn": "pause",
}


def completion_from_body(body: JsonObject) -> Completion:
    """One function for both kinds of body: streamed equals non-streamed by construction."""
    blocks = with_call_ids(objects_of(body.get("content")))
    reason = text_of(body.get("stop_reason"))
    stop = STOPS.get(reason, "unknown")
    parts = tuple(part for block in blocks for part in _parts(block, cut=stop == "length" and block is blocks[-1]))
    if stop == "end" and any(isinstance(part, ToolCall) for part in parts):
        stop = "tools"  # the calls win over the stop reason (B36)
    return Completion(
        dialect="anthropic",
        body=body,
        message=Message("assistant", parts),
        id=text_of(body.get("id")),
        model=text_of(body.get("model")),
        finish_reason=reason,
        stop=stop,
        usage=usage_of(body.get("usage")),
        refusal=refusal_in(body),
        stop_sequence=text_of(body.get("stop_sequence")),
    )


def refusal_in(message: JsonObject) -> str | None:
    """Why the model refused, empty where it does not say; None where it did not refuse."""
    if message.get("stop_reason") != "refusal":
        return None
    return text_of(object_of(message.get("stop_details")).get("explanation"))


def stop_reason_for(reason: object, *, called: bool) -> object:
    """The stop reason that a client receives: the calls outweigh a plain end (B36)."""
    return "tool_use" if called and reason == "end_turn" else reason


def with_call_ids(content: list[JsonObject]) -> list[JsonObject]:
    """The blocks, each call with the id that its result will name."""
    named: list[JsonObject] = []
    calls = 0
    for block in content:
        is_call = block.get("type") == "tool_use"
        named.append({**block, "id": made_call_id(calls)} if is_call and not block.get("id") else block)
        calls += is_call
    return named


def made_call_id(position: int) -> str:
    """An id for a call that came without: a tool's result must name the call it answers."""
    return f"toolu_{position}"


def usage_of(value: object) -> Usage:
    """The counts of a `usage` object; whatever is not a count is 0."""
    usage = object_of(value)
    return Usage(
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
        cache_read_tokens=count_of(usage.get("cache_read_input_tokens")),
        cache_write_tokens=count_of(usage.get("cache_creation_input_tokens")),
        reasoning_tokens=count_of(object_of(usage.get("output_tokens_details")).get("thinking_tokens")),
    )


def arguments_of(tool_input: object) -> str:
    """A call's `input` as compact JSON: the API never gives the text that the model wrote (B31). An input that is text
    is the received part of an incomplete call."""
    if isinstance(tool_input, str):
        return tool_input
    try:
        return msgspec.json.encode(tool_input if tool_input is not None else {}).decode()
    except RecursionError:  # nested too deeply for any parser
        return ""


def _parts(block: JsonObject, *, cut: bool) -> Iterator[Part]:
    match block.get("type"):
        case "text":
            if text := text_of(block.get("text")):
                yield Text(text)
                if block.get("citations"):
                    yield Native("anthropic", block)  # stands for the Text before it when replayed
        case "thinking":
            yield Reasoning(text_of(block.get("thinking")), "anthropic", block)
        case "redacted_thinking":
            yield Reasoning("", "anthropic", block)
        case "tool_use":
            yield _call(block, cut=cut)
            if block.get("caller", {"type": "direct"}) != {"type": "direct"}:
                yield Native("anthropic", block)  # stands for the ToolCall before it when replayed
        case _:
            yield Native("anthropic", block)


def _call(block: JsonObject, *, cut: bool) -> ToolCall:
    """`cut`: the token limit was reached in this last block. A non-streaming answer then has the received arguments as
    a closed object, as if they were complete. The text leaves it open, so that the call is never run (B34, B35)."""
    arguments = arguments_of(block.get("input"))
    if cut and not isinstance(block.get("input"), str):
        arguments = arguments[:-1]
    return ToolCall(text_of(block.get("id")), text_of(block.get("name")), arguments)
