"""`/`: the web page, static files without a build step. Served without a key: they hold no secret."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Final

from aiohttp import web

from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Handler, Route

_FILES: Final = {
    "/": ("index.html", "text/html"),
    "/web/page.js": ("page.js", "text/javascript"),
    "/web/runview.js": ("runview.js", "text/javascript"),
    "/web/markdown.js": ("markdown.js", "text/javascript"),
    "/web/sse.js": ("sse.js", "text/javascript"),
    "/web/page.css": ("page.css", "text/css"),
}
# Only our own scripts run, and they may connect to this server only: model output cannot load anything (J123).
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def routes(_: RequestPipeline) -> Sequence[Route]:
    directory = files("tailrace.server") / "web"
    return tuple(
        Route(
            "GET",
            path,
            _serve((directory / name).read_bytes(), media_type),
            "open",
            f"The web page: {name}.",
            answer={"type": "string"},
            media_type=media_type,
        )
        for path, (name, media_type) in _FILES.items()
    )


def _serve(content: bytes, media_type: str) -> Handler:
    async def serve(_: web.Request) -> web.Response:
        return web.Response(body=content, content_type=media_type, charset="utf-8", headers=_HEADERS)

    return serve
