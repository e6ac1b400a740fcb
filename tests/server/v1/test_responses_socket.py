"""The Responses web socket, over a real connection: lanes, state, errors, limits and steering (N162)."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NoReturn

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from server.dialect_api import DialectServer, dialect_server
from server.http_server import RunningServer, running_server
from tailrace.errors import StorageFailed
from tailrace.messages import JsonObject
from tailrace.server.http.sse_stream import StreamTiming
from tailrace.server.v1.responses import socket_connection
from tailrace.testing.provider import reply

MODELS = ["up-responses/ok", "up-chat/ok", "up-anthropic/ok", "tailrace"]
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
PATH = "/v1/responses"


class Gate(asyncio.Event):
    """Lets so many pieces of the provider's answers through before it waits to be set."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self._left = pieces

    async def wait(self) -> Literal[True]:
        self._left -= 1
        return True if self._left >= 0 else await super().wait()


class Socket:
    """A client's end of the connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, **event: Any) -> None:
        await self.socket.send_str(json.dumps(event))

    async def create(self, **body: Any) -> None:
        await self.send(type="response.create", **body)

    async def event(self) -> Any:
        async with asyncio.timeout(20):
            message = await self.socket.receive()
        assert message.type is WSMsgType.TEXT, message
        return json.loads(message.data)

    async def until(self, *kinds: str) -> list[Any]:
        events = [await self.event()]
        while events[-1]["type"] not in kinds:
            events.append(await self.event())
        return events

    async def response(self) -> Any:
        """What the next response ends with: the response itself, or the error event."""
        end = (await self.until(*ENDS))[-1]
        return end.get("response", end)

    async def closed(self) -> int | None:
        async with asyncio.timeout(20):
            message = await self.socket.receive()
        assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING), message
        return self.socket.close_code


@asynccontextmanager
async def connected(server: DialectServer | RunningServer, **headers: str) -> AsyncGenerator[Socket, None]:
    session = server.session if isinstance(server, DialectServer) else server.client
    async with session.ws_connect(server.url + PATH, headers=headers, max_msg_size=0) as socket:
        yield Socket(socket)


def kinds_of(events: list[Any]) -> list[str]:
    """Neighbours of a kind as one: how many deltas a text is depends on the reads of the provider's socket."""
    return [kind for kind, _ in groupby(event["type"] for event in events if event != "[DONE]")]


def text_of(response: JsonObject) -> str:
    said = (item for item in response["output"] if item["type"] == "message")
    return "".join(part["text"] for item in said for part in item["content"])


@pytest.mark.parametrize("model", MODELS)
async def test_the_events_are_those_of_a_stream(tmp_path: Path, model: str) -> None:
    body = {"model": model, "input": "Hello?", "store": False}
    async with dialect_server(tmp_path) as server, connected(server) as socket:
        await socket.create(**body)
        events = await socket.until(*ENDS)
        streamed = await server.data(PATH, {**body, "stream": True})
    assert kinds_of(events) == kinds_of(streamed)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert text_of(events[-1]["response"]) == text_of(streamed[-1]["response"])
    assert not any("stream_id" in event for event in events)


@pytest.mark.parametrize("model", MODELS)
async def test_a_response_that_is_not_stored_is_gone_on_from_on_its_connection(tmp_path: Path, model: str) -> None:
    async with dialect_server(tmp_path) as server, connected(server) as socket, connected(server) as other:
        await socket.create(model=model, input="My name is Ada.", store=False)
        first = await socket.response()
        await socket.create(model=model, input="Who am I?", store=False, previous_response_id=first["id"])
        second = await socket.response()
        asked = server.provider.requests[-1].body.decode()
        await other.create(model=model, input="Who am I?", store=False, previous_response_id=first["id"])
        refused = await other.response()
        shown = await server.get(f"{PATH}/{first['id']}")
    assert second["status"] == "completed"
    assert second["previous_response_id"] == first["id"]
    assert "My name is Ada." in asked
    assert text_of(first)[:8] in asked
    assert (refused["status"], refused["error"]["code"]) == (400, "previous_response_not_found")
    assert shown[0] == 404


