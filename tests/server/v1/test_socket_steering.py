"""Steering over the Responses web socket: of raw calls, by a successor, and of turns, by the run itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from server.dialect_api import WATER_LEVEL, dialect_server
from server.http_server import running_server
from server.v1.test_responses_socket import ENDS, ENV, KEYS, MODELS, PATH, Gate, connected, text_of
from tailrace.app.usage.stored_keys import StoredKey, new_key
from tailrace.errors import SteerRefused
from tailrace.messages import JsonObject
from tailrace.testing.provider import call, reply, think

FIRST = "The first plan: build it with care, in nine steps, and turn the wheel at the end of each."

# ── steering ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("model", MODELS[:3])
@pytest.mark.parametrize("store", [True, False])
async def test_a_steer_becomes_the_input_of_a_successor(tmp_path: Path, model: str, store: bool) -> None:
    async with dialect_server(tmp_path, [reply(FIRST), reply("Small plan.")]) as server, connected(server) as socket:
        server.provider.flowing = Gate(6)
        await socket.create(model=model, input="Plan it.", store=store, stream_id="main", instructions="Be brief.")
        first = (await socket.until("response.created"))[-1]["response"]["id"]
        await socket.send(type="response.steer", previous_response_id=first, input="Keep it small.")
        events = await socket.until("response.steer.accepted")
        server.provider.flowing.set()
        events += [*await socket.until(*ENDS), *await socket.until(*ENDS)]
        asked = server.provider.requests[-1].body.decode()
    steer = next(event for event in events if event["type"] == "response.steer.accepted")
    assert steer["steer"]["previous_response_id"] == first
    assert steer["steer"]["id"].startswith("steer_")
    assert {event["stream_id"] for event in events} == {"main"}
    successor = events[-1]["response"]
    assert (successor["status"], successor["previous_response_id"]) == ("completed", first)
    assert (text_of(successor), successor["instructions"]) == ("Small plan.", "Be brief.")
    assert FIRST in asked
    assert "Keep it small." in asked


async def test_a_steer_ends_a_response_after_its_thoughts(tmp_path: Path) -> None:
    script = [reply(think(FIRST), "A big plan."), reply("Small plan.")]
    async with dialect_server(tmp_path, script) as server, connected(server) as socket:
        server.provider.flowing = Gate(5)
        await socket.create(model="up-anthropic/ok", input="Plan it.", store=False)
        first = (await socket.until("response.created"))[-1]["response"]["id"]
        await socket.send(type="response.steer", previous_response_id=first, input="Keep it small.")
        await socket.until("response.steer.accepted")
        server.provider.flowing.set()
        ended = await socket.response()
        successor = await socket.response()
    assert (ended["status"], ended["incomplete_details"]) == ("incomplete", {"reason": "steered"})
    assert [item["type"] for item in ended["output"]] == ["reasoning"]
    assert text_of(successor) == "Small plan."


async def test_a_steer_waits_for_the_results_that_the_client_owes(tmp_path: Path) -> None:
    tool = {"type": "function", "name": "level", "parameters": {"type": "object", "properties": {}}}
    body = {"model": "up-chat/ok", "tools": [tool]}  # stored: it is told to its end
    script = [reply(FIRST, call("level", {})), reply("It is high.")]
    async with dialect_server(tmp_path, script) as server, connected(server) as socket:
        server.provider.flowing = Gate(3)
        await socket.create(**body, input="How high is it?")
        first = (await socket.until("response.created"))[-1]["response"]["id"]
        await socket.send(type="response.steer", previous_response_id=first, input="In metres.")
        await socket.until("response.steer.accepted")
        server.provider.flowing.set()
        pending = (await socket.until("response.steer.pending"))[-1]
        [stub] = pending["required_input"]
        await socket.create(**body, previous_response_id=first, input=[{**stub, "output": "3 m"}])
        answer = await socket.response()
        messages = server.provider.requests[-1].json()["messages"]
    assert (stub["type"], stub["name"]) == ("function_call_output", "level")
    assert text_of(answer) == "It is high."
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
    assert messages[-1]["content"] == "In metres."


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"input": "More."}, "response_not_found"),
        ({"input": ""}, "invalid_input"),
        ({"input": [{"role": "assistant", "content": "I"}]}, "invalid_input"),
        ({"input": "More.", "stream_id": "main"}, "invalid_input"),
    ],
)
async def test_a_steer_that_is_refused_is_returned(tmp_path: Path, given: JsonObject, code: str) -> None:
    async with dialect_server(tmp_path) as server, connected(server) as socket:
        await socket.send(type="response.steer", previous_response_id="resp_none", **given)
        failed = await socket.event()
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", code)
    assert failed["steer"] == {"previous_response_id": "resp_none", "input": given["input"]}


async def test_a_steer_whose_successor_is_refused_is_returned(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, config=KEYS, env=ENV) as server,
        connected(server, Authorization="Bearer k-poor") as socket,
    ):
        server.provider.flowing = Gate(3)
        await socket.create(model="faulty/ok", input="Plan it.", store=False)
        first = (await socket.until("response.created"))[-1]["response"]["id"]
        await socket.send(type="response.steer", previous_response_id=first, input="Keep it small.")
        accepted = (await socket.until("response.steer.accepted"))[-1]
        server.provider.flowing.set()
        failed = (await socket.until("response.steer.failed"))[-1]
    assert failed["error"]["code"] == "successor_creation_failed"
    assert failed["steer"] == {**accepted["steer"], "input": "Keep it small."}


async def test_a_key_that_was_revoked_steers_no_more(tmp_path: Path) -> None:
    secret, digest = new_key()
    async with running_server(tmp_path) as server:
        server.app.take_stored_keys({"ann": StoredKey(digest, ("models",))})
        async with connected(server, Authorization=f"Bearer {secret}") as socket:
            server.provider.flowing = Gate(3)
            await socket.create(model="faulty/ok", input="Plan it.", store=False)
            first = (await socket.until("response.created"))[-1]["response"]["id"]
            server.app.take_stored_keys({})
            await socket.send(type="response.steer", previous_response_id=first, input="Keep it small.")
            failed = (await socket.until("response.steer.failed", "response.steer.accepted"))[-1]
            server.provider.flowing.set()
    assert failed["error"]["code"] == "invalid_api_key"


# ── steering a turn ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("store", [True, False])
async def test_a_steer_enters_the_turn_that_is_under_way_once(tmp_path: Path, store: bool) -> None:
    """It ends the response before the model call that has it, and a successor goes on in the same run."""
    script = [reply(FIRST, call("water_level", {"river": "Aare"})), reply("It is at 3.2 m, in metres.")]
    async with dialect_server(tmp_path, script, tools=[WATER_LEVEL]) as server, connected(server) as socket:
        server.provider.flowing = Gate(2)
        await socket.create(model="tailrace", input="How high is it?", store=store, stream_id="main")
        created = await socket.until("response.created")
        first = created[-1]["response"]["id"]
        await socket.send(type="response.steer", previous_response_id=first, input="In metres.")
        before = await socket.until("response.steer.accepted")
        server.provider.flowing.set()
        steered = await socket.until(*ENDS)
        events = await socket.until(*ENDS)
        messages = server.provider.requests[-1].json()["messages"]
        successor = events[-1]["response"]
        await socket.create(model="tailrace", input="And now?", store=store, previous_response_id=successor["id"])
        follows = await socket.response()
        kept = [await server.get(f"{PATH}/{response_id}") for response_id in (first, successor["id"])]
        if store:
            again = await server.data(f"{PATH}/{successor['id']}?stream=true")
            rest = await server.data(f"{PATH}/{first}?stream=true&starting_after=0")
    assert steered[-1]["response"]["incomplete_details"] == {"reason": "steered"}
    assert (events[0]["type"], events[0]["sequence_number"]) == ("response.created", 0)
    assert (successor["status"], successor["previous_response_id"]) == ("completed", first)
    assert text_of(successor) == "It is at 3.2 m, in metres."
    assert FIRST in text_of(steered[-1]["response"])
    assert [message["role"] for message in messages][-4:] == ["user", "assistant", "tool", "user"]
    assert messages[-1]["content"] == "In metres."
    assert follows["status"] == "completed"
    if not store:
        assert [status for status, _ in kept] == [404, 404]
        return
    assert [body["output"] for _, body in kept] == [steered[-1]["response"]["output"], successor["output"]]
    bare = [{name: value for name, value in event.items() if name != "stream_id"} for event in events]
    assert again == bare
    told = [event for event in [*created, *before, *steered] if event["type"] != "response.steer.accepted"]
    assert [event["type"] for event in rest] == [event["type"] for event in told[1:]]


async def test_N164_a_steer_that_no_process_takes_is_returned_to_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_args: object, **_named: object) -> NoReturn:
        raise SteerRefused("no process takes messages for run run_1 now; try again", "not_taken")

    async with dialect_server(tmp_path) as server, connected(server) as socket:
        server.provider.flowing = Gate(2)
        await socket.create(model="tailrace", input="How high is it?")
        first = (await socket.until("response.created"))[-1]["response"]["id"]
        monkeypatch.setattr(server.app.steering, "steer", refused)
        await socket.send(type="response.steer", previous_response_id=first, input="In metres.")
        failed = (await socket.until("response.steer.failed"))[-1]
        server.provider.flowing.set()
        end = (await socket.until(*ENDS))[-1]
    assert (failed["error"]["code"], failed["steer"]["input"]) == ("not_taken", "In metres.")
    assert end["response"]["status"] == "completed"


async def test_a_connection_is_read_while_a_steer_waits_for_the_owner_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = asyncio.Event()

    async def slow(*_args: object, **_named: object) -> NoReturn:
        await taken.wait()
        raise SteerRefused("no process takes messages for run run_1 now; try again", "not_taken")

    async with dialect_server(tmp_path) as server, connected(server) as socket:
        server.provider.flowing = Gate(2)
        await socket.create(model="tailrace", input="How high is it?", stream_id="first")
        first = (await socket.until("response.created"))[-1]["response"]["id"]
        monkeypatch.setattr(server.app.steering, "steer", slow)
        await socket.send(type="response.steer", previous_response_id=first, input="In metres.")
        await socket.create(model="nosuch/none", input="Hello?", stream_id="second")
        answered = (await socket.until("error"))[-1]
        taken.set()
        await socket.until("response.steer.failed")
        server.provider.flowing.set()
        end = (await socket.until(*ENDS))[-1]
    assert (answered["stream_id"], end["response"]["status"]) == ("second", "completed")


async def test_the_input_that_waits_on_a_connection_is_bounded(tmp_path: Path) -> None:
    """Of steers that wait for results which the client never sends: in number, and in bytes."""
    tool = {"type": "function", "name": "level", "parameters": {"type": "object", "properties": {}}}
    body = {"model": "up-chat/ok", "tools": [tool], "input": "How high is it?"}
    script = [reply(FIRST, call("level", {}))] * 3

    sections = {"server": {"max_body_mb": 0.1}}
    async with dialect_server(tmp_path, script, sections=sections) as server, connected(server) as socket:

        async def steer(response: str, text: str) -> str:
            await socket.send(type="response.steer", previous_response_id=response, input=text)
            event = (await socket.until("response.steer.accepted", "response.steer.failed"))[-1]
            return str(event.get("error", {}).get("code", "accepted"))

        told: list[str] = []
        for number in range(3):
            server.provider.flowing = Gate(3)
            await socket.create(**body, stream_id=str(number))
            response = (await socket.until("response.created"))[-1]["response"]["id"]
            told.append(await steer(response, "x" * 60_000 if number else "x"))
            server.provider.flowing.set()
            await socket.until("response.steer.pending", "response.completed")
    assert told == ["accepted", "accepted", "too_many_pending_steers"]


async def test_N165_a_steer_that_the_turn_no_longer_takes_becomes_a_successor(tmp_path: Path) -> None:
    """The client's own tool ends the turn: the input waits for its result."""
    tool = {"type": "function", "name": "level", "parameters": {"type": "object", "properties": {}}}
    script = [reply(FIRST, call("level", {})), reply("It is high, in metres.")]
    body = {"model": "tailrace", "tools": [tool], "store": False}
    async with dialect_server(tmp_path, script) as server, connected(server) as socket:
        server.provider.flowing = Gate(2)
        await socket.create(**body, input="How high is it?")
        first = (await socket.until("response.created"))[-1]["response"]["id"]
        await socket.send(type="response.steer", previous_response_id=first, input="In metres.")
        accepted = (await socket.until("response.steer.accepted"))[-1]
        server.provider.flowing.set()
        pending = (await socket.until("response.steer.pending"))[-1]
        [stub] = pending["required_input"]
        await socket.create(**body, previous_response_id=first, input=[{**stub, "output": "3 m"}])
        answer = await socket.response()
        messages = server.provider.requests[-1].json()["messages"]
    assert pending["steer"] == accepted["steer"]
    assert text_of(answer) == "It is high, in metres."
    assert [message["content"] for message in messages if message["role"] == "user"][-1] == "In metres."
