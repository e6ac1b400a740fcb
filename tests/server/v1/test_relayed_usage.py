"""What completions and embeddings use is counted, whether or not their provider or their client speaks of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from server.dialect_api import DialectServer
from server.v1.test_relayed import COMPLETIONS, EMBEDDINGS, PIECES, Upstream, serving

ASK = {"model": "up/fim", "prompt": "def add(a, b):", "stream": True}
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


class Counting(Upstream):
    """Tells its usage at the end of a stream that is asked for it, as OpenAI does."""

    def __init__(self, *, refuses: bool = False, counts: bool = True, stalls: bool = False) -> None:
        super().__init__()
        self._refuses, self._counts, self._stalls = refuses, counts, stalls
        self.usage = USAGE

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append((request.path, body, {}))
        options = body.get("stream_options") or {}
        if options and self._refuses:
            error = {"error": {"message": "Unrecognized request argument supplied: stream_options", "code": None}}
            return web.json_response(error, status=400)
        tells = bool(options.get("include_usage")) and self._counts
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in PIECES:
            chunk = {"id": "c", "choices": [{"index": 0, "text": piece, "finish_reason": None}]}
            await response.write(frame(chunk | ({"usage": None} if tells else {})))
        if self._stalls:
            await asyncio.Event().wait()
        if tells:
            await response.write(frame({"id": "c", "choices": [], "usage": self.usage}))
        await response.write(self.ends)
        return response


def frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def used(server: DialectServer) -> list[tuple[int, int, int]]:
    _, usage = await server.get("/usage")
    return [(row["calls"], row.get("input_tokens", 0), row.get("output_tokens", 0)) for row in usage["data"]]


ESTIMATE = (1, 4, len("".join(PIECES)) // 4)  # four characters a token, of the question rounded up


async def test_a_streamed_completion_is_counted_and_the_client_sees_none_of_it(tmp_path: Path) -> None:
    upstream = Counting()
    async with serving(tmp_path, upstream) as server:
        *chunks, done = await server.data(COMPLETIONS, ASK)
        assert await used(server) == [(1, 5, 3)]
    assert ([chunk["choices"][0]["text"] for chunk in chunks], done) == ([*PIECES], "[DONE]")
    assert not any("usage" in chunk for chunk in chunks)
    assert upstream.requests[0][1] == {**ASK, "model": "fim", "stream_options": {"include_usage": True}}


async def test_a_client_that_asks_for_the_usage_gets_it(tmp_path: Path) -> None:
    upstream = Counting()
    async with serving(tmp_path, upstream) as server:
        options = {"include_usage": True, "other": 1}
        *chunks, last, _ = await server.data(COMPLETIONS, {**ASK, "stream_options": options})
        assert await used(server) == [(1, 5, 3)]
    assert (last["choices"], last["usage"], last["model"]) == ([], USAGE, "up/fim")
    assert [chunk["usage"] for chunk in chunks] == [None] * len(PIECES)
    assert upstream.requests[0][1]["stream_options"] == options


async def test_a_provider_that_refuses_to_be_asked_is_asked_without_and_estimated(tmp_path: Path) -> None:
    upstream = Counting(refuses=True)
    async with serving(tmp_path, upstream) as server:
        for _ in range(2):
            *chunks, _ = await server.data(COMPLETIONS, ASK)
            assert [chunk["choices"][0]["text"] for chunk in chunks] == [*PIECES]
        assert await used(server) == [(2, 2 * ESTIMATE[1], 2 * ESTIMATE[2])]
    assert ["stream_options" in sent for _, sent, _ in upstream.requests] == [True, False, False]


@pytest.mark.parametrize("ends", [b"data: [DONE]\n\n", b""], ids=["whole", "cut"])
async def test_what_the_provider_does_not_count_is_estimated(tmp_path: Path, ends: bytes) -> None:
    upstream = Counting(counts=False)
    upstream.ends = ends
    async with serving(tmp_path, upstream) as server:
        await server.data(COMPLETIONS, ASK)
        assert await used(server) == [ESTIMATE]


async def test_a_count_of_nothing_is_no_count(tmp_path: Path) -> None:
    upstream = Counting()
    upstream.usage = {"prompt_tokens": 0, "completion_tokens": 0}
    async with serving(tmp_path, upstream) as server:
        await server.data(COMPLETIONS, ASK)
        assert await used(server) == [ESTIMATE]


async def test_a_client_that_leaves_has_used_what_it_was_sent(tmp_path: Path) -> None:
    async with serving(tmp_path, Counting(stalls=True)) as server:
        counted = asyncio.Event()
        server.app.usage.on_spent = lambda _key, _spent: counted.set()
        async with server.session.post(server.url + COMPLETIONS, json=ASK) as response:
            seen = b""
            while PIECES[-1].encode() not in seen:
                seen += await response.content.readany()
        await counted.wait()
        assert await used(server) == [ESTIMATE]


async def test_what_was_refused_costs_nothing_and_an_embedding_its_input(tmp_path: Path) -> None:
    upstream = Upstream(400)
    async with serving(tmp_path, upstream) as server:
        assert (await server.post(EMBEDDINGS, {"model": "up/small", "input": "a"}))[0] == 400
        assert await used(server) == []
        assert (await server.post(EMBEDDINGS, {"model": "up/small", "input": [[1, 2], [3]]}))[0] == 200
        assert await used(server) == [(1, 3, 0)]
