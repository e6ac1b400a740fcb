"""Clients of a raw model whose provider keeps its answers: they see one answer, and decide what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from server.http_server import sse
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.server.app import serving
from tailrace.testing.provider import FaultyProvider

OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."


@asynccontextmanager
async def kept(home: Path, *script: str) -> AsyncGenerator[tuple[FaultyProvider, str, aiohttp.ClientSession], None]:
    async with FaultyProvider(script=script) as provider:
        (home / "config.yaml").write_text(
            "model: {provider: kept, name: ok}\n"
            "providers:\n"
            f"  kept: {{dialect: responses, base_url: '{provider.openai_url}', reattach: true, backoff_s: 0.001}}\n"
            "store: {url: 'memory://'}\nserver: {drain_s: 0.05}\n",
            encoding="utf-8",
        )
        async with (
            open_app(load({}, home), directory=home) as app,
            serving(app, port=0) as server,
            aiohttp.ClientSession() as client,
        ):
            yield provider, server.url, client


async def streamed(client: aiohttp.ClientSession, url: str, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    async with client.post(url + path, json={"model": "kept/ok", "stream": True, **body}) as response:
        assert response.status == 200, await response.text()
        return [event async for event in sse(response) if event.get("type") != "ping"]


@pytest.mark.parametrize("store", [None, True, False])
async def test_a_responses_client_decides_what_is_stored(tmp_path: Path, store: bool | None) -> None:
    async with kept(tmp_path, "ok+cut@60%", "ok") as (provider, url, client):
        said = {} if store is None else {"store": store}
        events = await streamed(client, url, "/v1/responses", {"input": "Hi", **said})
        done = events[-1]["response"]
        assert (done["output"][0]["content"][0]["text"], done["background"]) == (OK, False)
        sent = [request.json() for request in provider.requests if request.method == "POST"]
        if store is False:
            assert (len(sent), sent[0]["store"], "background" in sent[0]) == (2, False, False)
        else:
            assert (len(sent), sent[0]["store"], sent[0]["background"]) == (1, True, True)
            numbers = [event["sequence_number"] for event in events]
            assert numbers == list(range(len(numbers)))


async def test_a_chat_client_sees_one_answer_over_a_cut(tmp_path: Path) -> None:
    async with kept(tmp_path, "ok+cut@40%", "ok+cut@40%") as (provider, url, client):
        body = {"model": "kept/ok", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        async with client.post(url + "/v1/chat/completions", json=body) as response:
            text = await response.text()
        assert text.rstrip().endswith("data: [DONE]")
        assert sum(request.path == "/v1/responses" for request in provider.requests) == 1


async def test_a_client_that_leaves_cancels_the_answer_at_the_provider(tmp_path: Path) -> None:
    async with kept(tmp_path, "ok+stall@60%") as (provider, url, client):
        body = {"model": "kept/ok", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        async with client.post(url + "/v1/chat/completions", json=body) as response:
            await response.content.readany()
        request = await provider.request(1)
        assert request.path.endswith("/cancel")
        await asyncio.wait_for(request.over.wait(), 30)
        assert len(provider.kept.cancelled) == 1
        assert await used(client, url) == 1


async def used(client: aiohttp.ClientSession, url: str) -> int:
    """How many calls were counted; each has its question and a part of its answer."""
    async with client.get(url + "/usage") as response:
        rows = (await response.json())["data"]
    assert all(row["input_tokens"] and row["output_tokens"] for row in rows), rows
    return sum(row["calls"] for row in rows)


async def read_until(response: aiohttp.ClientResponse, kind: str) -> None:
    async for event in sse(response):
        if event.get("type") == kind:
            return
    raise AssertionError(f"the stream ended without {kind}")


async def test_a_run_that_is_stopped_has_used_what_it_showed(tmp_path: Path) -> None:
    async with kept(tmp_path, "ok+stall@80%") as (provider, url, client):
        async with client.post(url + "/runs", json={"input": "Hi"}) as response:
            run = (await response.json())["id"]
        async with client.get(f"{url}/runs/{run}/stream") as response:
            await read_until(response, "message_chunk")
            async with client.post(f"{url}/runs/{run}/stop", json={}) as stopped:
                assert stopped.status < 300
            await read_until(response, "run_finished")
        async with client.get(f"{url}/runs/{run}") as response:
            usage = (await response.json())["usage"]
        assert usage["estimated_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
        assert await used(client, url) == 1
        assert (await provider.request(1)).path.endswith("/cancel")


async def test_a_background_response_that_is_cancelled_has_used_what_it_showed(tmp_path: Path) -> None:
    async with kept(tmp_path, "ok+stall@80%") as (provider, url, client):
        body = {"model": "kept/ok", "input": "Hi", "background": True, "stream": True}
        async with client.post(url + "/v1/responses", json=body) as response:
            async for event in sse(response):
                if event.get("type") == "response.created":
                    made = event["response"]["id"]
                if event.get("type") == "response.output_text.delta":
                    break
        async with client.post(f"{url}/v1/responses/{made}/cancel", json={}) as cancelled:
            assert cancelled.status == 200
        assert (await provider.request(1)).path.endswith("/cancel")
        assert await used(client, url) == 1