async def test_a_stored_response_outlives_its_connection(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server:
        async with connected(server) as socket:
            server.provider.flowing.clear()
            await socket.create(model="up-chat/long", input="Tell me.")
            await server.provider.request()
        server.provider.flowing.set()
        run = (await server.app.journal.runs(limit=1))[0]
        response_id = "resp_" + run.id.removeprefix("run_")
        events = await server.data(f"{PATH}/{response_id}?stream=true")
    assert events[-1]["response"]["status"] == "completed"


async def test_F68_a_response_that_is_not_stored_ends_with_its_connection(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, ["silence"]) as server:
        async with connected(server) as socket:
            await socket.create(model="up-chat/ok", input="Tell me.", store=False)
            asked = await server.provider.request()
        async with asyncio.timeout(20):
            await asked.over.wait()
        assert asked.disconnected_at is not None


async def test_L143_a_connection_gives_back_the_room_of_requests_that_wait(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, ["silence"]) as server:
        room = server.pipeline.body_budget.left
        async with connected(server) as socket:
            for _ in range(3):
                await socket.create(model="up-chat/ok", input="a" * 200_000, store=False)
            await socket.create(model="up-chat/ok", input="", stream_id="last")
            await socket.response()  # refused once the others have been taken
            assert server.pipeline.body_budget.left < room - 300_000
        assert await server.pipeline.drain(20)
    assert server.pipeline.body_budget.left == room


async def test_lanes_run_side_by_side_and_each_in_order(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, ["silence", reply("B1"), reply("B2")]) as server, connected(server) as socket:
        await socket.create(model="up-chat/ok", input="a", stream_id="A", store=False)
        await server.provider.request()
        await socket.create(model="up-chat/ok", input="b1", stream_id="B", store=False)
        await socket.create(model="up-chat/ok", input="b2", stream_id="B", store=False)
        events = [*await socket.until(*ENDS), *await socket.until(*ENDS)]
    assert {event["stream_id"] for event in events} == {"B"}
    texts = [text_of(event["response"]) for event in events if event["type"] in ENDS]
    assert texts == ["B1", "B2"]
    kinds = [event["type"] for event in events]
    assert kinds.index("response.completed") < len(kinds) - 1 - kinds[::-1].index("response.created")


async def test_generate_false_prepares_a_response_and_asks_no_model(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, connected(server) as socket:
        await socket.create(model="up-chat/ok", input="My name is Ada.", store=False, generate=False)
        warmed = await socket.response()
        assert server.provider.requests == []
        await socket.create(model="up-chat/ok", input="Hello?", store=False, previous_response_id=warmed["id"])
        answer = await socket.response()
        asked = server.provider.requests[0].body.decode()
    assert (warmed["status"], warmed["output"], answer["status"]) == ("completed", [], "completed")
    assert "My name is Ada." in asked


async def test_L143_what_a_connection_keeps_is_no_larger_than_a_request(tmp_path: Path) -> None:
    sections = {"server": {"max_body_mb": 0.2, "drain_s": 0.05}}
    warming = {"model": "up-chat/ok", "store": False, "generate": False, "input": "x" * 80_000}
    async with dialect_server(tmp_path, sections=sections) as server, connected(server) as socket:
        warmed = []
        for _ in range(3):
            await socket.create(**warming)
            warmed.append((await socket.response())["id"])
        asking = {"model": "up-chat/ok", "store": False, "input": "Hello?"}
        ends = []
        for response_id in (warmed[0], warmed[2]):
            await socket.create(**asking, previous_response_id=response_id)
            ends.append(await socket.response())
        await socket.create(**{**warming, "input": "x" * 150_000}, previous_response_id=warmed[2])
        refused = await socket.response()
        held = [each for each in gc.get_objects() if isinstance(each, socket_connection._Answer)]
    assert (ends[0]["error"]["code"], ends[1]["status"]) == ("previous_response_not_found", "completed")
    assert (refused["status"], refused["error"]["code"]) == (413, "request_too_large")
    assert held
    assert all((each.create.body, each.said, each.output) == ({}, None, []) for each in held)


# ── errors and limits ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_continuation_forgets_what_it_was_to_go_on_from(tmp_path: Path) -> None:
    body = {"model": "up-chat/ok", "store": False}
    result = {"type": "function_call_output", "call_id": "call_missing", "output": "none"}
    async with dialect_server(tmp_path) as server, connected(server) as socket:
        await socket.create(**body, input="Remember the word: ember.")
        first = await socket.response()
        await socket.create(**body, input=[result], previous_response_id=first["id"], stream_id="fork")
        forked = await socket.response()
        await socket.create(**body, input=[result], previous_response_id=first["id"])
        failed = await socket.response()
        await socket.create(**body, input="Go on.", previous_response_id=first["id"])
        forgotten = await socket.response()
    assert (forked["stream_id"], forked["error"]["param"], failed["error"]["param"]) == ("fork", "input", "input")
    assert forgotten["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("store", [True, False])
async def test_a_provider_s_refusal_is_an_error_event_with_its_status(tmp_path: Path, store: bool) -> None:
    async with dialect_server(tmp_path, ["status-429-after-1"] * 4) as server, connected(server) as socket:
        await socket.create(model="up-chat/ok", input="Hello?", store=store, stream_id="main")
        refused = await socket.response()
        await socket.create(model="up-chat/ok", input="Hello?", store=store)
        again = await socket.response()
    assert (refused["type"], refused["status"], refused["stream_id"]) == ("error", 429, "main")
    assert refused["headers"]["Retry-After"] == refused["error"]["headers"]["Retry-After"] == "1"
    assert again["status"] in (429, "completed")


async def test_an_answer_that_breaks_off_ends_in_one_event(tmp_path: Path) -> None:
    async with dialect_server(tmp_path, ["long+cut@50%"] * 4) as server, connected(server) as socket:
        await socket.create(model="up-chat/ok", input="Hello?", store=False)
        events = await socket.until(*ENDS)
        await socket.create(model="up-chat/ok", input="Hello?", store=False)
        after = await socket.event()
    assert [event["type"] for event in events if event["type"] in ENDS] == ["response.failed"]
    assert events[0]["type"] == after["type"] == "response.created"


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "response.delete"}, "unknown_event_type"),
        ({"type": "response.create", "stream_id": "a b"}, "invalid_stream_id"),
        ({"type": "response.create", "model": "up-chat/ok", "input": ""}, "bad_request"),
        ({"type": "response.create", "model": "nothing/there", "input": "Hello?"}, "model_not_found"),
        ({"type": "response.create", "input": "Hello?"}, "invalid_request"),
    ],
)
async def test_a_request_that_is_refused_leaves_the_connection_open(
    tmp_path: Path, event: JsonObject, code: str
) -> None:
    async with dialect_server(tmp_path) as server, connected(server) as socket:
        await socket.send(**event)
        refused = await socket.event()
        await socket.create(model="up-chat/ok", input="Hello?", store=False)
        answer = await socket.response()
    assert (refused["type"], refused["error"]["code"]) == ("error", code)
    assert answer["status"] == "completed"


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("fails", ["start", "tail"])
async def test_L144_storage_that_fails_is_an_error_event_of_one_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, store: bool
) -> None:
    async with (
        dialect_server(tmp_path, ["silence", *[reply("Well.")] * 2]) as server,
        connected(server) as socket,
        connected(server) as other,
    ):
        await other.create(model="up-chat/ok", input="a", store=store)
        await server.provider.request()
        await socket.create(model="up-chat/ok", input="b", store=store, stream_id="B")
        assert (await socket.response())["status"] == "completed"
        with monkeypatch.context() as patch:
            patch.setattr(server.app.journal, fails, _no_space)
            await socket.create(model="up-chat/ok", input="c", store=store, stream_id="C")
            failed = (await socket.until("error"))[-1]
        await socket.create(model="up-chat/ok", input="d", store=store, stream_id="C")
        again = await socket.response()
        running = await server.app.journal.runs(states=["running"])
        is_open = not other.socket.closed
    assert (failed["status"], failed["error"]["code"], failed["stream_id"]) == (503, "journal_unavailable", "C")
    assert (again["status"], is_open) == ("completed", True)
    assert len(running) == 1, "the response of the other connection is under way"


