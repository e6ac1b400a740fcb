"""The chat on a screen: the user types while the agent works.

Owns the order of things: one turn at a time, commands in between, approvals. The transcript decides what is shown, the
screen draws it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final, assert_never

from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_input
from rich.console import Console

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.error_advice import error_advice, failed_provider
from tailrace.app.timeline.question import question_of
from tailrace.cli.chat.conversation import COMPACT, Conversation, SessionSummary, age, is_new_session, now
from tailrace.cli.chat.interrupt_key import InterruptKey
from tailrace.cli.chat.options import REQUESTER
from tailrace.cli.chat.own_command import run_own_command
from tailrace.cli.chat.question import CommandOutput, Question, files_for
from tailrace.cli.chat.shown_log import shown_log
from tailrace.cli.chat.slash_commands import TERMINAL_COMMANDS, is_slash_command, run_slash_command
from tailrace.cli.chat.status_line import StatusFacts, short_path, status_line
from tailrace.cli.chat.welcome import cut_off, facts_of, welcome
from tailrace.cli.main import DONE, INTERRUPTED
from tailrace.cli.screen.call_progress import CallProgress
from tailrace.cli.screen.input.choice_list import Choice
from tailrace.cli.screen.input.input_line import Completion, TypedLine
from tailrace.cli.screen.markdown_blocks import Block
from tailrace.cli.screen.painter import BlockPiece, Painter
from tailrace.cli.screen.questions_elsewhere import ScreenQuestions
from tailrace.cli.screen.sanitize import sanitized
from tailrace.cli.screen.screen import TerminalScreen
from tailrace.cli.screen.tool_view import command_pieces
from tailrace.cli.screen.transcript import Transcript
from tailrace.errors import RunParked, SteerRefused, StorageFailed, TailraceError
from tailrace.events import AnyEvent, Decision, RunFailure, RunFinished
from tailrace.ports import Run
from tailrace.providers.prices import load_prices
from tailrace.runs.recovery import follow
from tailrace.system.own_program import typed
from tailrace.system.private_files import make_private_directory, make_private_file

_NOTICE_STYLES: Final = (("error:", "red"), ("warning:", "yellow"))
_STOP: Final = TypedLine("/stop", "")


class ScreenChat:
    """Satisfies `ChatSurface` and `ScreenListener`."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        config = conversation.app.config
        self._progress = CallProgress(lambda provider: config.call_for(provider).max_attempts, self._advice)
        self._transcript = Transcript(
            time.monotonic,
            streamed=conversation.options.streamed,
            requester=REQUESTER,
            approval_timeout_s=config.approvals.wait_s(),
            progress=self._progress,
        )
        self._lines: asyncio.Queue[TypedLine | Question] = asyncio.Queue()  # a question: what a turn has returned
        self._sent: dict[str, Question] = {}  # to the turn under way, by the message's id
        self._takes_messages = True  # the turn under way; a summary does not
        self._asked_next: list[Question | TypedLine] = []  # after the turn under way; a line is /quit
        self._transcript.asked_next = lambda: [question.typed for question in self._asked_next]
        self._turn: asyncio.Task[None] | None = None
        self._command: asyncio.Task[None] | None = None  # of the user's own
        self._run_id = ""
        self._turn_s: float | None = None  # how long the last turn took
        self._interrupt_key = InterruptKey()
        self._cut: SessionSummary | None = None  # its answer was cut off; Enter joins it
        self._under_way: Run | None = None  # of the session that is gone on with
        self._home = Path(config.environment.get("HOME") or "/")
        self._screen = self._new_screen()
        self._elsewhere = ScreenQuestions(conversation.app, REQUESTER, self._transcript, self._screen.changed)

    def _new_screen(self) -> TerminalScreen:
        app = self._conversation.app
        environment, home = app.config.environment, app.config.home
        make_private_directory(home)
        make_private_file(home / "history")
        return TerminalScreen(
            self._transcript,
            Painter(Console(file=sys.stdout, no_color=bool(environment.get("NO_COLOR")) or None)),
            self,
            source=create_input(),
            target=sys.stdout,
            history=FileHistory(str(home / "history")),
            completion=Completion(
                [Choice(f"/{name}", f"/{name}", row.help, bool(row.usage)) for name, row in TERMINAL_COMMANDS.items()],
                partial(files_for, directory=app.directory),
            ),
            environment=environment.get,
        )

    def _advice(self, failure: RunFailure, provider: str) -> str:
        return error_advice(failure, failed_provider(self._conversation.app.config, provider))

    # ── the surface of commands ──────────────────────────────────────────────────────────────────────────────

    def notify(self, text: str) -> None:
        style = next((colour for beginning, colour in _NOTICE_STYLES if text.startswith(beginning)), "dim")
        self._transcript.add_notice(text, style)
        self._screen.changed()

    async def replay(self, run: Run) -> None:
        self._transcript.own_stop, self._transcript.timed = True, False
        self._transcript.add_question(question_of(run))
        for entry in await self._conversation.app.journal.read(run.id):
            self._transcript.apply(entry)
        self._screen.changed()

    async def watch(self, run: Run) -> None:
        self._transcript.add_question(question_of(run))
        self._begin(run)

    async def submit(self, spec: TurnSpec, *, with_question: bool = True, notes: Sequence[str] = ()) -> None:
        if with_question:
            self._transcript.add_question(spec.shown or spec.message.text, notes)
        else:
            self._transcript.waiting()
        self._screen.changed()
        try:
            run = await self._conversation.submit(spec)
        except TailraceError as exc:
            self._give_up(exc)
        else:
            self._begin(run)
            self._takes_messages = spec.shown != COMPACT

    async def interrupt(self) -> bool:
        turn = self._turn
        if turn is None or turn.done():
            return False
        self._transcript.own_stop = True
        await self._conversation.stop(self._run_id)
        await asyncio.wait({turn})
        return True

    def leave(self) -> None:
        self._screen.leave(DONE)

    def clear(self) -> None:
        self._screen.clear()

    def listing(self, text: str, language: str) -> None:
        self._transcript.add_pieces(BlockPiece(Block("code", sanitized(text), language)))
        self._screen.changed()

    def copy(self, text: str) -> bool:
        self._screen.copy(text)
        return True

    def expand(self, number: int | None) -> bool:
        shown = self._transcript.expand_tool(number)
        self._screen.changed()
        return shown

    async def choose(self, choices: Sequence[Choice]) -> str | None:
        return await self._screen.choose(choices)

    def aside(self) -> AbstractAsyncContextManager[None]:
        return self._screen.aside()

    # ── the listener of the screen ───────────────────────────────────────────────────────────────────────────

    def entered(self, line: TypedLine) -> None:
        self._interrupt_key.forget()
        self._lines.put_nowait(line)

    def escaped(self) -> None:
        """Takes the newest message back that the model does not have yet; where there is none, stops the turn."""
        waiting = [each.steer_id for each in self._transcript.steers.pending if each.steer_id in self._sent]
        if self._asked_next:
            self._screen.put_into_input(self._asked_next.pop().typed)
        elif waiting:
            self._group.create_task(self._take_back(waiting[-1]))
        elif self._turn is not None and not self._turn.done():
            self._lines.put_nowait(_STOP)

    async def _take_back(self, steer_id: str) -> None:
        try:
            await self._conversation.app.steering.take_back(self._run_id, steer_id, by=REQUESTER)
        except TailraceError as exc:
            self.notify(f"error: {exc}")
        else:
            if (question := self._sent.pop(steer_id, None)) is not None:  # Esc was not pressed twice
                self._screen.put_into_input(question.typed)
            self._screen.changed()

    def interrupted(self) -> None:
        """Once: stops the command or the turn, or clears the input. Twice in a row: leaves."""
        turn_runs = self._turn is not None and not self._turn.done()
        pressed = self._interrupt_key.press(
            command_runs=self._command is not None, turn_runs=turn_runs, typed=bool(self._screen.typed)
        )
        match pressed:
            case "leave":
                self._screen.leave(INTERRUPTED)
            case "end command":
                if self._command is not None:
                    self._command.cancel()
            case "stop turn":
                self._lines.put_nowait(_STOP)
            case "clear input":
                self._screen.clear_input()
            case "warn":
                self.notify("Ctrl-C again leaves")
            case _:
                assert_never(pressed)

    def approval_answered(self, decision: Decision, reason: str) -> None:
        if (asked := self._transcript.approval) is not None:
            self._group.create_task(self._answer(asked.approval_id, decision, reason))
        self._screen.changed()

    async def _answer(self, approval_id: str, decision: Decision, reason: str) -> None:
        try:
            if not await self._elsewhere.answer(approval_id, decision, reason):
                agents = self._conversation.app.agents
                await agents.answer(self._run_id, approval_id, decision, by=REQUESTER, reason=reason)
        except TailraceError as exc:  # the run has ended elsewhere, or its journal cannot be written
            self._transcript.menu.back()
            self.notify(f"error: the answer was not taken: {exc}")

    def expand_tool(self) -> None:
        if not self.expand(None):
            self.notify("no earlier tool to show")

    def status(self, width: int) -> list[tuple[str, str]]:
        conversation, spending = self._conversation, self._conversation.spending
        running_s, command_s = self._transcript.running_s, self._transcript.command_s
        facts = StatusFacts(
            conversation.choice.name,
            short_path(conversation.app.directory, self._home),
            spending.context_tokens,
            conversation.context_window,
            spending.tokens,
            spending.cost_usd,
            next((each for each in (command_s, running_s, self._turn_s) if each is not None), None),
            self._activity(running_s),
            self._interrupt_means(),
            self._switches(),
        )
        return status_line(facts, width)

    def _activity(self, running_s: float | None) -> str:
        if self._transcript.approval is not None:
            return "waiting for your answer"
        if self._command is not None:
            return "your command runs"
        return "" if running_s is None else "answering"

    def _interrupt_means(self) -> str:
        ends = "ends it" if self._command is not None else "stops"
        return f"Ctrl-C {'again leaves' if self._interrupt_key.leaves_next else ends}"

    def _switches(self) -> tuple[str, ...]:
        options, verbose = self._conversation.options, self._conversation.verbose
        switches = {"plan": options.plan, "yolo": options.yolo, "reasoning": options.reasoning, "verbose": verbose}
        return tuple(name for name, is_on in switches.items() if is_on)

    # ── the conversation ─────────────────────────────────────────────────────────────────────────────────────

    async def converse(self) -> int:
        await self._greet()
        with shown_log(self.notify):
            async with asyncio.TaskGroup() as group:
                self._group = group
                drawing = group.create_task(self._screen.draw_forever())
                if self._under_way is not None:
                    await self.watch(self._under_way)
                working = group.create_task(self._work())
                asking = group.create_task(self._elsewhere.watch())
                group.create_task(load_prices())
                code = await self._screen.run()
                working.cancel()
                asking.cancel()
                await self._settle_turn()
                drawing.cancel()
            self._screen.draw()
        return code

    async def _greet(self) -> None:
        conversation = self._conversation
        if conversation.resumed:
            self.notify(f"session {conversation.session}")
            try:
                self._under_way = await conversation.resumed_run()
            except RunParked as exc:
                self.notify(f"error: {exc}")
            for run in await conversation.turns(5):
                if self._under_way is None or run.id != self._under_way.id:
                    await self.replay(run)
            if await is_new_session(conversation.app.journal, conversation.session):
                self.notify("there is none of this name yet: your first message begins it")
            await conversation.count_spending()
            return
        self._transcript.add_pieces(welcome(await asyncio.to_thread(facts_of, conversation, self._home)))
        self._cut = await conversation.left_behind()
        if self._cut is not None:
            self._transcript.add_pieces(
                cut_off(self._cut.question, age(now() - self._cut.at), taken_over=self._cut.taken_over)
            )

    async def _work(self) -> None:
        """Handles the typed lines in order."""
        while True:
            line = await self._lines.get()
            try:
                await self._do(line)
            except TailraceError as exc:
                self.notify(f"error: {exc}")

    async def _do(self, line: TypedLine | Question) -> None:
        if isinstance(line, Question):
            await self._put(line)
            return
        text, leaves_next = line.text.strip(), any(isinstance(each, TypedLine) for each in self._asked_next)
        if line is _STOP:
            await self.interrupt()
        elif text in ("/quit", "/exit") and self._transcript.running_s is not None and not leaves_next:
            self._ask_next(line)
            self.notify("leaves after this answer; /quit again leaves now, Esc stays")
        elif leaves_next and text and not is_slash_command(text):  # meant for the shell
            self._screen.put_into_input(line.typed)
        elif is_slash_command(text):
            await self._slash(text)
        elif text.startswith("!"):
            await self._run_command(text[1:].strip())
        elif text:
            await self._ask(text, line.typed.strip())
        elif self._cut is not None:
            await self._slash(f"/resume {self._cut.id}")

    async def _slash(self, line: str) -> None:
        self._transcript.add_command(line)
        self._screen.changed()
        if line.startswith("/resume"):
            self._cut = None
        await run_slash_command(line, self._conversation, self)
        self._transcript.tools.verbose = self._conversation.verbose
        self._transcript.reasoning = self._conversation.options.reasoning
        self._screen.changed()

    async def _ask(self, text: str, shown: str) -> None:
        self._cut = None
        if self._command is not None:  # its output goes with this question
            await asyncio.wait({self._command})
        await self._put(await self._conversation.compose(text, shown))

    async def _put(self, question: Question) -> None:
        """To the turn under way; where there is none, it begins one."""
        if not await self._steered(question):
            spec = await self._conversation.prepared(self._conversation.turn(question))
            await self.submit(spec, notes=question.notes)

    async def _steered(self, question: Question) -> bool:
        turn = self._turn
        if turn is None or turn.done():
            return False
        if not self._takes_messages:
            return self._ask_next(question)
        try:
            steer = await self._conversation.app.steering.steer(self._run_id, question.message, by=REQUESTER)
        except SteerRefused as exc:
            if exc.code != "not_steerable":
                self._screen.put_into_input(question.typed)
                raise
            return not turn.done() and self._ask_next(question)
        self._sent[steer.accepted.steer_id] = question
        self._transcript.steer_texts[steer.accepted.steer_id] = question.typed
        for note in question.notes:
            self.notify(note)
        self._screen.changed()
        return True

    def _ask_next(self, question: Question | TypedLine) -> bool:
        self._asked_next.append(question)
        self._screen.changed()
        return True

    def _take_returned(self) -> None:
        """What the turn has not taken before its end is the next one's; after a stop the user may change it first."""
        for steer in self._transcript.steers.all:
            question = self._sent.pop(steer.accepted.steer_id, None)
            if question is not None and steer.state == "returned":
                self._go_on_with(question, stopped=steer.reason == "run_stopped")
        while self._asked_next:
            self._go_on_with(self._asked_next.pop(0), stopped=self._transcript.own_stop)

    def _go_on_with(self, question: Question | TypedLine, *, stopped: bool) -> None:
        if stopped:
            self._screen.put_into_input(question.typed)
        else:
            self._lines.put_nowait(question)

    def _begin(self, run: Run) -> None:
        self._run_id = run.id
        self._transcript.own_stop, self._transcript.timed = False, True
        self._turn = self._group.create_task(self._show(run.id))

    async def _show(self, run_id: str) -> None:
        try:
            async for batch in follow(self._conversation.app.journal, run_id):
                for entry in batch:
                    self._note(entry.event)
                    self._transcript.apply(entry)
                self._screen.changed()
        except StorageFailed as exc:
            self._give_up(exc, " · /resume goes on with this answer")
        except TailraceError as exc:
            self._give_up(exc)
        self._take_returned()

    def _give_up(self, error: TailraceError, advice: str = "") -> None:
        """The turn cannot be shown to its end; the conversation goes on."""
        self._transcript.give_up(f"{error}{advice}")
        self._screen.changed()

    def _note(self, event: AnyEvent) -> None:
        self._conversation.spending.note(event)
        if isinstance(event, RunFinished):
            self._interrupt_key.forget()
            self._turn_s = self._transcript.running_s

    async def _settle_turn(self) -> None:
        """On leaving, the turn is stopped and recorded; its answer is not awaited."""
        if self._command is not None:
            self._command.cancel()
        try:
            await self.interrupt()
            if await is_new_session(self._conversation.app.journal, self._conversation.session):
                return
        except TailraceError as exc:
            self.notify(f"error: {exc}")
        again = typed(f"chat --session {quote(self._conversation.session)}")
        self._transcript.add_farewell(f"go on with this conversation:\n  {again}")

    # ── the user's own commands ──────────────────────────────────────────────────────────────────────────────

    async def _run_command(self, command: str) -> None:
        self._transcript.add_command(f"!{command}")
        if not command:
            self.notify("!command runs it here; its output goes with your next message")
        elif self._command is not None:
            self.notify("error: another command of yours still runs; Ctrl-C ends it")
        else:
            self._command = self._group.create_task(self._own_command(command))

    async def _own_command(self, command: str) -> None:
        app, session = self._conversation.app, self._conversation.session
        began, ran = time.monotonic(), CommandOutput(command, "", None)

        def progress(line: str) -> None:
            self._transcript.command_runs(f"{command}: {line}")

        self._transcript.command_runs(command)
        self._screen.changed()
        try:
            ran = await run_own_command(command, app.directory, app.config.environment.without(app.secrets), progress)
        finally:  # also when Ctrl-C has ended it
            self._command = None
            self._interrupt_key.forget()
            self._transcript.command_runs("")
            goes_along = self._conversation.add_output(ran, session)
            took_s = time.monotonic() - began
            self._transcript.add_pieces(*command_pieces(ran.output, ran.code, took_s, goes_along=goes_along))
            self._screen.changed()


async def converse(conversation: Conversation) -> int:
    terminal = ScreenChat(conversation)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminal.leave)
    return await terminal.converse()
