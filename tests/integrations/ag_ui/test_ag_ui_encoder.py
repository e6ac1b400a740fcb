"""The encoder of AG-UI alone: logs in, events out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrations.ag_ui.ag_ui_client import EVENT, Screen, kinds
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Entry,
    GatewayNotice,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
    ToolArgumentsChunk,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
)
from tailrace.integrations.ag_ui.encoder import AgUiEncoder
from tailrace.integrations.ag_ui.view import ClientView, Stretch
from tailrace.journal.fold import is_fact
from tailrace.messages import JsonObject, Message, Reasoning, Text, ToolCall, ToolFile, Usage, user
from tailrace.wire.sse import SseDecoder

RUN = "run_" + "0" * 24
QUESTION: JsonObject = {"id": "u1", "role": "user", "content": "Well?"}
VIEW = ClientView("t", "r", [QUESTION], {"page": 1}, reasoning=True)


def log(*events: AnyEvent | tuple[int, AnyEvent]) -> list[Entry]:
    """Each event in its place; with a number, of that attempt."""
    numbered = [event if isinstance(event, tuple) else (1, event) for event in events]
    return [Entry(seq, event, attempt) for seq, (attempt, event) in enumerate(numbered, 1)]


def call(name: str, call_id: str) -> ToolCall:
    return ToolCall(call_id, name, '{"x":1}')


BEGUN = (RunStarted("agent", at=1.5), MessageRecorded(user("Well?")))
ASKED = ApprovalAsked("apr_1", "launch", "launch it", "digest", "me", "c2", "acts outside")
WHOLE = log(
    *BEGUN,
    AttemptStarted("p", "m"),
    ReasoningChunk("Hm"),
    ReasoningChunk("m."),
    MessageChunk("Let me"),
    MessageChunk(" look."),
    ToolArgumentsChunk("look", 0, ""),
    ToolArgumentsChunk("look", 0, '{"x'),
    ToolArgumentsChunk("look", 0, '":1'),
    ToolArgumentsChunk("launch", 1, '{"x":1}'),
    UsageRecorded(Usage(10, 5, cache_read_tokens=3), "p", "m"),
    MessageRecorded(
        Message("assistant", (Reasoning("Hmm."), Text("Let me look."), call("look", "c1"), call("launch", "c2")))
    ),
    MessageStop(),
    ToolCallChunk("look", "x", {"x": 1}, 0),
    LongToolHint("look", 30.0),
    ToolOutputRecorded("c1", "look", "seen", files=(ToolFile("a.png", "image/png", b"PNG"),)),
    ToolCallFinished("look", 1.0, index=0),
    ASKED,
    ApprovalAnswered("apr_1", "once", "me"),
    ToolCallChunk("launch", "y", {"x": 1}, 1),
    ToolOutputRecorded("c2", "launch", "failed", ok=False),
    ToolCallFinished("launch", 1.0, ok=False, index=1),
    (2, AttemptStarted("p", "m")),
    (2, MessageChunk("Wrong")),
    (2, ToolArgumentsChunk("look", 2, '{"wro')),
    (2, ToolArgumentsChunk("look", 2, "ng")),
    (2, GatewayNotice("stall", "p is silent")),
    (2, AttemptDiscarded("broke")),
    (3, AttemptStarted("q", "n")),
    (3, MessageChunk("Do")),
    (3, MessageChunk("ne.")),
    (3, UsageRecorded(Usage(20, 2), "q", "n")),
    (3, MessageRecorded(Message("assistant", (Text("Done."),)), "end")),
    MessageStop(final=True),
    RunFinished("completed", "Done.", Usage(30, 7), at=9.25),
)
SEQ_ASKED = next(entry.seq for entry in WHOLE if entry.event is ASKED)
REST = Stretch(SEQ_ASKED, SEQ_ASKED)
ALL = Stretch(answered=SEQ_ASKED)


def encoded(entries: Sequence[Entry], view: ClientView = VIEW, stretch: Stretch | None = None) -> bytes:
    return AgUiEncoder(RUN, view, stretch=stretch).feed(entries)


def events_in(data: bytes) -> list[JsonObject]:
    """Each checked by the types of AG-UI's own package."""
    events = [{**json.loads(event.data), "sse_id": event.id} for event in SseDecoder().feed(data)]
    for event in events:
        EVENT.validate_python({name: value for name, value in event.items() if name != "sse_id"})
    return events


