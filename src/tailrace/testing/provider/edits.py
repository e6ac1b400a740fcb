"""What services do to their own event grammar: each edit takes the right events and returns the wrong ones.

Pure, and named as a scenario names it. Framing and delivery are others' business.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import msgspec

from tailrace.messages import Dialect, JsonObject, Value
from tailrace.testing.scripted.failures import FAILURES, error_events
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse

Events = list[Sse]
ALL: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
_TERMINAL = {"response.completed", "response.incomplete", "message_stop"}


class Edit(Value):
    """`needs` names the reply that shows it, where the scenario does not choose one."""

    summary: str
    run: Callable[[Events, ScriptedRequest], Events]
    dialects: tuple[Dialect, ...] = ALL
    needs: str = ""


EDITS: dict[str, Edit] = {}


def edit(
    name: str, summary: str, *dialects: Dialect, needs: str = ""
) -> Callable[[Callable[[Events, ScriptedRequest], Events]], Callable[[Events, ScriptedRequest], Events]]:
    def register(run: Callable[[Events, ScriptedRequest], Events]) -> Callable[[Events, ScriptedRequest], Events]:
        EDITS[name] = Edit(summary, run, dialects or ALL, needs)
        return run

    return register


def _data(event: Sse) -> JsonObject:
    return event.data if isinstance(event.data, dict) else {}


def _kind(event: Sse) -> str:
    return str(_data(event).get("type", ""))


# ── endings ──────────────────────────────────────────────────────────────────────────────────────────────────


@edit("no-terminal", "the terminal event is missing: [DONE], response.completed or message_stop")
def drop_terminal(events: Events, _request: ScriptedRequest) -> Events:
    return [event for event in events if event.data != "[DONE]" and _kind(event) not in _TERMINAL]


@edit("no-ending", "neither a finish reason nor the terminal event comes, yet the body ends cleanly")
def drop_ending(events: Events, request: ScriptedRequest) -> Events:
    return [
        event for event in drop_terminal(events, request) if not _finishes(event) and _kind(event) != "message_delta"
    ]


@edit("no-finish-reason", "[DONE] comes without a finish reason before it", "chat")
def drop_finish(events: Events, _request: ScriptedRequest) -> Events:
    return [event for event in events if not _finishes(event)]


@edit("finish-stop", "the finish reason is `stop` although tools are called", "chat", needs="tools")
def finish_with_stop(events: Events, _request: ScriptedRequest) -> Events:
    return [
        _map_choices(event, lambda choice: {**choice, "finish_reason": "stop"}) if _finishes(event) else event
        for event in events
    ]


@edit("two-finishes", "the finish reason comes twice, `tool_calls` and then `stop`", "chat", needs="tools")
def finish_twice(events: Events, request: ScriptedRequest) -> Events:
    return [
        twin
        for event in events
        for twin in ([event, *finish_with_stop([event], request)] if _finishes(event) else [event])
    ]


@edit("late-text", "the last piece of text comes after the finish reason", "chat")
def text_after_finish(events: Events, _request: ScriptedRequest) -> Events:
    texts = [at for at, event in enumerate(events) if _delta(event).get("content")]
    finish = next(at for at, event in enumerate(events) if _finishes(event))
    late = texts[-1]
    return [*events[:late], *events[late + 1 : finish + 1], events[late], *events[finish + 1 :]]


@edit("empty-completed", "response.completed carries an empty output", "responses")
def empty_output(events: Events, _request: ScriptedRequest) -> Events:
    def emptied(data: JsonObject) -> JsonObject:
        return {**data, "response": {**data["response"], "output": []}} if data["type"] in _TERMINAL else data

    return [Sse(emptied(_data(event)), event.event) for event in events]


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────


def _fails(dialect: Dialect, events: Events, request: ScriptedRequest, kind: str, at: int) -> Events:
    return [*events[:at], *error_events(dialect, FAILURES[kind], request, after=at)]


def dialect_of(events: Events) -> Dialect:
    """Chat's events bear no type."""
    first = _kind(events[0]) if events else ""
    return "responses" if first.startswith("response.") else "anthropic" if first else "chat"


