"""The server put together: its routes, its request pipeline, its address.

The only module here that knows every route module. A route module has `routes(pipeline) -> Sequence[Route]`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias, cast

from aiohttp import web

from tailrace.app import App
from tailrace.config.load import Config
from tailrace.errors import TailraceError
from tailrace.plugins.installed import installed
from tailrace.server.http.address import Address, SharedAddress
from tailrace.server.http.auth import Authoriser, Origins, check_bind
from tailrace.server.http.body_budget import ARRIVING_BYTES, BodyBudget
from tailrace.server.http.listener import ConnectionLimits, listening
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.route import Route
from tailrace.server.http.sse_stream import StreamTiming
from tailrace.server.metrics.loop_lag import observed_lag
from tailrace.server.metrics.registry import Metrics
from tailrace.server.routes import (
    about,
    approvals,
    conversations,
    health,
    openapi,
    page,
    runs,
    sequences,
    sessions,
    usage,
)
from tailrace.server.routes.admin import keys, operations
from tailrace.server.routes.streams import durable_stream
from tailrace.server.v1 import anthropic_messages, chat_completions, models
from tailrace.server.v1.responses import compact_route
from tailrace.server.v1.responses import routes as responses

log = logging.getLogger("tailrace.server")
BODIES_AT_ONCE = 2  # of the largest size; what they are decoded to takes as much again
RouteModule: TypeAlias = Callable[[RequestPipeline], Sequence[Route]]
MODULES: tuple[RouteModule, ...] = (
    health.routes,
    about.routes,
    models.routes,
    chat_completions.routes,
    responses.routes,
    compact_route.routes,
    conversations.routes,
    anthropic_messages.routes,
    runs.routes,
    durable_stream.routes,
    sessions.routes,
    approvals.routes,
    usage.routes,
    operations.routes,
    keys.routes,
    sequences.routes,
    page.routes,
)


def _integration_routes(pipeline: RequestPipeline) -> list[Route]:
    """The routes of the integrations. An integration whose routes cannot be used is logged and left out."""
    routes: list[Route] = []
    for name, found in installed().items():
        try:
            if found.integration.routes:
                routes += found.call_for_each(Route, found.integration.routes, pipeline, check=_check_route)
        except TailraceError as exc:
            log.error("the routes of %s are not served: %s", name, exc)  # noqa: TRY400 - ours: one line says it
    return routes


def _check_route(route: Route) -> None:
    """Raises what the router raises for a method, a path or a handler that it cannot use."""
    web.UrlDispatcher().add_route(route.method, route.path, cast("Any", route.handler))


class Serving(NamedTuple):
    """A running server: its address and its pipeline."""

    url: str
    pipeline: RequestPipeline


def build(
    app: App,
    *,
    extra: Iterable[RouteModule] = (),
    metrics: Metrics | None = None,
    timing: StreamTiming | None = None,
    workers: int = 1,
) -> tuple[RequestPipeline, web.Application]:
    """The pipeline and the application for this config. `extra` are route modules of other rooms, signed webhooks
    for instance: their access is `open`, because the signature authenticates them. `workers` processes share the memory
    for request bodies: each has its part, and room for one body of the largest size. Raises `ConfigError`."""
    settings = app.config.server
    authoriser = Authoriser.of(app.config, app.stored_keys)
    max_body_bytes = int(settings.max_body_mb * 1_000_000)
    pipeline = RequestPipeline(
        app,
        authoriser=authoriser,
        origins=Origins(hosts=settings.hosts, origins=settings.cors_origins, any_host=authoriser.required),
        metrics=metrics,
        timing=timing,
        max_requests=settings.max_requests,
        body_budget=BodyBudget((max_body_bytes + ARRIVING_BYTES) * max(workers, BODIES_AT_ONCE) // workers),
    )
    app.can_ask = True
    app.agents.on_running = pipeline.metrics.running.set
    app.platforms_down.watch(lambda name, down: pipeline.metrics.platforms_down.set(int(down), name))
    routes = [route for module in MODULES for route in module(pipeline)]
    routes += _integration_routes(pipeline)
    routes += [route for module in extra for route in module(pipeline)]
    routes += openapi.routes(routes)
    return pipeline, pipeline.application(routes, max_body_bytes=max_body_bytes)


@asynccontextmanager
async def serving(
    app: App,
    *,
    host: str | None = None,
    port: int | None = None,
    extra: Iterable[RouteModule] = (),
    metrics: Metrics | None = None,
    timing: StreamTiming | None = None,
    limits: ConnectionLimits | None = None,
    shared: SharedAddress | None = None,
) -> AsyncGenerator[Serving, None]:
    """Serves within the block, at the config's address unless another is given, or at one that other processes serve
    too. Raises `ConfigError`, also for a public address without a key (J117)."""
    settings = app.config.server
    pipeline, application = build(
        app, extra=extra, metrics=metrics, timing=timing, workers=shared.workers if shared is not None else 1
    )
    address = shared if shared is not None else address_of(app.config, host=host, port=port)
    listener = listening(pipeline, application, address, drain_s=settings.drain_s, limits=limits)
    async with listener as url:
        with observed_lag(pipeline.metrics.loop_lag.observe):
            yield Serving(url, pipeline)


def address_of(config: Config, *, host: str | None = None, port: int | None = None) -> Address:
    """The config's address, or what replaces it. Raises `ConfigError` for a public one without a key (J117)."""
    settings = config.server
    host = settings.host if host is None else host
    check_bind(host, Authoriser.of(config), settings.key_env)
    return Address(host, settings.port if port is None else port)
