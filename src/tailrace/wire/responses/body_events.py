"""A non-streaming body of this dialect as the events in which its provider would have streamed it, with every field."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.messages import JsonObject
from tailrace.wire.peer_json import objects_of
from tailrace.wire.responses.completion import with_call_ids
from tailrace.wire.responses.text_slots import CALL_SLOTS, PART_SLOTS, SLOTS


def events_of_body(body: JsonObject) -> Iterator[JsonObject]:
    body = {**body, "output": with_call_ids(objects_of(body.get("output")))}
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
