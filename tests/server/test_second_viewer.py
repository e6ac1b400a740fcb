"""A second viewer that comes at a random event sees what the first one saw, to the byte, on every surface (N166); and a
stop ends a resumed stream in every tab (N167)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse

from server.http_server import RunningServer, running_server
from tailrace.messages import JsonObject
from tailrace.testing.provider import Scenario, call, reply

WORDS = 12
TEXT = " ".join(f"word{number}" for number in range(WORDS))
SCRIPT = (
    Scenario(reply=reply(TEXT, call("read_file", {"path": "note.txt"})), pace_s=0.003),
    Scenario(reply=reply(TEXT), pace_s=0.003),
)
UI: JsonObject = {"id": "chat", "messages": [{"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Go."}]}]}
AG_UI: JsonObject = {
    "threadId": "thread",
    "runId": "r1",
    "messages": [{"id": "m1", "role": "user", "content": "Go."}],
    "tools": [],
    "context": [],
    "state": {},
    "forwardedProps": {},
}
Open = Callable[[], Awaitable[ClientResponse]]


async def begun(server: RunningServer, surface: str) -> tuple[Open, Open]:
    """How the first viewer comes to its stream, and the second."""
    client, url = server.client, server.url

    def get(path: str) -> Open:
        return lambda: client.get(url + path)

    match surface:
        case "runs":
            run_id = await server.start()
            return get(f"/runs/{run_id}/stream"), get(f"/runs/{run_id}/stream?after=0")
        case "durable stream":
            run_id = await server.start()
            path = f"/streams/runs/{run_id}?offset=-1&live=sse"
            return get(path), get(path)
        case "responses":
            body = {"model": "tailrace", "input": "Go.", "background": True}
            _, made = await server.json("POST", "/v1/responses", body)
            path = f"/v1/responses/{made['id']}?stream=true"
            return get(path), get(path)
        case "ui":
            return lambda: client.post(f"{url}/ui/chat", json=UI), get("/ui/chat/chat/stream")
        case _:
            again = lambda: client.post(f"{url}/ag-ui", json=AG_UI)  # noqa: E731
            return again, again


def said(data: bytes) -> list[bytes]:
    """The events without comments, which keep a silent connection alive."""
    return [event for event in data.split(b"\n\n") if event and not event.startswith(b":")]


def entries(data: bytes) -> bytes:
    lists = [json.loads(line[5:]) for line in data.splitlines() if line.startswith(b"data:[")]
    return b"\n\n".join(json.dumps(entry).encode() for found in lists for entry in found)


async def looked_at(server: RunningServer, surface: str, at: int) -> tuple[bytes, bytes]:
    first, second = await begun(server, surface)
    data, late = bytearray(), asyncio.Event()

    async def read_first() -> None:
        async with await first() as response:
            assert response.status in (200, 201), await response.text()
            async for chunk in response.content.iter_any():
                data.extend(chunk)
                if len(said(bytes(data))) > at:
                    late.set()
        late.set()

    async def read_second() -> bytes:
        await late.wait()
        async with await second() as response:
            return await response.read()

    async with asyncio.timeout(60):
        _, seen = await asyncio.gather(read_first(), read_second())
    return bytes(data), seen


SURFACES = ("runs", "durable stream", "responses", "ui", "ag-ui")


async def check(tmp_path: Path, surface: str, at: int) -> None:
    (tmp_path / "note.txt").write_text("a note")
    async with running_server(tmp_path, *SCRIPT) as server:
        first, second = await looked_at(server, surface, at)
    if surface == "durable stream":  # its events hold as many entries as had come
        first, second = entries(first), entries(second)
    assert first.count(b"word%d" % (WORDS - 1)) > 1
    assert said(second) == said(first) or (surface == "ui" and not second), "there is nothing to resume after the end"


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("seed", range(2))
async def test_N166_a_second_viewer_sees_the_same_bytes(tmp_path: Path, surface: str, seed: int) -> None:
    await check(tmp_path, surface, random.Random(f"{surface} {seed}").randrange(20))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))  # side by side: a round mostly waits for its words
async def test_N166_a_thousand_rounds(tmp_path: Path, part: int) -> None:
    rng = random.Random(f"N166 {part}")
    for number in range(100):
        home = tmp_path / str(number)
        home.mkdir()
        await check(home, rng.choice(SURFACES), rng.randrange(2 * WORDS))


async def test_N167_a_stop_ends_a_resumed_stream_in_every_tab(tmp_path: Path) -> None:
    endless = Scenario(reply=reply(TEXT * 250), pace_s=0.01)
    async with running_server(tmp_path, endless) as server, asyncio.timeout(60):
        first = await server.client.post(f"{server.url}/ui/chat", json=UI)
        await first.content.readuntil(b"text-delta")
        first.close()  # the page was reloaded
        tabs = [await server.client.get(f"{server.url}/ui/chat/chat/stream") for _ in range(3)]
        for tab in tabs:
            await tab.content.readuntil(b"text-delta")
        loop = asyncio.get_running_loop()
        stopped_at = loop.time()
        status, _ = await server.json("POST", "/ui/chat/chat/stop")
        ends = [(await tab.read()).decode() for tab in tabs]
        took_s = loop.time() - stopped_at
        (run,) = await server.app.journal.runs(kind="agent")
    assert (status, run.state) == (200, "stopped")
    kinds: list[list[Any]] = [
        [json.loads(line[6:])["type"] for line in end.splitlines() if line.startswith("data: {")] for end in ends
    ]
    assert [kind[-1] for kind in kinds] == ["abort"] * 3
    assert took_s < 30, "the text would go on for a minute"
