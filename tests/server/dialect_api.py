"""A server of ours before a provider that misbehaves on request, both on loopback, for tests of the dialects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tailrace.app import App, open_app
from tailrace.config.load import Config, load
from tailrace.messages import Dialect, JsonObject
from tailrace.ports import Tool, ToolContext, ToolOutcome
from tailrace.server.app import serving
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.sse_stream import StreamTiming
from tailrace.testing.provider import FaultyProvider, Reply, Scenario
from tailrace.tools.typed import Arguments, TypedTool
from tailrace.wire.sse import SseDecoder, SseEvent

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
CALL = {"max_attempts": 2, "backoff_s": 0.001, "backoff_max_s": 0.002, "idle_timeout_s": 20}


class River(Arguments):
    river: str


class WaterLevel(TypedTool[River]):
    name = "water_level"
    description = "The level of a river."
    Args = River
    repeatable = True

    async def execute(self, args: River, _context: ToolContext) -> ToolOutcome:
        return ToolOutcome(f"{args.river} is at 3.2 m")


WATER_LEVEL = WaterLevel()


class DialectServer:
    """The server, the provider behind it, and clients of every kind."""

    def __init__(
        self, url: str, app: App, provider: FaultyProvider, session: aiohttp.ClientSession, pipeline: RequestPipeline
    ) -> None:
        self.url = url
        self.pipeline = pipeline
        self.app = app
        self.provider = provider
        self.session = session

    def openai(self, **options: Any) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=self.url + "/v1", api_key="unused", max_retries=0, **options)

    def anthropic(self, **options: Any) -> AsyncAnthropic:
        return AsyncAnthropic(base_url=self.url, api_key="unused", max_retries=0, **options)

    async def post(self, path: str, body: JsonObject, **headers: str) -> tuple[int, Any]:
        """Status and JSON."""
        async with self.session.post(self.url + path, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path) as response:
            return response.status, await response.json()

    async def events(self, path: str, body: JsonObject | None = None, **headers: str) -> list[SseEvent]:
        """Every event of a stream, to its end."""
        method = "GET" if body is None else "POST"
        async with self.session.request(method, self.url + path, json=body, headers=headers) as response:
            raw = await response.read()
            assert response.status == 200, raw
            assert response.content_type == "text/event-stream", raw
        return SseDecoder().feed(raw)

    async def data(self, path: str, body: JsonObject | None = None, **headers: str) -> list[Any]:
        """The same, as JSON; `[DONE]` as a text."""
        return [
            "[DONE]" if event.data == b"[DONE]" else msgspec.json.decode(event.data)
            for event in await self.events(path, body, **headers)
        ]


def config_for(
    home: Path,
    provider: FaultyProvider,
    sections: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Config:
    """`up-chat`, `up-responses` and `up-anthropic` are the provider in its three dialects; the agent uses the first."""
    text: dict[str, Any] = {
        "model": {"provider": "up-chat", "name": "ok"},
        "providers": {f"up-{dialect}": {"dialect": dialect, "base_url": provider.openai_url} for dialect in DIALECTS},
        "call": CALL,
        "server": {"drain_s": 0.05},
        **(sections or {}),
    }
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_bytes(msgspec.json.encode(text))  # JSON is YAML
    return load({"HOME": str(home), **(env or {})}, home)


@asynccontextmanager
async def dialect_server(
    home: Path,
    script: Iterable[str | Scenario | Reply] = (),
    *,
    sections: Mapping[str, Any] | None = None,
    tools: Sequence[Tool] = (),
    timing: StreamTiming | None = None,
    provider: FaultyProvider | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncGenerator[DialectServer, None]:
    """Each request takes the next of `script`; then the model's name says what the provider does."""
    async with provider or FaultyProvider(script=script) as upstream:
        config = config_for(home, upstream, sections, env)
        async with (
            open_app(config, directory=home, tools=tools) as app,
            serving(app, port=0, timing=timing) as served,
            aiohttp.ClientSession() as session,
        ):
            yield DialectServer(served.url, app, upstream, session, served.pipeline)
