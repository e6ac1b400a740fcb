"""`/about`: what a front end tells a person before the first question. Read from the config: it calls no provider."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from aiohttp import web

from tailrace import __version__
from tailrace.app.models import LOCAL
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Route, json_response


class About(msgspec.Struct, frozen=True):
    """`model`: `<provider>/<name>` of the configured model. `embedded`: it is the small model that runs on this
    machine. `tools`: those that the agent is offered with it. `max_body_bytes`: the largest body of a request."""

    version: str
    model: str
    embedded: bool
    directory: str
    tools: tuple[str, ...]
    max_body_bytes: int


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    app = pipeline.app

    async def about(_: web.Request) -> web.Response:
        """What answers here: the configured model, the agent's directory and its tools."""
        chosen, local = app.config.model, app.config.providers.get(LOCAL)
        return json_response(
            About(
                version=__version__,
                model=f"{chosen.provider}/{chosen.name}",
                embedded=chosen.provider == LOCAL and not (local and local.model_path),
                directory=str(app.directory),
                tools=app.offered_tools(),
                max_body_bytes=int(app.config.server.max_body_mb * 1_000_000),
            )
        )

    return (Route("GET", "/about", about, "runs", answer=About),)
