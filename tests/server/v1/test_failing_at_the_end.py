"""A server ends while its provider fails: who waits on a connection is told now, and who can come back is let go."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.http_server import RunningServer, running_server
from tailrace.ports import ENDED

STORE = "sqlite:///runs.db"
AGENT, RAW = "tailrace", "faulty/ok"


async def ended_runs(server: RunningServer) -> list[bool]:
    return [run.state in ENDED for run in await server.app.journal.runs()]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", {"model": AGENT, "messages": [{"role": "user", "content": "Go."}]}),
        ("/v1/messages", {"model": AGENT, "max_tokens": 9, "messages": [{"role": "user", "content": "Go."}]}),
        ("/v1/responses", {"model": AGENT, "input": "Go."}),
        ("/v1/responses", {"model": RAW, "input": "Go."}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_cannot_come_back_is_told_what_failed(
    tmp_path: Path, path: str, asked: dict[str, Any], stream: bool
) -> None:
    async with running_server(tmp_path, *["status-503"] * 4, store=STORE) as server, asyncio.timeout(30):
        await server.app.hand_over()
        status, body = await server.json("POST", path, {**asked, "stream": stream})
        assert (status, "server is stopping" in str(body)) == (503, False)
        assert await ended_runs(server) == [True]


@pytest.mark.parametrize("model", [AGENT, RAW])
async def test_a_stream_of_a_background_response_does_not_hold_up_the_end(tmp_path: Path, model: str) -> None:
    asked = {"model": model, "input": "Go.", "background": True, "stream": True}
    async with running_server(tmp_path, *["ok+cut@50%"] * 4, store=STORE) as server, asyncio.timeout(30):
        await server.app.hand_over()
        async with server.client.post(server.url + "/v1/responses", json=asked) as response:
            assert response.status == 200
            assert await server.pipeline.drain(600)
            data = await response.content.read()
        assert b"response.output_text.delta" in data
        assert await ended_runs(server) == [False]
