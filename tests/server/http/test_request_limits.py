"""Requests that are too large, too slow, too many or malformed: each is refused, and told why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from server.http_server import raw, running_server
from tailrace.server.http.json_shape import MAX_DEPTH, small_shape
from tailrace.server.http.listener import ConnectionLimits
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import read_object
from tailrace.server.http.route import Route
from tailrace.testing.clock import driven


def echo_routes(_: RequestPipeline) -> Sequence[Route]:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response(len(await read_object(request)))

    return [Route("POST", "/echo", echo, "any", "Counts.")]


@pytest.mark.parametrize("chunked", [False, True])
async def test_J126_a_body_that_is_too_large_gets_413(tmp_path: Path, chunked: bool) -> None:
    body: Any = b'{"input":"' + b"x" * 60_000 + b'"}'

    async def pieces() -> Any:
        for at in range(0, len(body), 10_000):
            yield body[at : at + 10_000]

    async with running_server(tmp_path, config="server: {max_body_mb: 0.05}\n") as server:
        data = pieces() if chunked else body
        async with server.client.post(server.url + "/runs", data=data) as response:
            assert response.status == 413
            assert (await response.json())["error"]["kind"] == "request_too_large"
        status, _ = await server.json("POST", "/runs", {"input": "x" * 1000})
    assert status == 201


async def test_J126_json_that_is_nested_without_end_gets_400(tmp_path: Path) -> None:
    async with running_server(tmp_path, extra=(echo_routes,)) as server:
        for depth in (MAX_DEPTH + 1, 5_000, 400_000):
            data = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
            async with server.client.post(server.url + "/echo", data=data) as response:
                assert response.status == 400
                assert "nested" in (await response.json())["error"]["message"]
        wide = b'{"a":[' + b",".join([b"[]"] * 5_000) + b'],"b":"' + b"[" * 5_000 + b'"}'
        async with server.client.post(server.url + "/echo", data=wide) as response:
            assert await response.json() == 2


def test_J126_depth_is_counted_outside_strings() -> None:
    filler = b"[" + b"[]," * 300 + b"1]"
    assert small_shape(filler).depth == 2
    assert small_shape(b'["' + b"[" * 900 + b'",' + filler + b"]").depth == 3
    assert small_shape(b'["\\"[[[", ' + b'"\\\\", ' + filler + b"]").depth == 3
    assert small_shape(b"[" * 500).depth == 500
    assert small_shape(b"").depth == 0


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"nul", b"\xff\xfe", b'{"input": "\\ud800"}', b'{"input": 1}', b'{"input": "x"} {}']
)
async def test_a_body_that_is_not_what_was_expected_gets_400(tmp_path: Path, data: bytes) -> None:
    async with running_server(tmp_path) as server, server.client.post(server.url + "/runs", data=data) as response:
        assert response.status == 400, await response.text()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the body is empty; expected JSON"),
        (b"[]", "the body: must be an object, not a list"),
        (b"{}", "model: is missing"),
        (b'{"model": "tailrace"}', "messages: is missing"),
        (
            b'{"model": "zzz", "messages": [{"role": "user", "content": "Hi"}]}',
            (
                "model: expected tailrace, <provider>/<model> or one of server.aliases, found 'zzz'; where a client "
                "cuts names at the slash, set server.aliases: {'zzz': '<provider>/zzz'}"
            ),
        ),
    ],
)
async def test_what_is_wrong_with_a_request_is_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    async with (
        running_server(tmp_path) as server,
        server.client.post(server.url + "/v1/chat/completions", data=data) as response,
    ):
        error = (await response.json())["error"]
    field = message.partition(":")[0]
    assert (error["message"], error["param"]) == (message, field if field in ("model", "messages") else None)


async def test_a_mistake_names_the_field(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        _, body = await server.json("POST", "/runs", {"input": "x", "durability": "eternal"})
        _, unknown = await server.json("POST", "/runs", {"input": "x", "modell": "y"})
        _, query = await server.json("GET", "/runs?limit=no")
        _, misspelt = await server.json("GET", "/runs?sesion=s")
        _, status = await server.json("GET", "/runs?status=broken")
        _, day = await server.json("GET", "/usage?since=yesterday")
    assert body["error"]["param"] == "durability"
    assert body["error"]["message"] == "durability: must be one of committed, fsync, memory, not 'eternal'"
    fields = "busy, durability, idempotency_key, input, model, previous_run, session"
    assert unknown["error"]["message"].endswith(f"there is no field 'modell'; there are {fields}")
    assert status["error"]["message"].startswith("status: must be one of completed, failed, ")
    assert day["error"]["message"] == "since: must be a day as 2026-11-30"
    assert (query["error"]["message"], query["error"]["param"]) == ("limit: must be a whole number, not text", "limit")
    assert "no such parameter: 'sesion'" in misspelt["error"]["message"]


@driven
async def test_J126_a_connection_that_is_slow_to_ask_is_cut(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with running_server(tmp_path, limits=ConnectionLimits(headers_s=10.0)) as server:
        started = loop.time()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port())
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        dribble = asyncio.ensure_future(_dribble(writer))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        dribble.cancel()
        writer.close()
        assert loop.time() - started == pytest.approx(10.0, abs=1.0)


async def _dribble(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"a")
        await asyncio.sleep(1.0)


@driven
async def test_J126_a_body_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        head = b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        answer = await raw(server.port(), head)
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_J126_a_head_that_is_too_large_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_server(tmp_path) as server:
        answer = await raw(
            server.port(), b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Big: " + b"a" * 40_000 + b"\r\n\r\n"
        )
    assert b" 400 Bad Request\r\n" in answer
    assert "aaaa" not in caplog.text, "what a peer sent may hold its key: it is not for the log (J114)"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n", 400),
        (b"FR(B / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 20_000 + b"\r\n\r\n", 400),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"BREW /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: tea\r\nConnection: close\r\n\r\n", 417),
        (b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 200),
    ],
)
async def test_what_is_no_request_gets_our_body_and_no_version(
    tmp_path: Path, request_bytes: bytes, status: int
) -> None:
    async with running_server(tmp_path) as server:
        answer = await raw(server.port(), request_bytes)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head[9:12] == b"%d" % status, answer
    assert b"\r\nServer: tailrace\r\n" in head + b"\r\n"
    assert b"aiohttp" not in answer
    assert b"Python" not in answer
    if status != 200:
        assert {*json.loads(body)["error"]} == {"kind", "message"}


async def test_more_requests_at_once_than_allowed_are_told_to_wait(tmp_path: Path) -> None:
    async with running_server(tmp_path, "silence", config="server: {max_requests: 1}\n") as server:
        run = await server.start()
        async with server.client.get(f"{server.url}/runs/{run}/stream") as response:
            assert response.status == 200
            async with server.client.get(server.url + "/runs") as second:
                assert second.status == 503
                assert second.headers["Retry-After"] == "1"
            async with server.client.get(server.url + "/healthz") as alive:
                assert alive.status == 200
        await server.app.agents.stop(run)
