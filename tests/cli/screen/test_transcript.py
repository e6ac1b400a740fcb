"""Messages, questions and the end of a run, as drawn: settled once, in order, the same whether it streamed or not."""

from __future__ import annotations

import msgspec
import pytest
from bench.render import answer, chunks_of, drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.screen.drawn_text import Drawn, done, tool
from cli.screen.markdown_documents import documents
from properties import examples
from tailrace.agent.safety.approval import CHANGES
from tailrace.cli.screen.painter import tokens_of
from tailrace.cli.screen.transcript import Transcript
from tailrace.events import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    MessageChunk,
    MessageStop,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    Snapshot,
    TextSoFar,
    ToolCallChunk,
    ToolCallFinished,
    ToolSoFar,
)
from tailrace.runs.signals import stop_failure, stop_signal

MARK = "● "


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=examples(60))
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
    assert any(line.strip() == "in /srv/a" for line in drawn.settled), "M152"
    assert drawn.settled[1] == "● I will."  # the message before it is closed
    drawn.see(ApprovalAnswered("apr_1", "deny", "timeout"))
    assert drawn.settled[-1] == "  ✗ no answer came within 60 s"
    assert drawn.transcript.approval is None


def test_J111_an_edit_is_asked_about_line_by_line() -> None:
    diff = "notes.txt (+1 −1)\n one\n-two\n+second"
    asked = ApprovalAsked("apr_1", "write_file", diff, "digest", reason=CHANGES, directory="/srv/a")
    drawn = Drawn().see(asked)
    assert drawn.settled[-8:] == [
        "  write_file wants to change a file:",
        "",
        "    notes.txt (+1 −1)",
        "     one",
        "    -two",
        "    +second",
        "",
        "  in /srv/a",
    ]


def test_J110_a_question_to_somebody_else_is_shown_and_not_asked() -> None:
    asked = ApprovalAsked("apr_1", "terminal", "rm -rf x", "digest", requester="telegram:1", reason="deletes")
    drawn = Drawn().see(msgspec.structs.replace(asked, directory="/srv/a", session="s1"))
    assert any(line.strip() == "in /srv/a, for telegram:1, session s1" for line in drawn.settled), "M152"
    assert any("rm -rf x" in line for line in drawn.settled)
    assert drawn.transcript.approval is None


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
        *("launch a", "launch c", "✗ no answer came in time", "✓ approved once"),
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
    assert [line for line in drawn.settled if line] == ["● Looking.", "  ✓ terminal  ls  0.2s  #1", "● Found it."]


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


def test_an_interruption_names_its_question_where_something_was_said_since() -> None:
    drawn = Drawn()
    drawn.transcript.add_question("Why?")
    drawn.transcript.add_command("!ls")
    drawn.see(RunFinished("stopped")).draw()
    assert drawn.settled[-1] == "  ◼ interrupted: Why?"
    drawn.transcript.add_question("And now?")
    drawn.see(RunFinished("stopped")).draw()
    assert drawn.settled[-1] == "  ◼ interrupted"


# ── Markdown of models ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (r"So \[ \int_0^1 \, x*y*z \] and \(a_1\).", ["● So ∫₀¹ x*y*z and a₁."]),
        ("$$a*b*c$$, $x_1*y*z$, $5 and *$6*", ["● a*b*c, x₁*y*z, $5 and $6"]),
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


# ── the box of an answer ─────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_stands_between_borders_with_name_model_and_time() -> None:
    drawn = Drawn(with_borders=True, width=40)
    drawn.transcript.add_question("Why?")
    drawn.see(AttemptStarted("faulty", "ok"), MessageChunk("Because."))
    assert drawn.moving[:3] == ["", "╭─ tailrace · faulty/ok ───────────────", "● Because."]
    drawn.clock.now += 3.2
    drawn.see(MessageChunk("\n\nAnd so on."), MessageStop(final=True), done())
    assert [line for line in drawn.settled if line][1:] == [
        "╭─ tailrace · faulty/ok ───────────────",
        "● Because.",
        "  And so on.",
        "╰─ 3.2s ───────────────────────────────",
    ]


@pytest.mark.parametrize("width", [20, 60, 300])
def test_a_border_is_narrower_than_the_window(width: int) -> None:
    drawn = Drawn(with_borders=True, width=width)
    drawn.see(AttemptStarted("faulty", "a-model-" * 9), MessageChunk("Hi."), MessageStop(final=True), done())
    borders = [line for line in drawn.settled if line[:1] in {"╭", "╰"}]
    assert [border[0] for border in borders] == ["╭", "╰"]
    assert all(len(border) < width for border in borders)


def test_what_happened_before_has_no_time() -> None:
    drawn = Drawn(with_borders=True, width=20)
    drawn.transcript.timed = False
    drawn.see(MessageChunk("Hi."), MessageStop(final=True), done())
    assert drawn.settled[-1] == "╰──────────────────"
