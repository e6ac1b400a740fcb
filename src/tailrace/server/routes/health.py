"""`/healthz`, `/readyz`, `/metrics`: liveness, readiness, Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from aiohttp import web

from tailrace.app.health import reasons_of, unavailable_parts
from tailrace.messages import JsonObject
from tailrace.server.http.api_errors import ApiError, as_api_error
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Route, json_response

IN_ANOTHER_WORKER = "it is not connected; the log says why"  # of a platform that another worker of this server serves


class Health(msgspec.Struct, frozen=True):
    """`stopping`: new work is refused, and what is in flight may end. A balancer that reads it sends nothing more."""

    status: Literal["ok", "stopping"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """`running`: turns of the agent that are executed; `requests`: in flight, this one included; both of all workers.
    `degraded`: what does not work although new work is taken, and why: the bus, or a chat platform that is not
    connected."""

    running: int
    requests: int
    status: Literal["ready"] = "ready"
    degraded: dict[str, str] = {}


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def health(_: web.Request) -> web.Response:
        """The process is alive, also while it stops."""
        if not pipeline.draining:
            return json_response(Health())
        response = json_response(Health("stopping"))
        response.force_close()  # of several workers that share the address, another one may answer the next time
        return response

    async def readiness(_: web.Request) -> web.Response:
        """The server can take work: the store can be read and written. Otherwise 503, which names what of store and bus
        is not there, and why. A bus that is away is `degraded`: nothing is lost without it."""
        app, metrics = pipeline.app, pipeline.metrics
        missing = await unavailable_parts(app.journal, app.bus)
        pipeline.storage_failed = "store" in missing
        reasons: dict[str, str] = {part: app.redactor.redact(why) for part, why in reasons_of(missing).items()}
        if "store" in missing:
            told = as_api_error(missing["store"])
            unavailable: JsonObject = {"unavailable": reasons}
            raise ApiError(503, str(told), code=told.code, headers=told.headers, details=unavailable)
        down = {name: IN_ANOTHER_WORKER for (name,), is_down in metrics.platforms_down.values.items() if is_down}
        down |= app.degraded
        degraded = {name: app.redactor.redact(reason) for name, reason in down.items()}
        return json_response(
            Readiness(int(metrics.running.value), int(metrics.in_flight.value), degraded={**degraded, **reasons})
        )

    async def metrics(_: web.Request) -> web.Response:
        """Prometheus metrics."""
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=pipeline.metrics.text().encode(), headers=headers)

    return (
        Route("GET", "/healthz", health, "open", answer=Health),
        Route("GET", "/readyz", readiness, "any", answer=Readiness, errors=(503,)),
        Route("GET", "/metrics", metrics, "admin", answer={"type": "string"}, media_type="text/plain"),
    )
