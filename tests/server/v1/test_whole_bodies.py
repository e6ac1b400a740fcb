"""What every body has, and what the document asks of a request."""

from __future__ import annotations

from pathlib import Path

import pytest
from openai.types.responses import Response

from server.dialect_api import DIALECTS
from server.v1.replaying_provider import OK, PATHS, rebuilt, replaying
from tailrace.messages import Dialect

# What the Open Responses specification requires of a response.
REQUIRED = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "top_logprobs",
    "temperature",
    "reasoning",
    "user",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "service_tier",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
]
NUMBERS = ("top_p", "presence_penalty", "frequency_penalty", "top_logprobs", "temperature")


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("model", ["up-chat/any", "tailrace"])
async def test_a_response_has_every_field_that_the_specification_requires(
    tmp_path: Path, model: str, store: bool
) -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    async with replaying(tmp_path, OK) as server:
        status, body = await server.whole("responses", model=model, store=store, tools=[tool])
        streamed = rebuilt("responses", await server.streamed("responses", model=model, store=store, tools=[tool]))
    assert status == 200, body
    assert streamed is not None
    for response in (body, streamed):
        assert [name for name in REQUIRED if name not in response] == []
        assert [name for name in NUMBERS if not isinstance(response[name], (int, float))] == []
        assert isinstance(response["completed_at"], int)
        assert response["tools"] == [{**tool, "description": None, "strict": None}]
        assert response["service_tier"] == "default"
        Response.model_validate(response)


async def test_input_items_have_a_status(tmp_path: Path) -> None:
    async with replaying(tmp_path, OK) as server:
        _, body = await server.whole("responses", "chat", store=True)
        async with server.session.get(f"{server.url}/v1/responses/{body['id']}/input_items") as response:
            items = (await response.json())["data"]
    assert [item["status"] for item in items] == ["completed"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_empty_model_is_refused_by_name(tmp_path: Path, dialect: Dialect) -> None:
    async with replaying(tmp_path, OK) as server:
        status, body = await server.whole(dialect, model="")
    assert status == 400
    assert "model" in body["error"]["message"]


async def test_the_document_asks_for_something_to_answer(tmp_path: Path) -> None:
    async with replaying(tmp_path, OK) as server, server.session.get(server.url + "/openapi.json") as response:
        paths = (await response.json())["paths"]
    schemas = {
        dialect: paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for dialect, path in PATHS.items()
    }
    for dialect in ("chat", "anthropic"):
        messages = schemas[dialect]["properties"]["messages"]
        assert messages["minItems"] == 1
        assert messages["items"]["required"] == ["role"]
    text, items = schemas["responses"]["properties"]["input"]["oneOf"]
    assert (text["minLength"], items["minItems"]) == (1, 1)
    assert {"required": ["input"]} in schemas["responses"]["anyOf"]
