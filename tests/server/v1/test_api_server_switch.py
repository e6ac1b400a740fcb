"""`streaming.api_server: false` never beats a client's own `stream: true`."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dialect_api import dialect_server
from server.v1.replaying_provider import PATHS
from tailrace.messages import Dialect, JsonObject
from tailrace.testing.provider import reply

TEXT = "The mill stands on the river."
ASKED: dict[Dialect, JsonObject] = {
    "chat": {"messages": [{"role": "user", "content": "Go."}]},
    "responses": {"input": "Go."},
    "anthropic": {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 99},
}


@pytest.mark.parametrize("model", ["up-chat/any", "tailrace"])
@pytest.mark.parametrize("dialect", ASKED)
async def test_with_api_server_off_a_client_that_asks_for_a_stream_gets_one_M155(
    tmp_path: Path, dialect: Dialect, model: str
) -> None:
    sections = {"streaming": {"api_server": False}}
    asked = {"model": model, "stream": True, **ASKED[dialect]}
    async with dialect_server(tmp_path, [reply(TEXT)], sections=sections) as server:
        events = await server.events(PATHS[dialect], asked)
    pieces = [event.data for event in events if b'"delta"' in event.data]
    assert any(b"mill" in piece for piece in pieces)
    assert not any(b"mill" in piece and b"river" in piece for piece in pieces)
