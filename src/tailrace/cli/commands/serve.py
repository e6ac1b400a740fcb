"""`tailrace serve`: the API, the web page and every enabled platform, until a signal stops it.

The first SIGINT or SIGTERM starts the drain: no new work, requests in flight have `server.drain_s`. If another process
lives, runs go on there at once; otherwise they have as long, and the next process goes on with the rest. The second
signal ends it at once. With several workers a small parent starts this in each of them, at one address and over one
store, and passes the signals on.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.cli.argument_types import PORT, whole_number
from tailrace.cli.main import DONE, FAILED, INTERRUPTED, print_error, with_origin
from tailrace.cli.signals import loop_factory, reload_event, stop_event
from tailrace.cli.start_line import key_line, model_problems, require_writable_store, start_line
from tailrace.config.error_place import with_place
from tailrace.config.load import Config
from tailrace.errors import ConfigError, TailraceError
from tailrace.plugins.installed import problems

if TYPE_CHECKING:
    from aiohttp import web

    from tailrace.app import App
    from tailrace.gateway.gateway import Gateway
    from tailrace.server.http.address import SharedAddress
    from tailrace.server.http.pipeline import RequestPipeline
    from tailrace.server.http.route import Route
    from tailrace.system.worker_processes import ParentLink

log = logging.getLogger("tailrace.serve")
FILES_BESIDE: Final = 100  # that a process has open for itself: the store, pipes, libraries
GRACE_S: Final = 15.0  # for workers to close everything after the drain; then they are killed


class _Worker(NamedTuple):
    """What a worker has from its parent."""

    link: ParentLink
    address: SharedAddress
    metrics_files: Sequence[int]
    group: str  # of the workers of one parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", help="the address to bind; any other than loopback needs a key")
    parser.add_argument("--port", type=PORT, help="0 takes any free port")
    workers = "processes that share the port and the store; 0: one per core"
    parser.add_argument("--workers", type=whole_number(0, 512), metavar="N", help=workers)
    parser.add_argument("--log", choices=("text", "json"), default="text", help="the format of the log on stderr")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 after an orderly stop. Raises `ConfigError` for an address that may not or cannot be bound."""
    from tailrace.server.garbage_collection import return_freed_memory
    from tailrace.system.open_files import allow_open_files
    from tailrace.system.worker_processes import usable_cores

    require_writable_store(config)
    allow_open_files()
    return_freed_memory()
    workers: int = config.server.workers if args.workers is None else args.workers
    count = workers or usable_cores()
    if count == 1 and not (_is_init() and _can_share(config)):
        return _run_process(args, config)
    return _run_workers(args, config, count)


def _is_init() -> bool:
    """Process 1, as in a container: orphans of tools become its children, and stay in the process table until it
    collects them. The parent of workers does that, so even one worker has a parent then."""
    return os.getpid() == 1


def _run_process(args: argparse.Namespace, config: Config, worker: _Worker | None = None) -> int:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(_serve(args, config, worker))
        except asyncio.CancelledError:
            return INTERRUPTED
    return DONE


def _run_workers(args: argparse.Namespace, config: Config, count: int) -> int:
    """Everything is imported before the first fork, so that the workers share it."""
    from tailrace.app.secrets.config_secrets import redactor_of
    from tailrace.app.telemetry.logging_setup import configure
    from tailrace.gateway import conversations as _conversations  # noqa: F401 - imported for the workers
    from tailrace.gateway import gateway as _gateway  # noqa: F401
    from tailrace.server.app import address_of
    from tailrace.server.metrics.values import mark_dead, new_values_files
    from tailrace.system.worker_processes import WorkerProcesses

    _check_shared(config)
    address = address_of(config, host=args.host, port=args.port).share(count)
    configure(redactor_of(config), form=args.log, level=args.log_level or "info")
    files, group = new_values_files(count), secrets.token_hex(6)

    def work(link: ParentLink) -> int:
        try:
            return _run_process(args, _newest(config), _Worker(link, address, files, group))
        except TailraceError as exc:
            print_error(str(with_origin(exc, args, config) if isinstance(exc, ConfigError) else exc))
            return FAILED

    def on_first_ready() -> None:
        _print_address(address.url())
        if count > 1:
            log.info("%d workers share the address", count)

    gc.collect()
    gc.freeze()  # a collection in a worker would copy the pages that it shares with its parent
    processes = WorkerProcesses(
        count,
        work,
        grace_s=config.server.drain_s + GRACE_S,
        on_first_ready=on_first_ready,
        on_death=lambda index: mark_dead(files[index - 1]),
    )
    return processes.run()


def _newest(config: Config) -> Config:
    """With what the other workers may have taken up since the start. Where the file has a mistake they have not."""
    from tailrace.cli.config_reload import read_again

    try:
        return read_again(config).config
    except ConfigError:
        return config


def _can_share(config: Config) -> bool:
    try:
        _check_shared(config)
    except ConfigError:
        return False
    return True


