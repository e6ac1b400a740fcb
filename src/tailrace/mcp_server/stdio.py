"""The protocol on stdin and stdout: one JSON-RPC message a line, and nothing else.

Owns both descriptors while it is open: file descriptor 0 is the null device and 1 is stderr, so that a program that a
tool starts, or a stray print, never touches the protocol. Reads and writes in threads that end with the process, so
that a signal is heeded while the host says nothing. A line that is no message is answered with a JSON-RPC error.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

_READ_AHEAD: Final = 64  # lines
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Cancelled:
    """Which requests the host has cancelled, and why, by id."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def note(self, message: JSONRPCMessage) -> None:
        """Seen here before the SDK cancels the request's handler."""
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            params: dict[str, Any] = message.params or {}
            self._reasons[str(params.get("requestId"))] = str(params.get("reason") or "")

    def reason_of(self, request_id: RequestId | None) -> str | None:
        """None where the host did not cancel it. Asked once: ids may come again."""
        return self._reasons.pop(str(request_id), None)

    def forget(self, request_id: RequestId | None) -> None:
        self._reasons.pop(str(request_id), None)


class Streams(NamedTuple):
    """What the SDK's server reads from and writes to."""

    incoming: MemoryObjectReceiveStream[SessionMessage | Exception]
    outgoing: MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def stdio_streams(cancelled: Cancelled) -> AsyncGenerator[Streams, None]:
    """The messages of the host, to the end of stdin, and those to it. A host that no longer reads counts as gone."""
    with_host = _Lines()
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_server:
            async for line in with_host.lines():
                message = _parsed(line)
                if isinstance(message, _NoMessage):
                    await with_host.write(_line(message.error))
                    continue
                cancelled.note(message)
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the server is ending
                    await to_server.send(SessionMessage(message))

    async def write() -> None:
        async for item in from_server:
            await with_host.write(_line(item.message))

    try:
        async with asyncio.TaskGroup() as group:
            reading, writing = group.create_task(read()), group.create_task(write())
            yield Streams(incoming, outgoing)
            reading.cancel()
            outgoing.close()
            await writing
    finally:
        for stream in (to_server, incoming, outgoing, from_server):
            stream.close()
        with_host.restore()


class _NoMessage(NamedTuple):
    """A line that is no message, and what the host is told of it."""

    error: JSONRPCError


def _parsed(line: bytes) -> JSONRPCMessage | _NoMessage:
    text = line.decode("utf-8", "replace")
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValidationError:
        pass
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _refused(None, PARSE_ERROR, f"not JSON: {text[:100].strip()}")
    given = value.get("id") if isinstance(value, dict) else None
    known = given if isinstance(given, str | int) and not isinstance(given, bool) else None
    return _refused(known, INVALID_REQUEST, f"not a JSON-RPC message: {text[:100].strip()}")


def _refused(request_id: RequestId | None, code: int, why: str) -> _NoMessage:
    return _NoMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=why)))


def _line(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


class _Lines:
    """Lines from stdin and to stdout."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stdin, self._stdout = _taken(_STDIN), _taken(_STDOUT)
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a descriptor is wanted
            os.dup2(nothing.fileno(), _STDIN)
        os.dup2(_STDERR, _STDOUT)
        self._received: asyncio.Queue[bytes | None] = asyncio.Queue()  # None: the host is gone
        self._room = threading.Semaphore(_READ_AHEAD)
        self._to_write: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        for work in (self._read_all, self._write_all):
            threading.Thread(target=work, name=f"mcp-{work.__name__}", daemon=True).start()

    async def lines(self) -> AsyncIterator[bytes]:
        while (line := await self._received.get()) is not None:
            self._room.release()
            if line.strip():
                yield line

    async def write(self, line: bytes) -> None:
        """Returns when the line is written, or cannot be."""
        written: asyncio.Future[None] = self._loop.create_future()
        self._to_write.put((line, written))
        await written

    def restore(self) -> None:
        """Gives the descriptors back. The private ones stay open: a thread may still wait in them."""
        os.dup2(self._stdin, _STDIN)
        os.dup2(self._stdout, _STDOUT)

    # ── in threads ───────────────────────────────────────────────────────────────────────────────────────────

    def _read_all(self) -> None:
        with suppress(OSError), os.fdopen(self._stdin, "rb", closefd=False) as stdin:
            for line in stdin:
                self._room.acquire()
                if not self._tell(self._received.put_nowait, line):
                    return
        self._tell(self._received.put_nowait, None)

    def _write_all(self) -> None:
        is_gone = False
        while True:
            line, written = self._to_write.get()
            if not is_gone:
                try:
                    _write_whole(self._stdout, line)
                except OSError:
                    is_gone = True
                    self._tell(self._received.put_nowait, None)
            self._tell(_settle, written)

    def _tell(self, call: Any, argument: Any) -> bool:
        """False where the loop is closed: the process ends."""
        try:
            self._loop.call_soon_threadsafe(call, argument)
        except RuntimeError:
            return False
        return True


def _settle(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)


def _taken(fd: int) -> int:
    """A private copy of the descriptor, which no program that we start inherits (PEP 446)."""
    return os.dup(fd)


def _write_whole(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
