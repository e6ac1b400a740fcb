"""The log's vocabulary: names and fields as the contract has them, and JSON both ways."""

from __future__ import annotations

import json
from typing import Any, assert_never, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import events
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Decision,
    Entry,
    Event,
    Fact,
    GatewayNotice,
    InstanceState,
    LlmDelta,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
    RunStatus,
    SignalReceived,
    StateChanged,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    StreamEvent,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
    entry_to_json,
    event_type,
    from_json,
    to_json,
)
from tailrace.messages import Usage, user

# The contract, written out: (class, wire name, fields in order, their defaults; ... where the field is required).
CONTRACT: list[tuple[type[Any], str, dict[str, object]]] = [
    (MessageChunk, "message_chunk", {"text": ...}),
    (MessageStop, "message_stop", {"final": False}),
    (Commentary, "commentary", {"text": ...}),
    (ToolCallChunk, "tool_call_chunk", {"tool_name": ..., "preview": None, "args": None, "index": 0}),
    (ToolCallFinished, "tool_call_finished", {"tool_name": ..., "duration": 0.0, "ok": True, "index": 0}),
    (LongToolHint, "long_tool_hint", {"tool_name": "", "duration": 0.0}),
    (GatewayNotice, "gateway_notice", {"kind": ..., "text": "", "extra": {}}),
]
SAMPLES: list[AnyEvent] = [
    MessageChunk("Hel"),
    MessageStop(final=True),
    Commentary("looking"),
    ToolCallChunk("terminal", "ls", {"command": "ls"}, 2),
    ToolCallFinished("terminal", 0.5, False, 2),
    LongToolHint("terminal", 31.0),
    GatewayNotice("stall", "No response", {"after_s": 240}),
]


def surface(event: StreamEvent) -> str:
    """An exhaustive match over the union: it type-checks, and a new member would make it fail to."""
    match event:
        case MessageChunk() | Commentary():
            return event.text
        case MessageStop():
            return "stop"
        case ToolCallChunk() | ToolCallFinished() | LongToolHint():
            return event.tool_name
        case GatewayNotice():
            return event.kind
        case _:
            assert_never(event)


def required_or_default(field: msgspec.structs.FieldInfo) -> object:
    if field.required:
        return ...
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default


@pytest.mark.parametrize(("cls", "name", "fields"), CONTRACT)
def test_names_fields_order_and_defaults_are_the_contracts(
    cls: type[Any], name: str, fields: dict[str, object]
) -> None:
    actual = {field.name: required_or_default(field) for field in msgspec.structs.fields(cls)}
    assert actual == fields
    assert list(actual) == list(fields)
    assert cls.__struct_config__.tag == name
    assert cls.__struct_config__.frozen


def test_the_union_is_exactly_these_seven() -> None:
    assert get_args(StreamEvent) == tuple(cls for cls, _, _ in CONTRACT)


def test_every_event_class_is_in_the_union_once_and_under_its_own_name() -> None:
    classes = {cls for cls in vars(events).values() if isinstance(cls, type) and issubclass(cls, Event)} - {Event}
    assert set(get_args(AnyEvent)) == classes
    assert not set(get_args(StreamEvent)) & set(get_args(Fact))
    tags = [cls.__struct_config__.tag for cls in classes]
    assert len(set(tags)) == len(tags)
    assert all(str(tag).replace("_", "").isalpha() and str(tag).islower() for tag in tags)


@pytest.mark.parametrize("event", SAMPLES, ids=event_type)
def test_an_exhaustive_match_reaches_every_one(event: StreamEvent) -> None:
    assert surface(event)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (MessageChunk("Hel"), {"type": "message_chunk", "text": "Hel"}),
        (MessageStop(final=True), {"type": "message_stop", "final": True}),
        (
            ToolCallFinished("t"),
            {"type": "tool_call_finished", "tool_name": "t", "duration": 0.0, "ok": True, "index": 0},
        ),
        (GatewayNotice("k"), {"type": "gateway_notice", "kind": "k", "text": "", "extra": {}}),
        (
            RunFinished("completed", "hi", Usage(3, 4)),
            {
                "type": "run_finished",
                "status": "completed",
                "output": "hi",
                "usage": {"input_tokens": 3, "output_tokens": 4},
                "error": None,
                "at": 0.0,
            },
        ),
    ],
    ids=lambda value: event_type(value) if isinstance(value, Event) else "",  # type: ignore[arg-type]
)
def test_json_is_one_object_with_its_type(event: AnyEvent, expected: dict[str, object]) -> None:
    assert json.loads(to_json(event)) == expected
    assert from_json(to_json(event)) == event


