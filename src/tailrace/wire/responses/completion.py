"""A response body, streamed or not, to the neutral `Completion`. One function reads both."""

from __future__ import annotations

import msgspec

from tailrace import messages
from tailrace.messages import Completion, JsonObject, Message, Native, Part, Reasoning, Refusal, Stop, ToolCall, Usage
from tailrace.wire.peer_json import count_of, object_of, objects_of, text_of
from tailrace.wire.responses.text_slots import CALL_FIELDS
from tailrace.wire.translation.citations import of_annotations

PART_SEPARATOR = "\n\n"  # between the parts of one reasoning item: each is a paragraph of its own
_UNENDED = frozenset({"", "queued", "in_progress"})  # the status of a response that has not ended
_INCOMPLETE: dict[str, Stop] = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "filter"}
STOPS: dict[str, Stop] = {"completed": "end", "stop_sequence": "end", "incomplete": "length", **_INCOMPLETE}


def completion_from_body(body: JsonObject) -> Completion:
    """Never raises: a field that is missing or of an undocumented type counts as absent."""
    parts = tuple(part for item in with_call_ids(objects_of(body.get("output"))) for part in _parts_of(item))
    status = text_of(body.get("status"))
    refusals = [part.text for part in parts if isinstance(part, Refusal)]
    return Completion(
        dialect="responses",
        body=body,
        message=Message("assistant", parts),
        id=text_of(body.get("id")),
        model=text_of(body.get("model")),
        finish_reason="" if status in _UNENDED else status,
        stop=_stop_of(body, status, parts),
        usage=usage_of(body.get("usage")),
        refusal="".join(refusals) if refusals else None,
    )


def with_call_ids(output: list[JsonObject]) -> list[JsonObject]:
    """The items, each call with the id that its result will name."""
    return [with_call_id(item, position) for position, item in enumerate(output)]


def with_call_id(item: JsonObject, position: int) -> JsonObject:
    if text_of(item.get("type")) not in CALL_FIELDS or text_of(item.get("call_id")):
        return item
    return {**item, "call_id": text_of(item.get("id")) or f"call_{position}"}


def usage_of(value: object) -> Usage:
    """The usage in neutral form. `input_tokens` includes the cached ones."""
    usage = object_of(value)
    into, out = object_of(usage.get("input_tokens_details")), object_of(usage.get("output_tokens_details"))
    return Usage(
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
        cache_read_tokens=count_of(into.get("cached_tokens")),
        cache_write_tokens=count_of(into.get("cache_write_tokens")),
        reasoning_tokens=count_of(out.get("reasoning_tokens")),
    )


def argument_text(value: object) -> str:
    """A call's input as text: as the model wrote it, `{}` for nothing (B32), canonical JSON for an object (B31)."""
    if isinstance(value, str):
        return value or "{}"
    try:
        return "{}" if value is None else msgspec.json.encode(value, order="sorted").decode()
    except RecursionError:
        return ""  # nested too deeply to be written: no object, so the call is never executed


def reasoning_text(item: JsonObject) -> str:
    """The thoughts of a reasoning item: summary, then raw text, a text that stands in both only once (C41)."""
    texts = [text_of(part.get("text")) for key in ("summary", "content") for part in objects_of(item.get(key))]
    return PART_SEPARATOR.join(dict.fromkeys(text for text in texts if text))


def finish_reason_of(body: JsonObject, status: str) -> str:
    """The reason that a stream ends with: the status, or the name of a filter, since clients take `incomplete` for a
    limit."""
    reason = object_of(body.get("incomplete_details")).get("reason") if status == "incomplete" else None
    return "content_filter" if reason == "content_filter" else status


def _stop_of(body: JsonObject, status: str, parts: tuple[Part, ...]) -> Stop:
    if status == "incomplete":
        return _INCOMPLETE.get(text_of(object_of(body.get("incomplete_details")).get("reason")), "unknown")
    if status != "completed":
        return "unknown"
    return "tools" if any(isinstance(part, ToolCall) for part in parts) else "end"


def _parts_of(item: JsonObject) -> list[Part]:
    kind = text_of(item.get("type"))
    if kind == "message":
        said = [part for content in objects_of(item.get("content")) for part in _content_of(content)]
        phase = text_of(item.get("phase"))
        return [Native("responses", {"phase": phase}), *said] if phase and said else said
    if kind == "reasoning":
        return [Reasoning(reasoning_text(item), "responses", item)]
    if kind in CALL_FIELDS:
        return [
            ToolCall(
                text_of(item.get("call_id")), text_of(item.get("name")), argument_text(item.get(CALL_FIELDS[kind]))
            )
        ]
    return [Native("responses", item)]


def _content_of(content: JsonObject) -> list[Part]:
    kind = content.get("type")
    if kind in ("output_text", "text"):
        text = messages.Text(text_of(content.get("text")))
        return [text, Native("responses", content)] if of_annotations(content) else [text]
    if kind == "refusal":
        return [Refusal(text_of(content.get("refusal")))]
    if kind == "reasoning_text":  # gpt-oss servers put the thoughts into the message
        return [Reasoning(text_of(content.get("text")))]
    return []
