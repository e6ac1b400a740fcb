"""A run as a host is shown it, without a host: pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailrace.events import (
    AnyEvent,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalSoFar,
    AttemptDiscarded,
    AttemptStarted,
    Commentary,
    Entry,
    LongToolHint,
    MessageChunk,
    MessageStop,
    ReasoningChunk,
    RunFinished,
    RunStarted,
    Snapshot,
    TextSoFar,
    ToolCallChunk,
    ToolCallFinished,
)
from tailrace.integrations.mcp_server.host_view import LINE_CHARS, HostView

ASKED = ApprovalAsked("a1", "terminal", "rm x", "d", requester="mcp")
EVENTS: tuple[AnyEvent, ...] = (
    RunStarted("agent"),
    AttemptStarted("up", "m"),
    MessageChunk("Let me "),
    MessageChunk("look."),
    MessageStop(),
    ToolCallChunk("terminal", "ls", {}, 0),
    LongToolHint("terminal", 31.0),
    ToolCallChunk("terminal", "half of it", index=0),
    ToolCallFinished("terminal", 1.0, True, 0),
    ReasoningChunk("secret"),
    Commentary("Meanwhile."),
    ASKED,
    ApprovalAnswered("a1", "once", "mcp"),
    AttemptDiscarded(),
)
steps = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(1, 3)), max_size=30)


def log_of(*events: AnyEvent | tuple[AnyEvent, int]) -> list[Entry]:
    pairs = [event if isinstance(event, tuple) else (event, 1) for event in events]
    return [Entry(seq, event, attempt) for seq, (event, attempt) in enumerate(pairs, 1)]


def shown(view: HostView) -> tuple[object, ...]:
    return view.seq, view.line, view.text, view.text_since(), dict(view.waiting), view.has_ended


def viewed(batches: Sequence[Sequence[Entry]], after: int = 0) -> HostView:
    view = HostView(after)
    for batch in batches:
        view.feed(batch)
    return view


@given(steps, st.lists(st.integers(0, 30)), st.integers(0, 30))
def test_any_cut_of_the_log_gives_the_same(made: list[tuple[AnyEvent, int]], cuts: list[int], after: int) -> None:
    log = log_of(*made)
    places = sorted({0, len(log), *(cut for cut in cuts if cut <= len(log))})
    batches = [log[start:end] for start, end in pairwise(places)]
    assert shown(viewed(batches, after)) == shown(viewed([log], after))


@given(steps, st.integers(0, 30))
def test_what_a_host_has_and_what_it_is_given_is_the_text(made: list[tuple[AnyEvent, int]], after: int) -> None:
    """Whatever attempt was withdrawn: nothing is lost, nothing is doubled."""
    log = log_of(*made)
    had = viewed([log[:after]]).text
    view = viewed([log], after)
    text, replaces = view.text_since()
    assert (text if replaces else had + text) == view.text


def test_the_line_says_what_happens_now() -> None:
    lines = []
    view = HostView()
    for entry in log_of(*EVENTS, RunFinished("completed")):
        view.feed([entry])
        lines.append(view.line)
    assert lines == [
        "started",
        "waiting for up/m",
        "Let me",
        "Let me look.",
        "",
        "terminal: ls",
        "terminal has been running for 31 s",
        "half of it",
        "terminal is done",
        "thinking",
        "Meanwhile.",
        "waiting for an approval: rm x",
        "approval: approved once",
        "approval: approved once",
        "completed",
    ]
    assert not any("secret" in line for line in lines)


def test_the_line_says_why_a_model_is_asked_once_more() -> None:
    again = AttemptStarted("up", "m", previous_failure="overloaded")
    assert viewed([log_of(AttemptStarted("up", "m"), (again, 2))]).line == "waiting for up/m once more: overloaded"


def test_a_long_line_is_its_end_and_moves_no_cursor() -> None:
    line = viewed([log_of(MessageChunk("first " * 1000 + "\x1b[2J\r\nlast"))]).line
    assert (len(line), line[0]) == (LINE_CHARS, "…")
    assert line.endswith("first [2J last")


def test_a_compacted_log_gives_the_whole_text_once_more() -> None:
    state = Snapshot(messages=(TextSoFar("All of it.", ((1, 10),), stopped=True, final=True),), status="completed")
    assert viewed([[Entry(9, state)]], after=4).text_since() == ("All of it.", True)
    assert viewed([[Entry(9, state)]], after=9).text_since() == ("", False)
    assert viewed([[Entry(9, state)]]).text_since() == ("All of it.", False)


def test_a_snapshot_brings_its_open_questions() -> None:
    state = Snapshot(approvals=(ApprovalSoFar(ASKED), ApprovalSoFar(ApprovalAsked("a0", "t", "x", "d"), "deny")))
    assert viewed([[Entry(5, state)]]).waiting == {"a1": ASKED}
