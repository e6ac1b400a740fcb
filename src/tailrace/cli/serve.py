"""`tailrace serve`: the API and the web page, until it is told to stop.

The first SIGINT or SIGTERM ends it in order: no new work, what is under way has `server.drain_s`, runs that have not
ended by then are given back for the next process. The second ends it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace.cli.main import DONE, INTERRUPTED
from tailrace.config import Config
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.app import App

log = logging.getLogger("tailrace.serve")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="where to listen; any other than this machine needs a key")
    parser.add_argument("--port", type=int, help="0 is any free one")
    parser.add_argument("--log", choices=("text", "json"), default="text", help="how to write the log to stderr")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 after an orderly stop. Raises `ConfigError` for an address that may not or cannot be had."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            runner.run(_serve(args, config))
        except asyncio.CancelledError:
            return INTERRUPTED
    return DONE


async def _serve(args: argparse.Namespace, config: Config) -> None:
    from tailrace.app import open_app
    from tailrace.server.app import serving
    from tailrace.server.logs import configure
    from tailrace.server.metering import MeteredCaller, count_runs
    from tailrace.server.metrics import Metrics

    told_to_stop = _signalled()
    metrics = Metrics()
    caller, lag = MeteredCaller(metrics), metrics.journal_lag
    async with open_app(config, caller=caller, on_end=count_runs(metrics), on_lag=lag.observe) as app:
        configure(app.redactor, form=args.log)
        async with serving(app, host=args.host, port=args.port, metrics=metrics) as server:
            if recovered := [*await app.agents.recover(), *await app.flows.recover()]:
                log.info("going on with %d unfinished runs", len(recovered))
            print(f"tailrace listens on {server.url}", flush=True)  # noqa: T201 - what this command has to say
            async with asyncio.TaskGroup() as group:
                warming = group.create_task(_warm_up(app))
                await told_to_stop.wait()
                warming.cancel()
            log.info("stopping; what is under way has %g s to end", config.server.drain_s)


async def _warm_up(app: App) -> None:
    """Loads the embedded model where it is the one in use, so that the first question does not wait for it."""
    if app.config.model.provider != "local":
        return
    try:
        await app.models.local.start()
    except TailraceError as exc:
        log.warning("the embedded model is not ready: %s", exc)


def _signalled() -> asyncio.Event:
    """Set at the first signal; the second one cancels whoever called this."""
    told = asyncio.Event()
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def hear() -> None:
        if told.is_set() and task is not None:
            task.cancel()
        told.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: Ctrl-C cancels the runner's task
            loop.add_signal_handler(number, hear)
    return told


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop
