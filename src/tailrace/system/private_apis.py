"""Every use of a library's private names: an upgrade that changes one fails in this module's tests, in one place.

Each function says why the public API does not do. Nothing is imported at run time: importing this module loads no
library, and every layer may use it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

    from aiohttp import web
    from aiohttp.abc import AbstractStreamWriter
    from multidict import CIMultiDictProxy
    from prompt_toolkit.application import Application
    from rich.color import ColorSystem
    from rich.console import Console

Connection = TypeVar("Connection", bound="web.RequestHandler")

# ── aiohttp ──────────────────────────────────────────────────────────────────────────────────────────────────


def request_count(connection: web.RequestHandler) -> int:
    """How many requests this connection has brought. aiohttp has no deadline for the first one's head."""
    return connection._request_count


def new_http_connection(kind: type[Connection], server: web.Server, loop: asyncio.AbstractEventLoop) -> Connection:
    """A connection of our own class, with the runner's settings. `web.Server` always makes the library's."""
    return kind(server, loop=loop, **server._kwargs)


def reading_is_paused(connection: web.RequestHandler) -> bool:
    """Whether a body has more bytes buffered than it should, so that neither the socket nor the parser goes on."""
    return connection._reading_paused


is_writing_paused: Final[Callable[[web.RequestHandler], bool]] = attrgetter("_paused")
"""Whether the transport's buffer is above its high-water mark. `writing_paused` says the same by a function in Python,
and it is asked for each viewer of each token."""


def set_headers(request: web.BaseRequest, headers: CIMultiDictProxy[str]) -> None:
    """The headers of a request that was made from a message without any, which all requests of a route share. And none,
    for a stream that lets go of its client's headers once they have been read."""
    request._headers = headers
    request._cache.pop("headers", None)


def set_writer(request: web.BaseRequest, writer: AbstractStreamWriter) -> None:
    """What the response is written by. Most answers are streams, which are written past it."""
    request._payload_writer = writer


def fill_request(
    request: web.Request, headers: CIMultiDictProxy[str], match_info: web.UrlMappingMatchInfo, body: bytes
) -> None:
    """A request as the HTTP library's parser and router would have made it: its headers, the route that it matches, and
    its body, which was here before."""
    set_headers(request, headers)
    request._match_info = match_info
    request._read_bytes = body


def take_whole_body(request: web.BaseRequest) -> bytes | None:
    """The body that `fill_request` has set, once: a stream that goes on for hours does not hold it."""
    if (body := request._read_bytes) is not None:
        request._read_bytes = None
    return body


HTTP_CHUNK: Final = b"%x\r\n%b\r\n"  # what `http_chunk` does, for where a call of it is too much: of length and data


def http_chunk(data: bytes) -> bytes:
    """A chunk as aiohttp's writer frames it, for writing to the transport past that writer: `write` is a coroutine, and
    one per event is what a stream's speed would be lost on. Never for empty data: an empty chunk is the end."""
    return HTTP_CHUNK % (len(data), data)


request_values: Final[Callable[[web.BaseRequest], dict[Any, Any]]] = attrgetter("_state")
"""What was set on a request. Its own `get` raises and catches an error for each value that is not there."""


# ── prompt_toolkit ───────────────────────────────────────────────────────────────────────────────────────────


def redraw(app: Application[Any]) -> None:
    """Draws now, inside our own frame. `invalidate` draws at some later tick."""
    app._redraw()


def runs_in_terminal(app: Application[Any]) -> bool:
    """Whether an `in_terminal` block has the screen."""
    return app._running_in_terminal


def on_resize(app: Application[Any], callback: Callable[[], None]) -> None:
    """Calls this when the window's size changes, in place of the library's own erasing and drawing."""
    app._on_resize = callback  # type: ignore[method-assign]  # the only hook: SIGWINCH calls the attribute


# ── rich ─────────────────────────────────────────────────────────────────────────────────────────────────────


def color_system(console: Console) -> ColorSystem | None:
    """What `Style.render` takes. The public `color_system` is its name only."""
    return console._color_system
