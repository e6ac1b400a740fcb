"""The answer of a provider of another dialect as a Chat message: the stream adds up to the whole one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import DialectServer, dialect_server
from tailrace.messages import Dialect, JsonObject

PATH = "/v1/chat/completions"
OTHERS: tuple[Dialect, ...] = ("responses", "anthropic")


def added_up(chunks: list[Any]) -> JsonObject:
    """As OpenAI's SDKs do it: what was null is replaced, texts grow, and so does each call."""
    message: JsonObject = {"refusal": None}
    for chunk in chunks[:-1]:
        for name, value in chunk["choices"][0]["delta"].items():
            if name == "tool_calls":
                for piece in value:
                    _add_call(message.setdefault("tool_calls", []), dict(piece))
            elif message.get(name) is None or value is None:
                message[name] = value
            else:
                message[name] += value
    return message


def _add_call(calls: list[JsonObject], piece: JsonObject) -> None:
    if piece.pop("index") == len(calls):
        calls.append(piece)
    else:
        calls[-1]["function"]["arguments"] += piece["function"]["arguments"]


async def both_messages(server: DialectServer, model: str) -> tuple[JsonObject, JsonObject]:
    """Streamed, and whole."""
    asked: JsonObject = {"model": model, "messages": [{"role": "user", "content": "Go."}]}
    streamed = added_up(await server.data(PATH, {**asked, "stream": True}))
    status, whole = await server.post(PATH, asked)
    assert status == 200, whole
    return streamed, whole["choices"][0]["message"]


@pytest.mark.parametrize("up", OTHERS)
async def test_calls_alone_have_no_content(tmp_path: Path, up: Dialect) -> None:
    async with dialect_server(tmp_path) as server:
        for name in ("tools", "reasoning-tools"):
            streamed, whole = await both_messages(server, f"up-{up}/{name}")
            assert streamed == whole
            assert whole["content"] is None
