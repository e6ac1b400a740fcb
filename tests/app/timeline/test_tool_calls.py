"""The tool calls of a timeline: from the first letter of their arguments to what they gave and changed."""

from __future__ import annotations

from app.timeline.timed_log import ASKED, finished, only, timeline
from tailrace.app.timeline.items import ApprovalItem, AttemptItem, NoticeItem, ToolCallItem
from tailrace.events import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    LongToolHint,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    NotExecuted,
    ToolArgumentsChunk,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
)
from tailrace.messages import FileChange, Message, Text, ToolCall

CALL = ToolCall("c1", "terminal", '{"command": "ls"}')


def test_a_tool_call_from_its_first_letter_to_its_exit_code() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageChunk("Looking.")),
        (0.3, 1, ToolArgumentsChunk("terminal", 0, '{"comm')),
        (0.6, 1, ToolArgumentsChunk("terminal", 0, 'and": "ls"}')),
        (0.7, 1, MessageRecorded(Message("assistant", (Text("Looking."), CALL)), "tools")),
        (0.7, 1, MessageStop()),
        (0.8, 1, ApprovalAsked("a1", "terminal", "ls", "d", "me", "c1", "why", "/src")),
        (3.8, 1, ApprovalAnswered("a1", "once", "me", "fine")),
        (3.9, 1, ToolCallChunk("terminal", "ls", {"command": "ls"}, 0)),
        (4.0, 1, LongToolHint("terminal", 31.0)),
        (5.0, 1, ToolOutputRecorded("c1", "terminal", "x\n[exit code 2]", ok=False)),
        (5.0, 1, ToolCallFinished("terminal", 1.1, ok=False, index=0)),
        finished(5.0, ""),
    )
    assert only(shown, ToolCallItem, ApprovalItem) == [
        ToolCallItem(
            seq=5,
            end_seq=14,
            start=3.9,
            end=5.0,
            tool_name="terminal",
            call_id="c1",
            state="failed",
            preview="ls",
            arguments={"command": "ls"},
            writing_start=0.3,
            output="x\n[exit code 2]",
            ok=False,
            exit_code=2,
            duration_s=1.1,
        ),
        ApprovalItem(
            seq=9,
            end_seq=10,
            start=0.8,
            end=3.8,
            approval_id="a1",
            tool_name="terminal",
            command="ls",
            directory="/src",
            reason="why",
            requester="me",
            call_id="c1",
            decision="once",
            by="me",
            answer_reason="fine",
            waited_s=3.0,
        ),
    ]
    assert only(shown, NoticeItem) == [
        NoticeItem(
            seq=12, end_seq=12, start=4.0, end=4.0, about="long_tool", text="terminal is still running after 31 s"
        )
    ]
    attempt = next(item for item in shown.items if isinstance(item, AttemptItem))
    assert (attempt.outcome, attempt.first_token_s) == ("called_tools", 0.1)


def call_ends(name: str, arguments: str, output: ToolOutputRecorded) -> ToolCallItem:
    call = ToolCall("c1", name, arguments)
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, MessageRecorded(Message("assistant", (call,)), "tools")),
        (0.3, 1, output),
        (0.3, 1, ToolCallFinished(name, 0.0, output.ok, 0)),
        finished(0.4, ""),
    )
    item = only(shown, ToolCallItem)[0]
    assert isinstance(item, ToolCallItem)
    return item


def test_writes_show_what_they_changed() -> None:
    known = ToolOutputRecorded("c1", "write_file", "Replaced a.txt", change=FileChange("a.txt", 5, 6, "-a\n+b"))
    item = call_ends("write_file", "{}", known)
    assert (item.diff, item.added, item.removed) == ("-a\n+b", 5, 6)


def test_a_denied_call_was_not_executed() -> None:
    denied = NotExecuted("terminal", "rm -rf /", "denied", "denied")
    item = call_ends("terminal", "{}", ToolOutputRecorded("c1", "terminal", "no", ok=False, not_executed=denied))
    assert (item.state, item.not_executed, item.exit_code, item.duration_s) == ("not_executed", denied, None, 0.0)


def test_a_call_that_breaks_off_and_one_that_the_client_runs() -> None:
    shown = timeline(
        ASKED,
        (0.1, 1, AttemptStarted("near", "small")),
        (0.2, 1, ToolArgumentsChunk("terminal", 0, '{"comm')),
        (0.3, 2, AttemptStarted("near", "small", previous_failure="cut")),
        (0.4, 2, MessageRecorded(Message("assistant", (ToolCall("c9", "mine", "{}"),)), "tools")),
        finished(0.4, ""),
    )
    calls = [item for item in shown.items if isinstance(item, ToolCallItem)]
    assert [(c.tool_name, c.state, c.arguments_text, c.call_id) for c in calls] == [
        ("terminal", "broken_off", '{"comm', ""),
        ("mine", "returned", "", "c9"),
    ]
