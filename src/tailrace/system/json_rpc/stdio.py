"""stdin and stdout as a channel of JSON-RPC messages, with nothing else on it.

Owns the two descriptors of the peer's pipes: an editor's, an MCP host's. The process's own stdin is empty from then on
and its stdout is its stderr: a stray `print`, a library in C and a child process cannot write into the protocol, nor
read from it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from tailrace.system.json_rpc.lines import LineSplitter, NotRpc, RpcMessage, read_line, rpc_line
from tailrace.system.stdout_writer import StdoutWriter

log = logging.getLogger("tailrace.json_rpc")
_READ_BYTES = 65_536


class Pipes(NamedTuple):
    """The descriptors that lead to the peer."""

    incoming: int
    outgoing: int


def take_stdio() -> Pipes:
    """Moves the peer's pipes to descriptors that no child inherits."""
    sys.stdout.flush()
    pipes = Pipes(os.dup(0), os.dup(1))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return pipes


class StdioChannel:
    """Messages from and to the peer. A line that is no message is answered here and never received. `close` must be
    called."""

    def __init__(self, pipes: Pipes) -> None:
        self._incoming = pipes.incoming
        self._writer = StdoutWriter(pipes.outgoing)
        mode = os.fstat(pipes.incoming).st_mode
        self._can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(pipes.incoming)
        self._splitter = LineSplitter()
        self._lines: deque[bytes | None] = deque()
        self._ended = False
        self._writing = asyncio.Lock()
        self._waiting: set[asyncio.Task[None]] = set()  # writers in turn
        self._closed = False
        self._wake = asyncio.Event()  # there is input, or the peer reads no more

    async def receive(self) -> RpcMessage | None:
        """The next message; None at the end of input, and where the peer reads no more."""
        while True:
            while self._lines:
                message = read_line(self._lines.popleft())
                if isinstance(message, NotRpc):
                    log.warning("a line that is no JSON-RPC message was refused")
                    with suppress(ConnectionError):
                        await self.write(message.reply)
                elif message is not None:
                    return message
            if self._ended:
                return None
            data = await self._read()
            self._ended = not data
            self._lines += self._splitter.feed(data) if data else self._splitter.close()

    async def send(self, message: RpcMessage) -> None:
        """Drops the message where the peer is gone; a request to it is never answered."""
        with suppress(ConnectionError):
            await self.write(rpc_line(message))

    async def write(self, lines: bytes) -> None:
        """Writes whole lines; two writers' lines do not mix, and a cancelled writer's are written to their end. Raises
        `ConnectionError` where the peer reads no more."""
        if (task := self._begin_write(lines)) is not None:
            await asyncio.shield(task)

    def post(self, lines: bytes) -> None:
        """Writes whole lines, in turn, and does not wait for it. Drops them where the peer reads no more."""
        with suppress(ConnectionError):
            self._begin_write(lines)

    def _begin_write(self, lines: bytes) -> asyncio.Task[None] | None:
        """The task that writes what the pipe does not take at once; None where it took all."""
        if self._closed:
            raise ConnectionError("the peer has closed its pipe")
        rest = memoryview(lines)
        if not self._waiting:
            with self._translated():
                rest = self._writer.write_at_once(rest)
            if not rest:
                return None
        # Either the pipe is full or another writer waits for it: from here on in turn.
        task = asyncio.create_task(self._write_in_turn(rest))
        self._waiting.add(task)
        task.add_done_callback(self._written)
        return task

    def _written(self, task: asyncio.Task[None]) -> None:
        self._waiting.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: its writer may have been cancelled

    async def _write_in_turn(self, lines: memoryview) -> None:
        async with self._writing:
            with self._translated():
                await self._writer.write(lines)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            self._closed = True
            self._wake.set()
            raise ConnectionError(f"the peer cannot be written to: {exc.strerror}") from exc

    async def close(self) -> None:
        """Nothing is written from here on; what waits for the peer to read is dropped."""
        self._closed = True
        self._wake.set()
        for task in self._waiting:
            task.cancel()
        if self._waiting:
            await asyncio.wait(self._waiting)

    async def _read(self) -> bytes:
        while self._can_wait:
            await self._readable()
            try:
                if self._closed:
                    return b""
                return os.read(self._incoming, _READ_BYTES)
            except BlockingIOError:  # the peer made it non-blocking, and another process took what was there
                continue
            except OSError:  # the terminal was hung up
                return b""
        return await asyncio.to_thread(os.read, self._incoming, _READ_BYTES)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        if self._closed:
            return
        self._wake.clear()
        loop.add_reader(self._incoming, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            loop.remove_reader(self._incoming)