def test_defaults_may_be_left_out_and_unknown_fields_are_ignored() -> None:
    assert from_json(b'{"type":"tool_call_chunk","tool_name":"t","later":1}') == ToolCallChunk("t")


def test_an_entry_is_the_event_with_its_place() -> None:
    entry = Entry(3, MessageChunk("Hel"), 2)
    assert entry_to_json(entry) == b'{"seq":3,"attempt":2,"type":"message_chunk","text":"Hel"}'
    assert from_json(entry_to_json(entry)) == entry.event


def test_the_live_words_of_a_step_are_the_contracts() -> None:
    delta = entry_to_json(Entry(7, LlmDelta("greet", "Hel"), 2))
    assert delta == b'{"seq":7,"attempt":2,"type":"llm_delta","block_id":"greet","delta":"Hel"}'
    discarded = entry_to_json(Entry(8, AttemptDiscarded("cut", "greet"), 2))
    assert discarded == b'{"seq":8,"attempt":2,"type":"attempt_discarded","reason":"cut","block_id":"greet"}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b'{"text":"x"}',
        b'{"type":"MessageChunk","text":"x"}',
        b'{"type":"nobody_knows"}',
        b'{"type":"message_chunk"}',
        b'{"type":"message_chunk","text":5}',
        b'{"type":"message_chunk","text":"x"}{}',
    ],
)
def test_what_cannot_be_an_event_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        from_json(data)


def test_events_are_frozen_and_defaults_are_not_shared() -> None:
    with pytest.raises(AttributeError):
        MessageChunk("x").text = "y"  # type: ignore[misc]
    GatewayNotice("a").extra["x"] = 1
    assert GatewayNotice("b").extra == {}


TEXT = st.text()
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
STREAM_EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(MessageChunk, TEXT),
    st.builds(MessageStop, st.booleans()),
    st.builds(Commentary, TEXT),
    st.builds(ToolCallChunk, TEXT, st.none() | TEXT, st.none() | OBJECTS, st.integers(0, 2**31)),
    st.builds(ToolCallFinished, TEXT, NUMBERS, st.booleans(), st.integers(0, 2**31)),
    st.builds(LongToolHint, TEXT, NUMBERS),
    st.builds(GatewayNotice, TEXT, TEXT, OBJECTS),
)
USAGES = st.builds(Usage, *[st.integers(0, 2**53)] * 5)
FACTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(RunStarted, TEXT, TEXT, TEXT, NUMBERS),
    st.builds(
        RunFinished,
        st.sampled_from(get_args(RunStatus)),
        TEXT,
        USAGES,
        st.none() | st.builds(RunFailure, TEXT, TEXT),
        NUMBERS,
    ),
    st.builds(AttemptStarted, TEXT, TEXT),
    st.builds(AttemptDiscarded, TEXT, TEXT),
    st.builds(StateChanged, st.sampled_from(get_args(InstanceState))),
    st.builds(StepStarted, TEXT, st.integers(1, 2**31), NUMBERS),
    st.builds(StepFailed, TEXT, st.builds(RunFailure, TEXT, TEXT, TEXT), st.integers(1, 9), st.none() | NUMBERS),
    st.builds(StepFinished, TEXT, JSON),
    st.builds(StepCancelled, TEXT),
    st.builds(SignalReceived, st.integers(0, 2**53), TEXT, OBJECTS, TEXT),
    st.builds(LlmDelta, TEXT, TEXT),
    st.builds(ReasoningChunk, TEXT),
    st.builds(MessageRecorded, st.builds(user, TEXT)),
    st.builds(ToolOutputRecorded, TEXT, TEXT, TEXT, st.booleans()),
    st.builds(ApprovalAnswered, TEXT, st.sampled_from(get_args(Decision)), TEXT, TEXT),
    st.builds(UsageRecorded, USAGES, TEXT, TEXT),
)


@given(STREAM_EVENTS | FACTS, st.integers(1, 2**53), st.integers(1, 2**31))
def test_any_event_survives_json_in_one_line(event: AnyEvent, seq: int, attempt: int) -> None:
    entry = Entry(seq, event, attempt)
    line = entry_to_json(entry)
    assert b"\n" not in line
    assert from_json(to_json(event)) == event
    assert json.loads(line) == {"seq": seq, "attempt": attempt, **json.loads(to_json(event))}