def _check_shared(config: Config) -> None:
    """Raises `ConfigError` where workers cannot share what they must."""
    if not hasattr(os, "fork"):
        raise ConfigError("this system has no fork; use 1", key="server.workers")
    if not config.store_is_kept:
        message = "each worker would have a store of its own; use sqlite:///tailrace.db, or one worker"
        raise ConfigError(message, key="store.url")
    if config.store.durability == "memory":
        message = "a run in memory is known to its own worker alone; use committed, or one worker"
        raise ConfigError(message, key="store.durability")


async def _serve(args: argparse.Namespace, config: Config, worker: _Worker | None) -> None:
    from tailrace.app import open_app
    from tailrace.app.secrets.config_secrets import redactor_of
    from tailrace.app.telemetry.logging_setup import configure
    from tailrace.cli.config_reload import ConfigReloads
    from tailrace.gateway.gateway import Gateway
    from tailrace.server.app import serving
    from tailrace.server.garbage_collection import collected_when_quiet
    from tailrace.server.metrics.call_metrics import count_attempts, count_calls, count_runs
    from tailrace.server.metrics.registry import Metrics
    from tailrace.server.metrics.values import WorkerValues

    stop, asked = stop_event(worker.link if worker else None), reload_event()
    metrics = Metrics(WorkerValues(worker.link.index, worker.metrics_files) if worker else None)
    lag = metrics.journal_lag
    index = worker.link.index if worker else None
    shared = worker.address if worker else None
    redactor = redactor_of(config)
    configure(redactor, form=args.log, level=args.log_level or "info", worker=index)
    async with open_app(
        config,
        middleware=[count_calls(metrics)],
        observers=[count_attempts(metrics)],
        on_end=count_runs(metrics),
        on_lag=lag.observe,
    ) as app:
        if worker is not None:
            app.processes.join_group(worker.group)
        async with (
            app.processes,
            Gateway(app) as gateway,
            serving(
                app, host=args.host, port=args.port, metrics=metrics, extra=[_hooks(gateway)], shared=shared
            ) as server,
        ):
            await app.recover()
            if worker is None:
                _print_address(server.url)
            else:
                worker.link.ready()
            if index in (None, 1):
                _log_config(config, gateway, workers=shared.workers if shared else 1)
            async with (
                collected_when_quiet(lambda: server.pipeline.in_flight + len(app.agents.running)),
                asyncio.TaskGroup() as group,
            ):
                tasks = [group.create_task(app.keep_recovering())]
                if index in (None, 1):  # each worker has an engine of its own: the others load it when they are asked
                    tasks.append(group.create_task(_warm_up(app)))
                parts = (server.pipeline.prepared_keys, gateway.prepared_platforms)
                await ConfigReloads(app, asked, redactor, parts).until(stop)
                app.hand_over_failing()
                for task in tasks:
                    task.cancel()
            log.info("stopping; requests in flight have %g s to end", config.server.drain_s)
            server.pipeline.begin_drain()
            if worker is not None and worker.link.told_to_stop:
                app.processes.end_with_group()
            elif worker is not None:
                worker.address.leave_to_others()  # they serve: no client gets a 503
            await gateway.hand_over()
            await app.hand_over()


def _print_address(url: str) -> None:
    print(f"tailrace listens on {url}", flush=True)  # noqa: T201 - this command's output


def _log_config(config: Config, gateway: Gateway, *, workers: int) -> None:
    """What this server was started with, in one line, and what of its config cannot be used."""
    from tailrace.system.open_files import allow_open_files

    started = (platform.name for platform in gateway.platforms)
    log.info("%s; %s", start_line(config, started), key_line(config))
    for problem in (*model_problems(config), *problems().values()):
        log.warning("%s", problem)
    if warning := files_warning(allow_open_files(), max_requests=config.server.max_requests, workers=workers):
        log.warning("%s", warning)


def files_warning(open_files: int, *, max_requests: int, workers: int = 1) -> str:
    """What to say where each process may have so few files open (0: any number) that all together cannot hold so many
    requests: a stream is two connections, the client's and the provider's. Near the limit new connections are
    refused."""
    streams = workers * (max(0, open_files - FILES_BESIDE) // 2)
    if not open_files or streams >= max_requests:
        return ""
    who = "this process" if workers == 1 else f"each of the {workers} workers"
    enough = f"{streams} streams" if workers == 1 else f"{streams} streams of all workers together"
    return (
        f"{who} may have {open_files} files open, enough for {enough}, and server.max_requests is "
        f"{max_requests}: raise the limit (ulimit -n, or LimitNOFILE= in a systemd unit), or lower max_requests"
    )


async def _warm_up(app: App) -> None:
    """Loads the embedded model where it is configured, so that the first question does not wait for it. What is not
    there yet is fetched with the first question: none may come for this model."""
    if app.config.model.provider != "local":
        return
    try:
        app.models.check_embedded(app.config.model)
        if not await asyncio.to_thread(app.models.local.downloads_first):
            await app.models.local.start()
    except ConfigError as exc:
        log.warning("the embedded model is not ready: %s", with_place(exc, app.config))
    except TailraceError as exc:
        log.warning("the embedded model is not ready: %s", exc)


def _hooks(gateway: Gateway) -> Callable[[RequestPipeline], Sequence[Route]]:
    """The platforms' webhooks as routes: open, because their signature authenticates them (J120)."""
    from tailrace.gateway.webhooks import MAX_HOOK_BYTES, answer
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
