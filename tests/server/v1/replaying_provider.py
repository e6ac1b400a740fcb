"""A provider on loopback that answers every request with the same recorded bytes, whatever was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from server.dialect_api import CALL, DIALECTS
from tailrace.app import App, open_app
from tailrace.config.load import Config, load
from tailrace.config.quirks import NONE
from tailrace.messages import Dialect, JsonObject, ToolCallDelta
from tailrace.server.app import serving
from tailrace.wire.dialects import DIALECTS as WIRES

PATHS: dict[Dialect, str] = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}


class Replay:
    """A server of ours before that provider. `answers` are given one after the other, the last one for ever; a body in
    JSON is sent as such."""

    def __init__(self, url: str, app: App, session: aiohttp.ClientSession, answers: list[bytes]) -> None:
        self.url = url
        self.app = app
        self.session = session
        self.answers = answers

    def request(self, dialect: Dialect, up: Dialect | None = None, **fields: Any) -> JsonObject:
        body: JsonObject = {"model": f"up-{up or dialect}/any", **fields}
        match dialect:
            case "chat":
                messages = [{"role": "user", "content": "Go."}]
                return {"messages": messages, "stream_options": {"include_usage": True}, **body}
            case "responses":
                return {"input": "Go.", "store": False, **body}
            case "anthropic":
                return {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 99, **body}

    async def whole(self, dialect: Dialect, up: Dialect | None = None, **fields: Any) -> tuple[int, Any]:
        asked = self.request(dialect, up, **fields)
        async with self.session.post(self.url + PATHS[dialect], json=asked) as response:
            return response.status, await response.json()

    async def streamed(self, dialect: Dialect, up: Dialect | None = None, **fields: Any) -> bytes:
        asked = self.request(dialect, up, stream=True, **fields)
        async with self.session.post(self.url + PATHS[dialect], json=asked) as response:
            raw = await response.read()
            assert response.status == 200, raw
            return raw


@asynccontextmanager
async def replaying(home: Path, *answers: bytes, **sections: Any) -> AsyncGenerator[Replay, None]:
    given = list(answers)

    async def answer(_: web.Request) -> web.Response:
        raw = given.pop(0) if len(given) > 1 else given[0]
        kind = "application/json" if raw.startswith(b"{") else "text/event-stream"
        return web.Response(body=raw, content_type=kind)

    provider = web.Application()
    provider.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(provider)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        config = {
            "model": {"provider": "up-chat", "name": "any"},
            "providers": {f"up-{dialect}": {"dialect": dialect, "base_url": url} for dialect in DIALECTS},
            "call": CALL,
            "server": {"drain_s": 0.05},
            **sections,
        }
        async with (
            open_app(_config(home, config), directory=home) as app,
            serving(app, port=0) as served,
            aiohttp.ClientSession() as session,
        ):
            yield Replay(served.url, app, session, given)
    finally:
        await runner.cleanup()


def _config(home: Path, sections: JsonObject) -> Config:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_bytes(msgspec.json.encode(sections))
    return load({"HOME": str(home)}, home)


def rebuilt(dialect: Dialect, raw: bytes) -> JsonObject | None:
    """The body that a stream stands for; None where it does not end as it should."""
    decoder = WIRES[dialect].decoder(NONE)
    decoder.feed(raw)
    decoder.close()
    return decoder.rebuilt_body() if decoder.complete else None


def contradicts_itself(dialect: Dialect, raw: bytes) -> bool:
    """Whether the last word on a call's arguments differs from what was streamed of them."""
    deltas = WIRES[dialect].decoder(NONE).feed(raw)
    return any(isinstance(delta, ToolCallDelta) and delta.replaces for delta in deltas)


def chat_chunks(*texts: str, **last: Any) -> bytes:
    """A chat stream of these texts and a last chunk with these fields; without its end."""
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "system_fingerprint": "fp"}
    deltas: list[JsonObject] = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    return b"".join(b"data: %b\n\n" % msgspec.json.encode({**head, **delta}) for delta in (*deltas, last))


OK = chat_chunks("One, ", "two.", choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]) + b"data: [DONE]\n\n"
