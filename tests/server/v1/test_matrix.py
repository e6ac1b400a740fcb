"""Any upstream dialect to any API, streamed and not: nothing is lost that both can express."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.dialect_api import DIALECTS, dialect_server
from tailrace.config.quirks import NONE
from tailrace.messages import Completion, Dialect, JsonObject, Reasoning
from tailrace.wire.dialects import DIALECTS as WIRES

PATHS: dict[Dialect, str] = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
REPLIES = (
    "ok", "text-and-tools", "reasoning-tools", "parallel", "unicode", "length", "filter", "filter+no-streaming",
    "cached", "no-arguments",
)  # fmt: skip


class Said(msgspec.Struct, frozen=True):
    """What every dialect can express of an answer."""

    text: str
    reasoning: str
    calls: tuple[tuple[str, Any], ...]
    stop: str
    spent: tuple[int, int]  # input with the cached ones, output


def said(completion: Completion) -> Said:
    usage = completion.usage
    beside = usage.cache_read_tokens + usage.cache_write_tokens if completion.dialect == "anthropic" else 0
    return Said(
        completion.text,
        "".join(part.text for part in completion.message.parts if isinstance(part, Reasoning)),
        tuple((call.name, msgspec.json.decode(call.arguments)) for call in completion.tool_calls),
        completion.stop,
        (usage.input_tokens + beside, usage.output_tokens),
    )


def request(down: Dialect, model: str, *, stream: bool) -> JsonObject:
    tools = {
        "chat": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
        "responses": [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}],
        "anthropic": [{"name": "get_weather", "input_schema": {"type": "object"}}],
    }
    body: JsonObject = {"model": model, "stream": stream, "tools": tools[down]}
    match down:
        case "chat":
            body |= {"messages": [{"role": "user", "content": "Go."}], "stream_options": {"include_usage": True}}
        case "responses":
            body |= {"input": "Go.", "store": False}
        case "anthropic":
            body |= {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 99}
    return body


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("down", DIALECTS)
@pytest.mark.parametrize("up", DIALECTS)
async def test_the_same_answer_in_every_dialect(tmp_path: Path, up: Dialect, down: Dialect, stream: bool) -> None:
    """Our own decoder reads what our server says; the official SDKs do so in their own tests."""
    wire = WIRES[down]
    async with dialect_server(tmp_path) as server:
        for name in REPLIES:
            _, own = await server.post(PATHS[up], request(up, f"up-{up}/{name}", stream=False))  # the provider's body
            expected = said(WIRES[up].completion_from_body(own))
            asked = request(down, f"up-{up}/{name}", stream=stream)
            if stream:
                decoder = wire.decoder(NONE)
                async with server.session.post(server.url + PATHS[down], json=asked) as response:
                    assert response.status == 200
                    decoder.feed(await response.read())
                assert decoder.complete
                body = decoder.rebuilt_body()
            else:
                status, body = await server.post(PATHS[down], asked)
                assert status == 200, body
            assert said(wire.completion_from_body(body)) == expected, name


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("down", DIALECTS)
async def test_a_refusal_is_told_in_every_dialect(tmp_path: Path, down: Dialect, stream: bool) -> None:
    async with dialect_server(tmp_path) as server:
        for up in DIALECTS:
            asked = request(down, f"up-{up}/refusal", stream=stream)
            async with server.session.post(server.url + PATHS[down], json=asked) as response:
                raw = await response.text()
            assert response.status == 200
            assert stream or "sorry" in raw, up


HISTORY: dict[Dialect, JsonObject] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
            {"role": "user", "content": "And?"},
        ]
    },
    "responses": {
        "instructions": "Be brief.",
        "store": False,
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look:"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                ],
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "seen"},
            {"role": "user", "content": "And?"},
        ],
    },
    "anthropic": {
        "max_tokens": 50,
        "system": "Be brief.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "seen"},
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
    },
}


@pytest.mark.parametrize("down", DIALECTS)
@pytest.mark.parametrize("up", DIALECTS)
async def test_a_conversation_reaches_every_provider_whole(tmp_path: Path, up: Dialect, down: Dialect) -> None:
    """System prompt, image, call, result and question: in the provider's words, whoever's words they came in."""
    async with dialect_server(tmp_path) as server:
        for asking in dict.fromkeys((down, up)):
            status, body = await server.post(PATHS[asking], {"model": f"up-{up}/ok", **HISTORY[asking]})
            assert status == 200, body
        translated, own = server.provider.requests[0].json(), server.provider.requests[-1].json()
    if up == "responses" and down != up:
        assert translated["instructions"] == own["instructions"]
        kinds = [item.get("type", item.get("role")) for item in translated["input"]]
        assert kinds == ["user", "message", "function_call", "function_call_output", "user"]
    elif up == "chat" and down != up:
        assert [m["role"] for m in translated["messages"]] == [m["role"] for m in own["messages"]]
        assert translated["messages"][2]["tool_calls"] == own["messages"][2]["tool_calls"]
        assert translated["messages"][3]["content"] == "seen"
    elif down != up:
        assert translated["system"] == "Be brief."
        blocks = [block["type"] for message in translated["messages"] for block in message["content"]]
        assert blocks == ["text", "image", "text", "tool_use", "tool_result", "text"]
    assert "AAAA" in msgspec.json.encode(translated).decode()


# ── what only one dialect can say, within that dialect ───────────────────────────────────────────────────────

NATIVE = [
    ("anthropic", "reasoning-tools"),
    ("anthropic", "citations"),
    ("chat", "logprobs"),
    ("chat", "citations"),
    ("responses", "citations"),
    ("responses", "logprobs"),
    ("responses", "blocks"),
    ("anthropic", "blocks"),
]


@pytest.mark.parametrize(("dialect", "name"), NATIVE)
async def test_C45_within_one_dialect_a_stream_says_all_that_the_whole_answer_says(
    tmp_path: Path, dialect: Dialect, name: str
) -> None:
    """Signatures, citations, log probabilities: the stream, put together again, is the provider's own body."""
    wire = WIRES[dialect]
    model = f"up-{dialect}/{name}"
    async with dialect_server(tmp_path) as server:
        _, whole = await server.post(PATHS[dialect], request(dialect, model, stream=False))
        decoder = wire.decoder(NONE)
        asked = request(dialect, model, stream=True)
        async with server.session.post(server.url + PATHS[dialect], json=asked) as response:
            decoder.feed(await response.read())
    streamed = decoder.rebuilt_body()
    match dialect:
        case "anthropic":
            assert streamed["content"] == whole["content"]
        case "chat":
            assert streamed["choices"][0]["message"].get("annotations") == whole["choices"][0]["message"].get(
                "annotations"
            )
            assert streamed["choices"][0].get("logprobs") == whole["choices"][0].get("logprobs")
        case "responses":
            kept = [[_without_id(part) for part in item["content"]] for item in streamed["output"]]
            assert kept == [[_without_id(part) for part in item["content"]] for item in whole["output"]]


def _without_id(part: JsonObject) -> JsonObject:
    """Nor the bytes of a token: the stream that comes from the provider has none."""
    probable = [{**token, "bytes": None} for token in part.get("logprobs", ())]
    return {"text": part["text"], "annotations": part["annotations"], "logprobs": probable}
