"""A TCP proxy between a test's client and its server: it loses connections at chosen moments, or all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

Moment = Literal["request", "response"]  # a request is lost on its way, or is done and its answer is lost


class TcpProxy:
    """Use `proxied`. `port` stays the same while it refuses connections."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._countdown = -1
        self._moment: Moment = "request"
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def fired(self) -> bool:
        """Whether the connection was lost that `lose_at` asked for."""
        return self._countdown < 0

    def lose_at(self, step: int, moment: Moment) -> None:
        """The connection that carries the `step`-th request from now on is lost at it, counted from 0."""
        self._countdown, self._moment = step, moment

    def hold(self) -> None:
        """Passes on no request until `go_on`: the server hangs."""
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    async def accept(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Loses every connection and refuses new ones until `accept`."""
        if self._server is not None:
            self._server.close()
            self.lose_all()
            await self._server.wait_closed()
            self._server = None

    def lose_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        answered = asyncio.ensure_future(self._copy(there, writer))
        try:
            while data := await reader.read(1 << 16):
                await self._flows.wait()
                lost = self._countdown == 0
                self._countdown -= 1 if self._countdown >= 0 else 0
                if lost and self._moment == "response":
                    answered.cancel()  # the answer goes nowhere
                    back.write(data)
                    await there.read(1 << 16)
                if lost:
                    break
                back.write(data)
        except OSError:
            pass
        finally:
            answered.cancel()
            self._writers -= {writer, back}
            for each in (writer, back):
                each.transport.abort()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 16):
                sink.write(data)
        sink.transport.abort()


@asynccontextmanager
async def proxied(target: int) -> AsyncIterator[TcpProxy]:
    proxy = TcpProxy(target)
    await proxy.accept()
    try:
        yield proxy
    finally:
        await proxy.refuse()
