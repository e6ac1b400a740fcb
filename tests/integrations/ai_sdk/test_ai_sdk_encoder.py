"""The UI message stream of a log: the chunks of each kind of entry, whatever the batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrations.ai_sdk.strict_chunks import check_chunks
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Entry,
    GatewayNotice,
    HistoryCompressed,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    NotExecuted,
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
from tailrace.integrations.ai_sdk.encoder import DONE, UiMessageEncoder
from tailrace.messages import Message, Native, Reasoning, Text, ToolCall, ToolFile, ToolResult, Usage, assistant, user
from tailrace.wire.sse import SseDecoder

RUN = "run_066058bfb730fb6b0b898faf"
LOOK, LAUNCH, OWN = ToolCall("c1", "look"), ToolCall("c1", "launch", '{"what":"rocket"}'), ToolCall("c2", "mine", "[")
DENIED = NotExecuted("launch", "launch it", "acts outside; denied", "denied")
STARTED = RunStarted("agent", "", "chat", 1.5)
FINISHED = RunFinished("completed", "It flies.", Usage(7, 5, reasoning_tokens=2), None, 2.5)
ASKED = ApprovalAsked("a1", "launch", "launch it", "digest", "local", "c1", "acts outside", "/home")
LOG: tuple[tuple[int, AnyEvent], ...] = (
    (1, STARTED),
    (1, MessageRecorded(user("Go."))),
    (1, AttemptStarted("near", "small")),
    (1, ReasoningChunk("Hm")),
    (1, AttemptDiscarded("cut")),
    (2, AttemptStarted("far", "large")),
    (2, ReasoningChunk("Let ")),
    (2, ReasoningChunk("me think")),
    (2, MessageChunk("\n\n")),
    (2, MessageChunk("Look")),
    (2, ToolArgumentsChunk("look", 0, '{"a')),
    (2, ToolArgumentsChunk("look", 0, 't"')),
    (2, GatewayNotice("stalled", "No response", {"provider": "far"})),
    (3, AttemptStarted("far", "large")),
    (3, MessageChunk("ing.")),
    (3, ToolArgumentsChunk("look", 0, "")),
    (3, ToolArgumentsChunk("look", 0, "{")),
    (3, ToolArgumentsChunk("look", 0, "}")),
    (3, UsageRecorded(Usage(3, 2), "far", "large")),
    (3, MessageRecorded(Message("assistant", (Text("\n\nLooking."), LOOK)), "tools")),
    (3, MessageStop()),
    (3, ToolCallChunk("look", "look", {"at": "sky"}, 0)),
    (3, LongToolHint("look", 31.0)),
    (3, ToolOutputRecorded("c1", "look", "blue", files=(ToolFile("a.png", "image/png", b"\x89PNG"),))),
    (3, ToolCallFinished("look", 0.5, index=0)),
    (4, AttemptStarted("far", "large")),
    (4, Commentary("I will.")),
    (4, MessageRecorded(Message("assistant", (Text("I will."), LAUNCH)), "tools")),
    (4, ASKED),
    (4, ApprovalAnswered("a1", "once", "local")),
    (4, ToolCallChunk("launch", "launch it", {"what": "rocket"}, 1)),
    (4, ToolOutputRecorded("c1", "launch", "failed", ok=False)),
    (4, ToolCallFinished("launch", 0.5, ok=False, index=1)),
    (5, AttemptStarted("far", "large")),
    (5, MessageChunk("It ")),
    (5, MessageChunk("flies.")),
    (5, UsageRecorded(Usage(4, 3), "far", "large")),
    (5, MessageRecorded(assistant("It flies."), "end")),
    (5, MessageStop(final=True)),
    (5, FINISHED),
)


def entries(events: Iterable[tuple[int, AnyEvent] | AnyEvent]) -> list[Entry]:
    both = (event if isinstance(event, tuple) else (1, event) for event in events)
    return [Entry(seq, event, attempt) for seq, (attempt, event) in enumerate(both, 1)]


def encoder(**options: Any) -> UiMessageEncoder:
    made = UiMessageEncoder("msg_1", **options)
    made.begin_run(RUN, ["mine"])
    return made


def chunks_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in SseDecoder().feed(data.removesuffix(DONE))]


def encoded(*events: tuple[int, AnyEvent] | AnyEvent, closed: bool = True, **options: Any) -> list[dict[str, Any]]:
    made = encoder(**options)
    data = made.feed(entries(events))
    chunks = chunks_of(data + made.close()) if closed else chunks_of(data)
    check_chunks(chunks, approvals=options.get("approvals") != "data")
    return chunks


def kinds(chunks: Sequence[dict[str, Any]]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def answered(*events: AnyEvent) -> tuple[AnyEvent, ...]:
    """A run whose model calls for these, so far."""
    return (STARTED, MessageRecorded(Message("assistant", (LAUNCH, OWN)), "tools"), *events)


# ── the whole log ────────────────────────────────────────────────────────────────────────────────────────────


@given(cuts=st.lists(st.integers(0, len(LOG)), max_size=12), answers=st.booleans(), reasoning=st.booleans())
def test_any_cut_of_the_log_gives_the_same_bytes(cuts: list[int], answers: bool, reasoning: bool) -> None:
    known = ("a1",) if answers else ()
    whole, cut = (encoder(answered=known, reasoning=reasoning) for _ in range(2))
    log = entries(LOG)
    places = [0, *sorted(cuts), len(log)]
    pieces = [cut.feed(log[start:end]) for start, end in pairwise(places)]
    at_once = whole.feed(log) + whole.close()
    assert b"".join(pieces) + cut.close() == at_once
    assert cut.paused is whole.paused is not answers


def test_the_chunks_of_a_whole_run() -> None:
    chunks = encoded(*LOG, answered=["a1"])
    assert kinds(chunks) == [
        "start",
        *("start-step", "reasoning-start", "reasoning-delta", "reasoning-end", "data-notice"),
        *("reasoning-start", "reasoning-delta", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-delta", "tool-input-start", "tool-input-delta", "tool-input-delta"),
        *("data-notice", "tool-input-error", "data-notice", "text-delta"),
        *("tool-input-start", "tool-input-delta", "tool-input-delta", "text-end"),
        *("tool-input-available", "data-notice", "tool-output-available", "file"),
        *("finish-step", "start-step", "text-start", "text-delta", "text-end"),
        *("tool-input-start", "tool-input-available", "data-approval", "tool-approval-request", "data-approval"),
        *("tool-input-available", "tool-output-error"),
        *("finish-step", "start-step", "text-start", "text-delta", "text-delta", "text-end", "finish-step", "finish"),
    ]
    assert chunks[0] == {
        "type": "start",
        "messageId": "msg_1",
        "messageMetadata": {"runId": RUN, "chatId": "chat", "status": "running", "createdAt": 1500},
    }
    deltas = [chunk for chunk in chunks if "delta" in chunk]
    assert [(chunk["id"], chunk["delta"]) for chunk in deltas] == [
        *(("1", "Hm"), ("2", "Let "), ("2", "me think")),
        *(("3", "\n\n"), ("3", "Look"), ("3", "ing."), ("4", "I will."), ("5", "It "), ("5", "flies.")),
    ]
    notices = [chunk["data"] for chunk in chunks if chunk["type"] == "data-notice"]
    assert [notice["kind"] for notice in notices] == ["failover", "stalled", "retry", "long_tool"]
    assert all(chunk["transient"] for chunk in chunks if chunk["type"] == "data-notice")
    assert chunks[-1]["messageMetadata"] == {
        "status": "completed",
        "finishReason": "stop",
        "model": "far/large",
        "usage": {"inputTokens": 7, "outputTokens": 5, "totalTokens": 12, "reasoningTokens": 2, "cachedInputTokens": 0},
        "finishedAt": 2500,
    }


def test_what_a_discarded_attempt_thought_is_marked() -> None:
    ends = [chunk for chunk in encoded(*LOG, answered=["a1"]) if chunk["type"] == "reasoning-end"]
    assert [end.get("providerMetadata") for end in ends] == [{"tailrace": {"discarded": True}}, None]


def test_reasoning_can_be_left_out() -> None:
    assert "reasoning-start" not in kinds(encoded(*LOG, answered=["a1"], reasoning=False))


@given(whole=st.booleans())
def test_the_facts_alone_give_the_same_message(whole: bool) -> None:
    """As of a run whose chunks are no longer kept; and where texts are to come when they are complete."""
    thought = MessageRecorded(Message("assistant", (Reasoning("Hm."), Text("Hi."))), "end")
    facts = (STARTED, MessageRecorded(user("Go.")), thought, MessageStop(final=True), FINISHED)
    streamed = (*facts[:2], ReasoningChunk("H"), ReasoningChunk("m."), MessageChunk("Hi."), *facts[2:])
    chunks = encoded(*(streamed if whole else facts), whole=whole)
    assert [(chunk["type"], chunk["delta"]) for chunk in chunks if "delta" in chunk] == [
        ("reasoning-delta", "Hm."),
        ("text-delta", "Hi."),
    ]


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_open_question_ends_the_stream() -> None:
    made = encoder()
    log = entries([*answered(ASKED), ApprovalAnswered("a1", "once"), ToolCallChunk("launch", index=0)])
    chunks = chunks_of(made.feed(log) + made.close())
    assert made.paused
    assert kinds(chunks)[-4:] == ["data-approval", "tool-approval-request", "finish-step", "finish"]
    assert chunks[-1]["messageMetadata"] == {"status": "waiting", "finishReason": "tool-calls"}
    part = f"tool_{RUN.removeprefix('run_')}_0"
    assert chunks[-3] == {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": part}


def test_a_question_that_was_answered_before_is_passed() -> None:
    """The log goes on behind it: what the encoder did not read is read again."""
    made, whole = encoder(), encoder(answered=["a1"])
    log = entries(LOG)
    first = made.feed(log)
    assert (made.paused, isinstance(log[made.seq - 1].event, ApprovalAsked)) == (True, True)
    assert not made.go_on(["another"])
    assert made.go_on(["another", "a1"])
    assert first + made.feed(log[made.seq :]) == whole.feed(log)


def test_a_tool_beside_the_question_is_waited_for() -> None:
    """The AI SDK sends no answer while another tool of the step has no output."""
    calls = MessageRecorded(Message("assistant", (LAUNCH, ToolCall("c3", "look"))), "tools")
    made = encoder()
    log = entries([STARTED, calls, ToolCallChunk("look", index=1), ASKED, ToolOutputRecorded("c3", "look", "blue")])
    told = [(kinds(chunks_of(made.feed(piece)))[-1], made.paused) for piece in (log[:-1], log[-1:])]
    assert told == [("tool-approval-request", False), ("tool-output-available", True)]


def test_a_page_that_has_answered_gets_what_follows_its_question() -> None:
    log = entries([*answered(ASKED), ApprovalAnswered("a1", "deny"), ToolCallChunk("launch", index=0)])
    log += [Entry(6, ToolOutputRecorded("c1", "launch", "no", ok=False, not_executed=DENIED))]
    made = encoder(answered=["a1"])
    taken = made.skip(log, ["a1"])
    assert taken == 3
    chunks = chunks_of(made.restart() + made.feed(log[taken:]))
    assert kinds(chunks) == ["start", "data-approval", "tool-input-available", "tool-output-denied"]
    assert chunks[0]["messageMetadata"] == {"runId": RUN}


def test_questions_as_data_leave_the_stream_open() -> None:
    chunks = encoded(
        *answered(ASKED, ApprovalAnswered("a1", "deny", "local"), ToolCallChunk("launch", index=0)),
        ToolOutputRecorded("c1", "launch", "no", ok=False, not_executed=DENIED),
        approvals="data",
        closed=False,
    )
    asked = [chunk for chunk in chunks if chunk["type"] == "data-approval"]
    assert [chunk["id"] for chunk in asked] == ["a1", "a1"]
    assert asked[0]["data"] | {"toolCallId": ""} == {
        "approvalId": "a1",
        "runId": RUN,
        "toolCallId": "",
        "toolName": "launch",
        "command": "launch it",
        "directory": "/home",
        "reason": "acts outside",
    }
    assert asked[1]["data"]["decision"] == "deny"
    assert kinds(chunks)[-1] == "tool-output-error"


# ── tools of the page ────────────────────────────────────────────────────────────────────────────────────────


def test_calls_of_the_pages_own_tools_come_last_and_their_results_go_on() -> None:
    made = encoder()
    log = answered(ToolCallChunk("launch", index=0), ToolOutputRecorded("c1", "launch", "up"), FINISHED)
    first = chunks_of(made.feed(entries(log)))
    call_id = f"call_{RUN.removeprefix('run_')}_0"
    assert first[-1] == {"type": "tool-input-available", "toolCallId": call_id, "toolName": "mine", "input": "["}
    made.begin_run("run_second")
    results = Message("tool", (ToolResult("c2", '{"a":1}'),))
    second = (STARTED, MessageRecorded(results), MessageChunk("Ok."), MessageRecorded(assistant("Ok.")), FINISHED)
    chunks = chunks_of(made.feed(entries(second)) + made.close())
    assert kinds(chunks) == [
        *("message-metadata", "tool-output-available", "finish-step", "start-step"),
        *("text-start", "text-delta", "text-end", "finish-step", "finish"),
    ]
    assert chunks[1] == {"type": "tool-output-available", "toolCallId": call_id, "output": {"a": 1}}
    assert chunks[-1]["messageMetadata"]["usage"]["totalTokens"] == 24, "of the whole message"


def test_a_run_that_waits_for_the_page_says_so() -> None:
    chunks = encoded(STARTED, MessageRecorded(Message("assistant", (OWN,)), "tools"), FINISHED)
    assert chunks[-1]["messageMetadata"]["finishReason"] == "tool-calls"


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ends_that_are_no_answer() -> None:
    stopped = encoded(STARTED, MessageChunk("Hal"), RunFinished("stopped", "Hal"))
    assert kinds(stopped)[-4:] == ["text-end", "finish-step", "message-metadata", "abort"]
    failed = encoded(STARTED, RunFinished("failed", error=RunFailure("permanent", "the key was refused")))
    assert failed[-1] == {"type": "error", "errorText": "the key was refused"}
    cut = MessageRecorded(assistant("Hal"), "cut")
    error = RunFailure("incomplete", "the stream broke off")
    half = encoded(STARTED, MessageChunk("Hal"), cut, RunFinished("incomplete", "Hal", error=error))
    assert half[-1]["messageMetadata"]["finishReason"] == "length"
    assert half[-1]["messageMetadata"]["error"] == {"kind": "incomplete", "message": "the stream broke off"}


def test_a_call_that_was_never_made_is_shown_as_such() -> None:
    chunks = encoded(*answered(ToolOutputRecorded("c1", "launch", "stopped before", ok=False)), closed=False)
    assert kinds(chunks)[-3:] == ["tool-input-start", "tool-input-available", "tool-output-error"]
    assert chunks[-2]["input"] == {"what": "rocket"}


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────


MINE = ToolCall("c9", "mine", '{"y":2}')
BROKEN: tuple[tuple[int, AnyEvent], ...] = (
    (1, STARTED),
    (1, AttemptStarted("near", "small")),
    (1, ToolArgumentsChunk("mine", 0, '{"x')),
)


def tool_chunks(*events: tuple[int, AnyEvent], **options: Any) -> list[dict[str, Any]]:
    return [chunk for chunk in encoded(*BROKEN, *events, **options) if chunk["type"].startswith("tool-")]


def test_a_call_that_is_made_anew_takes_the_part_of_the_one_that_broke_off() -> None:
    chunks = tool_chunks(
        (2, AttemptStarted("far", "large")),
        (2, ToolArgumentsChunk("mine", 0, '{"y":')),
        (2, MessageRecorded(Message("assistant", (MINE,)), "tools")),
        (2, RunFinished("completed")),
    )
    assert kinds(chunks) == [
        *("tool-input-start", "tool-input-delta", "tool-input-error"),
        *("tool-input-start", "tool-input-delta", "tool-input-available"),
    ]
    assert len({chunk["toolCallId"] for chunk in chunks}) == 1
    assert [chunk.get("providerExecuted") for chunk in chunks] == [None, None, True, False, None, None]
    assert chunks[-1]["input"] == {"y": 2}


def test_a_call_that_is_not_made_anew_is_shown_as_one_that_was_not_run() -> None:
    """It counts as executed, so that a page which answers its calls by itself does not wait for this one."""
    for ends in (
        [(1, RunFinished("stopped"))],
        [(1, AttemptDiscarded("cut")), (1, RunFinished("failed"))],
        [(1, MessageRecorded(assistant("Well."), "cut")), (1, RunFinished("incomplete"))],
        [(1, MessageRecorded(Message("assistant", (LOOK,)), "tools")), (1, RunFinished("stopped"))],
    ):
        (*_, refused) = tool_chunks(*ends)
        assert (refused["type"], refused["input"], refused["providerExecuted"]) == ("tool-input-error", '{"x', True)


def test_a_call_of_the_pages_that_was_whole_when_the_run_was_stopped_is_not_left_open() -> None:
    made = MessageRecorded(Message("assistant", (ToolCall("c9", "mine", '{"x":1}'),)), "tools")
    chunks = tool_chunks((1, made), (1, RunFinished("stopped")))
    assert kinds(chunks) == ["tool-input-start", "tool-input-delta", "tool-input-error"]


def test_calls_come_whole_where_texts_do() -> None:
    made = MessageRecorded(Message("assistant", (MINE,)), "tools")
    chunks = tool_chunks((1, made), (1, RunFinished("completed")), whole=True)
    assert kinds(chunks) == ["tool-input-start", "tool-input-available"]


def test_sources_are_told_once() -> None:
    cited = {"type": "url_citation", "url": "https://a.example/", "title": "A", "start_index": 0, "end_index": 2}
    page = Native("responses", {"type": "output_text", "text": "Hi.", "annotations": [cited, cited]})
    place = {"type": "page_location", "document_title": "Report", "cited_text": "…"}
    document = Native("anthropic", {"type": "text", "text": "Hi.", "citations": [place, place]})
    fetch = ToolCall("c1", "web_fetch", '{"url":"https://b.example/"}')
    chunks = encoded(
        STARTED,
        HistoryCompressed(()),
        MessageRecorded(Message("assistant", (Text("Hi."), page, document, fetch)), "tools"),
        ToolCallChunk("web_fetch", "b", {"url": "https://b.example/"}, 0),
        ToolOutputRecorded("c1", "web_fetch", "text"),
        closed=False,
    )
    assert [{**chunk, "type": ""} for chunk in chunks if chunk["type"].startswith("source-")] == [
        {"type": "", "sourceId": "page-1", "url": "https://a.example/", "title": "A"},
        {
            "type": "",
            "sourceId": "document-1-1",
            "mediaType": "application/pdf",
            "title": "Report",
            "filename": "Report",
        },
        {"type": "", "sourceId": "page-2", "url": "https://b.example/"},
    ]


@pytest.mark.parametrize(("apart", "sent"), [(True, 17), (False, 10)])
def test_cached_tokens_count_among_the_input(apart: bool, sent: int) -> None:
    """Anthropic counts them apart: without them the input would be smaller than its cached part."""
    used = Usage(10, 5, cache_read_tokens=4, cache_write_tokens=3)
    encoder = UiMessageEncoder("msg", counts_cache_apart=lambda _provider: apart)
    encoder.begin_run("run_1")
    events: list[AnyEvent] = [RunStarted("agent"), UsageRecorded(used, "p", "m"), RunFinished("completed", "", used)]
    encoder.feed(Entry(seq, event) for seq, event in enumerate(events, 1))
    metadata = json.loads(encoder.close().split(b"\n\n")[-3].removeprefix(b"data: "))["messageMetadata"]
    assert (metadata["usage"]["inputTokens"], metadata["usage"]["totalTokens"]) == (sent, sent + 5)
