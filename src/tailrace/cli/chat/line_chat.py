"""The chat without a screen, for a dumb terminal or a redirected stdout: lines in, lines out."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from shlex import quote
from typing import Final

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.timeline.question import question_of
from tailrace.cli.chat.conversation import Conversation, is_new_session
from tailrace.cli.chat.oneshot import OneShot
from tailrace.cli.chat.own_command import run_own_command
from tailrace.cli.chat.run_printer import print_status
from tailrace.cli.chat.slash_commands import is_slash_command, run_slash_command
from tailrace.cli.chat.tty_approval import TerminalAsker, read_line
from tailrace.cli.main import DONE
from tailrace.cli.screen.input.choice_list import Choice
from tailrace.cli.screen.sanitize import sanitized
from tailrace.errors import TailraceError
from tailrace.ports import Run
from tailrace.system.own_program import typed

PROMPT: Final = "> "
_INTERRUPTED: Final = object()


class LineChat:
    """Satisfies `ChatSurface`."""

    def __init__(self, conversation: Conversation, asker: TerminalAsker | None) -> None:
        self._conversation = conversation
        self._asker = asker
        self._waiting: asyncio.Future[object] | None = None  # what Ctrl-C cancels: reading a line, or a turn
        self._interrupts = 0  # in a row, without a line in between
        self._left = False

    def notify(self, text: str) -> None:
        print_status(sanitized(text))

    async def replay(self, run: Run) -> None:
        self.notify(f"{PROMPT}{question_of(run)}")
        await self._shot().watch(run.id)

    async def watch(self, run: Run) -> None:
        self.notify(f"{PROMPT}{question_of(run)}")
        await self._until_ended(self._shot().join(run.id))

    async def submit(self, spec: TurnSpec, *, with_question: bool = True) -> None:
        if with_question:
            self.notify(f"{PROMPT}{spec.shown or spec.message.text}")
        await self._until_ended(self._shot().ask(spec, self._conversation.session))

    async def interrupt(self) -> bool:
        return False  # no command can be typed during an answer

    def clear(self) -> None:
        """Lines that were printed stay."""

    def listing(self, text: str, language: str) -> None:  # noqa: ARG002 - the port's
        self.notify(text)

    def copy(self, text: str) -> bool:  # noqa: ARG002 - the port's
        return False

    def expand(self, number: int | None) -> bool:  # noqa: ARG002 - the port's
        return False

    def leave(self) -> None:
        self._left = True

    async def choose(self, choices: Sequence[Choice]) -> str | None:
        """There are no keys to pick with: what there is, and how to name one."""
        lines = [f"  {choice.value}  {choice.about}  {choice.label}" for choice in choices]
        self.notify("\n".join([*lines, "", "/resume ID goes on with one"]))
        return None

    def aside(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def converse(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            if self._conversation.resumed:
                await self._join_session()
            while not self._left:
                try:
                    await self._next()
                except TailraceError as exc:
                    self.notify(f"error: {exc}")
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _join_session(self) -> None:
        """Shows what is under way in the session that the options name, to its end."""
        try:
            if (run := await self._conversation.resumed_run()) is not None:
                await self.watch(run)
        except TailraceError as exc:
            self.notify(f"error: {exc}")

    async def _next(self) -> None:
        sys.stderr.write(PROMPT)
        sys.stderr.flush()
        line = await self._until_interrupted(read_line(sys.stdin.fileno()))
        if line is _INTERRUPTED:
            print_status("")
            self._left = self._interrupts > 1
            return
        self._interrupts = 0
        if not isinstance(line, str):
            print_status("")
            self.leave()
        elif is_slash_command(line):
            await run_slash_command(line, self._conversation, self)
        elif line.startswith("!") and line[1:].strip():
            await self._until_ended(self._own_command(line[1:].strip()))
        elif line.strip():
            await self._ask(line.strip())

    async def _ask(self, text: str) -> None:
        question = await self._conversation.compose(text)
        for note in question.notes:
            self.notify(note)
        spec = await self._conversation.prepared(self._conversation.turn(question))
        await self._until_ended(self._shot().ask(spec, self._conversation.session))

    async def _own_command(self, command: str) -> None:
        app = self._conversation.app
        ran = await run_own_command(
            command, app.directory, app.config.environment.without(app.secrets), lambda _line: None
        )
        self._conversation.add_output(ran, self._conversation.session)
        if ran.output:
            self.notify(ran.output)
        self.notify(f"exit code {ran.code}; goes with your next message")

    async def _until_ended(self, turn: Coroutine[object, object, object]) -> None:
        if await self._until_interrupted(turn) is _INTERRUPTED:
            print_status("interrupted")

    async def _until_interrupted(self, work: Coroutine[object, object, object]) -> object:
        self._waiting = asyncio.ensure_future(work)
        try:
            await asyncio.wait({self._waiting})
            return _INTERRUPTED if self._waiting.cancelled() else self._waiting.result()
        finally:
            self._waiting.cancel()
            self._waiting = None

    def _interrupted(self) -> None:
        self._interrupts += 1
        if self._waiting is not None:
            self._waiting.cancel()

    def _shot(self) -> OneShot:
        options = self._conversation.options
        return OneShot(
            self._conversation.app,
            streamed=options.streamed,
            as_json=False,
            reasoning=options.reasoning,
            asker=self._asker,
            verbose=self._conversation.verbose,
        )


async def converse(conversation: Conversation) -> int:
    choice = conversation.choice
    print_status(
        f"{choice.name} ({choice.provider}). Ctrl-C interrupts an answer, Ctrl-D leaves, /help lists the commands."
    )
    asker = TerminalAsker.open()
    chat = LineChat(conversation, asker)
    try:
        await chat.converse()
    finally:
        if asker is not None:
            asker.close()
    if not await is_new_session(conversation.app.journal, conversation.session):
        again = typed(f"chat --session {quote(conversation.session)}")
        print_status(f"go on with this conversation: {again}")
    return DONE
