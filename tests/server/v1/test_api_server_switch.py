"""`streaming.api_server: false`: a stream whose text comes whole, at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dialect_api import DIALECTS
from server.v1.replaying_provider import OK, rebuilt, replaying
from tailrace.messages import Dialect
from tailrace.wire.dialects import DIALECTS as WIRES


@pytest.mark.parametrize("model", ["up-chat/any", "tailrace"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_with_api_server_off_a_stream_has_its_text_whole_at_the_end_M155(
    tmp_path: Path, dialect: Dialect, model: str
) -> None:
    async with replaying(tmp_path, OK, streaming={"api_server": False}) as server:
        raw = await server.streamed(dialect, model=model)
    body = rebuilt(dialect, raw)
    assert body is not None, raw
    assert WIRES[dialect].completion_from_body(body).text == "One, two."
    assert b'"One, "' not in raw
    if dialect == "chat" and model != "tailrace":
        assert body["system_fingerprint"] == "fp"


async def test_with_api_server_off_a_stored_response_is_sent_at_its_end_M155(tmp_path: Path) -> None:
    async with replaying(tmp_path, OK, streaming={"api_server": False}) as server:
        body = rebuilt("responses", await server.streamed("responses", "chat", store=True))
    assert body is not None
    assert body["status"] == "completed"
