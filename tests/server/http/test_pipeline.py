"""What every request has from the pipeline: a route, an identifier, a line in the log, and an end when its client
leaves or the server stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from server.http_server import running_server
from tailrace.errors import StorageFailed
from tailrace.journal.storage_wait import PATIENCE_S
from tailrace.server.http.pipeline import REQUEST_PATIENCE_S, RequestPipeline
from tailrace.server.http.route import Route
from tailrace.testing.clock import driven


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
