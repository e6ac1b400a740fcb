"""What `/readyz` says of the parts that do not work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from postgres_server import PostgresServer
from server.http_server import running_server
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.errors import JournalError, StorageFailed
from tailrace.events import RunFinished
from tailrace.journal.bus import BusListener, Committed
from tailrace.server.app import build
from tailrace.server.routes.health import IN_ANOTHER_WORKER
from tcp_proxy import proxied

CONFIG = "server:\n  keys:\n    - {name: probe, key_env: PROBE_KEY, scopes: [models]}\n"


async def test_J114_readyz_names_what_is_degraded_without_its_secrets(tmp_path: Path) -> None:
    env = {"PROBE_KEY": "secret-of-probe"}
    async with running_server(tmp_path, config=CONFIG, env=env) as server:
        server.app.platforms_down.mark("telegram", "no answer from https://chat.example/secret-of-probe/getMe")
        status, body = await server.json("GET", "/readyz", headers={"x-api-key": "secret-of-probe"})
    assert status == 200
    assert "no answer from" in body["degraded"]["telegram"]
    assert "secret-of-probe" not in body["degraded"]["telegram"]


async def test_a_platform_that_is_not_connected_is_named_and_the_server_stays_ready(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        server.app.platforms_down.mark("slack", "the token was refused")
        server.metrics.platforms_down.set(1, "matrix")  # by another worker
        status, body = await server.json("GET", "/readyz")
        assert (status, body["status"]) == (200, "ready")
        assert body["degraded"] == {"slack": "the token was refused", "matrix": IN_ANOTHER_WORKER}
        assert 'tailrace_platform_down{platform="slack"} 1\n' in server.metrics.text()
        server.app.platforms_down.clear("slack")
        server.metrics.platforms_down.set(0, "matrix")
        assert (await server.json("GET", "/readyz"))[1]["degraded"] == {}
        assert 'tailrace_platform_down{platform="slack"} 0\n' in server.metrics.text()


async def test_a_platform_that_failed_before_the_server_listened_is_in_its_metrics(tmp_path: Path) -> None:
    async with open_app(load({"TAILRACE_HOME": str(tmp_path)}, tmp_path)) as app:
        app.platforms_down.mark("slack", "the token was refused")
        pipeline, _ = build(app)
        assert pipeline.metrics.platforms_down.values == {("slack",): 1.0}


async def test_readyz_says_that_postgresql_is_away_and_that_it_is_back(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    async with (
        proxied(postgres_server.port) as proxy,
        running_server(tmp_path, "ok", store=postgres_server.url(port=proxy.port)) as server,
    ):
        status, run = await server.json("POST", "/runs", {"input": "hi"})
        assert status == 201
        events = [event async for batch in server.app.journal.tail(run["id"]) for event in batch]
        assert isinstance(events[-1].event, RunFinished)
        assert events[-1].event.status == "completed"
        assert (await server.json("GET", "/readyz"))[0] == 200
        await proxy.refuse()
        async with asyncio.timeout(30):
            while (status := (await server.json("GET", "/readyz"))[0]) == 200:
                pass
            _, body = await server.json("GET", "/readyz")
            assert status == 503
            assert str(proxy.port) not in str(body)
            await proxy.accept()
            while (await server.json("GET", "/readyz"))[0] != 200:
                pass


class AwayBus:
    """A bus at the edge of the world that is never there."""

    connected = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def open(self, listener: BusListener) -> None: ...

    def publish(self, committed: Sequence[Committed]) -> None: ...

    def watch(self, run_id: str, after: int) -> None: ...

    def unwatch(self, run_id: str) -> None: ...

    async def check(self) -> None:
        raise JournalError(self._reason)

    async def close(self) -> None: ...


async def test_readyz_is_ready_without_its_bus_and_names_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, config=CONFIG, env={"PROBE_KEY": "secret-of-probe"}) as server:
        server.app.bus = AwayBus("redis at bus.example refused the connection with secret-of-probe")
        status, body = await server.json("GET", "/readyz", headers={"x-api-key": "secret-of-probe"})
    assert (status, body["status"]) == (200, "ready")
    assert "refused the connection" in body["degraded"]["bus"]
    assert "secret-of-probe" not in body["degraded"]["bus"]


async def test_readyz_names_store_and_bus_where_neither_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise StorageFailed(f"cannot write {tmp_path}", reason="no space left to write the journal")

    async with running_server(tmp_path) as server:
        server.app.bus = AwayBus("redis refused the connection")
        monkeypatch.setattr(server.app.journal, "check", away)
        status, body = await server.json("GET", "/readyz")
    assert (status, body["error"]["kind"]) == (503, "journal_unavailable")
    assert body["error"]["details"]["unavailable"] == {
        "store": "no space left to write the journal",
        "bus": "redis refused the connection",
    }


async def test_readyz_says_that_a_store_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs() -> None:
        raise TimeoutError

    async with running_server(tmp_path) as server:
        monkeypatch.setattr(server.app.journal, "check", hangs)
        status, body = await server.json("GET", "/readyz")
    assert (status, body["error"]["message"]) == (503, "no answer within 2 s")
    assert body["error"]["details"]["unavailable"] == {"store": "no answer within 2 s"}
