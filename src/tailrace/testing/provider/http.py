"""HTTP/1.1 requests out of bytes, sans-IO: just enough for the clients of model APIs.

Bodies come with a length or in chunks. There are limits, since what listens on a port hears from anyone.
"""

from __future__ import annotations

import re

from tailrace.messages import Value

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
_REQUEST_LINE = re.compile(r"([A-Z]+) (\S+) HTTP/1\.([01])")
_HEX = re.compile(rb"[0-9a-fA-F]{1,8}\Z")


class BadRequest(Exception):
    """These bytes are no HTTP request that is understood here. The connection is of no more use."""


class HttpRequest(Value):
    """`headers` are in lower case; a repeated one keeps its last value."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class RequestReader:
    """Bytes in, whole requests out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: HttpRequest | None = None

    @property
    def expects_continue(self) -> bool:
        """A client sent its headers and waits to be told that it may send the body."""
        waits = self._head is not None and self._head.headers.get("expect", "").lower() == "100-continue"
        return waits and not self._buffer

    def feed(self, data: bytes) -> list[HttpRequest]:
        """The requests that these bytes complete. Raises `BadRequest`."""
        self._buffer += data
        requests: list[HttpRequest] = []
        while (request := self._next()) is not None:
            requests.append(request)
        return requests

    def _next(self) -> HttpRequest | None:
        if self._head is None:
            self._head = self._take_head()
        if self._head is None:
            return None
        chunked = self._head.headers.get("transfer-encoding", "").lower() == "chunked"
        body = self._take_chunks() if chunked else self._take_sized(self._head)
        if body is None:
            return None
        head, self._head = self._head, None
        return HttpRequest(head.method, head.target, head.headers, body)

    def _take_head(self) -> HttpRequest | None:
        end = self._buffer.find(b"\r\n\r\n")
        if max(end, len(self._buffer) if end < 0 else 0) > MAX_HEAD_BYTES:
            raise BadRequest(f"headers exceed {MAX_HEAD_BYTES} bytes")
        if end < 0:
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        found = _REQUEST_LINE.fullmatch(first)
        if found is None:
            raise BadRequest(f"not an HTTP/1.1 request: {first[:80]!r}")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return HttpRequest(found[1], found[2], headers)

    def _take_sized(self, head: HttpRequest) -> bytes | None:
        stated = head.headers.get("content-length", "0")
        if not stated.isdecimal() or int(stated) > MAX_BODY_BYTES:
            raise BadRequest(f"content-length {stated[:20]!r} is not a size up to {MAX_BODY_BYTES}")
        size = int(stated)
        if len(self._buffer) < size:
            return None
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return body

    def _take_chunks(self) -> bytes | None:
        """The whole chunked body, or None while it is incomplete; trailers are dropped."""
        body, at = bytearray(), 0
        while True:
            line_end = self._buffer.find(b"\r\n", at)
            if line_end < 0:
                return None
            stated = bytes(self._buffer[at:line_end]).partition(b";")[0].strip()
            if not _HEX.match(stated) or len(body) + int(stated, 16) > MAX_BODY_BYTES:
                raise BadRequest(f"bad chunk size {stated[:20]!r}")
            size, start = int(stated, 16), line_end + 2
            if len(self._buffer) < start + size + 2:
                return None
            if size == 0:
                bare = self._buffer.startswith(b"\r\n", start)
                end = start if bare else self._buffer.find(b"\r\n\r\n", start) + 2
                if end < start:
                    return None
                del self._buffer[: end + 2]
                return bytes(body)
            body += self._buffer[start : start + size]
            at = start + size + 2
