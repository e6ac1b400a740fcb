"""A terminal to run a program in: a pty with a screen behind it that tests can look at."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
import pty
import struct
import termios
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pyte

PATIENCE_S = 60.0  # a loaded machine is slow, not wrong


class VirtualTerminal:
    """Use it as an async context manager; leaving kills the program if it still runs."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, columns: int = 80, rows: int = 24, term: str = "linux"
    ) -> None:
        """The console of Linux is the terminal that pyte draws: it does not reflow."""
        self._command = command
        self._env = {**env, "TERM": term, "LANG": "C.UTF-8"}
        self._screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drawn = asyncio.Condition()
        self._closed = asyncio.Event()  # the program's side: all that it wrote has been read
        self._master = -1
        self.process: Process | None = None
        self.written = ""  # everything the program has written

    async def __aenter__(self) -> Self:
        self._master, slave = pty.openpty()
        self._set_size()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        try:
            self.process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=self._env,
                start_new_session=True,
                preexec_fn=take_terminal,
            )
        finally:
            os.close(slave)
        os.set_blocking(self._master, False)
        asyncio.get_running_loop().add_reader(self._master, self._read)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    # ── what a person does ───────────────────────────────────────────────────────────────────────────────────

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def enter(self, text: str) -> None:
        self.type(text + "\r")

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)
        self._set_size()

    # ── what a person sees ───────────────────────────────────────────────────────────────────────────────────

    @property
    def lines(self) -> list[str]:
        """The window, without blanks at the ends."""
        return [line.rstrip() for line in self._screen.display]

    def rows(self) -> list[list[pyte.screens.Char]]:
        """The window, cell by cell."""
        buffer = self._screen.buffer
        return [[buffer[y][x] for x in range(self._screen.columns)] for y in range(self._screen.lines)]

    @property
    def text(self) -> str:
        """The scrollback and the window."""
        columns = self._screen.columns
        above = ["".join(line[x].data for x in range(columns)).rstrip() for line in self._screen.history.top]
        return "\n".join([*above, *self.lines]).rstrip()

    async def until(self, seen: str | Callable[[], bool]) -> None:
        """Returns when that can be seen; says what could instead where it does not come."""
        there = seen if callable(seen) else lambda: seen in self.text
        try:
            async with asyncio.timeout(PATIENCE_S), self._drawn:
                await self._drawn.wait_for(there)
        except TimeoutError:
            raise AssertionError(f"never seen: {seen!r}\n{self.text}") from None

    async def exit_code(self) -> int:
        """Returns when the program has ended and its last words are on the screen."""
        assert self.process is not None
        async with asyncio.timeout(PATIENCE_S):
            code = await self.process.wait()
            await self._closed.wait()
            return code

    def _read(self) -> None:
        try:
            data = os.read(self._master, 1 << 16)
        except BlockingIOError:
            return
        except OSError:  # nobody has the other side open any more
            asyncio.get_running_loop().remove_reader(self._master)
            self._closed.set()
            return
        text = self._decoder.decode(data)
        self.written += text
        self._stream.feed(text)
        self._waking = asyncio.ensure_future(self._wake())

    async def _wake(self) -> None:
        async with self._drawn:
            self._drawn.notify_all()

    def _set_size(self) -> None:
        size = struct.pack("HHHH", self._screen.lines, self._screen.columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
