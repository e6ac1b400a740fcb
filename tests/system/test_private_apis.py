"""Each private name of a library that the project relies on, against the installed version of that library."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.http import StreamWriter
from multidict import CIMultiDict, CIMultiDictProxy
from prompt_toolkit.application import Application, create_app_session, in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.color import ColorSystem
from rich.console import Console

from tailrace.app.http_connection import HttpConnection
from tailrace.system.private_apis import (
    color_system,
    fill_request,
    is_writing_paused,
    new_http_connection,
    on_resize,
    reading_is_paused,
    redraw,
    request_count,
    request_values,
    runs_in_terminal,
    set_headers,
    set_writer,
    take_whole_body,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# ── aiohttp ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_of_another_class_has_the_runners_settings() -> None:
    class Own(web.RequestHandler):
        __slots__ = ()

    runner = web.AppRunner(web.Application(), keepalive_timeout=7.5, access_log=None)
    await runner.setup()
    try:
        assert runner.server is not None
        connection = new_http_connection(Own, runner.server, asyncio.get_running_loop())
        assert isinstance(connection, Own)
        assert connection.keepalive_timeout == 7.5
    finally:
        await runner.cleanup()


@asynccontextmanager
async def served(tmp_path: Path, handler: Handler, *hooks: Any) -> AsyncIterator[tuple[web.AppRunner, Path]]:
    application = web.Application()
    application.on_response_prepare.extend(hooks)
    application.router.add_get("/", handler)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(tmp_path / "socket")).start()
        yield runner, tmp_path / "socket"
    finally:
        await runner.cleanup()


async def get(path: Path, times: int = 1) -> list[tuple[int, bytes]]:
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client:
        answers = []
        for _ in range(times):
            async with client.get("http://test/") as response:
                answers.append((response.status, await response.read()))
        return answers


async def test_a_connection_counts_its_requests(tmp_path: Path) -> None:
    counts: list[int] = []

    async def handler(request: web.Request) -> web.Response:
        counts.append(request_count(request.protocol))
        return web.Response()

    async with served(tmp_path, handler) as (runner, path):
        assert runner.server is not None
        assert request_count(runner.server()) == 0
        await get(path, times=2)
    assert counts == [1, 2]


async def test_what_was_set_on_a_request_is_a_mapping(tmp_path: Path) -> None:
    key = web.RequestKey("key", str)
    found: list[object] = []

    async def handler(request: web.Request) -> web.Response:
        found.append(request_values(request).get(key))
        request[key] = "set"
        found.append(request_values(request).get(key))
        return web.Response()

    async with served(tmp_path, handler) as (_, path):
        await get(path)
    assert found == [None, "set"]


# ── prompt_toolkit ───────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def running(resized: Callable[[], None] = lambda: None) -> AsyncIterator[Application[int]]:
    with create_pipe_input() as source, create_app_session(input=source, output=DummyOutput()):
        app: Application[int] = Application(terminal_size_polling_interval=None)
        on_resize(app, resized)
        started = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(app.run_async(pre_run=started.set))
            await started.wait()
            yield app
            app.exit(result=0)


async def test_redraw_draws_at_once() -> None:
    async with running() as app:
        before = app.render_counter
        redraw(app)
        assert app.render_counter == before + 1


async def test_a_block_in_the_terminal_is_seen() -> None:
    async with running() as app:
        assert not runs_in_terminal(app)
        with set_app(app):
            async with in_terminal():
                assert runs_in_terminal(app)
        assert not runs_in_terminal(app)


@pytest.mark.skipif(not hasattr(signal, "SIGWINCH"), reason="no such signal here")
async def test_a_new_size_calls_the_callback_and_draws_nothing() -> None:
    resized = asyncio.Event()
    async with running(resized.set) as app:
        before = app.render_counter
        os.kill(os.getpid(), signal.SIGWINCH)
        async with asyncio.timeout(10):
            await resized.wait()
        assert app.render_counter == before


# ── rich ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "system"), [("truecolor", ColorSystem.TRUECOLOR), ("standard", ColorSystem.STANDARD), (None, None)]
)
def test_a_console_knows_its_color_system(name: Any, system: ColorSystem | None) -> None:
    assert color_system(Console(file=io.StringIO(), force_terminal=True, color_system=name)) is system


async def test_a_connection_says_whether_its_reading_is_paused(tmp_path: Path) -> None:
    sizes: list[int] = []
    paused = asyncio.Event()

    class Noting(HttpConnection):
        __slots__ = ()

        def pause_reading(self) -> None:
            super().pause_reading()
            paused.set()

    async def handler(request: web.BaseRequest) -> web.Response:
        await asyncio.wait_for(paused.wait(), 5)
        assert reading_is_paused(request.protocol)
        sizes.append(0)
        while piece := await request.content.readany():
            sizes[-1] += len(piece)
        assert not reading_is_paused(request.protocol)
        return web.Response()

    server, loop = web.Server(handler), asyncio.get_running_loop()
    path = str(tmp_path / "socket")
    listener = await loop.create_unix_server(lambda: new_http_connection(Noting, server, loop), path)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as client:
            for _ in range(2):
                paused.clear()
                async with client.post("http://test/", data=io.BytesIO(bytes(3_000_000))) as response:
                    assert response.status == 200
    finally:
        listener.close()
        await server.shutdown(1)
    assert sizes == [3_000_000, 3_000_000]


async def test_a_connection_says_whether_its_writing_is_paused() -> None:
    loop = asyncio.get_running_loop()
    connection = new_http_connection(web.RequestHandler, web.Server(_never_asked), loop)
    for changed in (connection.pause_writing, connection.resume_writing):
        changed()
        assert is_writing_paused(connection) is connection.writing_paused
    assert not is_writing_paused(connection)


async def _never_asked(_request: web.BaseRequest) -> web.StreamResponse:
    raise NotImplementedError


async def test_headers_and_a_body_that_were_here_before_the_request(tmp_path: Path) -> None:
    found: list[object] = []

    async def handler(request: web.Request) -> web.Response:
        found.append(take_whole_body(request))
        headers = CIMultiDictProxy(CIMultiDict({"X-A": "b"}))
        fill_request(request, headers, request.match_info, b"here")
        found.append(request.headers["x-a"])
        found.extend((await request.read(), take_whole_body(request), take_whole_body(request)))
        return web.Response()

    async with served(tmp_path, handler) as (_, path):
        assert await get(path) == [(200, b"")]
    assert found == [None, "b", b"here", b"here", None]


async def test_a_response_is_written_by_the_writer_that_its_request_is_given(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        writer = StreamWriter(request.protocol, asyncio.get_running_loop())
        set_writer(request, writer)
        set_headers(request, CIMultiDictProxy(CIMultiDict()))
        assert request.writer is writer
        assert not request.headers
        return web.Response(text="by it")

    async with served(tmp_path, handler) as (_, path):
        assert await get(path) == [(200, b"by it")]
