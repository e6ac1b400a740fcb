"""A run's log as session updates: the SDK's own schema judges each line, and any cut gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from acp.schema import SessionNotification
from hypothesis import given
from hypothesis import strategies as st

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
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    UsageRecorded,
)
from tailrace.integrations.acp.log_to_updates import LogToUpdates
from tailrace.integrations.acp.turn_end import prompt_response, stop_reason
from tailrace.journal.fold import is_fact
from tailrace.messages import File, FileChange, Image, Message, Reasoning, Text, ToolCall, Usage, user
from tailrace.tools.file_change import file_change

DIRECTORY = "/project"
CALLS = (
    ToolCall("a", "terminal", '{"command":"rm -rf x"}'),
    ToolCall("b", "patch", '{"path":"src/a.py","old":"1","new":"2"}'),
)
ASKED = ApprovalAsked("apr_1", "terminal", "rm -rf x", "d", "editor", "a", "deletes directories", DIRECTORY)
EVENTS: list[tuple[AnyEvent, int]] = [
    (RunStarted("agent", "m", "s", 1.0), 1),
    (MessageRecorded(Message("user", (Text("Do it"), Image(data="aGk=", media_type="image/png"), File(url="u")))), 1),
    (AttemptStarted("test", "m"), 1),
    (ReasoningChunk("Let me "), 1),
    (ReasoningChunk("see."), 1),
    (MessageChunk("Fir"), 1),
    (GatewayNotice("stalled", "No response from provider"), 1),
    (AttemptDiscarded("the provider said something else"), 1),
    (AttemptStarted("test", "m"), 2),
    (MessageChunk("I do "), 2),
    (MessageChunk('it: "ü"\n'), 2),
    (UsageRecorded(Usage(10, 5, cache_read_tokens=100), "anthropic", "m"), 2),
    (MessageRecorded(Message("assistant", (Reasoning("Let me see."), Text('I do it: "ü"\n'), *CALLS)), "tools"), 2),
    (MessageStop(final=False), 2),
    (ASKED, 2),
    (ApprovalAnswered("apr_1", "once", "editor"), 2),
    (ToolCallChunk("terminal", "rm -rf x", {"command": "rm -rf x"}, 0), 2),
    (ToolCallChunk("terminal", "half ```way```", index=0), 2),
    (LongToolHint("terminal", 30.0), 2),
    (ToolOutputRecorded("a", "terminal", "gone\n[exit code 0]"), 2),
    (ToolCallFinished("terminal", 0.1, True, 0), 2),
    (ToolCallChunk("patch", "src/a.py", {"path": "src/a.py", "old": "1", "new": "2"}, 1), 2),
    (ToolOutputRecorded("b", "patch", "changed", change=FileChange("src/a.py", 1, 1, " 0\n-1\n+2")), 2),
    (ToolCallFinished("patch", 0.1, True, 1), 2),
    (HistoryCompressed((user("all of it"),)), 2),
    (Commentary("A word between."), 3),
    (MessageChunk("Done"), 3),
    (MessageChunk("."), 3),
    (MessageRecorded(Message("assistant", (Text("Done."),)), "end"), 3),
    (MessageStop(final=True), 3),
    (RunFinished("completed", "Done.", Usage(10, 5), None, 2.0), 3),
]
LOG = [Entry(seq, event, attempt) for seq, (event, attempt) in enumerate(EVENTS, 1)]
FACTS = [entry for entry in LOG if is_fact(entry.event)]


def encoder(**wanted: Any) -> LogToUpdates:
    return LogToUpdates(
        "ses_1", "run_1", directory=DIRECTORY, context_tokens=1000, cached_apart=["anthropic"], **wanted
    )


def read(lines: bytes) -> list[dict[str, Any]]:
    """Each line as the SDK reads it, with nothing lost on the way."""
    updates = []
    for line in lines.splitlines():
        message = json.loads(line)
        assert message["method"] == "session/update"
        SessionNotification.model_validate(message["params"])
        assert message["params"]["sessionId"] == "ses_1"
        updates.append(message["params"]["update"])
    return updates


def updates_of(entries: Sequence[Entry], **wanted: Any) -> list[dict[str, Any]]:
    return read(encoder(**wanted).feed(entries))


def texts(updates: list[dict[str, Any]], kind: str = "agent_message_chunk") -> list[str]:
    """The text of each message in order; chunks of one message joined."""
    shown: dict[str, str] = {}
    for update in updates:
        if update["sessionUpdate"] == kind and update["content"]["type"] == "text":
            shown[update["messageId"]] = shown.get(update["messageId"], "") + update["content"]["text"]
    return [*shown.values()]


@pytest.mark.parametrize("loaded", [False, True])
@given(cuts=st.lists(st.integers(0, len(LOG))))
def test_any_cut_of_the_log_gives_the_same_bytes(loaded: bool, cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(LOG)})
    cut = encoder(loaded=loaded)
    lines = b"".join(cut.feed(LOG[start:end]) for start, end in pairwise(places))
    assert lines == encoder(loaded=loaded).feed(LOG)


def test_a_withdrawn_attempt_is_told_and_the_answer_begins_again() -> None:
    updates = updates_of(LOG)
    assert texts(updates) == ["Fir", 'I do it: "ü"\n', "A word between.", "Done."]
    notices = [update for update in updates if "_meta" in update]
    assert [notice["_meta"]["tailrace"] for notice in notices] == [{"notice": "stalled"}, {"withdrawn": "run_1.2"}]
    assert "withdrawn (the provider said something else)" in notices[1]["content"]["text"]


def test_what_other_attempts_wrote_of_a_withdrawn_answer_is_repeated() -> None:
    """A run that was taken over goes on from what was shown; the attempt that went on is withdrawn."""
    log = [
        Entry(1, MessageChunk("One "), 1),
        Entry(2, MessageChunk("tow"), 2),
        Entry(3, AttemptDiscarded(), 2),
        Entry(4, MessageChunk("two"), 3),
    ]
    assert texts(updates_of(log)) == ["One tow", "One two"]


def test_a_turn_that_is_read_after_its_end_has_its_final_text_once() -> None:
    updates = updates_of(FACTS, loaded=True)
    shown = "".join(texts(updates)).replace("A word between.", "")
    assert shown == 'I do it: "ü"\nDone.'
    assert texts(updates, "user_message_chunk") == ["Do it"]
    assert "".join(texts(updates, "agent_thought_chunk")).count("Let me see.") <= 1
    calls = [update for update in updates if update["sessionUpdate"] == "tool_call_update"]
    assert [call["status"] for call in calls if call.get("status") in ("completed", "failed")] == ["completed"] * 2


def test_a_call_is_shown_from_pending_to_its_end() -> None:
    calls: dict[str, list[dict[str, Any]]] = {}
    for update in updates_of(LOG):
        if "toolCallId" in update:
            calls.setdefault(update["toolCallId"], []).append(update)
    terminal, patch = calls["run_1.call0"], calls["run_1.call1"]
    assert [update.get("status") for update in terminal] == ["pending", None, "in_progress", None, "completed"]
    assert terminal[0]["kind"] == "execute"
    assert "deletes directories (in /project)" in terminal[1]["content"][0]["content"]["text"]
    assert terminal[2]["rawInput"] == {"command": "rm -rf x"}
    assert terminal[4]["content"][0]["content"]["text"] == "```\ngone\n[exit code 0]\n```"
    diff = {"type": "diff", "path": "/project/src/a.py", "oldText": "1", "newText": "2"}
    assert patch[1]["locations"] == [{"path": "/project/src/a.py"}]
    around = {**diff, "oldText": "0\n1", "newText": "0\n2"}
    assert [update.get("content") for update in patch] == [None, [diff], [around]]


def test_the_gauge_counts_what_anthropic_counts_apart() -> None:
    used = [update["used"] for update in updates_of(LOG) if update["sessionUpdate"] == "usage_update"]
    assert used == [115]


def test_a_file_that_is_written_whole_shows_what_it_held() -> None:
    args = {"path": "a.txt", "content": "new"}
    log = [
        Entry(1, MessageRecorded(Message("assistant", (ToolCall("a", "write_file", json.dumps(args)),)), "tools")),
        Entry(2, ToolCallChunk("write_file", "a.txt", args, 0)),
        Entry(
            3,
            ToolOutputRecorded("a", "write_file", "Replaced a.txt (1 line)", change=file_change("a.txt", "old", "new")),
        ),
    ]
    diff = {"type": "diff", "path": "/project/a.txt", "oldText": "old", "newText": "new"}
    assert updates_of(log)[-1]["content"] == [diff]
    assert updates_of(log, loaded=True)[-1]["content"] == [diff]  # also in another process


def test_a_failed_turn_is_told_where_it_is_loaded() -> None:
    failed = Entry(1, RunFinished("failed", "", Usage(), RunFailure("permanent", "no such model"), 1.0))
    assert updates_of([failed]) == []
    assert "no such model" in texts(updates_of([failed], loaded=True), "agent_thought_chunk")[0]


@pytest.mark.parametrize(
    ("status", "stop", "text", "reason"),
    [
        ("completed", "end", "", "end_turn"),
        ("stopped", "stopped", "", "cancelled"),
        ("incomplete", "length", "", "max_tokens"),
        ("incomplete", "filter", "", "refusal"),
        ("incomplete", "limit", "I stopped after 2 model calls (agent.max_turns)", "max_turn_requests"),
        ("incomplete", "limit", "I stopped after 9 tokens (agent.max_tokens)", "max_tokens"),
        ("incomplete", "cut", "", None),
        ("failed", "", "", None),
    ],
)
def test_stop_reasons(status: Any, stop: str, text: str, reason: str | None) -> None:
    assert stop_reason(RunFinished(status), stop, text) == reason


def test_the_answer_to_a_prompt_has_the_usage() -> None:
    log = encoder()
    log.feed(LOG)
    response = prompt_response(log)
    assert response is not None
    assert response.usage is not None
    assert (response.stop_reason, response.usage.total_tokens) == ("end_turn", 15)
