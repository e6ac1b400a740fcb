"""Mastra: a durable agent, observed again from its first event."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import ClassVar

from proof.streams.http import Broken, Response, fetch, free_port, stream
from proof.streams.product import (
    ENVIRONMENTS,
    PROGRAMS,
    Accepted,
    Cleared,
    Ended,
    Kept,
    Place,
    Product,
    Refused,
    Server,
    Sight,
    Text,
)
from proof.streams.services import Redis


class Mastra(Product):
    name = "mastra"
    page = "https://mastra.ai/docs/harness/durable-agents"
    setup = "createDurableAgent, maxRetries 5, LibSQL, Redis cache, recovery of active runs at start"
    packages = (
        "npm:@mastra/core@1.71.0",
        "npm:@mastra/libsql@1.23.1",
        "npm:@mastra/redis@1.4.6",
        "npm:ioredis@6.0.0",
        "npm:@ai-sdk/openai-compatible@3.0.92",
        "npm:zod@4.6.7",
    )
    lacks: ClassVar = {
        "limits": "its durable agents have no limit for a silent model: modelSettings.timeout changed nothing",
        "servers": "its page: no lease between servers yet",
        "mends": "a library: the program decides what an empty answer means",
    }

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._redis = Redis(place.directory)
        self._url = ""

    async def start(self) -> None:
        await self._redis.start()
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        env = {
            "PORT": str(port),
            "PROVIDER": self.place.provider_url,
            "REDIS": self._redis.url,
            "ENVIRONMENT": str(ENVIRONMENTS / self.name),
            "MASTRA_TELEMETRY_DISABLED": "1",
        }
        argv = ["node", str(PROGRAMS / "mastra_server.mjs")]
        self.servers.append(Server(self.name, argv, f"{self._url}/health", self.place, env=env))
        await self.servers[0].start()

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        async with stream("POST", f"{self._url}/runs/{run}", body={"prompt": prompt}, slow=slow) as response:
            if response.status != 200:
                raise Refused((await response.body()).decode(errors="replace"))
            yield Accepted()
            async for sight in _sights(response):
                yield sight

    async def attach(self, run: str, cursor: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        async with stream("GET", f"{self._url}/runs/{run}/stream", slow=slow) as response:
            if response.status != 200:
                raise Broken(f"{response.status}: {(await response.body())[:200]!r}")
            yield Cleared()
            async for sight in _sights(response):
                yield sight

    async def halt(self, run: str) -> None:
        answer = await fetch("POST", f"{self._url}/runs/{run}/stop")
        if answer.status != 200:
            raise Refused(answer.body.decode())

    async def kept(self, run: str) -> Kept:
        said = (await fetch("GET", f"{self._url}/runs/{run}")).json()
        return Kept(str(said["status"]), str(said["text"]))

    async def stop(self) -> None:
        await super().stop()
        self._redis.end()


async def _sights(response: Response) -> AsyncGenerator[Sight, None]:
    async for event in response.events():
        chunk = event.json()
        payload = chunk.get("payload")
        told = payload if isinstance(payload, dict) else {}
        match chunk["type"]:
            case "text-delta":
                yield Text(str(told["text"]))
            case "error" | "tripwire":
                yield Ended("failed")
                return
            case "abort":
                yield Ended("stopped")
                return
            case "finish":
                reason = (told.get("stepResult") or {}).get("reason")
                yield Ended({"abort": "stopped", "error": "failed"}.get(str(reason), "complete"))
                return
            case _:
                continue
