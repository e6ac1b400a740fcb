"""Responses: the grammar, what is stored, resuming at any event, the background, and conversations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from server.dialect_api import WATER_LEVEL, DialectServer, dialect_server
from tailrace.messages import JsonObject
from tailrace.testing.provider import FaultyProvider, Reply, call, reply
from tailrace.wire.sse import SseDecoder

PATH = "/v1/responses"
OK = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."
MODELS = ["up-chat/text-and-tools", "up-anthropic/reasoning-tools", "up-responses/ok", "tailrace"]


def ask(model: str, **fields: Any) -> JsonObject:
    return {"model": model, "input": "Where does the water go?", **fields}


def text_of(response: JsonObject) -> str:
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("model", MODELS)
async def test_H95_H99_events_are_numbered_without_a_gap_and_the_last_has_everything(
    tmp_path: Path, model: str, store: bool
) -> None:
    async with dialect_server(tmp_path) as server:
        events = await server.data(PATH, ask(model, stream=True, store=store))
        status, whole = await server.post(PATH, ask(model, store=store))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    final = events[-1]["response"]
    assert (status, events[-1]["type"], final["status"]) == (200, "response.completed", "completed")
    added = [event["item"]["id"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert added == [item["id"] for item in done] == [item["id"] for item in final["output"]]
    assert done == final["output"]
    assert [_bare(item) for item in whole["output"]] == [_bare(item) for item in final["output"]]
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    assert deltas == text_of(final) == text_of(whole)


def _bare(item: JsonObject) -> JsonObject:
    """The item without what differs from one answer to the next, or from one server to the next."""
    kept = ("type", "role", "name", "arguments", "summary")
    bare = {name: value for name, value in item.items() if name in kept}
    return bare | {"texts": [part["text"] for part in item.get("content", ())]}


async def test_a_response_repeats_its_request(tmp_path: Path) -> None:
    fields = {"instructions": "Be brief.", "temperature": 0.5, "metadata": {"a": "b"}, "max_output_tokens": 50}
    async with dialect_server(tmp_path) as server:
        _, body = await server.post(PATH, ask("up-chat/ok", **fields))
    assert {name: body[name] for name in fields} == fields
    assert (body["store"], body["background"], body["tool_choice"]) == (True, False, "auto")


@pytest.mark.parametrize("model", MODELS)
async def test_H97_a_stored_stream_is_taken_up_at_any_event_again_and_again(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        events = await server.events(PATH, ask(model, stream=True))
        response_id = msgspec.json.decode(events[0].data)["response"]["id"]
        for after in (0, 1, len(events) // 2, len(events) - 2, len(events) - 1):
            rest = await server.events(f"{PATH}/{response_id}?stream=true&starting_after={after}")
            assert rest == events[after + 1 :]
        again = await server.events(f"{PATH}/{response_id}?stream=true")
        assert again == events
        status, body = await server.get(f"{PATH}/{response_id}?stream=true&starting_after={len(events)}")
    assert (status, body["error"]["code"]) == (409, "cursor_ahead")


@pytest.mark.parametrize("model", ["up-chat/text-and-tools", "tailrace"])
async def test_H97_it_is_taken_up_after_a_restart_too(tmp_path: Path, model: str) -> None:
    async with FaultyProvider() as provider:
        async with dialect_server(tmp_path, provider=_Lent(provider)) as server:
            events = await server.events(PATH, ask(model, stream=True))
            final = msgspec.json.decode(events[-1].data)["response"]
        async with dialect_server(tmp_path, provider=_Lent(provider)) as server:
            rest = await server.events(f"{PATH}/{final['id']}?stream=true&starting_after=4")
            _, body = await server.get(f"{PATH}/{final['id']}")
    assert rest == events[5:]
    assert body == final


class _Lent(FaultyProvider):
    """The same provider for two servers, one after the other."""

    def __init__(self, owner: FaultyProvider) -> None:
        super().__init__()
        self._owner = owner

    async def __aenter__(self) -> Any:
        return self._owner

    async def __aexit__(self, *_: object) -> None:
        pass


async def test_a_raw_call_in_the_background_goes_on_after_a_restart_from_the_text_on_record(tmp_path: Path) -> None:
    script: list[str | Reply] = [
        "ok+stall@50%",
        reply("and the tailrace carries the water on. Nothing is lost on the way."),
    ]
    async with FaultyProvider(script=script) as provider:
        async with dialect_server(tmp_path, provider=_Lent(provider)) as server:
            _, body = await server.post(PATH, ask("up-chat/ok", background=True))
            assert body["status"] == "in_progress"
            first = await _first_events(server, body["id"], b"tailrace")
        async with dialect_server(tmp_path, provider=_Lent(provider)) as server:
            assert len(await server.app.calls.recover()) == 1
            events = await server.events(f"{PATH}/{body['id']}?stream=true")
            _, final = await server.get(f"{PATH}/{body['id']}")
    assert b"".join(event.data for event in events).startswith(first)
    assert (final["status"], text_of(final)) == ("completed", OK)


async def test_B34_a_process_that_died_in_a_tool_call_does_not_make_it_twice(tmp_path: Path) -> None:
    async with FaultyProvider(script=["tools+stall@60%"]) as provider:
        async with dialect_server(tmp_path, provider=_Lent(provider)) as server:
            _, body = await server.post(PATH, ask("up-responses/ok", background=True))
            await _first_events(server, body["id"], b"function_call")
        async with dialect_server(tmp_path, provider=_Lent(provider)) as server:
            assert len(await server.app.calls.recover()) == 1
            await server.events(f"{PATH}/{body['id']}?stream=true")
            _, final = await server.get(f"{PATH}/{body['id']}")
        assert len(provider.requests) == 1
    assert final["status"] == "failed"
    assert "in the middle of a tool call" in final["error"]["message"]


async def _first_events(server: DialectServer, response_id: str, until: bytes) -> bytes:
    """The data of the events up to the one that holds this text."""
    decoder, seen = SseDecoder(), b""
    async with server.session.get(f"{server.url}{PATH}/{response_id}?stream=true") as response:
        async for data in response.content.iter_any():
            for event in decoder.feed(data):
                seen += event.data
            if until in seen:
                return seen
    raise AssertionError(f"the stream ended without {until!r}")


@pytest.mark.parametrize("model", ["up-chat/ok+stall@50%", "tailrace"])
async def test_a_background_response_outlives_its_viewer_and_can_be_cancelled(tmp_path: Path, model: str) -> None:
    sections = {"model": {"provider": "up-chat", "name": "ok+stall@50%"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        async with server.session.post(server.url + PATH, json=ask(model, background=True, stream=True)) as response:
            head = SseDecoder().feed(await response.content.readany())
            response_id = msgspec.json.decode(head[0].data)["response"]["id"]
            response.close()
        await _first_events(server, response_id, b"turns")
        assert (await server.get(f"{PATH}/{response_id}"))[1]["status"] == "in_progress"
        status, body = await server.post(f"{PATH}/{response_id}/cancel", {})
        assert (status, body["status"]) == (200, "cancelled")
        assert text_of(body).startswith("The mill wheel turns")
        async with asyncio.timeout(30):
            await server.provider.requests[-1].over.wait()
        again = await server.post(f"{PATH}/{response_id}/cancel", {})
        events = await server.data(f"{PATH}/{response_id}?stream=true")
    assert again == (200, body)
    assert (events[-1]["type"], events[-1]["response"]["status"]) == ("response.incomplete", "cancelled")


async def test_only_a_background_response_can_be_cancelled(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        _, body = await server.post(PATH, ask("up-chat/ok"))
        status, error = await server.post(f"{PATH}/{body['id']}/cancel", {})
        unstored = await server.post(PATH, ask("up-chat/ok", store=False, background=True))
    assert (status, error["error"]["param"]) == (400, "response_id")
    assert (unstored[0], unstored[1]["error"]["param"]) == (400, "store")


async def test_F68_leaving_a_stored_response_that_is_not_in_the_background_ends_it(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        async with server.session.post(server.url + PATH, json=ask("up-chat/stall@50%", stream=True)) as response:
            await response.content.readany()
            response.close()
        async with asyncio.timeout(30):
            await server.provider.requests[-1].over.wait()


@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_a_response_goes_on_from_the_one_before_it(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server:
        _, first = await server.post(PATH, ask(model))
        _, second = await server.post(PATH, {"model": model, "input": "And then?", "previous_response_id": first["id"]})
        follow_up = {"model": model, "input": "Why?", "previous_response_id": second["id"]}
        await server.post(PATH, follow_up)
        sent = [m for m in server.provider.requests[-1].json()["messages"] if m["role"] != "system"]
    assert [(m["role"], m["content"]) for m in sent] == [
        ("user", "Where does the water go?"),
        ("assistant", OK),
        ("user", "And then?"),
        ("assistant", OK),
        ("user", "Why?"),
    ]


@pytest.mark.parametrize("given", ["conv_1", {"id": "conv_1"}])
@pytest.mark.parametrize("model", ["up-chat/ok", "tailrace"])
async def test_a_conversation_remembers(tmp_path: Path, model: str, given: object) -> None:
    async with dialect_server(tmp_path) as server:
        await server.post(PATH, ask(model, conversation=given))
        _, body = await server.post(PATH, {"model": model, "input": "And then?", "conversation": given})
        sent = [m for m in server.provider.requests[-1].json()["messages"] if m["role"] != "system"]
    assert [m["content"] for m in sent] == ["Where does the water go?", OK, "And then?"]
    assert body["conversation"] == {"id": "conv_1"}


@pytest.mark.parametrize("model", ["tailrace", "up-chat/ok"])
async def test_a_conversation_forgets_a_question_that_was_refused_as_too_long(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path, ["ok", "status-413", "ok"]) as server:
        given = {"model": model, "conversation": "conv_1"}
        statuses = [(await server.post(PATH, {**given, "input": text}))[0] for text in ("one", "two " * 99, "three")]
        told = [message["content"] for message in server.provider.requests[-1].json()["messages"]]
    assert (statuses, told[-3:]) == ([200, 413, 200], ["one", OK, "three"])


async def test_a_client_s_tool_and_its_result_travel_by_previous_response_id(tmp_path: Path) -> None:
    script = [reply(call("get_weather", {"city": "Bern"})), reply("Sunny.")]
    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}]
    async with dialect_server(tmp_path, script, tools=[WATER_LEVEL]) as server:
        _, first = await server.post(PATH, ask("tailrace", tools=tools))
        asked = next(item for item in first["output"] if item["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": asked["call_id"], "output": "sunny"}
        follow_up = {"model": "tailrace", "input": [result], "tools": tools, "previous_response_id": first["id"]}
        _, second = await server.post(PATH, follow_up)
        sent = server.provider.requests[-1].json()["messages"][-2:]
    assert (asked["name"], asked["arguments"]) == ("get_weather", '{"city":"Bern"}')
    assert text_of(second) == "Sunny."
    assert sent[0]["tool_calls"][0]["id"] == sent[1]["tool_call_id"] != asked["call_id"]  # the provider's own
    assert sent[1]["content"] == "sunny"


async def test_input_items_and_forgetting(tmp_path: Path) -> None:
    items = [
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "3."},
    ]
    async with dialect_server(tmp_path) as server:
        _, body = await server.post(PATH, ask("up-chat/ok") | {"input": items})
        path = f"{PATH}/{body['id']}"
        _, listed = await server.get(f"{path}/input_items?order=asc&limit=2")
        _, rest = await server.get(f"{path}/input_items?order=asc&after={listed['last_id']}")
        async with server.session.delete(server.url + path) as response:
            deleted = await response.json()
        status, _ = await server.get(path)
    assert [item["content"][0]["text"] for item in listed["data"]] == ["One.", "Two."]
    assert (listed["has_more"], rest["has_more"]) == (True, False)
    assert [item["content"][0]["text"] for item in rest["data"]] == ["3."]
    assert deleted == {"id": body["id"], "object": "response", "deleted": True}
    assert status == 404


@pytest.mark.parametrize("given", ["resp_0", "run_0", "chatcmpl-0", "x", "resp_../x"])
async def test_what_is_no_stored_response_is_404(tmp_path: Path, given: str) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.get(f"{PATH}/{given}")
        prior = await server.post(PATH, ask("up-chat/ok", previous_response_id=given))
    assert status == 404
    assert (prior[0], prior[1]["error"]["param"]) == (404, "previous_response_id")
    assert "error" in body


async def test_an_unstored_response_and_a_chat_are_not_found(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        _, unstored = await server.post(PATH, ask("up-chat/ok", store=False))
        status, _ = await server.get(f"{PATH}/{unstored['id']}")
    assert status == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_D52_an_error_before_the_first_event_is_a_real_status(tmp_path: Path, stream: bool) -> None:
    async with dialect_server(tmp_path) as server:
        status, body = await server.post(PATH, ask("up-chat/status-401", stream=stream))
    assert (status, body["error"]["type"]) == (401, "authentication_error")


async def test_H94_a_stored_raw_response_that_breaks_off_has_failed(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        events = await server.data(PATH, ask("up-chat/cut@60%", stream=True))
        response_id = events[-1]["response"]["id"]
        _, body = await server.get(f"{PATH}/{response_id}")
        status, _ = await server.post(PATH, ask("up-chat/cut@60%"))
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert (body["status"], body["error"]["code"]) == ("failed", "server_error")
    assert status == 502


async def test_an_agent_that_is_cut_is_incomplete(tmp_path: Path) -> None:
    sections = {"model": {"provider": "up-chat", "name": "cut@60%"}}
    async with dialect_server(tmp_path, sections=sections) as server:
        status, body = await server.post(PATH, ask("tailrace"))
    assert (status, body["status"]) == (200, "incomplete")
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert text_of(body).startswith("The mill wheel")


async def test_H98_a_compacted_response_keeps_its_body_and_says_that_its_events_are_gone(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        _, body = await server.post(PATH, ask("up-chat/text-and-tools"))
        await server.app.journal.compact("run_" + body["id"].removeprefix("resp_"))
        _, kept = await server.get(f"{PATH}/{body['id']}")
        status, error = await server.get(f"{PATH}/{body['id']}?stream=true&starting_after=2")
    assert kept == body
    assert (status, error["error"]["code"]) == (410, "compacted")


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_agent_that_is_asked_nothing_says_so(tmp_path: Path, text: str) -> None:
    async with dialect_server(tmp_path) as server:
        answers = [await server.post(PATH, {**ask("tailrace"), "input": given}) for given in (text, [_user(text)])]
        assert not server.provider.requests
    assert [(status, body["error"]["param"]) for status, body in answers] == [(400, "input")] * 2


def _user(text: str) -> JsonObject:
    return {"role": "user", "content": text}


async def test_without_an_input_a_raw_model_goes_on_and_the_agent_names_the_field(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        _, first = await server.post(PATH, {"model": "up-chat/ok", "input": "Go."})
        follows = {"previous_response_id": first["id"]}
        status, told = await server.post(PATH, {"model": "up-chat/ok", **follows})
        assert (status, told["status"]) == (200, "completed"), told
        status, told = await server.post(PATH, {"model": "tailrace", **follows})
        _, document = await server.get("/openapi.json")
    assert (status, told["error"]["param"], told["error"]["message"]) == (400, "input", "input is empty")
    body = document["paths"]["/v1/responses"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "`tailrace` needs it" in body["properties"]["input"]["description"]
