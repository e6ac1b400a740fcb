"""An error of the provider's, in mid-stream or instead of an answer: one rule for every API."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dialect_api import DIALECTS, dialect_server
from server.v1.replaying_provider import chat_chunks, replaying

REFUSED = chat_chunks("One, ", error={"code": "content_policy_violation", "message": "not this"})
OVERLOADED = chat_chunks("One, ", error={"code": "overloaded_error", "message": "too busy"})


@pytest.mark.parametrize(("raw", "expected"), [(REFUSED, 400), (OVERLOADED, 502)], ids=["refused", "overloaded"])
async def test_an_error_in_mid_stream_has_one_status_in_every_api(tmp_path: Path, raw: bytes, expected: int) -> None:
    """By its class: the provider's own status for what will fail again, 502 for what may not."""
    async with replaying(tmp_path, raw) as server:
        statuses: dict[str, int] = {dialect: (await server.whole(dialect, "chat"))[0] for dialect in DIALECTS}
        statuses["stored"] = (await server.whole("responses", "chat", store=True))[0]
        agent, _ = await server.whole("chat", model="tailrace")
    assert set(statuses.values()) == {expected}, statuses
    assert agent == (400 if expected == 400 else 200)  # a cut turn keeps its text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["tailrace", "up-chat/ok"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
async def test_a_refusal_is_not_asked_again_and_says_whose_key_it_is_about(
    tmp_path: Path, path: str, model: str, stream: bool
) -> None:
    """A stored response and the agent are answered from their logs, other calls from the provider's error."""
    asked = {"model": model, "stream": stream, "max_tokens": 9, "messages": [{"role": "user", "content": "Go."}]}
    if path == "/v1/responses":
        asked = {"model": model, "stream": stream, "input": "Go."}
    async with (
        dialect_server(tmp_path, ["status-401"]) as server,
        server.session.post(server.url + path, json=asked) as response,
    ):
        body = await response.text()
    assert (response.status, response.headers.get("x-should-retry")) == (401, "false")
    assert "up-chat refused this server's key: Incorrect" in body


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("model", ["tailrace", "up-chat/ok"])
async def test_a_failure_without_a_code_has_that_of_its_status(tmp_path: Path, model: str, store: bool) -> None:
    """`retryable` is our own word, which no client knows."""
    asked = {"model": model, "input": "Go.", "store": store}
    async with dialect_server(tmp_path, ["html"] * 9) as server:
        status, body = await server.post("/v1/responses", asked)
    assert (status, body["error"]["code"]) == (502, "bad_gateway")
