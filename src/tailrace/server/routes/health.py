"""`/healthz`, `/readyz`, `/metrics`: liveness, readiness, Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from aiohttp import web

from tailrace.errors import JournalError
from tailrace.server.http.api_errors import ApiError, as_api_error
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Route, json_response

READY_S: Final = 2.0  # a journal that takes longer counts as unavailable


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """`running`: runs that this process executes; `requests`: in flight, this one included. `degraded`: what does not
    work although new work is taken, and why: a chat platform that is not connected, say."""

    running: int
    requests: int
    status: Literal["ready"] = "ready"
    degraded: dict[str, str] = {}


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def health(_: web.Request) -> web.Response:
        """The process is alive."""
        return json_response(Health())

    async def readiness(_: web.Request) -> web.Response:
        """The process can take work: the journal can be read and written. Otherwise 503 with the reason."""
        try:
            async with asyncio.timeout(READY_S):
                await pipeline.app.journal.check()
        except TimeoutError as exc:
            raise ApiError(503, "the journal does not answer", code="journal_unavailable") from exc
        except JournalError as exc:
            raise as_api_error(exc) from exc
        app = pipeline.app
        degraded = {name: app.redactor.redact(reason) for name, reason in app.degraded.items()}
        return json_response(Readiness(len(app.agents.running), pipeline.in_flight, degraded=degraded))

    async def metrics(_: web.Request) -> web.Response:
        """Prometheus metrics."""
        return web.Response(
            body=pipeline.metrics.text().encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    return (
        Route("GET", "/healthz", health, "open", answer=Health),
        Route("GET", "/readyz", readiness, "any", answer=Readiness, errors=(503,)),
        Route("GET", "/metrics", metrics, "admin", answer={"type": "string"}, media_type="text/plain"),
    )
