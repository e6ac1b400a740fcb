"""What `/readyz` says of the parts that do not work."""

from __future__ import annotations

import asyncio
from pathlib import Path

from postgres_server import PostgresServer
from server.http_server import running_server
from tailrace.events import RunFinished
from tcp_proxy import proxied

CONFIG = "server:\n  keys:\n    - {name: probe, key_env: PROBE_KEY, scopes: [models]}\n"


async def test_J114_readyz_names_what_is_degraded_without_its_secrets(tmp_path: Path) -> None:
    env = {"PROBE_KEY": "secret-of-probe"}
    async with running_server(tmp_path, config=CONFIG, env=env) as server:
        server.app.degraded["telegram"] = "no answer from https://chat.example/secret-of-probe/getMe"
        status, body = await server.json("GET", "/readyz", headers={"x-api-key": "secret-of-probe"})
    assert status == 200
    assert "no answer from" in body["degraded"]["telegram"]
    assert "secret-of-probe" not in body["degraded"]["telegram"]


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
