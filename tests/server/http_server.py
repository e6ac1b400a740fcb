"""A whole server over real sockets, with a provider behind it that says what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tailrace.app import App, open_app
from tailrace.config.load import Config, load
from tailrace.ports import Tool
from tailrace.server.app import RouteModule, serving
from tailrace.server.http.listener import ConnectionLimits
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.sse_stream import StreamTiming
from tailrace.server.metrics.call_metrics import count_attempts, count_calls, count_runs
from tailrace.server.metrics.registry import Metrics
from tailrace.testing.provider import FaultyProvider, Reply, Scenario
from tailrace.wire.sse import SseDecoder

CONFIG = """
model: {{provider: faulty, name: ok, fallbacks: [{{provider: other, name: ok}}]}}
providers:
  faulty: {{dialect: chat, base_url: '{url}', backoff_s: 0.001, max_attempts: 2}}
  other: {{dialect: chat, base_url: '{url}', backoff_s: 0.001, max_attempts: 1}}
store: {{url: '{store}'}}
"""


def config_for(
    provider: FaultyProvider,
    home: Path,
    *,
    config: str = "",
    env: Mapping[str, str] | None = None,
    store: str = "memory://",
) -> Config:
    home.mkdir(exist_ok=True)
    text = CONFIG.format(url=provider.openai_url, store=store) + config
    if "server:" not in config:
        text += "server: {drain_s: 0.05}\n"
    (home / "config.yaml").write_text(text, encoding="utf-8")
    return load(env or {}, home)


@dataclass
class RunningServer:
    """What a test holds of a server that runs."""

    url: str
    app: App
    pipeline: RequestPipeline
    provider: FaultyProvider
    client: aiohttp.ClientSession
    metrics: Metrics

    async def json(self, method: str, path: str, body: object = None, **kwargs: Any) -> tuple[int, Any]:
        async with self.client.request(method, self.url + path, json=body, **kwargs) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def start(self, text: str = "Go.", **fields: object) -> str:
        status, body = await self.json("POST", "/runs", {"input": text, **fields})
        assert status == 201, body
        run_id: str = body["id"]
        return run_id

    async def events(self, path: str, **kwargs: Any) -> list[dict[str, Any]]:
        """All of a stream that ends."""
        async with self.client.get(self.url + path, **kwargs) as response:
            assert response.status == 200, await response.text()
            return [event async for event in sse(response)]

    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


async def sse(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The events of a stream as they arrive: the data, with `id` and `event` where they were sent."""
    decoder = SseDecoder()
    async for chunk in response.content.iter_any():
        for event in decoder.feed(chunk):
            yield {**json.loads(event.data), "sse_event": event.event, "sse_id": event.id}


@asynccontextmanager
async def running_server(
    home: Path,
    *script: str | Scenario | Reply,
    config: str = "",
    env: Mapping[str, str] | None = None,
    store: str = "memory://",
    headers: Mapping[str, str] | None = None,
    extra: tuple[RouteModule, ...] = (),
    tools: tuple[Tool, ...] = (),
    timing: StreamTiming | None = None,
    limits: ConnectionLimits | None = None,
) -> AsyncGenerator[RunningServer, None]:
    metrics = Metrics()
    async with (
        FaultyProvider(script=script) as provider,
        open_app(
            config_for(provider, home, config=config, env=env, store=store),
            directory=home,
            tools=tools,
            middleware=[count_calls(metrics)],
            observers=[count_attempts(metrics)],
            on_end=count_runs(metrics),
            on_lag=metrics.journal_lag.observe,
        ) as app,
        serving(app, port=0, extra=extra, metrics=metrics, timing=timing, limits=limits) as server,
        aiohttp.ClientSession(headers=headers) as client,
    ):
        yield RunningServer(server.url, app, server.pipeline, provider, client, metrics)


async def raw(port: int, request: bytes) -> bytes:
    """Everything that comes back for these bytes, to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
