"""The ids of items in the Responses API: a provider's are kept, ours are understood and never shown to one (K127)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from proof.strict_provider import StrictProvider

from server.dialect_api import DialectServer, dialect_server
from tailrace.messages import JsonObject
from tailrace.testing.provider import call, reply
from tailrace.testing.scripted.reply import think
from tailrace.wire.responses.item_ids import run_key_of

TOOL: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
CALLED = reply(think("Bern, then.", "sealed-1"), "Let me look.", call("get_weather", {"city": "Bern"}))
AGAIN = reply(think("And Thun.", "sealed-2"), call("get_weather", {"city": "Thun"}))
DONE = reply(think("Enough.", "sealed-3"), "It rains in both.")
MODELS = ["up-responses/ok", "up-chat/ok", "up-anthropic/ok", "tailrace"]
AGENT_OF_RESPONSES = {"model": {"provider": "up-responses", "name": "ok"}}


def sections_for(model: str) -> dict[str, Any]:
    return AGENT_OF_RESPONSES if model == "tailrace" else {}


def results_for(output: list[Any]) -> list[Any]:
    calls = [item for item in output if item.type == "function_call"]
    return [{"type": "function_call_output", "call_id": item.call_id, "output": "rain"} for item in calls]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("model", MODELS)
async def test_K127_a_loop_that_returns_the_output_works(tmp_path: Path, model: str, store: bool, stream: bool) -> None:
    """`input += response.output`, as OpenAI documents it, against a provider that knows its own items alone."""
    provider = StrictProvider()
    asked: Any = {"model": model, "tools": [TOOL], "store": store, "reasoning": {"summary": "auto"}}
    if not store:
        asked["include"] = ["reasoning.encrypted_content"]
    async with (
        dialect_server(tmp_path, provider=provider, sections=sections_for(model)) as server,
        server.openai() as client,
    ):
        provider.extend(CALLED, AGAIN, DONE)
        conversation: list[Any] = [{"role": "user", "content": "Does it rain?"}]
        for _ in range(3):
            if stream:
                async with client.responses.stream(input=conversation, **asked) as events:
                    response: Any = await events.get_final_response()
            else:
                response = await client.responses.create(input=conversation, **asked)
            conversation += response.output
            conversation += results_for(response.output)
        assert provider.refusals == []
        sent = [request.json() for request in provider.requests]
    assert len(sent) == 3
    assert response.output_text == "It rains in both."
    if model == "up-responses/ok":
        kinds = [(item.get("type"), "encrypted_content" in item) for item in sent[-1]["input"] if "id" in item]
        assert kinds == [
            *(("reasoning", not store), ("message", False), ("function_call", False)),
            *(("reasoning", not store), ("function_call", False)),
        ]


async def test_K127_streamed_whole_stored_and_resumed_have_the_provider_s_own_ids(tmp_path: Path) -> None:
    asked: JsonObject = {"model": "up-responses/ok", "input": "Go.", "tools": [TOOL]}
    async with dialect_server(tmp_path, [CALLED] * 5) as server:
        _, whole = await server.post("/v1/responses", {**asked, "store": False})
        _, kept = await server.post("/v1/responses", asked)
        streamed = await server.data("/v1/responses", {**asked, "stream": True, "store": False})
        live = await server.data("/v1/responses", {**asked, "stream": True})
        background = await server.data("/v1/responses", {**asked, "stream": True, "background": True})
        path = f"/v1/responses/{live[-1]['response']['id']}"
        _, shown = await server.get(path)
        resumed = await server.data(f"{path}?stream=true&starting_after=3")
    for outputs in (
        [whole["output"], streamed[-1]["response"]["output"], _done(streamed)],
        [kept["output"], shown["output"], live[-1]["response"]["output"], _done(live)],
        [kept["output"], _done(background), resumed[-1]["response"]["output"]],
    ):
        assert all(output == outputs[0] for output in outputs)
        assert [(item["id"][:3], run_key_of(item)) for item in outputs[0]] == [
            *(("rs_", None), ("msg", None), ("fc_", None))
        ]
        assert outputs[0][0]["encrypted_content"] == "sealed-1"


def _done(events: list[Any]) -> list[Any]:
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


# ── references ───────────────────────────────────────────────────────────────────────────────────────────────


async def refer_to(server: DialectServer, model: str, output: list[JsonObject], **fields: Any) -> tuple[int, Any]:
    """As Vercel's AI SDK goes on: the items by their ids, then the results."""
    references = [{"type": "item_reference", "id": item["id"]} for item in output]
    calls = [item for item in output if item["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": item["call_id"], "output": "rain"} for item in calls]
    question = {"role": "user", "content": "Does it rain?"}
    body = {"model": model, "tools": [TOOL], "input": [question, *references, *results], **fields}
    return await server.post("/v1/responses", body)


