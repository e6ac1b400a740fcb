"""HTTP/1.1 requests out of bytes, sans-IO. There are limits, since what listens on a port hears from anyone."""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from tailrace.messages import Value

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024


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
    """Bytes in, whole requests out. The methods whose names begin with `on_` are the parser's callbacks."""

    def __init__(self) -> None:
        self._parser = HttpRequestParser(self)
        self._requests: list[HttpRequest] = []
        self._head_bytes = 0  # received since the last request, while the headers are not complete
        self.on_message_begin()

    @property
    def expects_continue(self) -> bool:
        """A client sent its headers and waits to be told that it may send the body."""
        waits = self._in_body and self._headers.get("expect", "").lower() == "100-continue"
        return waits and not self._body

    def feed(self, data: bytes) -> list[HttpRequest]:
        """The requests that these bytes complete. Raises `BadRequest`."""
        self._head_bytes += 0 if self._in_body else len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as exc:
            raise BadRequest(f"not an HTTP/1.1 request: {exc}") from exc
        size = int(self._headers.get("content-length", 0)) if self._in_body else 0
        if self._head_bytes > MAX_HEAD_BYTES or max(size, len(self._body)) > MAX_BODY_BYTES:
            raise BadRequest(f"the request exceeds {MAX_HEAD_BYTES} bytes of headers or {MAX_BODY_BYTES} of body")
        requests, self._requests = self._requests, []
        return requests

    def on_message_begin(self) -> None:
        self._target, self._body = b"", bytearray()
        self._headers: dict[str, str] = {}
        self._in_body = False

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # else it is a trailer
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method, target = self._parser.get_method().decode(), self._target.decode("latin-1")
        self._requests.append(HttpRequest(method, target, self._headers, bytes(self._body)))
        self._in_body = False
