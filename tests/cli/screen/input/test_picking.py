"""Picking from a list with the arrows, through the real key bindings: commands as they are typed, and a question."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import pytest
from prompt_toolkit.application.current import set_app
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

from cli.screen.drawn_text import Clock
from tailrace.cli.screen.input.choice_list import Choice, ChoiceList
from tailrace.cli.screen.input.input_line import Completion, TypedLine
from tailrace.cli.screen.painter import Painter
from tailrace.cli.screen.screen import TerminalScreen
from tailrace.cli.screen.transcript import Transcript
from tailrace.events import Decision

UP, DOWN, LEFT, ESCAPE, TAB = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b", "\t"
COMMANDS = [
    Choice("/resume", "/resume", "continue an earlier session", takes_more=True),
    Choice("/retry", "/retry", "ask the last question again"),
    Choice("/stop", "/stop", "stop the answer"),
]

FILES = ["@notes.md", "@src/", "@src/notes.py"]


class User:
    """Satisfies `ScreenListener`."""

    def __init__(self, screen: TerminalScreen | None = None) -> None:
        self.lines: list[str] = []
        self.escapes = 0
        self.escaped_once = asyncio.Event()
        self._screen = screen

    def see(self, screen: TerminalScreen) -> None:
        self._screen = screen

    @property
    def screen(self) -> TerminalScreen:
        assert self._screen is not None
        return self._screen

    def entered(self, line: TypedLine) -> None:
        self.lines.append(line.text)

    def interrupted(self) -> None: ...

    def leave(self) -> None: ...

    def escaped(self) -> None:
        self.escapes += 1
        self.escaped_once.set()

    def approval_answered(self, decision: Decision, reason: str) -> None: ...

    def expand_tool(self) -> None: ...

    def status(self, _width: int) -> list[tuple[str, str]]:
        return []

    def types(self, *sequences: str) -> None:
        for sequence in sequences:
            keys: list[KeyPress] = []
            parser = Vt100Parser(keys.append)
            parser.feed(sequence)
            parser.flush()
            with set_app(self.screen.app):
                self.screen.app.key_processor.feed_multiple(keys)
                self.screen.app.key_processor.process_keys()


@pytest.fixture
async def person() -> AsyncIterator[User]:
    with create_pipe_input() as source:
        user = User()
        screen = TerminalScreen(
            Transcript(Clock()),
            Painter(),
            user,
            source=source,
            target=io.StringIO(),
            history=InMemoryHistory(["earlier"]),
            completion=Completion(COMMANDS, lambda word: [name for name in FILES if name.startswith(word)]),
            environment={"TERM": "linux"}.get,
        )
        user.see(screen)
        yield user
        await screen.app.cancel_and_wait_for_background_tasks()


async def test_the_arrows_pick_a_command_and_enter_runs_it(person: User) -> None:
    person.types("/re", DOWN, DOWN, "\r")
    assert (person.lines, person.screen.typed) == (["/retry"], "")


async def test_a_picked_command_that_takes_more_waits_for_it(person: User) -> None:
    person.types("/", UP, DOWN, "\r")
    assert (person.lines, person.screen.typed) == ([], "/resume ")


async def test_tab_completes_the_marked_command(person: User) -> None:
    person.types("/re", UP, TAB)
    assert person.screen.typed == "/retry "


async def test_the_arrows_pick_a_file_for_the_last_word(person: User) -> None:
    person.types("Compare @", DOWN, "\r")
    assert (person.lines, person.screen.typed) == ([], "Compare @notes.md ")
    person.types("and @s", DOWN, "\r")
    assert person.screen.typed == "Compare @notes.md and @src/"
    person.types("n", TAB, "\r")
    assert person.lines == ["Compare @notes.md and @src/notes.py "]


@pytest.mark.parametrize(
    ("keys", "line"),
    [(("/sto", LEFT, TAB), "/sto"), (("See @s", LEFT, TAB), "See @s"), (("See @ b", LEFT, LEFT, "s", TAB), "See @s b")],
)
async def test_nothing_is_completed_inside_the_line(person: User, keys: tuple[str, ...], line: str) -> None:
    person.types(*keys)
    assert person.screen.typed == line
    person.types("\x05", DOWN, "\r")  # at its end no old list is left to pick from
    assert person.lines == [line]


@pytest.mark.parametrize("line", ["/yol", "/stop", "/re", "no command"])
async def test_enter_sends_what_was_typed_where_no_arrow_was_used(person: User, line: str) -> None:
    person.types(line, "\r")
    assert person.lines == [line]


async def test_the_arrows_look_through_the_history_where_there_is_no_list(person: User) -> None:
    person.types(UP)
    await person.screen.app.cancel_and_wait_for_background_tasks()
    person.types("x", "\x15", "hello", "\r")
    assert person.lines == ["hello"]


async def test_a_question_is_answered_by_the_marked_choice(person: User) -> None:
    asked = asyncio.create_task(person.screen.choose([Choice("a", "First"), Choice("b", "Second")]))
    await asyncio.sleep(0)
    person.types("typed in vain", DOWN, "\r")
    assert await asked == "b"
    assert (person.lines, person.screen.typed) == ([], "")
    person.types("hello\r")
    assert person.lines == ["hello"]


async def test_escape_leaves_the_question_and_stops_nothing(person: User) -> None:
    asked = asyncio.create_task(person.screen.choose([Choice("a", "First")]))
    await asyncio.sleep(0)
    person.types(ESCAPE)
    assert (await asked, person.escapes) == (None, 0)
    person.types(ESCAPE)
    await person.escaped_once.wait()


async def test_escape_closes_the_list_of_commands_before_it_stops_anything(person: User) -> None:
    person.types("/re", ESCAPE, ESCAPE)
    await person.escaped_once.wait()
    assert person.escapes == 1
    person.types(DOWN, "\r")
    assert person.lines == ["/re"]


@pytest.mark.parametrize("width", [20, 60, 200])
def test_the_marked_choice_is_always_shown_and_every_row_fits(width: int) -> None:
    choices = ChoiceList()
    choices.offer([Choice(str(n), f"label {n}", "about it " * 30) for n in range(40)])
    for _ in range(45):
        choices.move(1)
        rows = choices.rows(width, 5)
        assert len(rows) == 5
        assert sum(row[0][1].startswith("❯ ") for row in rows) == 1
        assert all(len("".join(text for _, text in row)) <= width for row in rows)