@pytest.mark.parametrize("model", MODELS)
async def test_K127_a_reference_to_an_item_stands_for_the_item(tmp_path: Path, model: str) -> None:
    provider = StrictProvider()
    async with dialect_server(tmp_path, provider=provider, sections=sections_for(model)) as server:
        provider.extend(CALLED, DONE)
        asked = {"model": model, "input": "Does it rain?", "tools": [TOOL], "reasoning": {"summary": "auto"}}
        _, first = await server.post("/v1/responses", asked)
        status, second = await refer_to(server, model, first["output"])
        assert (status, provider.refusals) == (200, [])
        _, items = await server.get(f"/v1/responses/{second['id']}/input_items?order=asc")
        sent = str(provider.requests[-1].json())
    assert "item_reference" not in sent or model == "up-responses/ok"
    assert ("Let me look." in sent) is (model != "up-responses/ok")
    if model != "up-responses/ok":
        assert [item["id"] for item in items["data"][1:4]] == [item["id"] for item in first["output"]]


@pytest.mark.parametrize("model", ["up-chat/ok", "up-anthropic/ok", "tailrace"])
async def test_K127_a_provider_s_item_is_found_for_another_model(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path, [CALLED, DONE]) as server:
        _, first = await server.post("/v1/responses", {"model": "up-responses/ok", "input": "Go.", "tools": [TOOL]})
        status, _ = await refer_to(server, model, first["output"])
        assert status == 200
        assert "Let me look." in str(server.provider.requests[-1].json())


async def test_K127_an_item_is_found_behind_newer_calls_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.server.v1.responses.stored_response.SEARCHED_RUNS", 2)
    async with dialect_server(tmp_path, [CALLED]) as server:
        _, first = await server.post("/v1/responses", {"model": "up-responses/ok", "input": "Go.", "tools": [TOOL]})
        for _ in range(3):  # they are not stored, so they are nobody's to refer to
            await server.post("/v1/responses", {"model": "up-chat/ok", "input": "Go.", "store": False})
        status, answer = await refer_to(server, "up-chat/ok", first["output"])
    assert status == 200, answer


@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_K127_an_unknown_item_is_404_in_the_words_of_the_api(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server, server.openai() as client:
        for item_id in ("rs_of_another_house", "msg_0123456789abcdef01234567_1"):
            reference: Any = [{"type": "item_reference", "id": item_id}]
            with pytest.raises(openai.NotFoundError, match=f"Item with id '{item_id}' not found."):
                await client.responses.create(model=model, input=reference)
        assert not server.provider.requests


async def test_K127_an_unknown_item_of_ours_does_not_reach_its_provider(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        reference = [{"type": "item_reference", "id": "rs_0123456789abcdef01234567_0"}]
        status, _ = await server.post("/v1/responses", {"model": "up-responses/ok", "input": reference})
        assert (status, server.provider.requests) == (404, [])


async def test_K127_a_provider_is_asked_for_its_own_item(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        reference = [{"type": "item_reference", "id": "rs_abc"}]
        status, _ = await server.post("/v1/responses", {"model": "up-responses/ok", "input": reference})
        assert (status, server.provider.requests[0].json()["input"]) == (200, reference)


async def test_K127_a_response_goes_on_from_one_that_refers_to_its_provider_s_items(tmp_path: Path) -> None:
    provider = StrictProvider()
    async with dialect_server(tmp_path, provider=provider) as server:
        provider.extend(CALLED, DONE, DONE)
        asked = {"model": "up-responses/ok", "input": "Does it rain?", "tools": [TOOL]}
        _, first = await server.post("/v1/responses", asked)
        _, second = await refer_to(server, "up-responses/ok", first["output"])
        again = {**asked, "input": "Sure?", "previous_response_id": second["id"]}
        status, _ = await server.post("/v1/responses", again)
        sent = provider.requests[-1].json()["input"]
    assert (status, provider.refusals) == (200, [])
    assert [item["id"] for item in sent if item.get("type") == "item_reference"] == [i["id"] for i in first["output"]]


async def test_K127_a_reference_is_not_the_item_that_it_names(tmp_path: Path) -> None:
    """The first response keeps the reference in its input, since its provider is the one to know the item."""
    async with dialect_server(tmp_path) as server:
        reference = [{"type": "item_reference", "id": "rs_abc"}]
        assert (await server.post("/v1/responses", {"model": "up-responses/ok", "input": reference}))[0] == 200
        status, body = await server.post("/v1/responses", {"model": "up-chat/ok", "input": reference})
        assert (status, body["error"]["message"]) == (404, "Item with id 'rs_abc' not found.")


async def test_K127_an_item_is_the_key_s_that_made_it(tmp_path: Path) -> None:
    keys = [{"name": name, "key_env": f"KEY_OF_{name.upper()}", "scopes": ["models"]} for name in ("anna", "ben")]
    env = {"KEY_OF_ANNA": "key-of-anna", "KEY_OF_BEN": "key-of-ben"}
    sections = {"server": {"keys": keys, "drain_s": 0.05}}
    async with dialect_server(tmp_path, [CALLED] * 2, sections=sections, env=env) as server:
        for model in ("up-chat/ok", "up-responses/ok"):
            asked = {"model": model, "input": "Go.", "tools": [TOOL]}
            _, made = await server.post("/v1/responses", asked, authorization="Bearer key-of-anna")
            reference = {"type": "item_reference", "id": made["output"][-2]["id"]}
            again = {"model": "up-chat/ok", "input": [reference]}
            status, body = await server.post("/v1/responses", again, authorization="Bearer key-of-ben")
            assert (status, body["error"]["message"]) == (404, f"Item with id '{reference['id']}' not found.")
