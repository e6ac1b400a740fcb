"""A request leaves no cycle for the garbage collector: its pauses grow with what it has to look at."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest

from server.dialect_api import DialectServer, dialect_server
from tailrace.messages import JsonObject

QUESTION = [{"role": "user", "content": "Where does the water go?"}]
REQUESTS = 20


async def left_by_each(server: DialectServer, ask: Callable[[], Awaitable[None]]) -> dict[str, int]:
    """The kinds of objects in cycles, as many of each as there were requests or more."""

    async def settle() -> None:
        for _ in range(20):  # what a request leaves to a later tick of the loop
            await asyncio.sleep(0)
        await server.app.journal.runs()  # what has ended is stored
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
    return {kind: number for kind, number in found.items() if number >= REQUESTS}


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

        assert not await left_by_each(server, ask), "left by each request"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize(
    ("model", "stream", "status"),
    [
        ("up-chat/status-401", True, 401),
        ("up-chat/status-401", False, 401),
        ("nobody/here", True, 404),
        ("", True, 400),
    ],
    ids=["refused", "refused whole", "no such model", "invalid"],
)
async def test_L148_a_request_that_fails_leaves_no_cycle_behind(
    tmp_path: Path, path: str, model: str, stream: bool, status: int
) -> None:
    asked: JsonObject = {"messages": QUESTION, "max_tokens": 99}
    if path == "/v1/responses":
        asked = {"input": "hi"}
    body = {**asked, "model": model, "stream": stream}
    async with dialect_server(tmp_path) as server:

        async def ask() -> None:
            async with server.session.post(server.url + path, json=body) as response:
                await response.read()
                assert response.status == status

        assert not await left_by_each(server, ask), "left by each request"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_L148_an_agent_whose_model_refuses_leaves_no_cycle_behind(
    tmp_path: Path, path: str, stream: bool
) -> None:
    refusing = {"model": {"provider": "up-chat", "name": "status-401"}}
    body = {"model": "tailrace", "messages": QUESTION, "input": "hi", "stream": stream}
    del body["input" if path.startswith("/v1/chat") else "messages"]
    async with dialect_server(tmp_path, sections=refusing) as server:

        async def ask() -> None:
            async with server.session.post(server.url + path, json=body) as response:
                await response.read()
                assert response.status == 401

        assert not await left_by_each(server, ask), "left by each request"
