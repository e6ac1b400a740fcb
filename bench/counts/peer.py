"""The provider and the clients of a counted server, in lock step: one token at a time, and the next when it is there.

So the server reads each token by itself, whatever the machine is busy with, and the count is the same each time.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from typing import Any

import msgspec

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CHUNK = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "bench"}
TIMEOUT_S = 60.0


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    """A chat chunk as one HTTP chunk."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return http_chunk(b"data: %b\n\n" % msgspec.json.encode({**CHUNK, "choices": [choice]}))


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(number: int) -> str:
    return f" w{number:05d}"


def said(number: int) -> bytes:
    return event({"content": token(number)})


BEGIN = HEAD + event({"role": "assistant", "content": ""})
_REFUSED = b'{"error":{"message":"no such key","type":"invalid_request_error","code":"invalid_api_key"}}'
REFUSAL = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_REFUSED),
    _REFUSED,
)
END = event({}, "stop") + http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Provider:
    """Takes requests one at a time, over whichever connection they come."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._idle: list[socket.socket] = []
        self._all: list[socket.socket] = [self._listener]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def request(self) -> socket.socket:
        """The connection of the next request, read whole. Give it back by `done` when it is answered."""
        while True:
            ready, _, _ = select.select([self._listener, *self._idle], [], [], TIMEOUT_S)
            if not ready:
                raise TimeoutError("the server asked nothing of its provider")
            if ready[0] is self._listener:
                connection, _ = self._listener.accept()
                self._idle.append(connection)
                self._all.append(connection)
                continue
            connection = ready[0]
            self._idle.remove(connection)
            if _read_request(connection):
                return connection

    def done(self, connection: socket.socket) -> None:
        self._idle.append(connection)

    def close(self) -> None:
        for one in self._all:
            one.close()


def _read_request(connection: socket.socket) -> bool:
    """False where the server has closed it."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (got := connection.recv(65536)):
            return False
        data += got
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return True


class Client:
    """One connection to the server, kept over its requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        data = msgspec.json.encode(body) if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    def read_until(self, mark: bytes) -> bytes:
        data = b""
        while mark not in data:
            if not (got := self._socket.recv(262144)):
                raise ConnectionError(f"closed before {mark!r}: {data[-500:]!r}")
            data += got
        return data

    def read_whole(self) -> bytes:
        """A response with a length."""
        data = self.read_until(b"\r\n\r\n")
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(int(x[15:]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:"))
        while len(body) < length:
            body += self._socket.recv(262144)
        return body

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def clients(port: int, count: int) -> Iterator[list[Client]]:
    made = [Client(port) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.close()
