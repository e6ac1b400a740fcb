"""What is drawn of a run: settled once, in order, the same whether it streamed or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from bench.render import answer, chunks_of, drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.screen.markdown_documents import documents
from tailrace.agent.turn import INTERRUPTED
from tailrace.cli.screen.call_progress import CallProgress
from tailrace.cli.screen.markdown_tokens import tokens_of
from tailrace.cli.screen.painter import Painter, Piece
from tailrace.cli.screen.transcript import QUIET_S, Transcript
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageStop,
    NotExecuted,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunStarted,
    Snapshot,
    TextSoFar,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    ToolSoFar,
)
from tailrace.messages import FileChange, ToolFile
from tailrace.runs.signals import stop_failure, stop_signal

WIDTH = 60
MARK = "● "


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Drawn:
    """A transcript and everything it has settled, as text."""

    def __init__(self, *, streamed: bool = True, width: int = WIDTH, progress: CallProgress | None = None) -> None:
        self.clock = Clock()
        self.transcript = Transcript(self.clock, streamed=streamed, progress=progress)
        self.painter = Painter()
        self.width = width
        self.settled: list[str] = []
        self.moving: list[str] = []

    def see(self, *events: AnyEvent, attempt: int = 1) -> Drawn:
        for event in events:
            self.transcript.apply(Entry(1, event, attempt))
            self.draw()
        return self

    def draw(self) -> None:
        settled, moving = self.transcript.next_update()
        self.settled += self.text(settled)
        self.moving = self.text(moving)

    def text(self, pieces: Iterable[Piece]) -> list[str]:
        return ["".join(segment.text for segment in line) for line in self.painter.lines(pieces, self.width)]


def done(status: str = "completed", error: RunFailure | None = None) -> RunFinished:
    return RunFinished(status, "", error=error)  # type: ignore[arg-type]


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=60)
@given(documents, st.integers(1, 9))
def test_streamed_or_not_the_screen_ends_the_same(text: str, size: int) -> None:
    chunks = [MessageChunk(text[at : at + size]) for at in range(0, len(text), size)]
    streamed = Drawn().see(*chunks, MessageStop(final=True))
    whole = Drawn(streamed=False).see(MessageChunk(text), MessageStop(final=True))
    assert streamed.settled == whole.settled
    assert streamed.moving == []


def test_streamed_or_not_a_long_answer_looks_the_same() -> None:
    text = answer(10_000)
    streamed = Drawn(width=100).see(*map(MessageChunk, chunks_of(text, 2000)), MessageStop(final=True))
    whole = Drawn(width=100, streamed=False).see(MessageChunk(text), MessageStop(final=True))
    assert streamed.settled == whole.settled
    assert len(streamed.settled) > 300


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_row_with_more_cells_than_its_head_is_shown_whole(size: int) -> None:
    text = "| a | b |\n|---|---|\n| 1 | 2 | 3 |\n| 4 | `x | y` | z |\n| 5 | 6 |\n"
    chunks = [MessageChunk(text[at : at + size]) for at in range(0, len(text), size)]
    drawn = Drawn().see(*chunks, MessageStop(final=True))
    rows = [line.split() for line in drawn.settled if line.strip("● ─")]
    assert rows[-3:] == [["1", "2", "|", "3"], ["4", "x", "|", "y", "|", "z"], ["5", "6"]], drawn.settled


def test_streaming_off_shows_nothing_until_the_message_is_whole() -> None:
    drawn = Drawn(streamed=False).see(MessageChunk("One.\n\nTwo.\n\n"), MessageChunk("Three."))
    assert (drawn.settled, drawn.moving) == ([], [])
    drawn.see(MessageStop(final=True))
    assert [line.strip() for line in drawn.settled[1:]] == ["● One.", "", "Two.", "", "Three."]


def test_the_mark_comes_once_for_each_message() -> None:
    drawn = Drawn().see(
        MessageChunk("Let me "),
        MessageChunk("look.\n\nNow."),
        MessageStop(),
        ToolCallChunk("terminal", "ls", index=0),
        ToolCallFinished("terminal", 0.5, index=0),
        Commentary("Whole."),
        MessageChunk("\n\n"),  # nothing to see: no mark
        MessageStop(),
        MessageChunk("Done."),
        MessageStop(final=True),
        done(),
    )
    assert drawn.settled == [
        "",
        "● Let me look.",
        "",
        "  Now.",
        "",
        "  ✓ terminal  ls  0.5s  #1",
        "",
        "● Whole.",
        "",
        "● Done.",
    ]


def test_only_the_open_block_moves() -> None:
    drawn = Drawn().see(MessageChunk("First.\n\nSecond **par"))
    assert drawn.settled == ["", "● First."]
    assert drawn.moving == ["", "  Second par"]
    drawn.see(MessageChunk("agraph**\n\n"))
    assert (drawn.settled[-1], drawn.moving) == ("  Second paragraph", [])


def test_wide_characters_and_long_lines_fold_within_the_width() -> None:
    from rich.cells import cell_len

    text = "日本語の長い段落。" * 30 + "\n\n```\n" + "x" * 150 + "\n```\n\n" + "y" * 150
    drawn = Drawn(width=40).see(MessageChunk(text), MessageStop(final=True))
    assert max(map(cell_len, drawn.settled)) <= 40
    flat = "".join(line.strip() for line in drawn.settled)
    assert flat.count("日本語の長い段落。") == 30
    assert (flat.count("x"), flat.count("y")) == (150, 150)


def test_html_is_shown_as_it_is_written_and_links_with_their_target() -> None:
    drawn = Drawn(width=100).see(
        MessageChunk("<details>\nmore\n\n[good](http://evil.example)"), MessageStop(final=True)
    )
    assert "● <details> more" in drawn.settled
    assert "  good (http://evil.example)" in drawn.settled


def test_J122_escapes_are_cleaned_across_chunks() -> None:
    drawn = Drawn().see(MessageChunk("a\x1b]52;c;"), MessageChunk("cHduZWQ=\x07b"), MessageStop(final=True))
    assert "● ab" in drawn.settled


def test_a_withdrawn_attempt_starts_the_message_over() -> None:
    drawn = Drawn().see(MessageChunk("Kept. "), attempt=1).see(MessageChunk("Wrong.\n\nMore"), attempt=2)
    drawn.see(AttemptDiscarded("cut"), attempt=2).see(MessageChunk("Right."), MessageStop(final=True), attempt=3)
    assert "  the answer was withdrawn; it starts over" in drawn.settled
    assert drawn.settled[-1] == "● Kept. Right."
    assert sum(line.startswith(MARK) for line in drawn.settled) == 2


def test_drawing_2000_chunks_takes_less_than_a_second() -> None:
    """Rendering everything at each chunk takes 30 to 50 seconds."""
    assert min(drawn(chunks_of(answer(10_000), 2000)) for _ in range(2)) < 1.0


# ── what else there is ───────────────────────────────────────────────────────────────────────────────────────


def test_a_notice_keeps_a_distance_from_an_answer_and_the_farewell_from_everything() -> None:
    drawn = Drawn().see(MessageChunk("Here."), MessageStop(final=True), done())
    drawn.transcript.add_notice("Ctrl-C again leaves")
    drawn.transcript.add_farewell("go on")
    drawn.draw()
    assert drawn.settled == ["", "● Here.", "", "  Ctrl-C again leaves", "", "  go on"]
    drawn.see(MessageChunk("There."), MessageStop(final=True), done())
    drawn.transcript.add_farewell("go on")
    drawn.draw()
    assert drawn.settled[-3:] == ["● There.", "", "  go on"]


def test_a_spinner_while_nothing_comes_and_the_notice_on_a_stall() -> None:
    drawn = Drawn(width=100)
    drawn.transcript.waiting()
    drawn.draw()
    assert drawn.moving == []  # an answer that comes at once shows none
    drawn.clock.now += QUIET_S
    drawn.draw()
    assert drawn.moving[1].endswith(" thinking")
    drawn.clock.now += 5
    drawn.see(GatewayNotice("stalled", "⚠️ No response from provider for 240s … Reconnecting…"))
    assert drawn.settled == ["  ⚠️ No response from provider for 240s … Reconnecting…"]
    assert drawn.moving[1][4:].startswith("thinking 5 s · ⚠️ No response")
    drawn.see(MessageChunk("Here."))
    assert drawn.moving == ["", "● Here."]
    drawn.see(MessageStop(final=True), done())
    assert not drawn.transcript.spinning


def test_a_model_that_has_much_to_read_is_said_to_read() -> None:
    progress = CallProgress(lambda _provider: 1, lambda _failure, _provider: "")
    drawn = Drawn(progress=progress, width=100)
    progress.reads(4300)
    drawn.transcript.waiting()
    drawn.see(RunStarted("agent", at=10.0), AttemptStarted("local", "small"))
    drawn.clock.now += 45
    drawn.draw()
    assert drawn.moving[1][4:] == "reading about 4,300 tokens 45 s · the embedded model takes its time to read"
    assert progress.is_reading
    drawn.see(MessageChunk("Here."), MessageStop(final=True), done())
    assert progress.activity == "thinking"
    progress.reads(200)
    assert progress.activity == "thinking", "that takes no time"


def test_a_model_whose_thoughts_are_hidden_is_said_to_think_while_they_come() -> None:
    drawn = Drawn(width=100)
    drawn.transcript.waiting()
    for _ in range(30):
        drawn.clock.now += 0.1
        drawn.see(ReasoningChunk("Hm. "))
    assert drawn.moving[1].endswith(" thinking 3 s")
    drawn.see(MessageChunk("Here."))
    assert drawn.moving == ["", "● Here."]


def test_tools_settle_with_their_outcome() -> None:
    drawn = Drawn().see(
        ToolCallChunk("terminal", "make\n all", index=0), ToolCallChunk("read_file", "x" * 200, index=1)
    )
    drawn.clock.now += 1.5
    drawn.draw()
    assert drawn.moving[0][4:].split() == ["terminal", "make", "all", "1.5s"]
    drawn.see(ToolCallFinished("read_file", 0.1, ok=False, index=1), ToolCallFinished("terminal", 2.0, index=0))
    assert drawn.settled[0].startswith("  ✗ read_file  xxx")
    assert drawn.settled[0].endswith("…  0.1s  #1")
    assert drawn.settled[1] == "  ✓ terminal  make all  2.0s  #2"
    assert drawn.moving == []


def test_what_tools_print_is_shown_when_asked_for() -> None:
    drawn = Drawn()
    events = (
        ToolCallChunk("terminal", "ls", index=0),
        ToolOutputRecorded("c", "terminal", "\n".join(f"line {number}" for number in range(50))),
        ToolCallFinished("terminal", 0.1, index=0),
    )
    assert len(drawn.see(*events).settled) == 1
    drawn.transcript.tools.verbose = True
    drawn.see(*events)
    assert drawn.settled[-1] == "      … 30 more lines"


def test_a_tool_in_full_shows_arguments_progress_output_and_files() -> None:
    drawn = Drawn()
    drawn.transcript.tools.verbose = True
    drawn.see(
        ToolCallChunk("draw", "mill", {"what": "mill", "how": "one\ntwo", "size": 3}, index=0),
        GatewayNotice("tool_progress", "half \x1b[31mdone", {"tool_name": "draw"}),
        ToolOutputRecorded("c", "draw", "drawn", files=(ToolFile("mill.png", "image/png", b"1234"),)),
        ToolCallFinished("draw", 0.1, index=0),
    )
    assert drawn.settled == [
        "      … half done",
        "  ✓ draw  mill  0.1s  #1",
        "      what: mill",
        "      how: one",
        "        two",
        "      size: 3",
        "      drawn",
        "      [mill.png: image/png, 4 bytes]",
    ]


def test_only_new_tools_get_a_line_when_asked_for() -> None:
    drawn = Drawn()
    drawn.transcript.tools.only_new = True
    calls = [("read_file", True), ("read_file", True), ("read_file", False), ("terminal", True), ("terminal", True)]
    for index, (name, ok) in enumerate(calls):
        drawn.see(ToolCallChunk(name, f"{index}", index=index), ToolCallFinished(name, 0.1, ok, index))
    assert [line.split() for line in drawn.settled] == [
        ["✓", "read_file", "0", "0.1s", "#1"],
        ["✗", "read_file", "2", "0.1s", "#3"],
        ["✓", "terminal", "3", "0.1s", "#4"],
    ]


def test_what_the_rules_forbid_is_told() -> None:
    action = NotExecuted("terminal", "rm -rf /", "deletes the file system", "forbidden")
    drawn = Drawn().see(
        ToolCallChunk("terminal", "rm -rf /", index=0),
        ToolOutputRecorded("c", "terminal", "Refused", ok=False, not_executed=action),
    )
    drawn.see(ToolCallFinished("terminal", 0.0, ok=False, index=0))
    assert drawn.settled == ["  ✗ not executed: rm -rf / (deletes the file system)"]


def test_I102_nothing_is_waited_for_after_giving_up() -> None:
    drawn = Drawn()
    drawn.transcript.add_question("Go.")
    drawn.see(MessageChunk("I will."), ToolCallChunk("terminal", "make", index=0))
    drawn.transcript.give_up("run 1 is parked: it kept crashing")
    drawn.draw()
    assert drawn.settled[-1] == "  ✗ run 1 is parked: it kept crashing"
    assert (drawn.moving, drawn.transcript.spinning) == ([], False)


def test_reasoning_is_hidden_unless_asked_for() -> None:
    thought = (ReasoningChunk("First I th"), ReasoningChunk("ink.\nThen"), MessageChunk("Hi."), MessageStop(final=True))
    assert not any("think" in line for line in Drawn().see(*thought).settled)
    drawn = Drawn()
    drawn.transcript.reasoning = True
    drawn.see(*thought)
    assert drawn.settled[:2] == ["  First I think.", "  Then"]


def test_J111_an_approval_shows_all_that_would_run() -> None:
    command = "rm -rf ./" + "x" * 300 + "\necho done"
    asked = ApprovalAsked("apr_1", "terminal", command, "digest", reason="deletes", directory="/srv/a", session="s1")
    asked = msgspec.structs.replace(asked, asked_at=1000.0, expires_at=1060.0)
    drawn = Drawn().see(MessageChunk("I will."), asked)
    assert drawn.transcript.approval == asked
    assert "".join(line.strip() for line in drawn.settled).count("x") == 300
    assert any("echo done" in line for line in drawn.settled)
    assert any(line.strip() == "in /srv/a, session s1" for line in drawn.settled), "M152"
    assert drawn.settled[1] == "● I will."  # the message before it is closed
    drawn.see(ApprovalAnswered("apr_1", "deny", "timeout"))
    assert drawn.settled[-1] == "  ✗ nobody answered within 60 s"
    assert drawn.transcript.approval is None


def test_J110_a_question_to_somebody_else_is_shown_and_not_asked() -> None:
    drawn = Drawn().see(
        ApprovalAsked("apr_1", "terminal", "rm -rf x", "digest", requester="telegram:1", reason="deletes")
    )
    assert any("rm -rf x" in line for line in drawn.settled)
    assert drawn.transcript.approval is None


@pytest.mark.parametrize("requester", ["", "telegram:1"])
def test_the_model_is_not_said_to_think_while_somebody_is_asked(requester: str) -> None:
    drawn = Drawn()
    drawn.transcript.waiting()
    drawn.see(ApprovalAsked("apr_1", "terminal", "rm -rf x", "digest", requester=requester))
    drawn.clock.now += 24
    drawn.draw()
    assert not any("thinking" in line for line in drawn.moving)
    drawn.see(ApprovalAnswered("apr_1", "once", "cli"))
    drawn.clock.now += 24
    drawn.draw()
    assert any("thinking 48 s" in line for line in drawn.moving)


def test_an_answer_that_stands_still_is_not_said_to_be_thought_about() -> None:
    drawn = Drawn()
    drawn.transcript.waiting()
    drawn.see(MessageChunk("Here is"))
    drawn.clock.now += QUIET_S
    drawn.draw()
    assert drawn.moving == ["", "● Here is"]
    drawn.clock.now += 3
    drawn.draw()
    assert drawn.moving[-1][4:] == "no new text for 3 s"
    drawn.see(MessageChunk(" more."))
    assert drawn.moving == ["", "● Here is more."]


def test_a_run_without_an_answer_has_no_count_of_tokens() -> None:
    drawn = Drawn()
    drawn.transcript.tools.verbose = True
    drawn.transcript.waiting()
    drawn.see(done())
    assert not any("tokens" in line for line in drawn.settled)


def test_questions_of_tools_side_by_side_are_asked_one_after_the_other() -> None:
    asked = [ApprovalAsked(f"apr_{name}", "launch", f"launch {name}", "digest") for name in "abcd"]
    drawn = Drawn().see(*asked)
    assert drawn.transcript.approval == asked[0], "the menu is about the question above it"
    assert not any("launch b" in line for line in drawn.settled)
    drawn.see(ApprovalAnswered("apr_c", "deny", "timeout"), ApprovalAnswered("apr_a", "once", "cli"))
    assert drawn.transcript.approval == asked[1]
    drawn.see(ApprovalAnswered("apr_b", "deny", "cli"))
    assert drawn.transcript.approval == asked[3]
    drawn.see(ApprovalAnswered("apr_d", "once", "cli"))
    told = [line.strip() for line in drawn.settled if "wants to run" not in line]
    assert [line for line in told if line.startswith(("launch", "✓", "✗"))] == [
        *("launch a", "launch c", "✗ nobody answered in time", "✓ approved once"),
        *("launch b", "✗ denied", "launch d", "✓ approved once"),
    ]
    assert drawn.transcript.approval is None


@pytest.mark.parametrize(
    ("finished", "lines"),
    [
        (done("stopped"), ["  ◼ interrupted"]),
        (
            done("incomplete", RunFailure("cut", "the stream broke off")),
            ["  ⚠ incomplete: the stream broke off", "    /retry asks again"],
        ),
        (done("failed", RunFailure("permanent", "no\x1b[31m key")), ["  ✗ no key", "    /retry asks again"]),
    ],
)
def test_an_end_that_is_none_is_said(finished: RunFinished, lines: list[str]) -> None:
    drawn = Drawn().see(MessageChunk("Half"), finished)
    assert drawn.settled == ["", "● Half", "", *lines]


@pytest.mark.parametrize(
    ("by", "newer", "own_stop", "line"),
    [
        ("cli", False, True, "  ◼ interrupted"),
        ("cli", False, False, "  ◼ stopped by another terminal"),
        ("cli", True, False, "  ◼ interrupted by a newer message from another terminal"),
        ("telegram:7", False, False, "  ◼ stopped by telegram:7"),
        ("telegram:7", False, True, "  ◼ stopped by telegram:7"),  # it came before the stop of this terminal
        ("an\x1b[2Jn", False, False, "  ◼ stopped by ann"),
        ("", False, False, "  ◼ interrupted"),
    ],
)
def test_an_interruption_says_who_it_was_unless_it_was_the_user_here(
    by: str, newer: bool, own_stop: bool, line: str
) -> None:
    drawn = Drawn()
    drawn.transcript = Transcript(drawn.clock, requester="cli")
    drawn.transcript.own_stop = own_stop
    drawn.see(MessageChunk("Half"), done("stopped", stop_failure(stop_signal(by=by, newer=newer))))
    assert drawn.settled[-1] == line


def test_a_run_that_was_compacted_is_shown_from_its_snapshot() -> None:
    state = Snapshot(
        "completed",
        messages=(TextSoFar("Looking.", ((1, 8),), stopped=True), TextSoFar("Found it.", ((2, 9),), True, True)),
        tools=(ToolSoFar("terminal", preview="ls", ok=True, duration=0.2),),
    )
    drawn = Drawn().see(state)
    assert [line for line in drawn.settled if line] == [
        "● Looking.",
        "  ✓ terminal  ls  0.2s  #1",
        "● Found it.",
    ]


# ── what the program says, and when ──────────────────────────────────────────────────────────────────────────


def test_what_a_command_says_waits_below_the_answer_that_streams() -> None:
    drawn = Drawn().see(MessageChunk("First.\n\n```\ncode"))
    drawn.transcript.add_command("/help")
    drawn.transcript.add_notice("  /quit  leave")
    drawn.draw()
    assert drawn.settled == ["", "● First."]
    assert drawn.moving == ["", "    code", "", "❯ /help", "    /quit  leave"]
    drawn.see(MessageChunk("\n```\n\nLast."), MessageStop(final=True), done())
    assert drawn.settled == ["", "● First.", "", "    code", "", "  Last.", "", "❯ /help", "    /quit  leave"]
    assert drawn.moving == []
    drawn.transcript.add_command("/new")
    drawn.draw()
    assert drawn.settled[-1] == "❯ /new"  # without an answer at once


def test_a_long_text_that_waits_leaves_the_answer_to_be_seen() -> None:
    drawn = Drawn().see(MessageChunk("Going"))
    drawn.transcript.add_notice("\n".join(f"line {number}" for number in range(20)))
    drawn.draw()
    assert drawn.moving[:3] == ["", "● Going", "  line 0"]
    assert drawn.moving[-1] == "    … 14 more lines, below the answer when it has ended"
    drawn.see(MessageStop(final=True), done("stopped"))
    assert drawn.settled[:4] == ["", "● Going", "", "  ◼ interrupted"]  # the end of the answer first
    assert drawn.settled[-1] == "  line 19"


def test_without_streaming_the_spinner_says_that_it_writes() -> None:
    drawn = Drawn(streamed=False)
    drawn.transcript.waiting()
    drawn.see(MessageChunk("x" * 400))
    drawn.clock.now += 12
    drawn.draw()
    assert drawn.moving[1][4:] == "writing 12 s · 100 tokens"


def test_retries_are_counted_while_they_happen_and_told_when_they_failed() -> None:
    progress = CallProgress(lambda _provider: 3, lambda _failure, provider: f"look at {provider}")
    drawn = Drawn(progress=progress, width=100)
    drawn.transcript.waiting()
    drawn.see(RunStarted("agent", at=10.0), AttemptStarted("fake", "small"), AttemptDiscarded("boom"))
    assert drawn.moving[1][4:] == "thinking · boom · try 2 of 3 follows"
    drawn.see(AttemptStarted("fake", "small"), attempt=2)
    assert drawn.moving[1][4:] == "thinking · try 2 of 3"
    drawn.see(AttemptDiscarded("boom"), AttemptStarted("other", "large"), attempt=3)
    assert drawn.moving[1][4:] == "thinking · asking other/large instead"
    failure = RunFailure("retryable", "other: boom", status=500)
    drawn.see(RunFinished("failed", error=failure, at=12.1))
    assert drawn.settled == [
        "  ✗ other/large: HTTP 500 “boom”, 3 tries in 2.1 s",
        "    look at other · /retry asks again",
    ]


def test_a_turn_does_not_begin_with_why_the_one_before_failed() -> None:
    progress = CallProgress(lambda _provider: 3, lambda _failure, _provider: "")
    failed = RunFinished("failed", error=RunFailure("refused", "no images"))
    for event in (RunStarted("agent"), AttemptStarted("fake", "small"), AttemptDiscarded("no images"), failed):
        progress.note(event)
    progress.reads(0)
    assert (progress.activity, progress.status) == ("thinking", "")


# ── one tool ─────────────────────────────────────────────────────────────────────────────────────────────────


def tool(index: int, output: str, *, ok: bool = True, **recorded: Any) -> tuple[AnyEvent, ...]:
    return (
        ToolCallChunk("terminal", "make", {"command": "make"}, index=index),
        ToolOutputRecorded("c", "terminal", output, ok, **recorded),
        ToolCallFinished("terminal", 3.14, ok, index),
    )


def test_a_tool_that_failed_shows_its_exit_code_and_its_last_lines() -> None:
    output = "\n".join(f"line {number}" for number in range(9)) + "\n[exit code 2]"
    drawn = Drawn().see(*tool(0, output, ok=False))
    assert drawn.settled == [
        "  ✗ terminal  make  exit code 2  3.1s  #1",
        "      … 3 lines above · Ctrl-O shows all",
        *(f"      line {number}" for number in range(3, 9)),
    ]


def test_a_write_shows_how_many_lines_changed_and_a_short_diff() -> None:
    change = FileChange("a.py", 30, 2, "\n".join([" def f():", "-    old", *(f"+    new {n}" for n in range(9))]))
    drawn = Drawn().see(*tool(0, "Replaced a.py", change=change))
    assert drawn.settled[:4] == [
        "  ✓ terminal  make  +30 −2  3.1s  #1",
        "        def f():",
        "      -     old",
        "      +     new 0",
    ]
    assert drawn.settled[-1] == "      … 3 more lines · Ctrl-O shows all"


def test_a_denied_call_is_not_listed_as_failed_below_the_denial() -> None:
    denied = NotExecuted("terminal", "rm -rf x", "deletes; denied", "denied")
    drawn = Drawn().see(ApprovalAnswered("a", "deny", "cli"), *tool(0, "Not executed", ok=False, not_executed=denied))
    assert drawn.settled == ["  ✗ denied"]


def test_a_tool_that_was_interrupted_says_so_and_how_long_it_ran() -> None:
    assert Drawn().see(*tool(0, INTERRUPTED, ok=False)).settled == ["  ◼ terminal  make  interrupted  3.1s  #1"]


def test_a_change_in_full_is_told_once() -> None:
    change = FileChange("a.py", 1, 1, " def f():\n-    old\n+    new")
    drawn = Drawn().see(*tool(0, "a.py, from line 1:\n def f():\n-    old\n+    new", change=change))
    drawn.settled.clear()
    drawn.transcript.expand_tool()
    drawn.draw()
    assert drawn.settled[2:] == ["      a.py, from line 1", "        def f():", "      -     old", "      +     new"]


def test_an_interruption_names_its_question_where_something_was_said_since() -> None:
    drawn = Drawn()
    drawn.transcript.add_question("Why?")
    drawn.transcript.add_command("!ls")
    drawn.see(RunFinished("stopped")).draw()
    assert drawn.settled[-1] == "  ◼ interrupted: Why?"
    drawn.transcript.add_question("And now?")
    drawn.see(RunFinished("stopped")).draw()
    assert drawn.settled[-1] == "  ◼ interrupted"


def test_one_tool_is_shown_in_full_the_last_one_first() -> None:
    drawn = Drawn().see(*tool(0, "\n".join(f"line {n}" for n in range(30))), *tool(1, "short"))
    drawn.settled.clear()
    assert drawn.transcript.expand_tool()
    drawn.draw()
    assert drawn.settled == ["", "  ✓ terminal  make  3.1s  #2", "      command: make", "      short"]
    assert drawn.transcript.expand_tool()
    drawn.draw()
    assert drawn.settled[5] == "  ✓ terminal  make  3.1s  #1"
    assert drawn.settled[-1] == "      line 29"
    assert not drawn.transcript.expand_tool()
    assert drawn.transcript.expand_tool(2)
    assert not drawn.transcript.expand_tool(3)


# ── Markdown of models ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (r"So \[ \int_0^1 \, x*y*z \] and \(a_1\).", [r"● So \[ \int_0^1 \, x*y*z \] and \(a_1\)."]),
        ("$$a*b*c$$, $x_1*y*z$, $5 and *$6*", ["● $$a*b*c$$, $x_1*y*z$, $5 and $6"]),
        ("![a mill](http://x/y.png)", ["● [image: a mill] (http://x/y.png)"]),
        ("- [ ] one\n- [x] two", ["●  • ☐ one", "   • ☑ two"]),
        ("```python\nx = 1\n```", ["●   python", "    x = 1"]),
    ],
)
def test_models_write_more_than_markdown(text: str, lines: list[str]) -> None:
    assert Drawn().see(MessageChunk(text), MessageStop(final=True)).settled == ["", *lines]


def test_math_without_an_end_costs_linear_time() -> None:
    text = r"\( \[ $$ $x " * 20_000
    assert len(tokens_of(text)) == 3


def test_a_line_of_code_that_folds_keeps_its_indentation() -> None:
    code = "```\ndef f():\n    return " + " + ".join(["value"] * 12) + "\n```"
    drawn = Drawn(width=50).see(MessageChunk(code), MessageStop(final=True))
    assert drawn.settled[1:3] == ["●   def f():", "        return value + value + value + value +"]
    assert all(line.startswith("          value") for line in drawn.settled[3:])


def test_no_line_is_as_wide_as_the_window() -> None:
    """A window that gets narrower folds what is as wide as it was."""
    drawn = Drawn(width=60).see(MessageChunk("word " * 40), MessageStop(), *tool(0, "x" * 300, ok=False), done())
    assert max(map(len, drawn.settled)) < 60
