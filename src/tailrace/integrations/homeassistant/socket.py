"""One connection to Home Assistant's web socket API: authentication, commands with their results, events.

https://developers.home-assistant.io/docs/api/websocket. Knows nothing of chats.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from tailrace.errors import PlatformError
from tailrace.gateway.connection_errors import no_connection
from tailrace.values.validation_words import decoding_problem

NAME = "homeassistant"
HEARTBEAT_S = 30.0  # a server that answers no ping is gone
CONNECT_S = 10.0  # for the connection and the authentication together
MAX_FRAME_BYTES = 4 << 20


class Fault(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class SocketMessage(msgspec.Struct, frozen=True):
    """The answer to a command (`success`, `error`, `result`), or an `event` of a subscription; `id` is the command's
    number."""

    type: str
    id: int = 0
    success: bool = False
    error: Fault = Fault()
    event: msgspec.Raw = msgspec.Raw(b"null")
    result: msgspec.Raw = msgspec.Raw(b"null")
    message: str = ""


_DECODER = msgspec.json.Decoder(SocketMessage)


class ConnectionLost(Exception):
    """The connection ended before the command was answered: it may have been carried out or not."""


class Socket:
    """An authenticated connection. Commands are answered only while the caller reads `events`."""

    def __init__(self, raw: aiohttp.ClientWebSocketResponse) -> None:
        self._raw = raw
        self._last = 0
        self._writing = asyncio.Lock()  # numbers must go up in the order in which they are written
        self._waiting: dict[int, asyncio.Future[SocketMessage]] = {}

    async def command(self, kind: str, fields: dict[str, Any]) -> SocketMessage:
        """Raises `ConnectionLost`."""
        return await self.result(await self.write(kind, fields))

    async def write(self, kind: str, fields: dict[str, Any]) -> int:
        """Sends a command and returns its number without waiting for the result. Raises `ConnectionLost`."""
        async with self._writing:
            self._last += 1
            number = self._last
            self._waiting[number] = asyncio.get_running_loop().create_future()
            try:
                await self._raw.send_str(msgspec.json.encode({"id": number, "type": kind, **fields}).decode())
            except (aiohttp.ClientError, ConnectionError) as exc:
                self._waiting.pop(number, None)
                raise ConnectionLost(str(exc)) from exc
        return number

    async def lone_command(self, kind: str, fields: dict[str, Any]) -> SocketMessage:
        """A command while no task reads `events`; what else comes is dropped. Raises `PlatformError`."""
        try:
            number = await self.write(kind, fields)
        except ConnectionLost as exc:
            raise PlatformError(f"the connection was lost: {exc}", platform=NAME) from exc
        del self._waiting[number]
        while (frame := await _receive(self._raw)).id != number:
            pass
        return frame

    async def result(self, number: int) -> SocketMessage:
        """Of a command that was written before; once. Raises `ConnectionLost`."""
        if (answer := self._waiting.get(number)) is None:
            raise ConnectionLost("the connection was lost")
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def events(self) -> AsyncGenerator[SocketMessage, None]:
        """Events until the connection is lost; every command in flight then fails. Raises `PlatformError`."""
        try:
            while True:
                frame = await _receive(self._raw)
                if frame.type == "event":
                    yield frame
                elif frame.type == "result" and (answer := self._waiting.get(frame.id)) and not answer.done():
                    answer.set_result(frame)
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionLost("the connection was lost"))
                    answer.exception()  # retrieved: a caller may not wait for the result
            self._waiting.clear()


@asynccontextmanager
async def connected(url: str, token: str) -> AsyncIterator[Socket]:
    """An authenticated connection to the server at this address. Raises `PlatformError`."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    address = urlunsplit((scheme, parts.netloc, f"{parts.path.rstrip('/')}/api/websocket", "", ""))
    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(CONNECT_S):
                raw = await session.ws_connect(address, heartbeat=HEARTBEAT_S, max_msg_size=MAX_FRAME_BYTES)
                try:
                    await _authenticate(raw, token)
                except BaseException:
                    await raw.close()
                    raise
        except aiohttp.WSServerHandshakeError as exc:
            raise PlatformError(_no_web_socket(exc.status, shown_url(url)), platform=NAME) from exc
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise PlatformError(no_connection(exc), platform=NAME) from exc
        try:
            yield Socket(raw)
        finally:
            await raw.close()


def shown_url(url: str) -> str:
    """The address without a password that may be in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _no_web_socket(status: int, url: str) -> str:
    """Why there is an answer at this address, and no web socket."""
    match status:
        case 400:
            return f"{url} refuses the request (400); is a proxy before it that its trusted_proxies do not have?"
        case 403:
            return f"{url} refuses this machine (403); is its address in Home Assistant's ip_bans.yaml?"
        case status if status >= 500:
            return f"{url} answers with the status {status}; is Home Assistant running behind it?"
        case _:
            return (
                f"no Home Assistant answers at {url} (status {status}); its address ends with the port, it has no path"
            )


async def _authenticate(raw: aiohttp.ClientWebSocketResponse, token: str) -> None:
    frame = await _receive(raw)
    if frame.type == "auth_required":
        await raw.send_str(msgspec.json.encode({"type": "auth", "access_token": token}).decode())
        frame = await _receive(raw)
    if frame.type == "auth_invalid":
        raise PlatformError(f"the token was refused ({frame.message})", platform=NAME, permanent=True)
    if frame.type != "auth_ok":
        raise PlatformError(f"expected auth_ok, not {frame.type}", platform=NAME)


async def _receive(raw: aiohttp.ClientWebSocketResponse) -> SocketMessage:
    """Raises `PlatformError` when the connection is lost."""
    received = await raw.receive()
    if received.type is not aiohttp.WSMsgType.TEXT:
        raise PlatformError("the connection was lost", platform=NAME)
    try:
        return _DECODER.decode(received.data)
    except msgspec.DecodeError as exc:
        raise PlatformError(f"a message could not be read: {decoding_problem(exc)}", platform=NAME) from exc
