"""The chat without a screen, for a dumb terminal or a redirected stdout: a line asks, and the answer is printed as
`-q` prints it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from shlex import quote
from typing import Final

from tailrace.app.timeline.question import question_of
from tailrace.cli.chat.conversation import Conversation, is_new_session
from tailrace.cli.chat.oneshot import OneShot
from tailrace.cli.chat.run_printer import print_status
from tailrace.cli.chat.slash_commands import is_slash_command
from tailrace.cli.chat.tty_approval import TerminalAsker, read_line
from tailrace.cli.main import DONE
from tailrace.cli.screen.sanitize import sanitized
from tailrace.errors import TailraceError
from tailrace.system.own_program import typed

PROMPT: Final = "> "
_INTERRUPTED: Final = object()


class LineChat:
    """Reads questions, and asks them in the session of the conversation."""

    def __init__(self, conversation: Conversation, asker: TerminalAsker | None) -> None:
        self._conversation = conversation
        self._asker = asker
        self._waiting: asyncio.Future[object] | None = None  # what Ctrl-C cancels: reading a line, or a turn
        self._interrupts = 0  # in a row, without a line in between

    async def converse(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            if self._conversation.resumed:
                await self._told(self._join_session())
            while (line := await self._read()) is not None:
                await self._told(self._ask(line))
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _read(self) -> str | None:
        """What was typed; None at the end: Ctrl-D, or Ctrl-C twice."""
        sys.stderr.write(PROMPT)
        sys.stderr.flush()
        line = await self._until_interrupted(read_line(sys.stdin.fileno()))
        if isinstance(line, str):
            self._interrupts = 0
            return line.strip()
        print_status("")
        return "" if line is _INTERRUPTED and self._interrupts < 2 else None

    async def _ask(self, text: str) -> None:
        if is_slash_command(text):
            print_status("there are no commands on this terminal, for it cannot move its cursor; Ctrl-D leaves")
        elif text:
            question = await self._conversation.compose(text)
            for note in question.notes:
                print_status(sanitized(note))
            spec = await self._conversation.prepared(self._conversation.turn(question))
            await self._until_ended(self._shot().ask(spec, self._conversation.session))

    async def _join_session(self) -> None:
        """Shows what is under way in the session that the options name, to its end."""
        if (run := await self._conversation.resumed_run()) is not None:
            print_status(sanitized(f"{PROMPT}{question_of(run)}"))
            await self._until_ended(self._shot().join(run.id))

    async def _told(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except TailraceError as exc:
            print_status(sanitized(f"error: {exc}"))

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
        options, app = self._conversation.options, self._conversation.app
        return OneShot(app, streamed=options.streamed, as_json=False, reasoning=options.reasoning, asker=self._asker)


async def converse(conversation: Conversation) -> int:
    choice = conversation.choice
    print_status(f"{choice.name} ({choice.provider}). Ctrl-C interrupts an answer, Ctrl-D leaves.")
    asker = TerminalAsker.open()
    try:
        await LineChat(conversation, asker).converse()
    finally:
        if asker is not None:
            asker.close()
    if not await is_new_session(conversation.app.journal, conversation.session):
        again = typed(f"chat --session {quote(conversation.session)}")
        print_status(f"go on with this conversation: {again}")
    return DONE
