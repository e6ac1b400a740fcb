"""Documents in every dialect: a conversation with a PDF goes on at every provider and with the agent (K133)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import dialect_server
from tailrace.messages import JsonObject

PDF = base64.b64encode(b"%PDF-1.4 the mill").decode()
URL = f"data:application/pdf;base64,{PDF}"
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
PARTS: dict[str, JsonObject] = {
    CHAT: {"type": "file", "file": {"filename": "mill.pdf", "file_data": URL}},
    RESPONSES: {"type": "input_file", "filename": "mill.pdf", "file_data": URL},
    MESSAGES: {
        "type": "document",
        "title": "mill.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    },
}
UPSTREAM = {"up-chat/ok": CHAT, "up-responses/ok": RESPONSES, "up-anthropic/ok": MESSAGES}


def ask(path: str, model: str, part: JsonObject) -> JsonObject:
    field = "input" if path == RESPONSES else "messages"
    return {"model": model, field: [{"role": "user", "content": [part]}], "max_tokens": 99, "store": False}


def content_of(path: str, sent: JsonObject) -> Any:
    messages = sent["input"] if path == RESPONSES else sent["messages"]
    return messages[-1]["content"]


@pytest.mark.parametrize("model", UPSTREAM)
@pytest.mark.parametrize("path", PARTS)
async def test_K133_a_document_has_a_word_in_every_dialect(tmp_path: Path, path: str, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(path, ask(path, model, PARTS[path]))
        assert status == 200, body
        sent = server.provider.requests[0].json()
    assert content_of(UPSTREAM[model], sent) == [PARTS[UPSTREAM[model]]]


@pytest.mark.parametrize("path", PARTS)
async def test_K133_the_agent_reads_a_document(tmp_path: Path, path: str) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(path, ask(path, "tailrace", PARTS[path]))
        assert status == 200, body
        sent = server.provider.requests[0].json()
    assert content_of(CHAT, sent) == [PARTS[CHAT]]


def tool_history(result: Any, **fields: Any) -> list[JsonObject]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    return [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": result, **fields}]},
    ]


async def test_K133_a_document_in_a_tool_result_reaches_providers_that_have_no_place_for_it_there(
    tmp_path: Path,
) -> None:
    body = {"max_tokens": 99, "messages": tool_history([{"type": "text", "text": "Here."}, PARTS[MESSAGES]])}
    async with dialect_server(tmp_path) as server:
        for model in ("up-chat/ok", "up-responses/ok"):
            status, answer = await server.post(MESSAGES, {"model": model, **body})
            assert status == 200, answer
        chat, responses = (request.json() for request in server.provider.requests)
    assert chat["messages"][-2:] == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": "Here."},
        {"role": "user", "content": [PARTS[CHAT]]},
    ]
    assert responses["input"][-1]["output"] == [{"type": "input_text", "text": "Here."}, PARTS[RESPONSES]]


@pytest.mark.parametrize("model", ["up-chat/ok", "up-responses/ok"])
async def test_a_tool_that_failed_is_told_as_failed(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        history = tool_history("no such file", is_error=True)
        await server.post(MESSAGES, {"model": model, "max_tokens": 99, "messages": history})
        sent = server.provider.requests[0].json()
    result = sent["messages"][-1]["content"] if model == "up-chat/ok" else sent["input"][-1]["output"]
    assert result == "Error: no such file"


async def test_K133_documents_of_text_and_search_results_are_text(tmp_path: Path) -> None:
    text = {
        "type": "document",
        "title": "notes",
        "source": {"type": "text", "media_type": "text/plain", "data": "Brook."},
    }
    found = {
        "type": "search_result",
        "source": "https://a.example",
        "title": "Mill",
        "content": [{"type": "text", "text": "6"}],
    }
    async with dialect_server(tmp_path) as server:
        await server.post(MESSAGES, ask(MESSAGES, "up-chat/ok", text))
        await server.post(MESSAGES, ask(MESSAGES, "up-chat/ok", found))
        sent = [content_of(CHAT, request.json()) for request in server.provider.requests]
    assert sent == ["notes\nBrook.", "Mill https://a.example\n6"]


async def test_K133_an_address_of_a_document_is_refused_where_the_file_itself_is_needed(tmp_path: Path) -> None:
    part = {"type": "document", "source": {"type": "url", "url": "https://a.example/mill.pdf"}}
    async with dialect_server(tmp_path) as server:
        refused, _ = await server.post(MESSAGES, ask(MESSAGES, "up-chat/ok", part))
        assert not server.provider.requests
        status, _ = await server.post(MESSAGES, ask(MESSAGES, "up-responses/ok", part))
        sent = server.provider.requests[0].json()
    assert (refused, status) == (400, 200)
    assert content_of(RESPONSES, sent) == [{"type": "input_file", "file_url": "https://a.example/mill.pdf"}]
