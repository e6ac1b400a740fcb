"""Completions and embeddings: what a provider of them is sent, and what its clients get."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from openai import NotFoundError, RateLimitError

from server.dialect_api import DialectServer, dialect_server
from server.http_server import running_server

COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
PIECES = ("return", " a", " + b")
KEY = "sk-of-the-provider"


class Upstream:
    """A provider with both routes; `script` has statuses to answer with first."""

    def __init__(self, *script: int, headers: dict[str, str] | None = None) -> None:
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.url = ""
        self.pieces: tuple[str, ...] = PIECES
        self.ends = b"data: [DONE]\n\n"
        self.streams = True
        self.last_reason: str | None = "stop"
        self._script = list(script)
        self._headers = headers or {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append((request.path, body, dict(request.headers)))
        if self._script and (status := self._script.pop(0)) != 200:
            error = {"error": {"message": "not so fast", "type": "rate_limit_error", "code": None}}
            return web.json_response(error, status=status, headers=self._headers)
        if request.path == EMBEDDINGS:
            data = [{"object": "embedding", "index": 0, "embedding": [0.1, -0.25]}]
            usage = {"prompt_tokens": 3, "total_tokens": 3}
            return web.json_response({"object": "list", "data": data, "model": "their-name", "usage": usage, "x": 1})
        head = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "their-name", "extra": {"a": 1}}
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        if not (body.get("stream") and self.streams):
            choice = {"index": 0, "text": "".join(self.pieces), "finish_reason": "stop", "logprobs": None}
            return web.json_response({**head, "choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        last = len(self.pieces) - 1
        for at, piece in enumerate(self.pieces):
            choice = {"index": 0, "text": piece, "finish_reason": self.last_reason if at == last else None}
            await response.write(b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n")
        await response.write(self.ends)
        return response


@asynccontextmanager
async def serving(
    home: Path, upstream: Upstream, dialect: str = "chat", **sections: Any
) -> AsyncGenerator[DialectServer, None]:
    application = web.Application()
    application.router.add_post(COMPLETIONS, upstream.answer)
    application.router.add_post(EMBEDDINGS, upstream.answer)
    async with TestServer(application) as server:
        upstream.url = str(server.make_url("/v1"))
        endpoint = {"dialect": dialect, "base_url": upstream.url, "key_env": "THEIR_KEY", "backoff_s": 0.001}
        config = {"providers": {"up": endpoint}, **sections}
        async with dialect_server(home, sections=config, env={"THEIR_KEY": KEY}) as running:
            yield running


@pytest.mark.parametrize("dialect", ["chat", "responses"])
async def test_embeddings_pass_with_every_field(tmp_path: Path, dialect: str) -> None:
    upstream = Upstream()
    async with serving(tmp_path, upstream, dialect) as server:
        body = {"model": "up/small", "input": ["a", "b"], "dimensions": 2, "unknown": True}
        status, answer = await server.post(EMBEDDINGS, body, authorization="Bearer the-clients")
    assert status == 200
    assert answer["data"] == [{"object": "embedding", "index": 0, "embedding": [0.1, -0.25]}]
    assert (answer["model"], answer["x"], answer["usage"]) == ("up/small", 1, {"prompt_tokens": 3, "total_tokens": 3})
    ((path, sent, headers),) = upstream.requests
    assert (path, sent) == (EMBEDDINGS, {**body, "model": "small"})
    assert headers["Authorization"] == f"Bearer {KEY}"


async def test_the_official_client_embeds_and_completes(tmp_path: Path) -> None:
    async with serving(tmp_path, Upstream()) as server, server.openai() as client:
        vectors = await client.embeddings.create(model="up/small", input="a", encoding_format="float")
        whole = await client.completions.create(model="up/fim", prompt="def add(a, b):", suffix="\n")
        stream = await client.completions.create(model="up/fim", prompt="def add(a, b):", stream=True)
        pieces = [chunk async for chunk in stream]
    assert vectors.data[0].embedding == [0.1, -0.25]
    assert (whole.choices[0].text, whole.model) == ("return a + b", "up/fim")
    assert tuple(chunk.choices[0].text for chunk in pieces) == PIECES
    assert {chunk.model for chunk in pieces} == {"up/fim"}
    assert pieces[0].model_extra == {"extra": {"a": 1}}


async def test_an_alias_names_the_model(tmp_path: Path) -> None:
    upstream = Upstream()
    async with serving(tmp_path, upstream, server={"drain_s": 0.05, "aliases": {"fim": "up/codestral"}}) as server:
        _, answer = await server.post(COMPLETIONS, {"model": "fim", "prompt": "x"})
    assert (upstream.requests[0][1]["model"], answer["model"]) == ("codestral", "fim")


async def test_an_alias_of_the_agent_is_the_agent(tmp_path: Path) -> None:
    async with serving(tmp_path, Upstream(), server={"drain_s": 0.05, "aliases": {"gpt-*": "tailrace"}}) as server:
        status, answer = await server.post(EMBEDDINGS, {"model": "gpt-5", "input": "x"})
    assert (status, answer["error"]["code"]) == (404, "unsupported_route")


async def test_K128_features_reach_the_provider_unless_they_are_no_header(tmp_path: Path) -> None:
    upstream = Upstream()
    body = {"model": "up/small", "input": "a"}
    async with serving(tmp_path, upstream) as server:
        both = [("openai-beta", "one"), ("openai-beta", "two")]
        async with server.session.post(server.url + EMBEDDINGS, json=body, headers=both) as response:
            assert response.status == 200
        status, answer = await server.post(EMBEDDINGS, body, **{"openai-beta": "größer"})
    ((_, _, headers),) = upstream.requests
    assert headers["openai-beta"] == "one,two"
    assert (status, answer["error"]["param"]) == (400, "openai-beta")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("tailrace", "the agent has no embeddings; name a model as <provider>/<model>"),
        ("up/claude", "up has no embeddings: its API (anthropic) has no such route"),
    ],
)
async def test_a_model_without_the_route_is_a_clear_404(tmp_path: Path, model: str, told: str) -> None:
    upstream = Upstream()
    async with serving(tmp_path, upstream, "anthropic") as server, server.openai() as client:
        with pytest.raises(NotFoundError) as refused:
            await client.embeddings.create(model=model, input="a")
    assert (refused.value.body or {}) == {
        "message": told,
        "type": "invalid_request_error",
        "param": "model",
        "code": "unsupported_route",
    }
    assert upstream.requests == []


async def test_a_provider_without_the_route_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path, Upstream(404)) as server:
        status, answer = await server.post(EMBEDDINGS, {"model": "up/small", "input": "a"})
    assert (status, answer["error"]["message"]) == (404, "up answers 404: not so fast")


async def test_no_model_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path, Upstream()) as server:
        status, answer = await server.post(COMPLETIONS, {"prompt": "x"})
    assert (status, answer["error"]["param"]) == (400, "model")


async def test_a_failure_that_may_pass_is_the_clients_to_retry(tmp_path: Path) -> None:
    upstream = Upstream(500)
    async with serving(tmp_path, upstream) as server:
        statuses = [(await server.post(EMBEDDINGS, {"model": "up/small", "input": "a"}))[0] for _ in range(2)]
    assert (statuses, len(upstream.requests)) == ([502, 200], 2)


async def test_K139_a_wait_that_the_provider_asks_for_is_passed_on(tmp_path: Path) -> None:
    upstream = Upstream(429, 429, headers={"Retry-After": "86400"})
    async with serving(tmp_path, upstream) as server, server.openai() as client:
        with pytest.raises(RateLimitError) as refused:
            await client.embeddings.create(model="up/small", input="a")
    assert refused.value.response.headers["retry-after"] == "86400"
    assert "not so fast" in str(refused.value)
    assert len(upstream.requests) == 1


async def test_a_stream_that_is_cut_ends_in_an_error(tmp_path: Path) -> None:
    upstream = Upstream()
    upstream.ends = b""
    async with serving(tmp_path, upstream) as server:
        events = await server.data(COMPLETIONS, {"model": "up/fim", "prompt": "x", "stream": True})
    assert [event["choices"][0]["text"] for event in events[:-1]] == list(PIECES)
    assert events[-1]["error"]["message"] == "the stream ended without [DONE]"


async def test_a_whole_answer_to_a_stream_is_one_event(tmp_path: Path) -> None:
    upstream = Upstream()
    upstream.streams = False
    async with serving(tmp_path, upstream) as server:
        whole, done = await server.data(COMPLETIONS, {"model": "up/fim", "prompt": "x", "stream": True})
    assert (whole["choices"][0]["text"], whole["model"], done) == ("return a + b", "up/fim", "[DONE]")


@pytest.mark.parametrize("stream", [False, True])
async def test_J114_the_providers_key_is_not_in_the_answer(tmp_path: Path, stream: bool) -> None:
    upstream = Upstream()
    upstream.pieces = ("key: ", KEY[:5], KEY[5:], " sk")
    body = {"model": "up/fim", "prompt": "x", "stream": stream}
    async with (
        serving(tmp_path, upstream) as server,
        server.session.post(server.url + COMPLETIONS, json=body) as response,
    ):
        text = await response.text()
    assert KEY not in text
    assert "[redacted]" in text
    assert " sk" in text


async def test_a_text_without_an_announced_end_is_whole(tmp_path: Path) -> None:
    """Its last piece may be the beginning of the key, and waits for what follows: here nothing does."""
    upstream = Upstream()
    upstream.pieces, upstream.last_reason = ("ask ", "sk-"), None
    async with serving(tmp_path, upstream) as server:
        *events, done = await server.data(COMPLETIONS, {"model": "up/fim", "prompt": "x", "stream": True})
    assert "".join(event["choices"][0]["text"] for event in events) == "ask sk-"
    assert ({event["model"] for event in events}, events[-1]["extra"], done) == ({"up/fim"}, {"a": 1}, "[DONE]")


async def test_a_stream_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.providers.http.relayed_reply.MAX_STREAM_BYTES", 1)
    async with serving(tmp_path, Upstream()) as server:
        status, answer = await server.post(COMPLETIONS, {"model": "up/fim", "prompt": "x", "stream": True})
    assert (status, answer["error"]["message"]) == (502, "the stream exceeds 1 bytes")


async def test_nothing_is_recorded_and_every_attempt_is_counted(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        status, _ = await server.json("POST", EMBEDDINGS, {"model": "faulty/small", "input": "a"})
        _, runs = await server.json("GET", "/runs")
        counted = server.metrics.calls.values["faulty", "permanent"]
    assert (status, runs["data"], counted) == (404, [], 1)