def shown(entries: Sequence[Entry], view: ClientView = VIEW, stretch: Stretch | None = None) -> list[JsonObject]:
    return events_in(encoded(entries, view, stretch))


@given(cuts=st.lists(st.integers(0, len(WHOLE))), stretch=st.sampled_from([Stretch(), REST, ALL]))
def test_any_cut_of_the_log_gives_the_same_bytes(cuts: list[int], stretch: Stretch) -> None:
    encoder = AgUiEncoder(RUN, VIEW, stretch=stretch)
    places = [0, *sorted(cuts), len(WHOLE)]
    pieces = [encoder.feed(WHOLE[start:end]) for start, end in pairwise(places)]
    assert b"".join(pieces) == encoded(WHOLE, stretch=stretch)


@pytest.mark.parametrize("stretch", [Stretch(), REST, ALL])
def test_a_client_goes_on_behind_any_event(stretch: Stretch) -> None:
    whole = shown(WHOLE, stretch=stretch)
    for place, event in enumerate(whole):
        seq, number = map(int, event["sse_id"].split("."))
        view = ClientView("t", "r", [QUESTION], {"page": 1}, reasoning=True, after=(seq, number))
        assert shown(WHOLE, view, stretch) == whole[place + 1 :]


def test_the_stretches_of_a_run_together_show_all_of_it_once() -> None:
    first = shown(WHOLE)
    screen = Screen([QUESTION]).show(first)
    rest = shown(WHOLE, ClientView("t", "r2", screen.messages, reasoning=True), REST)
    screen.show(rest)
    assert kinds(first)[-1] == kinds(rest)[-1] == "RUN_FINISHED"
    assert "MESSAGES_SNAPSHOT" not in kinds(first)
    assert screen.said() == [
        ("user", "Well?"),
        ("reasoning", "Hmm."),
        ("assistant", "Let me look."),
        ("tool", "seen"),
        ("tool", "failed"),
        ("assistant", "Done."),
    ]
    assert screen.messages == Screen([QUESTION]).show(shown(WHOLE, stretch=ALL)).messages
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    assert interrupt["id"] == f"{RUN}.apr_1"
    assert interrupt["toolCallId"] == screen.messages[2]["toolCalls"][1]["id"]
    assert [usage["inputTokens"] for usage in first[-1]["usage"]] == [10]
    assert [usage["inputTokens"] for usage in rest[-1]["usage"]] == [20]


def test_what_was_said_by_a_withdrawn_attempt_leaves_the_list() -> None:
    events = shown(WHOLE, stretch=ALL)
    place = next(number for number, event in enumerate(events) if event["type"] == "MESSAGES_SNAPSHOT")
    assert "Wrong" in str(events[:place])
    assert "Wrong" not in str(events[place:])


def test_arguments_are_shown_as_they_come() -> None:
    calls = [event for event in shown(WHOLE) if event["type"].startswith("TOOL_CALL_") and "delta" in event]
    first, second = dict.fromkeys(event["toolCallId"] for event in calls)
    assert [(event["toolCallId"], event["delta"]) for event in calls] == [
        *((first, '{"x'), (first, '":1'), (second, '{"x":1}'), (first, "}"))
    ]


def broken_call(*after: AnyEvent | tuple[int, AnyEvent], text: str = "") -> list[Entry]:
    said = [MessageChunk(text)] if text else []
    return log(*BEGUN, AttemptStarted("p", "m"), *said, ToolArgumentsChunk("mine", 0, '{"x'), *after)


