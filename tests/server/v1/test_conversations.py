"""`/v1/conversations` and `/v1/responses/compact`, by OpenAI's SDK."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web

from server.dialect_api import dialect_server
from server.http_server import running_server
from server.v1.test_responses_socket import ENV, KEYS
from tailrace.testing.provider import Reply, call, reply

MODELS = ["up-responses/ok", "up-chat/ok", "up-anthropic/ok", "tailrace"]
SUMMARY = "The user is Ada."


def said(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


HELLO = said("My name is Ada.")


@pytest.mark.parametrize("model", MODELS)
async def test_a_conversation_from_its_beginning_to_its_end(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path, [reply("You are Ada.")]) as server, server.openai() as client:
        created = await client.conversations.create(metadata={"topic": "mill"}, items=[HELLO])
        added = await client.conversations.items.create(created.id, items=[said("I mill.")])
        answer = await client.responses.create(model=model, input="Who am I?", conversation=created.id)
        asked = server.provider.requests[-1].body.decode()
        items = [item async for item in await client.conversations.items.list(created.id, order="asc", limit=2)]
        one = await client.conversations.items.retrieve(items[0].id or "", conversation_id=created.id)
        updated = await client.conversations.update(created.id, metadata={"topic": "wheel"})
        shown = await client.conversations.retrieve(created.id)
        deleted = await client.conversations.delete(created.id)
        with pytest.raises(openai.NotFoundError):
            await client.conversations.retrieve(created.id)
    texts: list[Any] = [item.to_dict() for item in items]
    assert (created.object, created.metadata) == ("conversation", {"topic": "mill"})
    assert len(added.data) == 1
    assert [text["content"][0]["text"] for text in texts if text["type"] == "message"] == [
        *("My name is Ada.", "I mill.", "Who am I?", "You are Ada.")
    ]
    assert one == items[0]
    assert (updated, shown.metadata) == (shown, {"topic": "wheel"})
    assert (deleted.id, deleted.deleted) == (created.id, True)
    assert answer.conversation is not None
    assert answer.conversation.id == created.id
    assert "My name is Ada." in asked
    assert "I mill." in asked


@pytest.mark.parametrize("model", MODELS)
async def test_a_deleted_item_is_told_to_no_later_response(tmp_path: Path, model: str) -> None:
    script = [reply("Noted."), reply("I do not know.")]
    async with dialect_server(tmp_path, script) as server, server.openai() as client:
        created = await client.conversations.create(items=[HELLO, said("I mill.")])
        await client.responses.create(model=model, input="Note it.", conversation=created.id)
        before = [item async for item in await client.conversations.items.list(created.id, order="asc")]
        gone = await client.conversations.items.delete(before[0].id or "", conversation_id=created.id)
        with pytest.raises(openai.NotFoundError):
            await client.conversations.items.delete(before[0].id or "", conversation_id=created.id)
        after = [item async for item in await client.conversations.items.list(created.id, order="asc")]
        await client.responses.create(model=model, input="Who am I?", conversation=created.id)
        asked = server.provider.requests[-1].body.decode()
        cleared = await client.conversations.update(created.id, metadata=None)
        last = [item async for item in await client.conversations.items.list(created.id, order="asc")]
    assert (gone, cleared.metadata) == (created, {})
    assert [item.id for item in after] == [item.id for item in before[1:]]
    assert ("Ada" in asked, "I mill." in asked, "Noted." in asked) == (False, True, True)
    assert len(last) == len(after) + 2


async def test_a_conversation_in_which_a_response_is_made_takes_nothing_else(tmp_path: Path) -> None:
    """What was added meanwhile would go on from before that response: its answer would be told to no later one."""
    script: list[str | Reply] = ["stall@50%", reply("You are Ada.")]
    async with dialect_server(tmp_path, script) as server, server.openai() as client, asyncio.timeout(30):
        created = await client.conversations.create()
        under_way = await client.responses.create(
            model="up-chat/ok", input="Hm?", conversation=created.id, background=True
        )
        with pytest.raises(openai.ConflictError):
            await client.conversations.items.create(created.id, items=[HELLO])
        for model in ("up-chat/ok", "tailrace"):
            with pytest.raises(openai.ConflictError):
                await client.responses.create(model=model, input="Who am I?", conversation=created.id)
        await client.responses.cancel(under_way.id)
        await client.conversations.items.create(created.id, items=[HELLO])
        answer = await client.responses.create(model="up-chat/ok", input="Who am I?", conversation=created.id)
    assert answer.output_text == "You are Ada."


async def test_an_item_of_another_key_or_of_the_agent_s_session_stays(tmp_path: Path) -> None:
    async with running_server(tmp_path, config=KEYS, env=ENV) as server:
        mine, other = ({"Authorization": f"Bearer {key}"} for key in ("k-models", "k-poor"))
        _, created = await server.json("POST", "/v1/conversations", {"items": [HELLO]}, headers=mine)
        items = f"/v1/conversations/{created['id']}/items"
        (item,) = (await server.json("GET", items, headers=mine))[1]["data"]
        assert (await server.json("DELETE", f"{items}/{item['id']}", headers=other))[0] == 404
        assert len((await server.json("GET", items, headers=mine))[1]["data"]) == 1
        assert (await server.json("DELETE", f"{items}/{item['id']}", headers=mine))[0] == 200
        assert (await server.json("GET", items, headers=mine))[1]["data"] == []


async def test_another_key_s_conversation_does_not_exist(tmp_path: Path) -> None:
    async with running_server(tmp_path, config=KEYS, env=ENV) as server:
        mine, other = ({"Authorization": f"Bearer {key}"} for key in ("k-models", "k-poor"))
        status, created = await server.json("POST", "/v1/conversations", {}, headers=mine)
        path = f"/v1/conversations/{created['id']}"
        refused = [await server.json(method, path, headers=other) for method in ("GET", "DELETE")]
        refused.append(await server.json("GET", path + "/items", headers=other))
        shown = await server.json("GET", path, headers=mine)
    assert (status, shown[0], shown[1]) == (200, 200, created)
    assert [status for status, _ in refused] == [404, 404, 404]


@pytest.mark.parametrize(
    "metadata",
    [{str(number): "" for number in range(17)}, {"k" * 65: ""}, {"k": "v" * 513}],
    ids=["pairs", "key", "value"],
)
async def test_metadata_is_bounded_as_openai_has_it(tmp_path: Path, metadata: dict[str, str]) -> None:
    most = {f"{number:064}": "v" * 512 for number in range(16)}
    async with running_server(tmp_path) as server:
        status, created = await server.json("POST", "/v1/conversations", {"metadata": most})
        refused, told = await server.json("POST", "/v1/conversations", {"metadata": metadata})
        path = f"/v1/conversations/{created['id']}"
        again, _ = await server.json("POST", path, {"metadata": metadata})
        _, shown = await server.json("GET", path)
    assert (status, refused, again) == (200, 400, 400)
    assert told["error"]["param"].startswith("metadata")
    assert shown["metadata"] == most


async def test_a_session_of_the_agent_s_is_a_conversation(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, [reply("It turns.")]) as server, server.openai() as client:
        _, run = await server.post("/runs", {"input": "Turn it.", "session": "mill"})
        await server.events(f"/runs/{run['id']}/stream")
        items: list[Any] = [item async for item in await client.conversations.items.list("mill", order="asc")]
        with pytest.raises(openai.BadRequestError, match="loses no single item"):
            await client.conversations.items.delete(items[0].id, conversation_id="mill")
    assert [(item.role, item.content[0].text) for item in items] == [("user", "Turn it."), ("assistant", "It turns.")]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("then", MODELS)
async def test_a_compaction_item_is_taken_back_by_every_model(tmp_path: Path, model: str, then: str) -> None:
    script = [reply(SUMMARY), reply("You are Ada."), reply("Yes.")]
    async with dialect_server(tmp_path, script) as server, server.openai() as client:
        compacted = await client.responses.compact(model=model, input=[HELLO], prompt_cache_key="k")
        given: Any = [item.to_dict() for item in compacted.output]
        answer = await client.responses.create(model=then, input=[*given, said("Who am I?")])
        follows = await client.responses.create(model=then, input="And?", previous_response_id=answer.id)
        asked = [request.body.decode() for request in server.provider.requests[-2:]]
    assert [item["type"] for item in given] == ["compaction"]
    assert compacted.object == "response.compaction"
    assert compacted.usage.total_tokens > 0
    assert (answer.status, follows.status) == ("completed", "completed")
    assert all(SUMMARY in body and "tr1c." not in body for body in asked)


async def test_a_provider_s_own_compaction_is_used(tmp_path: Path) -> None:
    """Its item is opaque, and goes back to it as it came."""
    bodies: list[Any] = []
    item = {"id": "cmp_1", "type": "compaction", "encrypted_content": "opaque"}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}

    async def compact(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        done = {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": [item], "usage": usage}
        return web.json_response(done)

    app = web.Application()
    app.router.add_post("/v1/responses/compact", compact)
    runner = web.AppRunner(app)
    await runner.setup()
    await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    own = {"own": {"dialect": "responses", "base_url": f"http://127.0.0.1:{port}/v1"}}
    try:
        async with dialect_server(tmp_path, sections={"providers": own}) as server, server.openai() as client:
            compacted = await client.responses.compact(model="own/gpt", input=[HELLO], prompt_cache_key="k")
    finally:
        await runner.cleanup()
    assert [each.to_dict() for each in compacted.output] == [item]
    assert bodies == [{"model": "gpt", "input": [HELLO], "prompt_cache_key": "k"}]


async def test_what_was_said_before_is_compacted_with_its_calls(tmp_path: Path) -> None:
    tool: Any = {"type": "function", "name": "level", "parameters": {"type": "object", "properties": {}}}
    script = [reply(call("level", {})), reply(SUMMARY)]
    async with dialect_server(tmp_path, script) as server, server.openai() as client:
        first = await client.responses.create(model="up-chat/ok", input=[HELLO], tools=[tool])
        compacted = await client.responses.compact(model="up-chat/ok", previous_response_id=first.id)
        messages = json.loads(server.provider.requests[-1].body)["messages"]
    assert [item.type for item in compacted.output] == ["compaction"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]


async def test_compact_without_a_model_or_an_input_is_400(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        no_model, _ = await server.post("/v1/responses/compact", {"input": [HELLO]})
        no_input, _ = await server.post("/v1/responses/compact", {"model": "up-chat/ok"})
    assert (no_model, no_input) == (400, 400)


async def test_the_phase_of_a_message_comes_back_to_its_provider(tmp_path: Path) -> None:
    answers: Any = [
        {"type": "message", "role": "assistant", "phase": phase, "content": text}
        for phase, text in (("commentary", "I look."), ("final_answer", "It turns."))
    ]
    async with dialect_server(tmp_path) as server, server.openai() as client:
        first = await client.responses.create(model="up-responses/ok", input=[HELLO, *answers, HELLO])
        await client.responses.create(model="up-responses/ok", input="And?", previous_response_id=first.id)
        other = await client.responses.create(model="up-anthropic/ok", input=[HELLO, *answers, HELLO])
        written, history, _ = [json.loads(request.body) for request in server.provider.requests]
    assert written["input"] == [HELLO, *answers, HELLO]
    assert [item.get("phase") for item in history["input"] if item.get("role") == "assistant"][:2] == [
        *("commentary", "final_answer")
    ]
    assert other.status == "completed"
