"""Keys just before, during and after an approval, through the real key bindings: none of a message is lost, and none
that was meant for the question is sent."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import pytest
from prompt_toolkit.application.current import set_app
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress

from cli.screen.drawn_text import Clock, done
from tailrace.cli.screen.input.approval_menu import ARMED_AFTER_S, OWN_WORD_S
from tailrace.cli.screen.input.input_line import Completion, TypedLine
from tailrace.cli.screen.painter import Painter
from tailrace.cli.screen.screen import TerminalScreen
from tailrace.cli.screen.transcript import Transcript
from tailrace.events import AnyEvent, ApprovalAnswered, ApprovalAsked, Decision, Entry

BACKSPACE, CTRL_C, ESCAPE = "\x7f", "\x03", "\x1b"
FAST_S = 0.08  # between two keys


class Typist:
    """A user at a terminal. Satisfies `ScreenListener`."""

    def __init__(self, source: PipeInput) -> None:
        self.clock = Clock()
        self.entered_lines: list[str] = []
        self.answers: list[tuple[Decision, str]] = []
        self.transcript = Transcript(self.clock)
        self.screen = TerminalScreen(
            self.transcript,
            Painter(),
            self,
            source=source,
            target=io.StringIO(),
            history=InMemoryHistory(),
            completion=Completion((), lambda _: []),
            environment={"TERM": "linux"}.get,
        )

    def entered(self, line: TypedLine) -> None:
        self.entered_lines.append(line.text)

    def interrupted(self) -> None:
        self.happens(done("stopped"))

    def leave(self) -> None: ...

    def escaped(self) -> None:
        self.happens(done("stopped"))

    def approval_answered(self, decision: Decision, reason: str) -> None:
        self.answers.append((decision, reason))

    def expand_tool(self) -> None: ...

    def status(self, _width: int) -> list[tuple[str, str]]:
        return []

    def happens(self, *events: AnyEvent) -> None:
        """Nothing of it is drawn yet."""
        for event in events:
            self.transcript.apply(Entry(1, event))

    def asked(self, approval_id: str = "a") -> None:
        self.happens(ApprovalAsked(approval_id, "terminal", "rm -rf x", "d"))

    def answered_elsewhere(self, approval_id: str = "a") -> None:
        self.happens(ApprovalAnswered(approval_id, "deny", "bob"))

    def draws(self) -> None:
        self.screen.draw()
        self.transcript.menu.was_drawn()  # as a draw of a running application says

    def waits(self, seconds: float) -> None:
        self.clock.now += seconds

    def can_answer(self) -> None:
        self.asked()
        self.draws()
        self.waits(ARMED_AFTER_S)
        self.draws()

    def types(self, text: str, pause_s: float = FAST_S) -> None:
        for char in text:
            self.presses(char)
            self.waits(pause_s)

    def presses(self, sequence: str) -> None:
        """One key, as the terminal sends it."""
        keys: list[KeyPress] = []
        parser = Vt100Parser(keys.append)
        parser.feed(sequence)
        parser.flush()
        with set_app(self.screen.app):
            self.screen.app.key_processor.feed_multiple(keys)
            self.screen.app.key_processor.process_keys()

    def pastes(self, text: str) -> None:
        self.presses(f"\x1b[200~{text}\x1b[201~")


@pytest.fixture
async def typist() -> AsyncIterator[Typist]:
    with create_pipe_input() as source:
        typist = Typist(source)
        yield typist
        await typist.screen.app.cancel_and_wait_for_background_tasks()


# ── what is no part of a message ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("word", ["deny\r", "DENY\r", "d"])
async def test_the_rest_of_an_answer_begins_no_message(typist: Typist, word: str) -> None:
    typist.can_answer()
    typist.types(word[0])
    typist.happens(ApprovalAnswered("a", "deny"))
    typist.types(word[1:])
    typist.draws()
    typist.types("hello\r")
    assert (typist.entered_lines, typist.answers) == (["hello"], [("deny", "")])


async def test_a_key_for_one_question_is_no_answer_to_the_next(typist: Typist) -> None:
    typist.can_answer()
    typist.asked("b")
    typist.answered_elsewhere("a")
    typist.types("d")
    typist.draws()
    assert typist.answers == []


@pytest.mark.parametrize("can_answer", [True, False])
async def test_escape_stops_the_turn_once_keys_count(typist: Typist, can_answer: bool) -> None:
    if can_answer:
        typist.can_answer()
    else:
        typist.asked()
        typist.draws()
    typist.types(f"{ESCAPE}x")  # a sequence of keys may begin with Esc: it counts with the next key
    assert (typist.transcript.approval is None) == can_answer
    assert typist.answers == []


# ── what is ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("message", ["do it now", "what about x", "send it"])
async def test_the_message_after_a_stopped_run_is_whole(typist: Typist, message: str) -> None:
    typist.can_answer()
    typist.presses(CTRL_C)
    typist.draws()
    typist.types(message)
    assert typist.screen.typed == message


async def test_a_message_that_begins_when_the_question_is_seen_to_be_gone_is_whole(typist: Typist) -> None:
    typist.can_answer()
    typist.answered_elsewhere()
    typist.draws()
    typist.types("do it\r")
    assert typist.entered_lines == ["do it"]


async def test_a_message_some_time_after_an_answer_is_whole(typist: Typist) -> None:
    typist.can_answer()
    typist.types("o")
    typist.happens(ApprovalAnswered("a", "once"))
    typist.draws()
    typist.waits(OWN_WORD_S)
    typist.types("now this")
    assert (typist.answers, typist.screen.typed) == ([("once", "")], "now this")


async def test_a_message_that_was_begun_otherwise_is_whole(typist: Typist) -> None:
    typist.can_answer()
    typist.answered_elsewhere()
    typist.draws()
    typist.pastes("hello ")
    typist.types("so")
    assert typist.screen.typed == "hello so"


async def test_what_is_mended_in_a_draft_that_came_back_is_whole(typist: Typist) -> None:
    typist.types("abc ")
    typist.can_answer()
    typist.answered_elsewhere()
    typist.draws()
    typist.presses(BACKSPACE)
    typist.types("d")
    assert typist.screen.typed == "abcd"


async def test_a_paste_above_the_next_question_begins_a_draft(typist: Typist) -> None:
    typist.can_answer()
    typist.asked("b")
    typist.answered_elsewhere("a")
    typist.draws()
    typist.pastes("hey ")
    typist.types("so")
    typist.answered_elsewhere("b")
    typist.draws()
    assert typist.screen.typed == "hey so"


@pytest.mark.parametrize("before_the_draw", ["", "l", "ld ag"])
async def test_a_message_that_a_question_interrupts_comes_back_whole(typist: Typist, before_the_draw: str) -> None:
    message = "hello world again"
    typist.types("hello wor")
    typist.asked()
    typist.types(before_the_draw)
    typist.draws()
    typist.types(message[len("hello wor" + before_the_draw) :])
    typist.answered_elsewhere()
    typist.draws()
    assert (typist.screen.typed, typist.answers) == (message, [])


@pytest.mark.parametrize("own", [False, True])
async def test_what_is_typed_before_the_end_of_a_question_is_drawn_stays(typist: Typist, own: bool) -> None:
    typist.types("first ")
    typist.can_answer()
    if own:
        typist.types("o")
    typist.answered_elsewhere()
    typist.types("hi")
    typist.draws()
    typist.types(" there")
    assert typist.screen.typed == "first hi there"
