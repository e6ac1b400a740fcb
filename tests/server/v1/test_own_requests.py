"""What requests of our own making ask beside the question: to keep the prompt, and not to keep the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.dialect_api import WATER_LEVEL, dialect_server
from server.v1.test_between_dialects import CHAT, MESSAGES, RESPONSES, ask
from tailrace.errors import Rejected
from tailrace.messages import JsonObject, Message, ModelRequest, Reasoning, Text, ToolSpec, Usage, user
from tailrace.providers.http.quirks import adapted_body
from tailrace.providers.http.refused_fields import refused_field
from tailrace.testing.provider import call, reply, think
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.responses.provider_request import encode_request

ENCRYPTED = {"include": ["reasoning.encrypted_content"], "store": False}
LEVEL = call("water_level", {"river": "Rhine"})


def marks(value: object, path: str = "") -> Iterator[str]:
    """Where a body has `cache_control`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "cache_control":
                assert inner == {"type": "ephemeral"}
                yield path
            yield from marks(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from marks(inner, f"{path}.{at - len(value)}")


def agent_at(dialect: str) -> dict[str, Any]:
    return {"model": {"provider": f"up-{dialect}", "name": "m"}}


async def test_the_agent_has_anthropic_keep_its_prompt(tmp_path: Path) -> None:
    usage = Usage(input_tokens=3, output_tokens=2, cache_read_tokens=900, cache_write_tokens=40)
    script = [reply(LEVEL, usage=usage), reply("3.2 m.", usage=usage)]
    async with dialect_server(tmp_path, script, sections=agent_at("anthropic"), tools=[WATER_LEVEL]) as server:
        _, answer = await server.post(MESSAGES, ask(MESSAGES, "tailrace"))
        sent = [request.json() for request in server.provider.requests]
    for body in sent:
        assert sorted(marks(body)) == ["messages.-1.content.-1", "system.-1", "tools.-1"]
    assert sent[1]["messages"][-1]["content"][-1]["type"] == "tool_result"
    assert answer["usage"]["input_tokens"] == 6
    assert answer["usage"]["cache_read_input_tokens"] == 1800
    assert answer["usage"]["cache_creation_input_tokens"] == 80


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
async def test_a_clients_own_request_is_not_marked(tmp_path: Path, path: str) -> None:
    """A single question would pay for a cache that nobody reads."""
    async with dialect_server(tmp_path) as server:
        await server.post(path, ask(path, "up-anthropic/ok"))
        assert list(marks(server.provider.requests[0].json())) == []


def marked_request(*messages: Message) -> ModelRequest:
    return ModelRequest(
        "claude", messages or (user("Go."),), system="Be brief.", tools=(ToolSpec("look"),), cache_prompt=True
    )


def test_a_refusal_of_the_marks_is_recognised_and_they_are_left_out() -> None:
    wire, request = DIALECTS["anthropic"], marked_request()
    body = adapted_body(request, wire, (), stream=True)
    assert len(list(marks(body))) == 3
    for said in ("tools.0.cache_control: Extra inputs are not permitted", "unknown field `cache_control`"):
        assert refused_field(Rejected(said, status=400), body, request, wire, {}) == "cache_control"
    without = adapted_body(request, wire, (), refused={"cache_control"}, stream=True)
    assert list(marks(without)) == []
    assert without["system"] == "Be brief."
    unmarked = ModelRequest("claude", (user("Go."),))
    assert refused_field(Rejected("no such field: cache_control", status=400), {}, unmarked, wire, {}) is None


def test_a_thought_at_the_end_is_not_marked_and_an_answer_under_way_neither() -> None:
    body = DIALECTS["anthropic"].encode_request(
        marked_request(user("Go."), Message("assistant", (Text("I"),))), stream=False
    )
    assert sorted(marks(body)) == ["messages.-2.content.-1", "system.-1", "tools.-1"]


# ── the Responses API ────────────────────────────────────────────────────────────────────────────────────────


async def test_the_agent_sends_its_encrypted_reasoning_back_and_stores_nothing_there(tmp_path: Path) -> None:
    script = [reply(think("Look it up.", signature="sealed-by-openai"), LEVEL), reply("3.2 m.")]
    async with dialect_server(tmp_path, script, sections=agent_at("responses"), tools=[WATER_LEVEL]) as server:
        await server.post(CHAT, ask(CHAT, "tailrace"))
        first, second = [request.json() for request in server.provider.requests]
    assert {name: first[name] for name in ENCRYPTED} == {name: second[name] for name in ENCRYPTED} == ENCRYPTED
    (returned,) = [item for item in second["input"] if item.get("type") == "reasoning"]
    assert returned["encrypted_content"] == "sealed-by-openai"
    assert returned["id"].startswith("rs_")


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_other_clients_have_nothing_stored_there_either(tmp_path: Path, path: str) -> None:
    async with dialect_server(tmp_path) as server:
        await server.post(path, ask(path, "up-responses/ok"))
        sent = server.provider.requests[0].json()
    assert {name: sent[name] for name in ENCRYPTED} == ENCRYPTED


def test_a_model_that_does_not_reason_is_not_asked_for_its_reasoning() -> None:
    sent = encode_request(ModelRequest("gpt-4o-mini", (user("Go."),)), stream=True)
    assert (sent["store"], "include" in sent) == (False, False)


def test_a_model_that_refuses_to_be_asked_for_it_is_asked_without() -> None:
    request = ModelRequest("m", (user("Go."),), reasoning_effort="low")
    body = encode_request(request, stream=True)
    error = Rejected("Encrypted content is not supported with this model. (include)", status=400)
    assert refused_field(error, body, request, DIALECTS["responses"], {}) == "include"


def test_reasoning_that_was_not_sealed_is_not_named_to_a_provider_that_stores_nothing() -> None:
    def inputs(item: JsonObject, **extra: object) -> list[str]:
        said = Message("assistant", (Reasoning("", "responses", item), Text("Yes.")))
        request = ModelRequest("m", (user("Go."), said), extra=dict(extra))
        return [each.get("type", "") for each in encode_request(request, stream=True)["input"]]

    named = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert inputs(named) == ["", "message"]
    assert inputs({**named, "encrypted_content": "x"}) == ["", "reasoning", "message"]
    assert inputs({**named, "content": [{"type": "reasoning_text", "text": "x"}]}) == ["", "reasoning", "message"]
    assert inputs(named, store=True) == ["", "reasoning", "message"]
