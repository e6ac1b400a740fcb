"""Writes to stdout without blocking the loop: a reader that does not read does not stop the run.

Bytes are written when the descriptor is writable; until then the writer awaits.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat

_PIECE_BYTES = select.PIPE_BUF  # a writable pipe takes this much without blocking


class StdoutWriter:
    """One descriptor. Raises `BrokenPipeError` when its reader has closed it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        mode = os.fstat(descriptor).st_mode
        self.is_terminal = os.isatty(descriptor)
        self._can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or self.is_terminal

    async def write(self, data: bytes | memoryview) -> None:
        while data := self.write_at_once(data):
            await self._ready()

    def write_at_once(self, data: bytes | memoryview) -> memoryview:
        """Writes what the descriptor takes now, and returns the rest."""
        rest = memoryview(data)
        while rest:
            if not self._can_wait:  # a file: always writable, and no selector accepts it
                written = os.write(self._descriptor, rest)
            elif select.select((), (self._descriptor,), (), 0)[1]:
                written = os.write(self._descriptor, rest[:_PIECE_BYTES])
            else:
                break
            rest = rest[written:]
        return rest

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(self._descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._descriptor)
