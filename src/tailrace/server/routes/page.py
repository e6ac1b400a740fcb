"""`/`: the web page, static files without a build step. Served without a key: they hold no secret.

Every file below `server/web` is served at its own path below `/web/`, and beside them the table of slash commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from aiohttp import web

from tailrace.app.slash_commands import commands_of
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Handler, Route

_MEDIA_TYPES: Final = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Only our own scripts run, and they may connect to this server only: model output cannot load anything (J123).
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def routes(_: RequestPipeline) -> Sequence[Route]:
    return tuple(
        Route(
            "GET",
            path,
            _serve(content, media_type),
            "open",
            f"The web page: {name}.",
            answer={"type": "string"},
            media_type=media_type,
        )
        for name, media_type, content in _page()
        for path in (("/", "/docs") if name == "index.html" else (f"/web/{name}",))
    )


@cache
def _page() -> tuple[tuple[str, str, bytes], ...]:
    commands = msgspec.json.encode(tuple(commands_of("page").values()))
    table = ("conversation/slash_commands.js", "text/javascript", b"export default %b;\n" % commands)
    return (*_page_files(files("tailrace.server") / "web"), table)


def _page_files(directory: Traversable, prefix: str = "") -> Iterator[tuple[str, str, bytes]]:
    """The path, the media type and the content of each file, in the order of their names."""
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _page_files(entry, f"{prefix}{entry.name}/")
        elif media_type := _MEDIA_TYPES.get(f".{entry.name.rpartition('.')[2]}"):
            yield prefix + entry.name, media_type, entry.read_bytes()


def _serve(content: bytes, media_type: str) -> Handler:
    etag = sha256(content).hexdigest()[:32]

    async def serve(request: web.Request) -> web.Response:
        if any(known.value in (etag, "*") for known in request.if_none_match or ()):
            unchanged = web.Response(status=304, headers=_HEADERS)
            unchanged.etag = etag
            return unchanged
        answer = web.Response(body=content, content_type=media_type, charset="utf-8", headers=_HEADERS)
        answer.etag = etag
        return answer

    return serve