MADE_ANEW = (
    (2, AttemptStarted("q", "n")),
    (2, ToolArgumentsChunk("mine", 0, '{"y":')),
    (2, MessageRecorded(Message("assistant", (ToolCall("c9", "mine", '{"y":2}'),)), "tools")),
    RunFinished("completed"),
)


@pytest.mark.parametrize(
    "entries",
    [
        broken_call(*MADE_ANEW),
        broken_call(*MADE_ANEW, text="Well."),
        broken_call(AttemptDiscarded("cut"), *MADE_ANEW),
        broken_call(RunFinished("stopped")),
        broken_call(RunFinished("failed")),
        broken_call(MessageRecorded(Message("assistant", (Text("Well."),)), "cut"), RunFinished("incomplete")),
        broken_call(MessageRecorded(Message("assistant", (call("other", "c1"),)), "tools"), RunFinished("completed")),
        broken_call(
            MessageRecorded(Message("assistant", (ToolCall("c1", "mine", '{"z":1}'),)), "tools"),
            RunFinished("completed"),
        ),
    ],
)
def test_a_call_that_broke_off_has_left_the_list_before_it_ends(entries: list[Entry]) -> None:
    """A client takes an ended call that its list has for one to make."""
    events = events_in(AgUiEncoder(RUN, VIEW, foreign=["mine"]).feed(entries))
    screen, open_calls = Screen([QUESTION]), set()
    for event in events:
        screen.show([event])
        listed = {made["id"]: made for message in screen.messages for made in message.get("toolCalls", ())}
        match event["type"]:
            case "TOOL_CALL_START":
                assert event["toolCallId"] not in open_calls
                open_calls.add(event["toolCallId"])
            case "TOOL_CALL_END":
                open_calls.remove(event["toolCallId"])
                if event["toolCallId"] in listed:
                    json.loads(listed[event["toolCallId"]]["function"]["arguments"])
            case "RUN_FINISHED" | "RUN_ERROR":
                assert not open_calls
            case _:
                pass
    recorded = [entry.event.message for entry in entries if isinstance(entry.event, MessageRecorded)]
    made = [made.arguments for message in recorded for made in message.tool_calls]
    assert [each["function"]["arguments"] for each in listed.values()] == made


def test_a_text_that_was_held_back_goes_on_behind_a_call_that_has_begun() -> None:
    entries = log(
        *BEGUN,
        MessageChunk("Let me "),
        ToolArgumentsChunk("look", 0, '{"x":1}'),
        MessageChunk("look."),
        MessageRecorded(Message("assistant", (Text("Let me look."), call("look", "c1"))), "tools"),
    )
    screen = Screen([QUESTION]).show(shown(entries))
    assert screen.said()[1:] == [("assistant", "Let me look.")]
    assert len(screen.messages[1]["toolCalls"]) == 1


def test_only_the_withdrawn_part_of_an_answer_goes() -> None:
    entries = log(
        *BEGUN,
        (1, MessageChunk("One")),
        (2, ReasoningChunk("Hm.")),
        (2, MessageChunk(" wrong")),
        (2, AttemptDiscarded()),
        (3, MessageChunk(" two.")),
        MessageRecorded(Message("assistant", (Text("One two."),)), "end"),
        RunFinished("completed", "One two."),
    )
    assert Screen([QUESTION]).show(shown(entries)).said()[1:] == [("assistant", "One two."), ("reasoning", "")]


def test_a_run_whose_chunks_are_gone_shows_the_same_list() -> None:
    facts = [entry for entry in WHOLE if is_fact(entry.event)]
    screens = [Screen([QUESTION]).show(shown(entries, stretch=ALL)) for entries in (WHOLE, facts)]
    assert screens[0].messages == screens[1].messages