def _no_space(*_args: object, **_named: object) -> NoReturn:
    raise StorageFailed("no space left to write the journal")


async def test_L144_what_waits_is_not_begun_where_the_client_left_and_the_stop_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dialect_server(tmp_path, ["silence"]) as server:
        admit = server.pipeline.admit_call
        admitted: list[web.Request] = []

        async def noted(request: web.Request, *, counted: bool = True) -> None:
            admitted.append(request)
            await admit(request, counted=counted)

        monkeypatch.setattr(server.pipeline, "admit_call", noted)
        async with connected(server) as socket:
            for text in ("a", "b"):
                await socket.create(model="up-chat/ok", input=text, store=False)
            await server.provider.request()
            await socket.send(type="response.delete")
            await socket.until("error")
            monkeypatch.setattr(server.app.calls, "stop", _no_space)
        assert await server.pipeline.drain(20)
    assert len(admitted) == 1


@pytest.mark.parametrize("frame", ["no json", "[]", "{" * 200, b"\xff\x00"])
async def test_a_malformed_frame_is_told_and_ends_its_connection_alone(tmp_path: Path, frame: str | bytes) -> None:
    async with dialect_server(tmp_path) as server, connected(server) as socket, connected(server) as other:
        await (socket.socket.send_str(frame) if isinstance(frame, str) else socket.socket.send_bytes(frame))
        refused = await socket.event()
        code = await socket.closed()
        await other.create(model="up-chat/ok", input="Hello?", store=False)
        answer = await other.response()
    assert (refused["type"], refused["status"], refused["error"]["code"]) == ("error", 400, "invalid_json")
    assert (code, answer["status"]) == (1007, "completed")


async def test_a_frame_over_max_body_mb_is_told_and_ends_its_connection(tmp_path: Path) -> None:
    sections = {"server": {"max_body_mb": 0.2, "drain_s": 0.05}}
    async with dialect_server(tmp_path, sections=sections) as server, connected(server) as socket:
        await socket.create(model="up-chat/ok", input="a" * 1_000_000, store=False)
        refused = await socket.event()
        code = await socket.closed()
    assert (refused["status"], refused["error"]["code"], code) == (413, "request_too_large", 1009)


