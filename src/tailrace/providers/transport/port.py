"""What a provider needs of an HTTP client: two Protocols, and the code of an error that says nothing was sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

# Is given the bytes of a body as they arrive. True: it has enough.
BodySink: TypeAlias = Callable[[bytes], bool]
CANNOT_CONNECT = "cannot_connect"  # the code of an error: nothing was sent
EVENT_STREAM = "text/event-stream"
KEEPALIVE_S = 60.0  # how long an idle connection stays in the pool


class HttpReply(Protocol):
    """An answer whose status and headers have arrived."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in any case."""

    @property
    def is_event_stream(self) -> bool:
        """Its content type says so, and nothing else: no other header has to be read to tell."""
        return self.headers.get("content-type") == EVENT_STREAM

    async def read(self) -> bytes:
        """The next bytes of the body, decompressed; empty at its end. Raises `StreamCut` where the connection
        breaks first, after everything that had arrived was returned, and `PeerError` for a body that is not what
        its headers say."""

    async def pump(self, sink: BodySink) -> None:
        """Hands what `read` would return to the sink, up to the end of the body or until the sink has enough. Raises as
        `read` does, and what the sink raises. Calls the sink, in a copy of the caller's context, in the very callback
        in which the bytes arrive. What the sink did not get is left for `read`."""
        while data := await self.read():
            if sink(data):
                return

    def divert(self, _sink: BodySink | None, /) -> None:
        """While `pump` waits: this sink is asked first, with nothing around it, and what it returns False for goes the
        usual way. It must not raise. None: no sink is asked first. A transport may ignore it."""
        return

    def call_sink(self) -> None:
        """For a sink that is asked first: calls the one of `pump`, as `pump` does, with no bytes."""
        return

    @property
    def at_end(self) -> bool:
        """The body was received whole: `read` will not wait."""

    def close(self) -> None:
        """Drops the connection, or gives it back to the pool where the body was received whole. Never waits;
        idempotent."""


class Transport(Protocol):
    """A connection that is lost without a byte of an answer died while it was idle: the request is sent once more."""

    async def post(
        self, url: str, *, headers: Mapping[str, str], body: bytes, connect_timeout_s: float, socket_path: str = ""
    ) -> HttpReply:
        """Sends the request and returns when the headers of the answer are there. Follows no redirect. Cancelling
        drops the connection. Raises `TimedOut` ("connect"), `Unavailable`, `PeerError` or `Rejected`."""

    async def get(
        self, url: str, *, headers: Mapping[str, str], connect_timeout_s: float, socket_path: str = ""
    ) -> HttpReply:
        """The same without a body."""
