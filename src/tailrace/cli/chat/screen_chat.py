"""The chat on a screen: the user types while the agent works.

Owns the order of things: one turn at a time, commands in between, approvals. The transcript decides what is shown, the
screen draws it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_input
from rich.console import Console

from tailrace import __version__
from tailrace.cli.chat.conversation import Conversation, now, question_of
from tailrace.cli.chat.options import REQUESTER
from tailrace.cli.chat.slash_commands import SLASH_COMMANDS, run_slash_command
from tailrace.cli.chat.tty_approval import CHOICES, decision_of
from tailrace.cli.main import DONE, INTERRUPTED
from tailrace.cli.screen.painter import Painter
from tailrace.cli.screen.screen import TerminalScreen
from tailrace.cli.screen.transcript import Transcript
from tailrace.errors import RunParked, TailraceError
from tailrace.events import RunFinished
from tailrace.ports import Run
from tailrace.runs.recovery import follow
from tailrace.system.private_files import make_private_directory, make_private_file

AGAIN_S: Final = 3.0  # Ctrl-C twice within this time leaves


class ScreenChat:
    """Satisfies `ChatSurface` and `ScreenListener`."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._transcript = Transcript(time.monotonic, streamed=conversation.options.streamed, requester=REQUESTER)
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._turn: asyncio.Task[None] | None = None
        self._run_id = ""
        self._turns = 0
        self._interrupted_at = -AGAIN_S
        environment = conversation.app.config.environment
        home = conversation.app.config.home
        make_private_directory(home)
        make_private_file(home / "history")
        self._screen = TerminalScreen(
            self._transcript,
            Painter(Console(file=sys.stdout, no_color=bool(environment.get("NO_COLOR")) or None)),
            self,
            source=create_input(),
            target=sys.stdout,
            history=FileHistory(str(home / "history")),
            commands=SLASH_COMMANDS,
            environment=environment.get,
        )

    # ── the surface of commands ──────────────────────────────────────────────────────────────────────────────

    def notify(self, text: str) -> None:
        self._transcript.add_notice(text, "red" if text.startswith("error:") else "dim")
        self._screen.changed()

    async def replay(self, run: Run) -> None:
        self._transcript.add_question(question_of(run))
        for entry in await self._conversation.app.journal.read(run.id):
            self._transcript.apply(entry)
        self._screen.changed()

    async def watch(self, run: Run) -> None:
        self._transcript.add_question(question_of(run))
        self._begin(run)

    async def interrupt(self) -> bool:
        turn = self._turn
        if turn is None or turn.done():
            return False
        await self._conversation.stop(self._run_id)
        await asyncio.wait({turn})
        return True

    def leave(self) -> None:
        self._screen.leave(DONE)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        async with self._screen.aside():
            yield

    # ── the listener of the screen ───────────────────────────────────────────────────────────────────────────

    def entered(self, text: str) -> None:
        self._interrupted_at = -AGAIN_S
        self._lines.put_nowait(text)

    def interrupted(self) -> None:
        """Once: stops the turn, or clears the input. Twice in a row: leaves."""
        at = time.monotonic()
        again = at - self._interrupted_at < AGAIN_S
        self._interrupted_at = at
        if again:
            self._screen.leave(INTERRUPTED)
        elif self._turn is not None and not self._turn.done():
            self._lines.put_nowait("/stop")
        elif self._screen.typed:
            self._screen.clear_input()
            self._interrupted_at = -AGAIN_S
        else:
            self.notify("Ctrl-C again leaves")

    def status(self) -> str:
        options, choice = self._conversation.options, self._conversation.choice
        switches = [name for name in ("yolo", "reasoning") if getattr(options, name)]
        if self._conversation.tools != "lines":
            switches.append({"new": "new tools", "verbose": "verbose"}[self._conversation.tools])
        return " · ".join([choice.name, *switches, "/help"])

    # ── the conversation ─────────────────────────────────────────────────────────────────────────────────────

    async def converse(self) -> int:
        await self._greet()
        with _logged_to(self):
            async with asyncio.TaskGroup() as group:
                self._group = group
                drawing = group.create_task(self._screen.draw_forever())
                working = group.create_task(self._work())
                code = await self._screen.app.run_async()
                working.cancel()
                await self._settle_turn()
                drawing.cancel()
            self._screen.draw()
        return code

    async def _greet(self) -> None:
        choice = self._conversation.choice
        self.notify(f"tailrace {__version__} · {choice.name} ({choice.provider})")
        self.notify("Ctrl-C interrupts, Ctrl-D leaves, /help lists the commands")
        if self._conversation.resumed:
            for run in await self._conversation.turns(5):
                await self.replay(run)
        elif left := await self._conversation.left_behind():
            self.notify(f"a run was in flight when its terminal died; /resume joins it:\n  {left.describe(now())}")

    async def _work(self) -> None:
        """Handles the typed lines in order."""
        while True:
            line = await self._lines.get()
            try:
                await self._do(line)
            except TailraceError as exc:
                self.notify(f"error: {exc}")

    async def _do(self, line: str) -> None:
        if line.startswith("/"):
            await run_slash_command(line, self._conversation, self)
            self._transcript.verbose = self._conversation.tools == "verbose"
            self._transcript.only_new_tools = self._conversation.tools == "new"
            self._transcript.reasoning = self._conversation.options.reasoning
        elif (asked := self._transcript.approval) is not None:
            if decision := decision_of(line):
                agents = self._conversation.app.agents
                await agents.answer(self._run_id, asked.approval_id, decision, by=REQUESTER)
            else:
                self.notify(f"answer {CHOICES}")
        elif line.strip():
            await self.interrupt()  # one turn at a time: a new message interrupts the old one
            self._transcript.add_question(line.strip())
            self._screen.changed()
            self._begin(await self._conversation.ask(line.strip()))

    def _begin(self, run: Run) -> None:
        self._run_id = run.id
        self._turns += 1
        self._turn = self._group.create_task(self._show(run.id))

    async def _show(self, run_id: str) -> None:
        try:
            async for batch in follow(self._conversation.app.journal, run_id):
                for entry in batch:
                    self._transcript.apply(entry)
                    if isinstance(entry.event, RunFinished):
                        self._interrupted_at = -AGAIN_S
                self._screen.changed()
        except RunParked as exc:
            self._transcript.give_up(str(exc))
            self._screen.changed()

    async def _settle_turn(self) -> None:
        """On leaving, the turn is stopped and recorded; its answer is not awaited."""
        await self.interrupt()
        if self._turns:
            session = self._conversation.session
            self.notify(f"tailrace chat --session {session} goes on from here")


class _Notices(logging.Handler):
    """Shows log records as notices: stderr would be written across the screen."""

    def __init__(self, terminal: ScreenChat) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        self._terminal.notify(record.getMessage())


@contextmanager
def _logged_to(terminal: ScreenChat) -> Iterator[None]:
    handler, root = _Notices(terminal), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


async def converse(conversation: Conversation) -> int:
    terminal = ScreenChat(conversation)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminal.leave)
    return await terminal.converse()
