"""The heads of responses: what every answer says of itself, and the whole head of a stream as bytes.

A stream's head is the same for every request but for a few fields, so it is joined from bytes that are made once a
second, and leaves with the first events in one write: some forty calls less than the HTTP library's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate
from typing import Final

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict, CIMultiDictProxy

from tailrace.app.http_connection import SERVER_NAME
from tailrace.server.http.auth import Origins
from tailrace.server.http.request_body import IGNORED, LEFT, REQUEST_ID
from tailrace.system.private_apis import request_values

STREAM_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx and its kin pass each event on as it comes (H91)
    "X-Content-Type-Options": "nosniff",
    "Server": SERVER_NAME,
}
NO_HEADERS: Final[CIMultiDictProxy[str]] = CIMultiDictProxy(CIMultiDict())
_CONTENT_TYPE: Final = f"Content-Type: {STREAM_HEADERS['Content-Type']}\r\n".encode()
_EXPOSED: Final = (
    "X-Request-Id, Request-Id, Retry-After, X-Tailrace-Ignored, ETag, "
    "Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed"
)


class ResponseHeads:
    """What the heads of one server's responses have in common."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._second = 0  # of the date in the bytes below
        self._kept = self._closed = self._old = b""

    async def finish(self, request: web.Request, response: web.StreamResponse) -> None:
        """Completes the head of a response that the HTTP library sends: for `on_response_prepare`."""
        headers = response.headers
        headers.update(self._own_headers(request))
        headers["X-Content-Type-Options"] = "nosniff"
        headers[hdrs.SERVER] = SERVER_NAME
        if "Access-Control-Allow-Origin" in headers:
            headers.setdefault("Vary", "Origin")

    def of_stream(self, request: web.Request, headers: Mapping[str, str] | None = None) -> bytes:
        """The whole head of a stream of events. Raises `ValueError` for a field that would end it."""
        second = int(time.time())
        if second != self._second:
            self._make_constant(second)
        kept = self._kept if request.keep_alive else self._closed
        constant = kept if request.version >= HttpVersion11 else self._old
        values, given = request_values(request), request.headers
        is_usual = REQUEST_ID in values and LEFT not in values and IGNORED not in values
        if headers is None and is_usual and "anthropic-version" not in given and hdrs.ORIGIN not in given:
            return b"%bX-Request-Id: %b\r\n\r\n" % (constant, values[REQUEST_ID].encode())  # nearly every answer
        fields = self._own_headers(request)
        if "Access-Control-Allow-Origin" in fields:
            fields["Vary"] = "Origin"
        if headers:
            fields.update(headers)
            if "Content-Type" in headers:
                constant = constant.replace(_CONTENT_TYPE, b"")
        rest = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
        if rest.count("\r") != len(fields) or rest.count("\n") != len(fields) or "\0" in rest:
            raise ValueError("a header of the answer holds a line end")
        return b"%b%b\r\n" % (constant, rest.encode())

    def _make_constant(self, second: int) -> None:
        fields = {**STREAM_HEADERS, "Date": formatdate(second, usegmt=True)}
        common = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
        chunked = f"HTTP/1.1 200 OK\r\n{common}Transfer-Encoding: chunked\r\n"
        self._kept, self._closed = chunked.encode(), f"{chunked}Connection: close\r\n".encode()
        self._old = f"HTTP/1.0 200 OK\r\n{common}".encode()  # its body ends with the connection
        self._second = second

    def _own_headers(self, request: web.Request) -> dict[str, str]:
        """The fields that differ from one answer to the next."""
        fields: dict[str, str] = {}
        values = request_values(request)
        if (request_id := values.get(REQUEST_ID)) is not None:
            fields["X-Request-Id"] = request_id
            if "anthropic-version" in request.headers:  # where Anthropic's SDKs look for it
                fields["Request-Id"] = request_id
        if left := values.get(LEFT):
            fields.update(left)
        if ignored := values.get(IGNORED):
            fields["X-Tailrace-Ignored"] = ", ".join(ignored)
        if hdrs.ORIGIN in request.headers:
            origins = request.headers.getall(hdrs.ORIGIN)
            if len(origins) == 1 and self._origins.allows(origins[0]):
                fields["Access-Control-Allow-Origin"] = origins[0]
                fields["Access-Control-Expose-Headers"] = _EXPOSED
        return fields


class StreamSent(web.StreamResponse):
    """What the HTTP library is given for a stream that was written past it: nothing is left to send. It holds nothing
    of any request, so all of them share two of it."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._connection_kept = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._connection_kept

    async def prepare(self, _request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, _data: bytes = b"") -> None:
        return


CONNECTION_KEPT: Final = StreamSent(keep_alive=True)
CONNECTION_CLOSED: Final = StreamSent(keep_alive=False)
