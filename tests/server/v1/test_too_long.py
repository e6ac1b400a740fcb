"""A request that is longer than the model reads: each API's clients are told so in the words that they act on."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dialect_api import dialect_server
from tailrace.errors import Rejected
from tailrace.server.http.api_errors import as_api_error, error_delta
from tailrace.wire.dialects import ANTHROPIC

MODELS = ["up-chat/too-long", "up-responses/too-long", "up-anthropic/too-long"]
AGENT = {"model": {"provider": "up-chat", "name": "too-long"}}
QUESTION = [{"role": "user", "content": "Where does the water go?"}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [*MODELS, "tailrace"])
async def test_of_a_message_the_prompt_is_too_long(tmp_path: Path, model: str, stream: bool) -> None:
    asked = {"model": model, "max_tokens": 64, "messages": QUESTION, "stream": stream}
    async with dialect_server(tmp_path, sections=AGENT) as server:
        status, body = await server.post("/v1/messages", asked)
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    message = body["error"]["message"]
    assert message.startswith("prompt is too long: ")
    assert message.count("prompt is too long") == 1
    assert ("214000" if "anthropic" in model else "exceeds the context window") in message, "the provider's own words"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [*MODELS, "tailrace"])
async def test_of_a_chat_completion_the_code_says_so(tmp_path: Path, model: str, stream: bool) -> None:
    async with dialect_server(tmp_path, sections=AGENT) as server:
        asked = {"model": model, "messages": QUESTION, "stream": stream}
        status, body = await server.post("/v1/chat/completions", asked)
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("model", [*MODELS, "tailrace"])
async def test_D52_a_streamed_response_fails_in_its_stream_for_codex_alone(
    tmp_path: Path, model: str, store: bool
) -> None:
    asked = {"model": model, "input": "Where does the water go?", "store": store}
    async with dialect_server(tmp_path, sections=AGENT) as server:
        events = await server.data("/v1/responses", {**asked, "stream": True}, originator="codex_cli_rs")
        refused = [await server.post("/v1/responses", {**asked, "stream": stream}) for stream in (False, True)]
    assert [event["type"] for event in events][-2:] == ["error", "response.failed"]
    assert events[0]["type"] == "response.created"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["response"]["error"]["code"] == events[-2]["code"] == "context_length_exceeded"
    for status, body in refused:
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


def test_words_that_claude_code_acts_on_are_left_as_they_are() -> None:
    said = "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"
    refused = as_api_error(Rejected(said, status=400, code="invalid_request_error"))
    assert refused.code == "context_length_exceeded"
    assert ANTHROPIC.error_body(error_delta(refused), None, None, "")["error"]["message"] == said


def test_too_many_bytes_are_another_matter() -> None:
    refused = Rejected("Request exceeds the maximum size", status=413, code="request_too_large")
    assert as_api_error(refused).code == "request_too_large"
