"""What is drawn of a run: settled once, in order, the same whether it streamed or not."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from bench.render import answer, chunks_of, drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.screen.markdown_documents import documents
from tailrace.cli.screen.painter import Painter, Piece
from tailrace.cli.screen.transcript import QUIET_S, Transcript
from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    AttemptDiscarded,
    Commentary,
    Entry,
    GatewayNotice,
    MessageChunk,
    MessageStop,
    NotExecuted,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    Snapshot,
    TextSoFar,
    ToolCallChunk,
    ToolCallFinished,
    ToolOutputRecorded,
    ToolSoFar,
)
from tailrace.messages import ToolFile

WIDTH = 60
TOP = "╭─ tailrace "


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Drawn:
    """A transcript and everything it has settled, as text."""

    def __init__(self, *, streamed: bool = True, width: int = WIDTH) -> None:
        self.clock = Clock()
        self.transcript = Transcript(self.clock, streamed=streamed)
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


def test_streaming_off_shows_nothing_until_the_message_is_whole() -> None:
    drawn = Drawn(streamed=False).see(MessageChunk("One.\n\nTwo.\n\n"), MessageChunk("Three."))
    assert (drawn.settled, drawn.moving) == ([], [])
    drawn.see(MessageStop(final=True))
    assert [line.strip() for line in drawn.settled[2:-1]] == ["One.", "", "Two.", "", "Three."]


def test_borders_come_once_for_each_message() -> None:
    drawn = Drawn().see(
        MessageChunk("Let me "),
        MessageChunk("look.\n\nNow."),
        MessageStop(),
        ToolCallChunk("terminal", "ls", index=0),
        ToolCallFinished("terminal", 0.5, index=0),
        Commentary("Whole."),
        MessageChunk("\n\n"),  # nothing to see: no box
        MessageStop(),
        MessageChunk("Done."),
        MessageStop(final=True),
        done(),
    )
    assert sum(line.startswith(TOP) for line in drawn.settled) == 3
    assert sum(line.startswith("╰") for line in drawn.settled) == 3
    assert "  ✓ terminal  ls  0.5s" in drawn.settled


def test_only_the_open_block_moves() -> None:
    drawn = Drawn().see(MessageChunk("First.\n\nSecond **par"))
    assert [line.strip() for line in drawn.settled[2:]] == ["First."]
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
    assert "  <details> more" in drawn.settled
    assert "  good (http://evil.example)" in drawn.settled


def test_J122_escapes_are_cleaned_across_chunks() -> None:
    drawn = Drawn().see(MessageChunk("a\x1b]52;c;"), MessageChunk("cHduZWQ=\x07b"), MessageStop(final=True))
    assert "  ab" in drawn.settled


def test_a_withdrawn_attempt_starts_the_message_over() -> None:
    drawn = Drawn().see(MessageChunk("Kept. "), attempt=1).see(MessageChunk("Wrong.\n\nMore"), attempt=2)
    drawn.see(AttemptDiscarded("cut"), attempt=2).see(MessageChunk("Right."), MessageStop(final=True), attempt=3)
    assert "  the answer was withdrawn; it starts over" in drawn.settled
    assert drawn.settled[-2] == "  Kept. Right."
    assert (
        sum(line.startswith(TOP) for line in drawn.settled) == sum(line.startswith("╰") for line in drawn.settled) == 2
    )


def test_drawing_2000_chunks_takes_less_than_a_second() -> None:
    """Rendering everything at each chunk takes 30 to 50 seconds."""
    assert min(drawn(chunks_of(answer(10_000), 2000)) for _ in range(2)) < 1.0


# ── what else there is ───────────────────────────────────────────────────────────────────────────────────────


def test_a_spinner_while_nothing_comes_and_the_notice_on_a_stall() -> None:
    drawn = Drawn(width=100)
    drawn.transcript.waiting()
    drawn.draw()
    assert drawn.moving == []  # an answer that comes at once shows none
    drawn.clock.now += QUIET_S
    drawn.draw()
    assert drawn.moving[0].endswith(" thinking")
    drawn.clock.now += 5
    drawn.see(GatewayNotice("stalled", "⚠️ No response from provider for 240s … Reconnecting…"))
    assert drawn.settled == ["  ⚠️ No response from provider for 240s … Reconnecting…"]
    assert drawn.moving[0].endswith("Reconnecting… 5s")
    drawn.see(MessageChunk("Here."))
    assert drawn.moving == ["  Here."]
    drawn.see(MessageStop(final=True), done())
    assert not drawn.transcript.spinning


def test_tools_settle_with_their_outcome() -> None:
    drawn = Drawn().see(
        ToolCallChunk("terminal", "make\n all", index=0), ToolCallChunk("read_file", "x" * 200, index=1)
    )
    drawn.clock.now += 1.5
    drawn.draw()
    assert drawn.moving[0][4:].split() == ["terminal", "make", "all", "1.5s"]
    drawn.see(ToolCallFinished("read_file", 0.1, ok=False, index=1), ToolCallFinished("terminal", 2.0, index=0))
    assert drawn.settled[0].startswith("  ✗ read_file  xxx")
    assert drawn.settled[0].endswith("…  0.1s")
    assert drawn.settled[1] == "  ✓ terminal  make all  2.0s"
    assert drawn.moving == []


def test_what_tools_print_is_shown_when_asked_for() -> None:
    drawn = Drawn()
    events = (
        ToolCallChunk("terminal", "ls", index=0),
        ToolOutputRecorded("c", "terminal", "\n".join(f"line {number}" for number in range(50))),
        ToolCallFinished("terminal", 0.1, index=0),
    )
    assert len(drawn.see(*events).settled) == 1
    drawn.transcript.verbose = True
    drawn.see(*events)
    assert drawn.settled[-1] == "    … 30 more lines"


def test_a_tool_in_full_shows_arguments_progress_output_and_files() -> None:
    drawn = Drawn()
    drawn.transcript.verbose = True
    drawn.see(
        ToolCallChunk("draw", "mill", {"what": "mill", "how": "one\ntwo", "size": 3}, index=0),
        GatewayNotice("tool_progress", "half \x1b[31mdone", {"tool_name": "draw"}),
        ToolOutputRecorded("c", "draw", "drawn", files=(ToolFile("mill.png", "image/png", b"1234"),)),
        ToolCallFinished("draw", 0.1, index=0),
    )
    assert drawn.settled == [
        "    … half done",
        "  ✓ draw  mill  0.1s",
        "    what: mill",
        "    how: one",
        "      two",
        "    size: 3",
        "    drawn",
        "    [mill.png: image/png, 4 bytes]",
    ]


def test_only_new_tools_get_a_line_when_asked_for() -> None:
    drawn = Drawn()
    drawn.transcript.only_new_tools = True
    calls = [("read_file", True), ("read_file", True), ("read_file", False), ("terminal", True), ("terminal", True)]
    for index, (name, ok) in enumerate(calls):
        drawn.see(ToolCallChunk(name, f"{index}", index=index), ToolCallFinished(name, 0.1, ok, index))
    assert [line.split() for line in drawn.settled] == [
        ["✓", "read_file", "0", "0.1s"],
        ["✗", "read_file", "2", "0.1s"],
        ["✓", "terminal", "3", "0.1s"],
    ]


def test_what_the_rules_forbid_is_told() -> None:
    action = NotExecuted("terminal", "rm -rf /", "deletes the file system", "forbidden")
    drawn = Drawn().see(
        ToolCallChunk("terminal", "rm -rf /", index=0),
        ToolOutputRecorded("c", "terminal", "Refused", ok=False, not_executed=action),
    )
    assert drawn.settled == ["  not executed: rm -rf / (deletes the file system)"]


def test_I102_nothing_is_waited_for_after_giving_up() -> None:
    drawn = Drawn()
    drawn.transcript.add_question("Go.")
    drawn.see(MessageChunk("I will."), ToolCallChunk("terminal", "make", index=0))
    drawn.transcript.give_up("run 1 is parked: it kept crashing")
    drawn.draw()
    assert drawn.settled[-1] == "  error: run 1 is parked: it kept crashing"
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
    assert any(line.startswith("╰") for line in drawn.settled)  # the message before it is closed
    drawn.see(ApprovalAnswered("apr_1", "deny", "timeout"))
    assert drawn.settled[-1] == "  ✗ nobody answered within 60 s"
    assert drawn.transcript.approval is None


def test_J110_a_question_to_somebody_else_is_shown_and_not_asked() -> None:
    drawn = Drawn().see(
        ApprovalAsked("apr_1", "terminal", "rm -rf x", "digest", requester="telegram:1", reason="deletes")
    )
    assert any("rm -rf x" in line for line in drawn.settled)
    assert drawn.transcript.approval is None


@pytest.mark.parametrize(
    ("finished", "line"),
    [
        (done("stopped"), "  interrupted"),
        (done("incomplete", RunFailure("cut", "the stream broke off")), "  incomplete: the stream broke off"),
        (done("failed", RunFailure("permanent", "no\x1b[31m key")), "  error: no key"),
    ],
)
def test_an_end_that_is_none_is_said(finished: RunFinished, line: str) -> None:
    drawn = Drawn().see(MessageChunk("Half"), finished)
    assert drawn.settled[-1] == line
    assert drawn.settled[-2].startswith("╰")


def test_a_run_that_was_compacted_is_shown_from_its_snapshot() -> None:
    state = Snapshot(
        "completed",
        messages=(TextSoFar("Looking.", ((1, 8),), stopped=True), TextSoFar("Found it.", ((2, 9),), True, True)),
        tools=(ToolSoFar("terminal", preview="ls", ok=True, duration=0.2),),
    )
    drawn = Drawn().see(state)
    assert [line for line in drawn.settled if line.startswith("  ")] == [
        "  Looking.",
        "  ✓ terminal  ls  0.2s",
        "  Found it.",
    ]
