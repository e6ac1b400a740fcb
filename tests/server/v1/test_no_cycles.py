"""A request leaves no cycle for the garbage collector: its pauses grow with what it has to look at."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from server.dialect_api import dialect_server
from tailrace.messages import JsonObject

QUESTION = [{"role": "user", "content": "Where does the water go?"}]
REQUESTS = 20


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"model": "up-chat/ok", "messages": QUESTION}),
        ("/v1/messages", {"model": "up-chat/ok", "messages": QUESTION, "max_tokens": 99}),
        ("/v1/responses", {"model": "up-responses/ok", "input": "hi"}),
        ("/v1/chat/completions", {"model": "tailrace", "messages": QUESTION}),
        ("/ag-ui", {"threadId": "t", "messages": [{"id": "u", **QUESTION[0]}]}),
    ],
    ids=["relayed", "re-encoded", "stored", "agent", "AG-UI"],
)
async def test_L148_a_request_leaves_no_cycle_behind(tmp_path: Path, path: str, body: JsonObject, stream: bool) -> None:
    async with dialect_server(tmp_path) as server:
        numbers = count(1)

        async def ask() -> None:
            number = next(numbers)
            asked = {**body, "stream": stream, **({"threadId": f"t{number}", "runId": "r"} if path == "/ag-ui" else {})}
            async with server.session.post(server.url + path, json=asked) as response:
                assert response.status == 200
                await response.read()

        async def settle() -> None:
            for _ in range(20):  # what a request leaves to a later tick of the loop
                await asyncio.sleep(0)
            server.provider.requests.clear()

        for _ in range(REQUESTS):  # fills caches and pools
            await ask()
        await settle()
        gc.collect()
        gc.disable()
        try:
            for _ in range(REQUESTS):
                await ask()
            await settle()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            found = Counter(type(garbage).__qualname__ for garbage in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    kinds = {kind: count for kind, count in found.items() if count >= REQUESTS}
    assert not kinds, "left by each request"