def _register_errors() -> None:
    for kind, failure in FAILURES.items():
        said = f"{kind} ({failure.status})"

        def midway(events: Events, request: ScriptedRequest, kind: str = kind) -> Events:
            return _fails(dialect_of(events), events, request, kind, len(events) // 2)

        def at_once(events: Events, request: ScriptedRequest, kind: str = kind) -> Events:
            return _fails(dialect_of(events), events, request, kind, 0)

        edit(f"error-{kind}", f"half-way the stream says {said} and ends")(midway)
        edit(f"first-error-{kind}", f"the first event of the stream says {said}")(at_once)


_register_errors()

# ── text and unknown things ──────────────────────────────────────────────────────────────────────────────────


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
    if not isinstance(data, dict):
        return None, ""
    if data.get("choices") and "content" in data["choices"][0]["delta"]:
        return data["choices"][0]["delta"], "content"
    if data.get("type") == "response.output_text.delta":
        return data, "delta"
    if data.get("type") == "content_block_delta" and data["delta"]["type"] == "text_delta":
        return data["delta"], "text"
    return None, ""


@edit("unknown-events", "events of unknown types and with unknown fields, between the others")
def add_unknown(events: Events, _request: ScriptedRequest) -> Events:
    chat = dialect_of(events) == "chat"
    noise = (
        Sse({"choices": [], "mood": "fine"}) if chat else Sse({"type": "mood.changed", "mood": "fine"}, "mood.changed")
    )
    return [part for event in events for part in (noise, event)]


@edit("usage-each-chunk", "usage so far in every chunk, beside the choices", "chat")
def usage_everywhere(events: Events, _request: ScriptedRequest) -> Events:
    def counted(data: JsonObject, tokens: int) -> JsonObject:
        usage = {"prompt_tokens": 25, "completion_tokens": tokens, "total_tokens": 25 + tokens}
        return data if data.get("usage") else {**data, "usage": usage}

    return [
        Sse(counted(event.data, at), event.event) if isinstance(event.data, dict) else event
        for at, event in enumerate(events)
    ]


@edit("empty-choices", "chunks with empty or absent choices before and between the others", "chat")
def add_empty_choices(events: Events, _request: ScriptedRequest) -> Events:
    blank = {**_data(events[0]), "choices": []}
    absent = {key: value for key, value in blank.items() if key != "choices"}
    return [part for event in events for part in (Sse(blank), Sse(absent), event)]


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────────────


@edit("ids-change", "the answer's id, or the item's id, is another one in every event", "chat", "responses")
def change_ids(events: Events, request: ScriptedRequest) -> Events:
    def changed(data: JsonObject, at: int) -> JsonObject:
        return {key: request.id("other_", at) if key in ("id", "item_id") else value for key, value in data.items()}

    return [
        Sse(changed(event.data, at), event.event) if isinstance(event.data, dict) else event
        for at, event in enumerate(events)
    ]


@edit("no-ids", "the answer and its tool calls bear no ids", "chat", needs="tools")
def drop_ids(events: Events, _request: ScriptedRequest) -> Events:
    bare = [
        Sse({key: value for key, value in _data(event).items() if key != "id"}) if _data(event) else event
        for event in events
    ]
    return _map_calls(bare, lambda call: {key: value for key, value in call.items() if key != "id"})


@edit("no-sequence", "no sequence numbers", "responses")
def drop_sequence(events: Events, _request: ScriptedRequest) -> Events:
    return [
        Sse({key: value for key, value in _data(event).items() if key != "sequence_number"}, event.event)
        for event in events
    ]


# ── tool calls ───────────────────────────────────────────────────────────────────────────────────────────────


def _delta(event: Sse) -> JsonObject:
    choices = _data(event).get("choices") or [{}]
    delta = choices[0].get("delta", {})
    return delta if isinstance(delta, dict) else {}


def _finishes(event: Sse) -> bool:
    return any(choice.get("finish_reason") for choice in _data(event).get("choices") or [])


def _map_choices(event: Sse, change: Callable[[JsonObject], JsonObject]) -> Sse:
    return Sse({**_data(event), "choices": [change(choice) for choice in _data(event)["choices"]]})


def _map_calls(events: Events, change: Callable[[JsonObject], JsonObject]) -> Events:
    """Each piece of a tool call changed; all else as it was."""

    def changed(choice: JsonObject) -> JsonObject:
        calls = [change(call) for call in choice["delta"]["tool_calls"]]
        return {**choice, "delta": {**choice["delta"], "tool_calls": calls}}

    return [_map_choices(event, changed) if "tool_calls" in _delta(event) else event for event in events]


def _with_call(event: Sse, call: JsonObject) -> Sse:
    return _map_calls([event], lambda _call: call)[0]


@edit("no-index", "tool calls without an index", "chat", needs="parallel")
def drop_index(events: Events, _request: ScriptedRequest) -> Events:
    return _map_calls(events, lambda call: {key: value for key, value in call.items() if key != "index"})


@edit("index-zero", "parallel calls all at index 0; a new id begins a new call", "chat", needs="parallel")
def zero_index(events: Events, _request: ScriptedRequest) -> Events:
    return _map_calls(events, lambda call: {**call, "index": 0})


@edit(
    "one-index-no-ids",
    "several calls at one index without ids: only the JSON tells them apart",
    "chat",
    needs="parallel",
)
def zero_index_without_ids(events: Events, request: ScriptedRequest) -> Events:
    return zero_index(drop_ids(events, request), request)


@edit("double-first", "the same index twice in a call's first chunk", "chat", needs="tools")
def double_first(events: Events, _request: ScriptedRequest) -> Events:
    def doubled(choice: JsonObject) -> JsonObject:
        calls = [
            part
            for call in choice["delta"]["tool_calls"]
            for part in ([call, {"index": call["index"], "function": {"arguments": ""}}] if "id" in call else [call])
        ]
        return {**choice, "delta": {**choice["delta"], "tool_calls": calls}}

    return [_map_choices(event, doubled) if "tool_calls" in _delta(event) else event for event in events]


def _remember(events: Events, key: str, change: Callable[[JsonObject, Any], JsonObject]) -> Events:
    """Each later piece of a call changed with what its first piece said under `key`."""
    known: dict[int, Any] = {}

    def changed(call: JsonObject) -> JsonObject:
        if "id" in call:
            known[call["index"]] = call["function"]["name"] if key == "name" else call["id"]
            return call
        return change(call, known[call["index"]])

    return _map_calls(events, changed)


@edit("name-resent", "the tool's name in every piece of its call", "chat", needs="parallel")
def resend_name(events: Events, _request: ScriptedRequest) -> Events:
    return _remember(events, "name", lambda call, name: {**call, "function": {**call["function"], "name": name}})


@edit("id-resent", "the call's id in every piece of it", "chat", needs="parallel")
def resend_id(events: Events, _request: ScriptedRequest) -> Events:
    return _remember(events, "id", lambda call, call_id: {**call, "id": call_id})


@edit("name-in-pieces", "the tool's name in two pieces that must be joined", "chat", needs="tools")
def split_name(events: Events, _request: ScriptedRequest) -> Events:
    sent: Events = []
    for event in events:
        first = next((call for call in _delta(event).get("tool_calls", []) if "id" in call), None)
        if first is None:
            sent.append(event)
            continue
        name, middle = first["function"]["name"], len(first["function"]["name"]) // 2
        head = {**first, "function": {"name": name[:middle], "arguments": ""}}
        tail = {"index": first["index"], "function": {"name": name[middle:]}}
        sent += [_with_call(event, part) for part in (head, tail)]
    return sent


@edit("arguments-first", "the arguments before the name", "chat", needs="tools")
def arguments_first(events: Events, _request: ScriptedRequest) -> Events:
    def without_name(call: JsonObject) -> JsonObject:
        return {**call, "function": {key: value for key, value in call["function"].items() if key != "name"}}

    def name_alone(call: JsonObject) -> JsonObject:
        return {"index": call["index"], "function": {"name": call["function"]["name"]}}

    begun = [event for event in events if any("id" in call for call in _delta(event).get("tool_calls", []))]
    finish = next(at for at, event in enumerate(events) if _finishes(event))
    return [*_map_calls(events[:finish], without_name), *_map_calls(begun, name_alone), *events[finish:]]


@edit("arguments-object", "the arguments as an object, whole, instead of as text", "chat", needs="tools")
def arguments_as_object(events: Events, _request: ScriptedRequest) -> Events:
    texts: dict[int, str] = {}
    for event in events:
        for call in _delta(event).get("tool_calls", []):
            texts[call["index"]] = texts.get(call["index"], "") + call["function"]["arguments"]

    def whole(call: JsonObject) -> JsonObject:
        return {**call, "function": {**call["function"], "arguments": msgspec.json.decode(texts[call["index"]])}}

    first = [event for event in events if all("id" in call for call in _delta(event).get("tool_calls", []))]
    return _map_calls(first, whole)


@edit("no-item-added", "response.output_item.added never comes", "responses", needs="parallel")
def drop_added(events: Events, _request: ScriptedRequest) -> Events:
    return [
        event for event in events if _kind(event) not in ("response.output_item.added", "response.content_part.added")
    ]


@edit("done-differs", "the deltas lack the last piece; only `done` has it all", "responses", needs="text-and-tools")
def lose_last_deltas(events: Events, _request: ScriptedRequest) -> Events:
    pairs = zip_longest(events, events[1:])
    return [
        event
        for event, after in pairs
        if not (_kind(event).endswith(".delta") and after is not None and _kind(after).endswith(".done"))
    ]


@edit(
    "interleaved",
    "the deltas of all blocks interleaved, told apart by their index alone",
    "anthropic",
    needs="text-and-tools",
)
def interleave(events: Events, _request: ScriptedRequest) -> Events:
    blocks: dict[int, Events] = {}
    head, tail = (
        [event for event in events if _kind(event) in ("message_start", "ping")],
        [event for event in events if _kind(event) in ("message_delta", "message_stop")],
    )
    for event in events:
        if "index" in _data(event):
            blocks.setdefault(_data(event)["index"], []).append(event)
    woven = [event for row in zip_longest(*blocks.values()) for event in row if event is not None]
    return [*head, *woven, *tail]


@edit("double-start", "message_start comes twice", "anthropic")
def start_twice(events: Events, _request: ScriptedRequest) -> Events:
    return [events[0], *events]
