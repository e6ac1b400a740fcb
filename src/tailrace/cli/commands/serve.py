"""`tailrace serve`: the API, the web page and every enabled platform, until a signal stops it.

The first SIGINT or SIGTERM starts the drain: no new work, requests in flight have `server.drain_s`. If another process
lives, runs go on there at once; otherwise they have as long, and the next process goes on with those that have not
ended by then. The second signal ends it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tailrace.cli.argument_types import PORT
from tailrace.cli.main import DONE, INTERRUPTED
from tailrace.cli.signals import loop_factory, stop_event
from tailrace.config.load import Config
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from aiohttp import web

    from tailrace.app import App
    from tailrace.platforms.runtime.gateway import Gateway
    from tailrace.server.http.pipeline import RequestPipeline
    from tailrace.server.http.route import Route

log = logging.getLogger("tailrace.serve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="the address to bind; any other than loopback needs a key")
    parser.add_argument("--port", type=PORT, help="0 takes any free port")
    parser.add_argument("--log", choices=("text", "json"), default="text", help="the format of the log on stderr")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 after an orderly stop. Raises `ConfigError` for an address that may not or cannot be bound."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(_serve(args, config))
        except asyncio.CancelledError:
            return INTERRUPTED
    return DONE


async def _serve(args: argparse.Namespace, config: Config) -> None:
    from tailrace.app import open_app
    from tailrace.app.logging_setup import configure
    from tailrace.platforms.runtime.gateway import Gateway
    from tailrace.server.app import serving
    from tailrace.server.metrics.call_metrics import count_calls, count_runs
    from tailrace.server.metrics.registry import Metrics

    stop = stop_event()
    metrics = Metrics()
    counted, lag = [count_calls(metrics)], metrics.journal_lag
    async with open_app(config, middleware=counted, on_end=count_runs(metrics), on_lag=lag.observe) as app:
        configure(app.redactor, form=args.log, level=args.log_level or "info")
        async with (
            app.processes,
            Gateway(app) as gateway,
            serving(app, host=args.host, port=args.port, metrics=metrics, extra=[_hooks(gateway)]) as server,
        ):
            if recovered := await app.recover():
                log.info("resuming %d unfinished runs", len(recovered))
            print(f"tailrace listens on {server.url}", flush=True)  # noqa: T201 - this command's output
            gc.collect()
            gc.freeze()  # what is here now stays: no collection looks at it again (L148)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_warm_up(app)), group.create_task(app.keep_recovering())]
                await stop.wait()
                for task in tasks:
                    task.cancel()
            log.info("stopping; requests in flight have %g s to end", config.server.drain_s)
            server.pipeline.draining = True
            await gateway.hand_over()
            await app.hand_over()


async def _warm_up(app: App) -> None:
    """Loads the embedded model where it is configured, so that the first question does not wait for it."""
    if app.config.model.provider != "local":
        return
    try:
        await app.models.local.start()
    except TailraceError as exc:
        log.warning("the embedded model is not ready: %s", exc)


def _hooks(gateway: Gateway) -> Callable[[RequestPipeline], Sequence[Route]]:
    """The platforms' webhooks as routes: open, because their signature authenticates them (J120)."""
    from tailrace.platforms.runtime.webhooks import MAX_HOOK_BYTES, answer
    from tailrace.server.http.request_body import read_body
    from tailrace.server.http.route import Route

    async def handle(request: web.Request) -> web.StreamResponse:
        return await answer(gateway, request, await read_body(request, max_bytes=MAX_HOOK_BYTES, as_json=False))

    def routes(_: RequestPipeline) -> Sequence[Route]:
        return [
            Route(method, path, handle, "open", "A platform's signed webhook.")
            for path in gateway.hook_paths
            for method in ("GET", "POST")
        ]

    return routes
