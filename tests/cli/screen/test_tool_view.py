"""The tools of a run as they are drawn: one line for each when it has ended, and one in full when asked for."""

from __future__ import annotations

from cli.screen.drawn_text import Drawn, tool
from tailrace.agent.turn import INTERRUPTED
from tailrace.events import ApprovalAnswered, NotExecuted, ToolCallChunk, ToolCallFinished, ToolOutputRecorded
from tailrace.messages import FileChange, ToolFile


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
        ToolCallChunk("draw", "half \x1b[31mdone", index=0),
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


def test_what_the_rules_forbid_is_told() -> None:
    action = NotExecuted("terminal", "rm -rf /", "deletes the file system", "forbidden")
    drawn = Drawn().see(
        ToolCallChunk("terminal", "rm -rf /", index=0),
        ToolOutputRecorded("c", "terminal", "Refused", ok=False, not_executed=action),
    )
    drawn.see(ToolCallFinished("terminal", 0.0, ok=False, index=0))
    assert drawn.settled == ["  ✗ not executed: rm -rf / (deletes the file system)"]


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
