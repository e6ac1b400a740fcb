"""What services do to their own event grammar beyond what `tailrace.testing` ships: ids, indices and pieces of calls.

Importing this module adds the edits to the terms of scenarios, by their names. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import msgspec

from tailrace.messages import JsonObject
from tailrace.testing.provider.edits import (
    TERMINAL,
    Events,
    Run,
    data_of,
    dialect_of,
    dropping,
    edit,
    finishes,
    kind_of,
)
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse


def without(data: JsonObject, dropped: str) -> JsonObject:
    return {key: value for key, value in data.items() if key != dropped}


def map_data(events: Events, change: Callable[[JsonObject, int], JsonObject]) -> Events:
    """Each event's JSON changed; `change` takes the event's number too."""
    return [
        Sse(change(event.data, at), event.event) if isinstance(event.data, dict) else event
        for at, event in enumerate(events)
    ]


def delta_of(event: Sse) -> JsonObject:
    choices = data_of(event).get("choices") or [{}]
    delta = choices[0].get("delta", {})
    return delta if isinstance(delta, dict) else {}


def calls_in(event: Sse) -> list[JsonObject]:
    """The pieces of tool calls in a chunk; the first piece of a call bears its id."""
    return list(delta_of(event).get("tool_calls", []))


def map_choices(event: Sse, change: Callable[[JsonObject], JsonObject]) -> Sse:
    return Sse({**data_of(event), "choices": [change(choice) for choice in data_of(event)["choices"]]})


def map_calls(events: Events, change: Callable[[JsonObject], list[JsonObject]]) -> Events:
    """Each piece of a tool call replaced; all else as it was."""

    def changed(choice: JsonObject) -> JsonObject:
        calls = [part for call in choice["delta"]["tool_calls"] for part in change(call)]
        return {**choice, "delta": {**choice["delta"], "tool_calls": calls}}

    return [map_choices(event, changed) if calls_in(event) else event for event in events]


def each_call(change: Callable[[JsonObject], list[JsonObject]]) -> Run:
    return lambda events, _request: map_calls(events, change)


def _each_later_piece(change: Callable[[JsonObject, JsonObject], JsonObject]) -> Run:
    """Each piece of a call but its first changed; `change` takes that first piece too."""

    def run(events: Events, _request: ScriptedRequest) -> Events:
        first: dict[int, JsonObject] = {}

        def changed(call: JsonObject) -> list[JsonObject]:
            if "id" in call:
                first[call["index"]] = call
                return [call]
            return [change(call, first[call["index"]])]

        return map_calls(events, changed)

    return run


# ── endings ──────────────────────────────────────────────────────────────────────────────────────────────────


@edit("finish-stop", "the finish reason is `stop` although tools are called", "chat", needs="tools")
def finish_with_stop(events: Events, _request: ScriptedRequest) -> Events:
    return [
        map_choices(event, lambda choice: {**choice, "finish_reason": "stop"}) if finishes(event) else event
        for event in events
    ]


@edit("two-finishes", "the finish reason comes twice, `tool_calls` and then `stop`", "chat", needs="tools")
def finish_twice(events: Events, request: ScriptedRequest) -> Events:
    stopped = finish_with_stop(events, request)
    return [
        part
        for event, stop in zip(events, stopped, strict=True)
        for part in ([event, stop] if finishes(event) else [event])
    ]


@edit("late-text", "the last piece of text comes after the finish reason", "chat")
def text_after_finish(events: Events, _request: ScriptedRequest) -> Events:
    texts = [at for at, event in enumerate(events) if delta_of(event).get("content")]
    finish = next(at for at, event in enumerate(events) if finishes(event))
    late = texts[-1]
    return [*events[:late], *events[late + 1 : finish + 1], events[late], *events[finish + 1 :]]


@edit("empty-completed", "response.completed carries an empty output", "responses")
def empty_output(events: Events, _request: ScriptedRequest) -> Events:
    def emptied(data: JsonObject, _at: int) -> JsonObject:
        return {**data, "response": {**data["response"], "output": []}} if data["type"] in TERMINAL else data

    return map_data(events, emptied)


# ── chunks and ids ───────────────────────────────────────────────────────────────────────────────────────────


@edit("usage-each-chunk", "usage so far in every chunk, beside the choices", "chat")
def usage_everywhere(events: Events, _request: ScriptedRequest) -> Events:
    def counted(data: JsonObject, tokens: int) -> JsonObject:
        usage = {"prompt_tokens": 25, "completion_tokens": tokens, "total_tokens": 25 + tokens}
        return data if data.get("usage") else {**data, "usage": usage}

    return map_data(events, counted)


@edit("empty-choices", "chunks with empty or absent choices before and between the others", "chat")
def add_empty_choices(events: Events, _request: ScriptedRequest) -> Events:
    blank = {**data_of(events[0]), "choices": []}
    return [part for event in events for part in (Sse(blank), Sse(without(blank, "choices")), event)]


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────────────


@edit("ids-change", "the answer's id, or the item's id, is another one in every event", "chat", "responses")
def change_ids(events: Events, request: ScriptedRequest) -> Events:
    def changed(data: JsonObject, at: int) -> JsonObject:
        return {key: request.id("other_", at) if key in ("id", "item_id") else value for key, value in data.items()}

    return map_data(events, changed)


@edit("no-ids", "the answer and its tool calls bear no ids", "chat", needs="tools")
def drop_ids(events: Events, _request: ScriptedRequest) -> Events:
    bare = map_data(events, lambda data, _at: without(data, "id"))
    return map_calls(bare, lambda call: [without(call, "id")])


edit("no-sequence", "no sequence numbers", "responses")(
    lambda events, _request: map_data(events, lambda data, _at: without(data, "sequence_number"))
)

# ── tool calls ───────────────────────────────────────────────────────────────────────────────────────────────

zero_index = edit("index-zero", "parallel calls all at index 0; a new id begins a new call", "chat", needs="parallel")(
    each_call(lambda call: [{**call, "index": 0}])
)
edit("no-index", "tool calls without an index", "chat", needs="parallel")(
    each_call(lambda call: [without(call, "index")])
)
edit(
    "one-index-no-ids",
    "several calls at one index without ids: only the JSON tells them apart",
    "chat",
    needs="parallel",
)(lambda events, request: zero_index(drop_ids(events, request), request))
edit("double-first", "the same index twice in a call's first chunk", "chat", needs="tools")(
    each_call(lambda call: [call, {"index": call["index"], "function": {"arguments": ""}}] if "id" in call else [call])
)
edit("name-resent", "the tool's name in every piece of its call", "chat", needs="parallel")(
    _each_later_piece(lambda call, first: {**call, "function": {**call["function"], "name": first["function"]["name"]}})
)
edit("id-resent", "the call's id in every piece of it", "chat", needs="parallel")(
    _each_later_piece(lambda call, first: {**call, "id": first["id"]})
)


@edit("name-in-pieces", "the tool's name in two pieces that must be joined", "chat", needs="tools")
def split_name(events: Events, _request: ScriptedRequest) -> Events:
    def parts(event: Sse) -> Events:
        first = next((call for call in calls_in(event) if "id" in call), None)
        if first is None:
            return [event]
        name, middle = first["function"]["name"], len(first["function"]["name"]) // 2
        head = {**first, "function": {"name": name[:middle], "arguments": ""}}
        tail = {"index": first["index"], "function": {"name": name[middle:]}}
        return [*map_calls([event], lambda _: [head]), *map_calls([event], lambda _: [tail])]

    return [part for event in events for part in parts(event)]


@edit("arguments-first", "the arguments before the name", "chat", needs="tools")
def arguments_first(events: Events, _request: ScriptedRequest) -> Events:
    def without_name(call: JsonObject) -> list[JsonObject]:
        return [{**call, "function": without(call["function"], "name")}]

    def name_alone(call: JsonObject) -> list[JsonObject]:
        return [{"index": call["index"], "function": {"name": call["function"]["name"]}}]

    begun = [event for event in events if any("id" in call for call in calls_in(event))]
    finish = next(at for at, event in enumerate(events) if finishes(event))
    return [*map_calls(events[:finish], without_name), *map_calls(begun, name_alone), *events[finish:]]


@edit("arguments-object", "the arguments as an object, whole, instead of as text", "chat", needs="tools")
def arguments_as_object(events: Events, _request: ScriptedRequest) -> Events:
    texts: dict[int, str] = {}
    for event in events:
        for call in calls_in(event):
            texts[call["index"]] = texts.get(call["index"], "") + call["function"]["arguments"]

    def whole(call: JsonObject) -> list[JsonObject]:
        return [{**call, "function": {**call["function"], "arguments": msgspec.json.decode(texts[call["index"]])}}]

    return map_calls([event for event in events if all("id" in call for call in calls_in(event))], whole)


edit("no-item-added", "response.output_item.added never comes", "responses", needs="parallel")(
    dropping(lambda event: kind_of(event) in ("response.output_item.added", "response.content_part.added"))
)


@edit("done-differs", "the deltas lack the last piece; only `done` has it all", "responses", needs="text-and-tools")
def lose_last_deltas(events: Events, _request: ScriptedRequest) -> Events:
    return [
        event
        for event, after in zip(events, [*events[1:], Sse("")], strict=True)
        if not (kind_of(event).endswith(".delta") and kind_of(after).endswith(".done"))
    ]


@edit(
    "interleaved",
    "the deltas of all blocks interleaved, told apart by their index alone",
    "anthropic",
    needs="text-and-tools",
)
def interleave(events: Events, _request: ScriptedRequest) -> Events:
    blocks: dict[int, Events] = {}
    for event in events:
        if "index" in data_of(event):
            blocks.setdefault(data_of(event)["index"], []).append(event)
    head = [event for event in events if kind_of(event) in ("message_start", "ping")]
    woven = [event for row in zip_longest(*blocks.values()) for event in row if event is not None]
    tail = [event for event in events if kind_of(event) in ("message_delta", "message_stop")]
    return [*head, *woven, *tail]


edit("double-start", "message_start comes twice", "anthropic")(lambda events, _request: [events[0], *events])


@edit("cumulative", "each delta repeats the whole text so far")
def cumulate(events: Events, _request: ScriptedRequest) -> Events:
    so_far = ""
    sent: Events = []
    for event in events:
        data = msgspec.to_builtins(event.data)
        where, key = _text_slot(data)
        if where is not None and isinstance(where[key], str):
            so_far += where[key]
            where[key] = so_far
        sent.append(Sse(data, event.event))
    return sent


def _text_slot(data: Any) -> tuple[JsonObject | None, str]:
    """Where a delta keeps its text."""
    match data:
        case {"choices": [{"delta": {"content": _} as delta}, *_]}:
            return delta, "content"
        case {"type": "response.output_text.delta"}:
            return data, "delta"
        case {"type": "content_block_delta", "delta": {"type": "text_delta"} as delta}:
            return delta, "text"
        case _:
            return None, ""


@edit("unknown-events", "events of unknown types and with unknown fields, between the others")
def add_unknown(events: Events, _request: ScriptedRequest) -> Events:
    chat = dialect_of(events) == "chat"
    noise = (
        Sse({"choices": [], "mood": "fine"}) if chat else Sse({"type": "mood.changed", "mood": "fine"}, "mood.changed")
    )
    return [part for event in events for part in (noise, event)]
