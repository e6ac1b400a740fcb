"""A non-streaming body as the events in which its provider would have streamed it, with every field.

For a client of the same dialect that asked for a stream of an answer that came whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.messages import Completion, Dialect, EventDelta, JsonObject
from tailrace.wire.anthropic.completion import arguments_of
from tailrace.wire.anthropic.encode import own_body as own_message
from tailrace.wire.chat.encode_body import own_body as own_chat_completion
from tailrace.wire.chat.tool_calls import arguments_text
from tailrace.wire.peer_json import encode_object, objects_of
from tailrace.wire.responses.completion import with_call_ids
from tailrace.wire.responses.text_slots import CALL_SLOTS, PART_SLOTS, SLOTS


def events_of(completion: Completion) -> Iterator[EventDelta]:
    """The events, the last one included."""
    match completion.dialect:
        case "chat":
            events = _chat_chunks(own_chat_completion(completion.body))
        case "anthropic":
            events = _message_events(own_message(completion.body))
        case "responses":
            output = with_call_ids(objects_of(completion.body.get("output")))
            events = _response_events({**completion.body, "output": output})
    for event in events:
        yield _event(completion.dialect, event)


def _event(dialect: Dialect, event: JsonObject) -> EventDelta:
    return EventDelta(dialect, "" if dialect == "chat" else event["type"], encode_object(event))


# ── chat ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _chat_chunks(body: JsonObject) -> Iterator[JsonObject]:
    """One chunk with all but the usage, then the usage."""
    head = {name: value for name, value in body.items() if name not in ("choices", "usage")}
    choices = [
        {**{k: v for k, v in choice.items() if k != "message"}, "delta": _chat_delta(choice.get("message"))}
        for choice in objects_of(body.get("choices"))
    ]
    yield {**head, "choices": choices}
    if isinstance(body.get("usage"), dict):
        yield {**head, "choices": [], "usage": body["usage"]}


def _chat_delta(message: object) -> JsonObject:
    delta: JsonObject = dict(message) if isinstance(message, dict) else {}
    if calls := objects_of(delta.get("tool_calls")):
        delta["tool_calls"] = [{"index": index, **call, **_text(call)} for index, call in enumerate(calls)]
    return delta


def _text(call: JsonObject) -> JsonObject:
    function = call.get("function")
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str):
        return {}
    return {"function": {**function, "arguments": arguments_text(function.get("arguments"))}}


# ── anthropic ────────────────────────────────────────────────────────────────────────────────────────────────


def _message_events(body: JsonObject) -> Iterator[JsonObject]:
    ends = {name: body.get(name) for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_start", "message": {**body, "content": [], **dict.fromkeys(ends)}}
    for index, block in enumerate(objects_of(body.get("content"))):
        start, deltas = _opened(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": ends, "usage": body.get("usage")}
    yield {"type": "message_stop"}


def _opened(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """The block as it begins, and the deltas that complete it."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {**block, "text": ""}, [{"type": "text_delta", "text": text}]
        case {"type": "thinking", "thinking": str(text)}:
            signature = {"type": "signature_delta", "signature": block.get("signature", "")}
            return {**block, "thinking": "", "signature": ""}, [{"type": "thinking_delta", "thinking": text}, signature]
        case {"type": str(kind), "input": dict(given)} if kind.endswith("tool_use"):
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments_of(given)}]
        case _:
            return block, []


# ── responses ────────────────────────────────────────────────────────────────────────────────────────────────


def _response_events(body: JsonObject) -> Iterator[JsonObject]:
    opening = {**body, "status": "in_progress", "output": [], "usage": None}
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": opening}
    for index, item in enumerate(body["output"]):
        yield from _item_events(index, item)
    yield {"type": f"response.{body.get('status') or 'completed'}", "response": body}


def _item_events(index: int, item: JsonObject) -> Iterator[JsonObject]:
    place = {"item_id": item.get("id"), "output_index": index}
    opening = {**item, **{name: [] for name in ("content", "summary") if isinstance(item.get(name), list)}}
    if slot := CALL_SLOTS.get(str(item.get("type"))):
        opening[slot.done_key] = ""
    if "status" in item:
        opening["status"] = "in_progress"
    yield {"type": "response.output_item.added", "output_index": index, "item": opening}
    for name in ("summary", "content"):
        for number, part in enumerate(objects_of(item.get(name))):
            yield from _part_events(name, {**place, f"{name}_index": number}, part)
    if slot is not None:
        family = next(family for family, known in SLOTS.items() if known is slot)
        yield {"type": f"{family}.delta", **place, "delta": item.get(slot.done_key)}
        yield {"type": f"{family}.done", **place, slot.done_key: item.get(slot.done_key)}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part_events(name: str, place: JsonObject, part: JsonObject) -> Iterator[JsonObject]:
    family = "response.reasoning_summary_part" if name == "summary" else "response.content_part"
    slot = PART_SLOTS.get(str(part.get("type")))
    text = part.get(slot.field) if slot is not None else None
    if slot is None or not isinstance(text, str):
        yield {"type": f"{family}.added", **place, "part": part}
        yield {"type": f"{family}.done", **place, "part": part}
        return
    texts = next(name for name, known in SLOTS.items() if known is slot)
    logprobs = {"logprobs": part.get("logprobs") or []} if slot.part == "output_text" else {}
    yield {"type": f"{family}.added", **place, "part": {**part, slot.field: ""}}
    yield {"type": f"{texts}.delta", **place, "delta": text, **logprobs}
    yield {"type": f"{texts}.done", **place, slot.done_key: text, **logprobs}
    yield {"type": f"{family}.done", **place, "part": part}