async def test_a_connection_takes_32_named_lanes(tmp_path: Path) -> None:
    async with dialect_server(tmp_path) as server, connected(server) as socket:
        for number in range(33):
            await socket.create(model="up-chat/ok", input="", stream_id=f"lane-{number}")
        events = [await socket.event() for _ in range(33)]
    full = [event for event in events if event["error"]["code"] == "websocket_stream_limit_reached"]
    assert [event["stream_id"] for event in full] == ["lane-32"]


async def test_a_connection_ends_at_its_age(tmp_path: Path) -> None:
    timing = StreamTiming(socket_s=0.05)
    async with dialect_server(tmp_path, timing=timing) as server, connected(server) as socket:
        told, code = await socket.event(), await socket.closed()
    assert (told["error"]["code"], code) == ("websocket_connection_limit_reached", 1001)


async def test_a_silent_connection_is_pinged(tmp_path: Path) -> None:
    timing = StreamTiming(silence_s=0.02)
    async with (
        dialect_server(tmp_path, timing=timing) as server,
        server.session.ws_connect(server.url + PATH, autoping=False) as socket,
        asyncio.timeout(20),
    ):
        assert (await socket.receive()).type is WSMsgType.PING


async def test_F73_a_client_that_reads_nothing_is_dropped(tmp_path: Path) -> None:
    timing = StreamTiming(silence_s=0.02, stuck_s=0.05)
    async with running_server(tmp_path, timing=timing) as server, connected(server) as socket:
        for number in range(32):  # each is told three times; the client's buffer is soon full
            await socket.create(
                model="faulty/ok", input="Hello?", instructions="a" * 400_000, generate=False, stream_id=f"{number}"
            )
        assert await server.pipeline.drain(20)  # no lane waits for the client any longer


async def test_the_drain_lets_a_response_end_and_takes_no_other(tmp_path: Path) -> None:
    config = "server: {drain_s: 20}\n"
    async with running_server(tmp_path, "ok", config=config) as server, connected(server) as socket:
        server.provider.flowing.clear()
        await socket.create(model="faulty/ok", input="Hello?", store=False)
        await server.provider.request()
        server.pipeline.begin_drain()
        server.provider.flowing.set()
        answer, code = await socket.response(), await socket.closed()
    assert (answer["status"], code) == ("completed", 1001)


# ── the upgrade ──────────────────────────────────────────────────────────────────────────────────────────────

KEYS = """server:
  drain_s: 0.05
  keys:
    - {name: models, key_env: K_MODELS, scopes: [models]}
    - {name: poor, key_env: K_POOR, scopes: [models], requests_per_minute: 1}
    - {name: runs, key_env: K_RUNS, scopes: [runs]}
"""
ENV = {"K_MODELS": "k-models", "K_POOR": "k-poor", "K_RUNS": "k-runs"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Bearer k-runs"}, 403),
        ({"Authorization": "Bearer k-models", "Origin": "https://evil.example"}, 403),
    ],
)
async def test_the_upgrade_asks_for_key_scope_and_origin(tmp_path: Path, headers: dict[str, str], status: int) -> None:
    async with running_server(tmp_path, config=KEYS, env=ENV) as server:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await server.client.ws_connect(server.url + PATH, headers=headers)
    assert refused.value.status == status


async def test_each_call_has_its_own_budget_and_scope(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, config=KEYS, env=ENV) as server,
        connected(server, Authorization="Bearer k-poor") as poor,
        connected(server, Authorization="Bearer k-models") as other,
    ):
        body = {"model": "faulty/ok", "input": "Hello?", "store": False}
        await poor.create(**body)
        first = await poor.response()
        await poor.create(**body)
        second = await poor.response()
        await other.create(**{**body, "model": "tailrace"})
        agent = await other.response()
        await other.create(**body)
        third = await other.response()
    assert (first["status"], third["status"]) == ("completed", "completed")
    assert (second["status"], second["error"]["code"]) == (429, "rate_limit_exceeded")
    assert (agent["status"], agent["error"]["code"]) == (403, "insufficient_scope")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/v1/messages", "/runs", "/healthz"])
async def test_N162_a_route_without_a_socket_answers_an_upgrade_with_426(tmp_path: Path, path: str) -> None:
    async with running_server(tmp_path) as server:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await server.client.ws_connect(server.url + path)
        with pytest.raises(aiohttp.WSServerHandshakeError) as unknown:
            await server.client.ws_connect(server.url + "/v1/realtime")
        status, body = await server.json("GET", PATH)
    assert (refused.value.status, unknown.value.status, status) == (426, 404, 426)
    assert "web socket" in body["error"]["message"]