def test_a_client_that_has_a_part_of_the_run_gets_its_list_without_it_first() -> None:
    half = next(number for number, entry in enumerate(WHOLE) if entry.event == MessageChunk(" look."))
    screen = Screen([QUESTION]).show(shown(WHOLE[:half]))
    assert screen.said()[-2:] == [("reasoning", "Hmm."), ("assistant", "Let me")]
    again = shown(WHOLE, ClientView("t", "r", screen.messages, reasoning=True))
    assert kinds(again)[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    screen.show(again)
    assert [said for said in screen.said() if said[0] != "reasoning"][:3] == [
        ("user", "Well?"),
        ("assistant", "Let me look."),
        ("tool", "seen"),
    ]
    assert ("reasoning", "Hmm.") in screen.said()


@pytest.mark.parametrize(
    ("finished", "kind", "code"),
    [
        (RunFinished("failed", error=RunFailure("permanent", "no", "quota")), "RUN_ERROR", "quota"),
        (RunFinished("incomplete", error=RunFailure("incomplete", "too long")), "RUN_ERROR", "incomplete"),
        (RunFinished("failed"), "RUN_ERROR", "failed"),
        (RunFinished("failed", error=RunFailure("retryable", "html", status=200)), "RUN_ERROR", "bad_gateway"),
        (RunFinished("failed", error=RunFailure("retryable", "refused")), "RUN_ERROR", "bad_gateway"),
        (RunFinished("failed", error=RunFailure("retryable", "late", status=504)), "RUN_ERROR", "gateway_timeout"),
        (RunFinished("failed", error=RunFailure("retryable", "no", status=503)), "RUN_ERROR", "service_unavailable"),
        (RunFinished("failed", error=RunFailure("retryable", "no", status=429)), "RUN_ERROR", "too_many_requests"),
        (RunFinished("failed", error=RunFailure("permanent", "no", status=401)), "RUN_ERROR", "unauthorized"),
        (RunFinished("failed", error=RunFailure("permanent", "moved", status=302)), "RUN_ERROR", "bad_gateway"),
        (RunFinished("failed", error=RunFailure("stream_cut", "cut")), "RUN_ERROR", "stream_cut"),
        (RunFinished("failed", error=RunFailure("internal", "KeyError: 'x'")), "RUN_ERROR", "internal_error"),
        (
            RunFinished("failed", error=RunFailure("permanent", "the prompt is too long", status=400)),
            "RUN_ERROR",
            "context_length_exceeded",
        ),
        (RunFinished("stopped"), "RUN_FINISHED", None),
    ],
)
def test_ends(finished: RunFinished, kind: str, code: str | None) -> None:
    entries = log(*BEGUN, AttemptStarted("p", "m"), MessageChunk("Hel"), finished)
    events = shown(entries)
    assert (events[-1]["type"], events[-1].get("code")) == (kind, code)
    assert [event["type"] for event in events[-3:-1]] == ["TEXT_MESSAGE_END", "STEP_FINISHED"]


def test_steps_that_are_open_at_an_interrupt_go_on_behind_it() -> None:
    entries = log(
        *BEGUN,
        MessageRecorded(Message("assistant", (call("look", "c1"), call("launch", "c2")))),
        ToolCallChunk("look", None, {}, 0),
        ASKED,
        ToolOutputRecorded("c1", "look", "seen"),
        ToolCallFinished("look", index=0),
    )
    steps = [
        [event["type"] for event in shown(entries, stretch=stretch) if event["type"].startswith("STEP")]
        for stretch in (Stretch(), Stretch(5, 5))
    ]
    assert steps == [["STEP_STARTED", "STEP_FINISHED"]] * 2


def test_a_text_that_came_whole() -> None:
    entries = log(*BEGUN, Commentary("Look."), MessageRecorded(Message("assistant", (Text("Look."), call("a", "b")))))
    assert kinds(shown(entries))[2:] == [
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
    ]


def test_cached_tokens_count_among_the_input() -> None:
    entries = log(*BEGUN, UsageRecorded(Usage(10, 5, 3, 2), "p", "m"), RunFinished("completed"))
    inputs = []
    for apart in (True, False):
        encoder = AgUiEncoder(RUN, VIEW, counts_cache_apart=lambda _, apart=apart: apart)  # type: ignore[misc]
        inputs.append(events_in(encoder.feed(entries))[-1]["usage"][0]["inputTokens"])
    assert inputs == [15, 10]
