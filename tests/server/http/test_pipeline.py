"""Whatever is asked and however it fails, the answer is one that the client's API has words for."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from server.http_server import raw, running_server
from tailrace.errors import (
    ConfigError,
    JournalError,
    Rejected,
    RunSealed,
    StorageFailed,
    StreamCut,
    TimedOut,
    Unavailable,
)
from tailrace.journal.storage_wait import PATIENCE_S
from tailrace.server.http.api_errors import ApiError, as_api_error, error_frame, error_object
from tailrace.server.http.json_shape import MAX_DEPTH, small_shape
from tailrace.server.http.listener import ConnectionLimits
from tailrace.server.http.pipeline import REQUEST_PATIENCE_S, RequestPipeline
from tailrace.server.http.request_body import read_object
from tailrace.server.http.route import Route
from tailrace.testing.clock import driven

DIALECTS = ("/v1/chat/broken", "/v1/messages/broken", "/runs-broken")


def broken_routes(_: RequestPipeline) -> Sequence[Route]:
    async def broken(_: web.Request) -> web.Response:
        raise RuntimeError("sk-very-secret at /home/somebody")

    return [Route("GET", path, broken, "any", "Fails.") for path in DIALECTS]


def echo_routes(_: RequestPipeline) -> Sequence[Route]:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response(len(await read_object(request)))

    return [Route("POST", "/echo", echo, "any", "Counts.")]


def patience_routes(pipeline: RequestPipeline) -> Sequence[Route]:
    async def patience(request: web.Request) -> web.Response:
        before = PATIENCE_S.get()
        pipeline.stream(request)
        return web.json_response([before, PATIENCE_S.get()])

    return [Route("GET", f"/{access}", patience, access, "Says it.") for access in ("any", "open")]


async def test_a_request_waits_a_few_seconds_for_storage_and_a_stream_as_long_as_its_run(tmp_path: Path) -> None:
    async with running_server(tmp_path, extra=(patience_routes,)) as server:
        assert await server.json("GET", "/any") == (200, [REQUEST_PATIENCE_S, None])
        assert await server.json("GET", "/open") == (200, [None, None])


@pytest.mark.parametrize("path", DIALECTS)
async def test_what_nobody_foresaw_is_an_internal_error_and_says_no_more(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_server(tmp_path, extra=(broken_routes,)) as server:
        status, body = await server.json("GET", path)
    assert status == 500
    assert "internal error" in json.dumps(body)
    assert "secret" not in json.dumps(body)
    assert "Traceback" not in json.dumps(body)
    assert [record for record in caplog.records if record.exc_info], "the log has the traceback"


async def test_a_viewer_that_leaves_is_no_line_of_the_access_log_and_other_clients_that_leave_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun, ended = asyncio.Event(), asyncio.Queue[str]()

    def endless_routes(_: RequestPipeline) -> Sequence[Route]:
        async def endless(request: web.Request) -> web.Response:
            begun.set()
            try:
                return await asyncio.Future()
            finally:
                ended.put_nowait(request.path)

        watch = Route("GET", "/watch", endless, "any", "Shows.", streams=True)
        return [watch, Route("POST", "/work", endless, "any", "Works.", streams=True)]

    caplog.set_level(logging.DEBUG, "tailrace.access")
    async with running_server(tmp_path, extra=(endless_routes,)) as server, asyncio.timeout(30):
        for method, path in (("GET", "/watch"), ("POST", "/work")):
            begun.clear()
            asking = asyncio.ensure_future(server.json(method, path))
            await begun.wait()
            asking.cancel()
            assert await ended.get() == path
    levels = {vars(record)["route"]: record.levelname for record in caplog.records if vars(record).get("status") == 499}
    assert levels == {"/watch": "DEBUG", "/work": "INFO"}


async def test_files_of_the_page_and_probes_are_not_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tailrace.access")
    async with running_server(tmp_path) as server, asyncio.timeout(30):
        for path in ("/", "/web/page.js", "/healthz", "/readyz", "/metrics"):
            async with server.client.get(f"{server.url}{path}") as response:
                assert response.status == 200
    levels = {vars(record)["route"]: record.levelname for record in caplog.records if "route" in vars(record)}
    assert levels == {"/": "INFO", "/web/page.js": "DEBUG", "/readyz": "DEBUG", "/metrics": "DEBUG"}


async def test_a_probe_that_fails_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away() -> None:
        raise StorageFailed("cannot write", reason="no space left to write the journal")

    caplog.set_level(logging.INFO, "tailrace.access")
    async with running_server(tmp_path) as server, asyncio.timeout(30):
        monkeypatch.setattr(server.app.journal, "check", away)
        status, _ = await server.json("GET", "/readyz")
    assert status == 503
    assert [vars(record)["status"] for record in caplog.records if vars(record).get("route") == "/readyz"] == [503]


async def test_a_client_that_leaves_before_the_end_is_no_error_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def leaving(_: RequestPipeline) -> Sequence[Route]:
        async def leave(request: web.Request) -> web.StreamResponse:
            stream = web.StreamResponse()
            await stream.prepare(request)
            assert request.transport is not None
            request.transport.close()  # as by a client that leaves at the last event, before the body's own end
            await stream.write(b"the end")
            return stream

        return [Route("GET", "/leaves", leave, "any", "The client leaves.")]

    async with running_server(tmp_path, extra=(leaving,)) as server:
        with suppress(aiohttp.ClientError):
            await server.json("GET", "/leaves")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_the_error_has_the_shape_of_the_api_that_was_spoken_to(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        _, openai = await server.json("GET", "/v1/models/nowhere/at-all")
        _, anthropic = await server.json("GET", "/v1/messages/none")
        status, plain = await server.json("GET", "/runs/run_none")
    assert openai["error"] == {
        "message": "no such model: 'nowhere/at-all'",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert (anthropic["type"], anthropic["error"]["type"]) == ("error", "not_found_error")
    assert anthropic["request_id"].startswith("req_")
    assert (status, plain["error"]["kind"]) == (404, "not_found")


async def test_a_method_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, server.client.delete(server.url + "/runs") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD, POST"
        assert (await response.json())["error"]["kind"] == "method_not_allowed"


async def test_every_answer_has_a_request_id_and_a_clients_own_is_kept(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        async with server.client.get(server.url + "/healthz") as response:
            assert response.headers["X-Request-Id"].startswith("req_")
        async with server.client.get(server.url + "/runs/x", headers={"X-Request-Id": "mine-1"}) as response:
            assert response.headers["X-Request-Id"] == "mine-1"
            assert (await response.json())["request_id"] == "mine-1"
        async with server.client.get(server.url + "/runs/x", headers={"X-Request-Id": "a b<script>"}) as response:
            assert response.headers["X-Request-Id"].startswith("req_")


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────


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
            "model: expected tailrace, <provider>/<model> or one of server.aliases, found 'zzz'",
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
    fields = "durability, idempotency_key, input, model, session"
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


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_a_server_that_stops_refuses_new_work_and_says_so_to_who_waits(tmp_path: Path) -> None:
    async with running_server(tmp_path, "silence") as server:
        run = await server.start()
        async with server.client.get(f"{server.url}/runs/{run}/stream?after=1") as response:
            before = await server.json("GET", "/healthz")
            drained = await server.pipeline.drain(5.0)
            late = await server.json("POST", "/runs", {"input": "late"})
            alive = await server.json("GET", "/healthz")
            await server.pipeline.stop()
            data = await response.content.read()
    assert not drained
    assert (late[0], late[1]["error"]["kind"]) == (503, "server_stopping")
    assert [before, alive] == [(200, {"status": "ok"}), (200, {"status": "stopping"})], "alive, and not to be sent more"
    assert data.endswith(b"\n\n")
    assert b"event: error" in data
    assert b"server_stopping" in data


@driven
async def test_what_a_client_asked_for_is_done_although_it_left_in_the_middle(tmp_path: Path) -> None:
    begun, left, go_on, done = (asyncio.Event() for _ in range(4))

    def slow(frame: RequestPipeline) -> Sequence[Route]:
        async def work() -> None:
            begun.set()
            await go_on.wait()
            done.set()

        async def handler(_: web.Request) -> web.Response:
            try:
                await frame.run_to_end(work())
            finally:
                left.set()
            return web.Response()

        return [Route("GET", "/slow", handler, "any", "Slow.")]

    async with running_server(tmp_path, extra=(slow,)) as server:
        asking = asyncio.ensure_future(server.client.get(server.url + "/slow"))
        await begun.wait()
        asking.cancel()
        await left.wait()
        assert not done.is_set()
        go_on.set()
        await server.pipeline.drain(1.0)
    assert done.is_set()


# ── translation ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("exc", "status", "code"),
    [
        (Rejected("too long", status=413, code="request_too_large"), 413, "request_too_large"),
        (Rejected("no", code="refused"), 502, "refused"),
        (
            Unavailable("slow down", status=429, code="rate_limit_exceeded", retry_after_s=3.2),
            429,
            "rate_limit_exceeded",
        ),
        (Unavailable("overloaded", status=529), 529, "overloaded"),
        (Unavailable("broken", status=500, code="api_error"), 502, "api_error"),
        (Unavailable("refused connection"), 502, "bad_gateway"),
        (TimedOut("silent", deadline="idle"), 504, "timeout"),
        (StreamCut("cut"), 502, "bad_gateway"),
        (RunSealed("ended"), 409, "conflict"),
        (ConfigError("no such provider", key="providers.x"), 404, "model_not_found"),
        (ConfigError("no such provider", key="providers.qwen2.5"), 404, "model_not_found"),
        (ConfigError("KEY is not set", key="providers.x.key_env"), 400, "not_configured"),
        (ConfigError("KEY is not set", key="providers.qwen2.5.key_env"), 400, "not_configured"),
        (ConfigError("is not a directory", key="agent.roots"), 503, "not_configured"),
        (JournalError("disk /var/x full"), 503, "journal_unavailable"),
        (TimeoutError(), 504, "gateway_timeout"),
        (KeyError("x"), 500, "internal_error"),
    ],
)
def test_each_failure_has_its_status(exc: Exception, status: int, code: str) -> None:
    error = as_api_error(exc)
    assert (error.status, error.code) == (status, code)
    assert "/var" not in str(error)


def test_a_model_without_a_key_is_refused_with_a_status_that_no_client_tries_again() -> None:
    error = as_api_error(ConfigError("KEY is not set in the environment", key="providers.x.key_env"))
    assert str(error) == (
        "this server is not set up for that model: providers.x.key_env: KEY is not set in the environment"
    )
    assert as_api_error(ConfigError("no", key="agent.roots")).headers == {"x-should-retry": "false"}


def test_what_a_provider_has_refused_is_not_asked_again() -> None:
    refused = Rejected("Incorrect API key provided", status=401, code="invalid_api_key", provider="openai")
    refused.tried = ("anthropic", "openai")
    error = as_api_error(refused)
    assert str(error) == "openai refused this server's key: Incorrect API key provided", "the client's own key is fine"
    assert error.headers == {"x-should-retry": "false"}
    assert as_api_error(Rejected("too long", status=400)).headers == {"x-should-retry": "false"}
    assert as_api_error(Unavailable("overloaded", status=529)).headers == {}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/chat/completions", "no such route: the base URL of this client must end in /v1"),
        ("/responses/resp_1", "no such route: the base URL of this client must end in /v1"),
        ("/v1/v1/messages", "no such route: the base URL of this client must not end in /v1"),
        ("/v1/images/generations", "no such route; /openapi.json lists those that there are"),
        ("/nowhere", "no such route; /openapi.json lists those that there are"),
    ],
)
async def test_a_wrong_base_url_is_told_the_right_one(tmp_path: Path, path: str, message: str) -> None:
    async with running_server(tmp_path) as server:
        status, body = await server.json("POST", path, {"model": "x"})
    assert (status, body["error"]["message"]) == (404, message)


@pytest.mark.parametrize("base", ["", "/v1/v1"])
async def test_a_wrong_base_url_is_told_in_the_words_of_the_client_s_api(tmp_path: Path, base: str) -> None:
    async with running_server(tmp_path) as server:
        _, to_anthropic = await server.json("POST", base + "/messages", {"model": "x"})
        _, to_openai = await server.json("POST", base + "/chat/completions", {"model": "x"})
    assert (to_anthropic["type"], to_anthropic["error"]["type"]) == ("error", "not_found_error")
    assert to_openai["error"].keys() == {"message", "type", "param", "code"}


def test_retry_after_is_passed_on_in_whole_seconds() -> None:
    assert as_api_error(Unavailable("wait", status=429, retry_after_s=0.2)).headers == {"Retry-After": "1"}


def test_H94_the_error_event_of_each_dialect() -> None:
    error = ApiError(504, "silent", code="timeout")
    assert error_frame(error, "openai").startswith(b'data: {"error":')
    assert error_frame(error, "anthropic").startswith(b'event: error\ndata: {"type":"error"')
    assert error_frame(error, "plain", "req_1").startswith(b'event: error\ndata: {"error":{"kind":"timeout"')
    assert error_object(error, "anthropic")["error"]["type"] == "timeout_error"


async def test_a_path_to_the_letter_is_answered_as_any_other_spelling_of_it(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        answers = []
        for target in ("/healthz", "/healthz?", "/healthz?x=1", "/%68ealthz"):
            url = URL(server.url + target, encoded=True)
            for method in ("GET", "HEAD", "POST"):
                async with server.client.request(method, url, headers={"X-Request-Id": "one"}) as response:
                    told = {name: text for name, text in response.headers.items() if name != "Date"}
                    answers.append((method, response.status, await response.read(), told))
        counted = server.metrics.requests.values
    assert [status for _, status, _, _ in answers[:3]] == [200, 200, 405]
    for start in range(0, len(answers), 3):
        assert answers[start : start + 3] == answers[:3]
    assert counted["/healthz", "200"] == 8
    assert answers[0][3]["X-Content-Type-Options"] == "nosniff"
