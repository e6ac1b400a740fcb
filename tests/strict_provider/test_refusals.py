"""What a strict provider refuses, in each vendor's words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from proof.strict_provider import StrictProvider

from tailrace.messages import Dialect, JsonObject
from tailrace.testing.provider import call, reply, think

PATHS: dict[Dialect, str] = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
SAID: dict[Dialect, JsonObject] = {
    "chat": {"messages": [{"role": "user", "content": "hi"}]},
    "responses": {"input": "hi"},
    "anthropic": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100},
}
VERSION = {"anthropic-version": "2023-06-01"}
TURNS = {"agentic": [reply(think("First I look."), call("look", {"at": "a"})), reply("Seen.")]}
TOOLS: dict[Dialect, list[JsonObject]] = {
    "chat": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    "responses": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    "anthropic": [{"name": "look", "input_schema": {"type": "object"}}],
}


class Vendor:
    def __init__(self, server: StrictProvider, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session

    async def ask(self, dialect: Dialect, headers: Mapping[str, str] = VERSION, **fields: Any) -> tuple[int, Any]:
        body = {"model": "ok", **SAID[dialect], **fields}
        async with self.session.post(self.server.url + PATHS[dialect], json=body, headers=dict(headers)) as answer:
            return answer.status, await answer.json()

    async def refused(self, dialect: Dialect, headers: Mapping[str, str] = VERSION, **fields: Any) -> str:
        status, body = await self.ask(dialect, headers, **fields)
        assert status in (400, 404), body
        assert body["error"]["type"] in ("invalid_request_error", "not_found_error")
        assert self.server.requests[-1].refusal == body["error"]["message"]
        return str(body["error"]["message"])


@pytest.fixture
async def vendor() -> AsyncIterator[Vendor]:
    async with StrictProvider(turns=TURNS, returns_reasoning=True) as server, aiohttp.ClientSession() as session:
        yield Vendor(server, session)


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_plain_question_is_taken(vendor: Vendor, dialect: Dialect) -> None:
    assert (await vendor.ask(dialect))[0] == 200
    assert vendor.server.refusals == []


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ("chat", "Unknown parameter: 'colour'."),
        ("responses", "Unknown parameter: 'colour'."),
        ("anthropic", "colour: Extra inputs are not permitted"),
    ],
)
async def test_unknown_fields(vendor: Vendor, dialect: Dialect, words: str) -> None:
    assert await vendor.refused(dialect, colour="red") == words
    assert vendor.server.refusals == [words]


# Anthropic


async def test_anthropic_wants_its_version(vendor: Vendor) -> None:
    assert await vendor.refused("anthropic", {}) == "anthropic-version: header is required"
    assert "is not a valid version" in await vendor.refused("anthropic", {"anthropic-version": "2019-01-01"})


async def test_anthropic_takes_beta_fields_with_their_header_alone(vendor: Vendor) -> None:
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    words = await vendor.refused("anthropic", context_management=edits)
    assert words == "context_management: Extra inputs are not permitted"
    beta = {**VERSION, "anthropic-beta": "claude-code-20250219, context-management-2025-06-27"}
    assert (await vendor.ask("anthropic", beta, context_management=edits))[0] == 200


async def test_anthropic_says_in_details_that_there_are_no_threads(vendor: Vendor) -> None:
    assert await vendor.refused("anthropic", thread={"type": "create"}) == "thread: Extra inputs are not permitted"
    beta = {**VERSION, "anthropic-beta": "message-threads-2026-08-12"}
    status, body = await vendor.ask("anthropic", beta, thread={"type": "create"})
    assert status == 400
    assert body["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_completion_tokens": 5}, "max_completion_tokens: Extra inputs are not permitted"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
        ),
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "tools.0.custom.name: String should match"),
        ({"tools": [{"name": "a", "parameters": {}}]}, "tools.0.custom.parameters: Extra inputs are not permitted"),
        ({"tools": [{"name": "a", "input_schema": {}}]}, "tools.0.custom.input_schema.type: Field required"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages.0: all messages must have non-empty content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
            "messages: text content blocks must be non-empty",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "parsed_output": {}}]}]},
            "messages.0.content.0.text.parsed_output: Extra inputs are not permitted",
        ),
    ],
)
async def test_anthropic_reads_the_body(vendor: Vendor, fields: JsonObject, words: str) -> None:
    assert (await vendor.refused("anthropic", **fields)).startswith(words)


async def test_anthropic_wants_calls_and_results_in_pairs(vendor: Vendor) -> None:
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a"}]}
    user = SAID["anthropic"]["messages"][0]
    assert "`tool_use` ids were found without `tool_result` blocks" in await vendor.refused(
        "anthropic", messages=[user, use, user]
    )
    assert "unexpected `tool_use_id` found" in await vendor.refused("anthropic", messages=[result])
    assert (await vendor.ask("anthropic", messages=[user, use, result]))[0] == 200
    thinking = {"type": "enabled", "budget_tokens": 1024}
    words = await vendor.refused("anthropic", messages=[user, use, result], thinking=thinking, max_tokens=2000)
    assert words.startswith("messages.1.content.0.type: Expected `thinking` or `redacted_thinking`")


async def test_anthropic_knows_its_own_signatures(vendor: Vendor) -> None:
    _, body = await vendor.ask("anthropic", model="agentic", tools=TOOLS["anthropic"])
    thought, use = body["content"]
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "a"}
    told = [*SAID["anthropic"]["messages"], {"role": "assistant", "content": [thought, use]}]
    told.append({"role": "user", "content": [result]})
    status, body = await vendor.ask("anthropic", model="agentic", tools=TOOLS["anthropic"], messages=told)
    assert (status, body["content"]) == (200, [{"type": "text", "text": "Seen."}])
    for signature in ("", "another's"):
        told[1]["content"][0] = {**thought, "signature": signature}
        words = await vendor.refused("anthropic", messages=told)
        assert words == "messages.1.content.0: Invalid `signature` in `thinking` block"


async def test_counting_is_held_to_the_same_headers(vendor: Vendor) -> None:
    body = {"model": "ok", **SAID["anthropic"]}
    async with vendor.session.post(
        vendor.server.url + "/v1/messages/count_tokens", json=body, headers=VERSION
    ) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["message"] == "max_tokens: Extra inputs are not permitted"


# OpenAI chat


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"max_tokens": 5, "max_completion_tokens": 5},
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        ),
        (
            {"user": "x" * 65},
            "Invalid 'user': string too long. Expected a string with maximum length 64, but got a string with length",
        ),
        ({"model": "gpt-5", "max_tokens": 5}, "Unsupported parameter: 'max_tokens' is not supported with this model."),
        ({"stream_options": {"include_usage": True}}, "The 'stream_options' parameter is only allowed when 'stream'"),
        ({"tools": [{"type": "function", "name": "look"}]}, "Missing required parameter: 'tools[0].function'."),
        ({"tools": TOOLS["anthropic"]}, "Invalid value: 'None'. Supported values are: 'function' and 'custom'."),
        ({"tool_choice": "auto"}, "Invalid value for 'tool_choice'"),
        (
            {"messages": [{"role": "tool", "tool_call_id": "call_1", "content": "a"}]},
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message",
        ),
        ({"messages": [{"role": "assistant", "content": None}]}, "Invalid value for 'content'"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "strict": True, "schema": {"type": "object", "properties": {}}},
                }
            },
            "Invalid schema for 'response_format': In context=(), 'additionalProperties' is required",
        ),
    ],
)
async def test_chat_reads_the_body(vendor: Vendor, fields: JsonObject, words: str) -> None:
    assert (await vendor.refused("chat", **fields)).startswith(words)


async def test_chat_wants_calls_answered_and_reasoning_returned(vendor: Vendor) -> None:
    asked: dict[str, Any] = {"model": "agentic", "tools": TOOLS["chat"]}
    _, body = await vendor.ask("chat", **asked)
    said = body["choices"][0]["message"]
    user, call_id = SAID["chat"]["messages"][0], said["tool_calls"][0]["id"]
    assert said["reasoning_content"] == "First I look."
    words = await vendor.refused("chat", messages=[user, said, user])
    assert words.startswith("An assistant message with 'tool_calls' must be followed by tool messages")
    result = {"role": "tool", "tool_call_id": call_id, "content": "a"}
    _, body = await vendor.ask("chat", **asked, messages=[user, said, result])
    assert body["choices"][0]["message"]["content"] == "Seen."
    del said["reasoning_content"]
    words = await vendor.refused("chat", messages=[user, said, result])
    assert words == "Missing `reasoning_content` field in the assistant message at message index 1."


# OpenAI Responses


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_tokens": 5}, "Unsupported parameter: 'max_tokens'."),
        ({"user": "x" * 65}, "Invalid 'user': string too long."),
        ({"tools": TOOLS["chat"]}, "Missing required parameter: 'tools[0].name'."),
        ({"previous_response_id": "resp_0"}, "Previous response with id 'resp_0' not found."),
        ({"input": [{"type": "item_reference", "id": "rs_0"}]}, "Item with id 'rs_0' not found."),
        (
            {"input": [{"type": "message", "id": "msg_0", "role": "assistant", "content": "a"}]},
            "Item with id 'msg_0' not found.",
        ),
        (
            {"input": [{"type": "function_call", "id": "call_0", "call_id": "0", "name": "a", "arguments": "{}"}]},
            "Invalid 'input[0].id': 'call_0'. Expected an ID that begins with 'fc'.",
        ),
        (
            {"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}]},
            "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "call_0", "output": "a"}]},
            "No tool call found for function call output with call_id call_0.",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "call_0", "name": "a", "arguments": "{}"}]},
            "No tool output found for function call call_0.",
        ),
        (
            {"input": [{"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "else's"}]},
            "The encrypted content for item rs_0 could not be verified. Reason: Encrypted content could not be",
        ),
    ],
)
async def test_responses_reads_the_body(vendor: Vendor, fields: JsonObject, words: str) -> None:
    assert (await vendor.refused("responses", **fields)).startswith(words)


async def first_step(vendor: Vendor, **fields: Any) -> tuple[JsonObject, list[JsonObject]]:
    status, body = await vendor.ask("responses", model="agentic", tools=TOOLS["responses"], **fields)
    assert status == 200, body
    call_id = body["output"][-1]["call_id"]
    return body, [*body["output"], {"type": "function_call_output", "call_id": call_id, "output": "a"}]


async def test_responses_takes_its_own_items_and_response_ids(vendor: Vendor) -> None:
    asked: dict[str, Any] = {"model": "agentic", "tools": TOOLS["responses"]}
    body, items = await first_step(vendor)
    assert "encrypted_content" not in items[0]
    references = [{"type": "item_reference", "id": item["id"]} for item in items[:2]]
    for going_on in (
        {"input": items},
        {"input": [*references, items[-1]]},
        {"input": items[-1:], "previous_response_id": body["id"]},
    ):
        status, last = await vendor.ask("responses", **asked, **going_on)
        assert (status, last["output"][0]["content"][0]["text"]) == (200, "Seen.")


async def test_responses_keeps_nothing_of_what_is_not_stored(vendor: Vendor) -> None:
    body, items = await first_step(vendor, store=False)
    words = await vendor.refused("responses", input=items, store=False)
    assert words == (
        f"Item with id '{items[0]['id']}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input."
    )
    words = await vendor.refused("responses", input=items[-1:], previous_response_id=body["id"])
    assert words.startswith("Previous response with id")


async def test_responses_binds_encrypted_content_to_its_item(vendor: Vendor) -> None:
    _, items = await first_step(vendor, store=False, include=["reasoning.encrypted_content"])
    assert (await vendor.ask("responses", input=items, store=False))[0] == 200
    thought = {**items[0], "id": "rs_0"}
    words = await vendor.refused("responses", input=[thought, *items[1:]], store=False)
    assert words == (
        "The encrypted content for item rs_0 could not be verified. "
        "Reason: Encrypted content item_id did not match the target item id."
    )


async def test_responses_wants_a_thought_with_what_follows_it(vendor: Vendor) -> None:
    _, (thought, called, result) = await first_step(vendor)
    words = await vendor.refused("responses", input=[called, result])
    assert words == (
        f"Item '{called['id']}' of type 'function_call' was provided without its required 'reasoning' item: "
        f"'{thought['id']}'."
    )
    words = await vendor.refused("responses", input=[thought, thought, called, result])
    assert words.startswith(f"Duplicate item found with id {thought['id']}.")
    words = await vendor.refused("responses", input=[thought])
    assert words == f"Item '{thought['id']}' of type 'reasoning' was provided without its required following item."


async def test_responses_lets_a_client_name_its_own_items(vendor: Vendor) -> None:
    """Codex gives an id to each message of its own and to each result."""
    _, items = await first_step(vendor)
    asked = {"type": "message", "id": "msg_mine", "role": "user", "content": [{"type": "input_text", "text": "Go."}]}
    going_on = [asked, *items[:-1], {**items[-1], "id": "fco_mine"}]
    assert (await vendor.ask("responses", input=going_on))[0] == 200
    said = {**asked, "role": "assistant", "content": [{"type": "output_text", "text": "Gone."}]}
    assert (await vendor.refused("responses", input=[said])).startswith("Item with id 'msg_mine' not found.")
