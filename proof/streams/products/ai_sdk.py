"""The AI SDK with resumable-stream on Redis: a viewer that comes back gets the whole answer again, from its start.

As `useChat` does, the screen begins anew at `start`, and a reloaded page shows what the chat's store has.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, ClassVar

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

_DURABLE = "this setup resumes streams, not work: that is WorkflowAgent on a workflow platform"


class AiSdk(Product):
    name = "ai-sdk"
    page = "https://ai-sdk.dev/docs/ai-sdk-ui/chatbot-resume-streams"
    setup = "streamText with maxRetries 5 and timeout.chunkMs 3000, resumable-stream on Redis, chats in files"
    packages = (
        "npm:ai@7.0.173",
        "npm:resumable-stream@2.2.13",
        "npm:@ai-sdk/openai-compatible@3.0.92",
        "npm:redis@6.3.1",
        "npm:zod@4.6.7",
    )
    lacks: ClassVar = {
        "durable": _DURABLE,
        "servers": _DURABLE,
        "store": "the chats are the program's own to store",
        "mends": "a library: the program decides what an empty answer means",
    }

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._redis = Redis(place.directory)
        self._url = ""

    async def start(self) -> None:
        await self._redis.start()
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/api/chat"
        env = {
            "PORT": str(port),
            "PROVIDER": self.place.provider_url,
            "REDIS": self._redis.url,
            "ENVIRONMENT": str(ENVIRONMENTS / self.name),
        }
        argv = ["node", str(PROGRAMS / "ai_sdk_server.mjs")]
        self.servers.append(Server(self.name, argv, f"http://127.0.0.1:{port}/api/health", self.place, env=env))
        await self.servers[0].start()

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        message = {"id": run, "role": "user", "parts": [{"type": "text", "text": prompt}]}
        async with stream("POST", self._url, body={"id": run, "message": message}, slow=slow) as response:
            if response.status != 200:
                raise Refused((await response.body()).decode(errors="replace"))
            yield Accepted()
            async for sight in _sights(response):
                yield sight

    async def attach(self, run: str, cursor: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        chat = await self._chat(run)
        yield Cleared()
        if text := _text_of(chat):
            yield Text(text)
        async with stream("GET", f"{self._url}/{run}/stream", slow=slow) as response:
            if response.status == 204:
                if (status := str(chat["status"])) != "running":
                    yield Ended(status)
                return
            if response.status != 200:
                raise Broken(f"{response.status}: {(await response.body())[:200]!r}")
            async for sight in _sights(response):
                yield sight

    async def halt(self, run: str) -> None:
        answer = await fetch("POST", f"{self._url}/{run}/stop")
        if answer.status != 200:
            raise Refused(answer.body.decode())

    async def kept(self, run: str) -> Kept:
        chat = await self._chat(run)
        return Kept(str(chat.get("status", "unknown")), _text_of(chat))

    async def _chat(self, run: str) -> dict[str, Any]:
        return (await fetch("GET", f"{self._url}/{run}")).json()

    async def stop(self) -> None:
        await super().stop()
        self._redis.end()


async def _sights(response: Response) -> AsyncGenerator[Sight, None]:
    async for event in response.events():
        if event.data == "[DONE]":
            return
        part = event.json()
        match part["type"]:
            case "start":
                yield Cleared()
            case "text-delta":
                yield Text(str(part["delta"]))
            case "error":
                yield Ended("failed")
                return
            case "abort":
                yield Ended("stopped")
                return
            case "finish":
                yield Ended("complete")
                return
            case _:
                continue


def _text_of(chat: dict[str, Any]) -> str:
    answers = [message for message in chat.get("messages", []) if message["role"] == "assistant"]
    return "".join(part["text"] for message in answers for part in message["parts"] if part["type"] == "text")
