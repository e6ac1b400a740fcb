"""The line that is typed: what a long paste becomes."""

from __future__ import annotations

from prompt_toolkit.history import History, InMemoryHistory

from cli.screen.drawn_text import Clock
from tailrace.cli.screen.input.approval_menu import ApprovalMenu
from tailrace.cli.screen.input.input_line import Completion, InputLine, TypedLine
from tailrace.events import Decision


class Listener:
    """Keeps what was entered."""

    def __init__(self) -> None:
        self.lines: list[TypedLine] = []

    def entered(self, line: TypedLine) -> None:
        self.lines.append(line)

    def interrupted(self) -> None: ...

    def leave(self) -> None: ...

    def escaped(self) -> None: ...

    def approval_answered(self, decision: Decision, reason: str) -> None: ...

    def expand_tool(self) -> None: ...


def input_line(history: History) -> InputLine:
    menu = ApprovalMenu(Clock(), 60)
    return InputLine(Listener(), menu, history=history, completion=Completion((), lambda _: []))


def test_a_long_paste_is_folded_and_sent_whole() -> None:
    line = input_line(InMemoryHistory())
    text = "\n".join(f"line {number}" for number in range(200))
    other = text.replace("line", "row")
    assert line._folded("two\nlines") == "two\nlines"
    folded = f"Read {line._folded(text)} and {line._folded(other)} and {line._folded(text)}"
    assert folded == "Read [200 lines pasted] and [200 lines pasted, 2] and [200 lines pasted]"
    assert line._texts.unfolded(folded) == f"Read {text} and {other} and {text}"


def test_a_paste_that_holds_the_mark_of_another_one_is_sent_as_it_is() -> None:
    line = input_line(InMemoryHistory())
    copied = "\n".join(["> [6 lines pasted]"] * 7)
    assert line._texts.unfolded(line._folded("a\n" * 6) + line._folded(copied)) == "a\n" * 6 + copied
