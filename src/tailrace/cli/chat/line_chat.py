"""The chat without a screen, for a dumb terminal or a redirected stdout: lines in, lines out."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from tailrace.cli.chat.conversation import Conversation, now, question_of, turn_of
from tailrace.cli.chat.oneshot import OneShot, print_status
from tailrace.cli.chat.slash_commands import run_slash_command
from tailrace.cli.chat.tty_approval import TerminalAsker, read_line
from tailrace.cli.main import DONE
from tailrace.cli.screen.sanitize import sanitized
from tailrace.ports import Run

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

    async def interrupt(self) -> bool:
        return False  # no command can be typed during an answer

    def leave(self) -> None:
        self._left = True

    def aside(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def converse(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        try:
            while not self._left:
                await self._next()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _next(self) -> None:
        sys.stderr.write(PROMPT)
        sys.stderr.flush()
        line = await self._until_interrupted(read_line(sys.stdin.fileno()))
        if line is _INTERRUPTED:
            print_status("")
            self._left = self._interrupts > 1
            return
        self._interrupts = 0
        match line:
            case str() if line.startswith("/"):
                await run_slash_command(line, self._conversation, self)
            case str() if line.strip():
                shot, spec = self._shot(), turn_of(self._conversation.options, line.strip())
                await self._until_ended(shot.ask(spec, self._conversation.session))
            case str():
                pass
            case _:
                print_status("")
                self.leave()

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
            tools=self._conversation.tools,
        )


async def converse(conversation: Conversation) -> int:
    choice = conversation.choice
    print_status(
        f"{choice.name} ({choice.provider}). Ctrl-C interrupts an answer, Ctrl-D leaves, /help lists the commands."
    )
    if left := await conversation.left_behind():
        print_status(f"a run was in flight when its terminal died; /resume joins it: {left.describe(now())}")
    asker = TerminalAsker.open()
    try:
        await LineChat(conversation, asker).converse()
    finally:
        if asker is not None:
            asker.close()
    return DONE
