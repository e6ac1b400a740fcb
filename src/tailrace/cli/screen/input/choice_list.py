"""A list to pick from, below the input line: the commands that what is typed may become, or what a command asks.

Pure: choices and keys in, rows out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tailrace.cli.screen.fitted_table import padded

MAX_ROWS: Final = 8
GAP: Final = "  "
QUIET: Final = "fg:ansibrightblack"


class Choice(NamedTuple):
    """`about` stands beside the label. `takes_more`: a command that goes on with an argument."""

    value: str
    label: str
    about: str = ""
    takes_more: bool = False


class ChoiceList:
    """One choice is marked; the arrows move the mark."""

    def __init__(self) -> None:
        self.choices: Sequence[Choice] = ()
        self.was_moved = False  # by an arrow: Enter takes the marked choice, not what is typed
        self._at = 0
        self._answer: Callable[[str | None], None] | None = None

    @property
    def is_question(self) -> bool:
        """Whether a command waits for the answer: every key belongs to the list."""
        return self._answer is not None

    @property
    def marked(self) -> Choice:
        return self.choices[self._at]

    def offer(self, choices: Sequence[Choice]) -> None:
        """These are what the typed text may become. A question stays."""
        if not self.is_question and choices != self.choices:
            self.choices, self._at, self.was_moved = choices, 0, False

    def ask(self, choices: Sequence[Choice], answer: Callable[[str | None], None]) -> None:
        """`answer` is called once, with the value that was picked, or with None."""
        self.choices, self._at, self._answer = choices, 0, answer

    def settle(self, value: str | None) -> None:
        answer = self._answer
        self.drop()
        if answer is not None:
            answer(value)

    def drop(self) -> None:
        """Withdraws the question."""
        self.choices, self._answer, self.was_moved = (), None, False

    def move(self, step: int) -> None:
        if self.is_question or self.was_moved:
            self._at = (self._at + step) % len(self.choices)
        else:  # nothing was marked: the first arrow marks the first one, or the last
            self._at = min(step, 0) % len(self.choices)
        self.was_moved = True

    def rows(self, width: int, most: int = MAX_ROWS) -> list[list[tuple[str, str]]]:
        """As many as there is room for, the marked one among them."""
        room = max(1, min(most, MAX_ROWS))
        first = max(0, min(self._at - room // 2, len(self.choices) - room))
        widest = min(max((len(each.label) for each in self.choices), default=0), width // 2)
        return [
            self._row(number, choice, widest, width)
            for number, choice in enumerate(self.choices[first : first + room], first)
        ]

    def _row(self, number: int, choice: Choice, widest: int, width: int) -> list[tuple[str, str]]:
        is_marked = number == self._at and (self.was_moved or self.is_question)
        label = f"{'❯ ' if is_marked else GAP}{padded(choice.label, widest)}"
        about = padded(choice.about, max(0, width - len(GAP) * 2 - widest)).rstrip()
        return [("fg:ansicyan bold" if is_marked else "", label), (QUIET, f"{GAP}{about}")]
