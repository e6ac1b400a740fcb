"""`/ui/chat` over HTTP: whose chat it is, what is new in a request, what is refused, and what outlives a connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from integrations.ai_sdk.strict_chunks import check_chunks
from integrations.launch_tool import Launch
from server.http_server import RunningServer, running_server
from tailrace.messages import JsonObject
from tailrace.testing.provider import Break, Offset, Scenario, call, reply, think
from tailrace.wire.sse import SseDecoder

TEXT = "One two three four five six seven eight nine ten"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))
WAIT = "call: {idle_timeout_s: 600}\n"
KEYS = """
server:
  drain_s: 0.05
  keys:
    - {name: ann, key_env: ANN_KEY, scopes: [runs]}
    - {name: ben, key_env: BEN_KEY, scopes: [runs]}
"""
ENV = {"ANN_KEY": "secret-of-ann", "BEN_KEY": "secret-of-ben"}


def key(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer secret-of-{name}"}


def question(text: str = "Go.", message_id: str = "q1") -> JsonObject:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}


def body(*messages: JsonObject, chat: str = "chat", **fields: Any) -> JsonObject:
    return {"id": chat, "messages": messages or (question(),), "trigger": "submit-message", **fields}


async def chunks_in(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    decoder = SseDecoder()
    async for data in response.content.iter_any():
        for event in decoder.feed(data):
            if event.data != b"[DONE]":
                yield json.loads(event.data)


async def sent(server: RunningServer, sends: JsonObject, **kwargs: Any) -> list[dict[str, Any]]:
    """All chunks of the answer."""
    async with server.client.post(f"{server.url}/ui/chat", json=sends, **kwargs) as response:
        assert response.status == 200, await response.text()
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        return [chunk async for chunk in chunks_in(response)]


async def refused(server: RunningServer, sends: object, **kwargs: Any) -> tuple[int, str]:
    async with server.client.post(f"{server.url}/ui/chat", json=sends, **kwargs) as response:
        assert response.content_type == "text/plain", await response.text()
        return response.status, await response.text()


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


async def runs_of(server: RunningServer, **kwargs: Any) -> list[dict[str, Any]]:
    _, listed = await server.json("GET", "/runs", **kwargs)
    data: list[dict[str, Any]] = listed["data"]
    return data


# ── what is new ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_question_that_is_sent_twice_is_asked_once(tmp_path: Path) -> None:
    """A page that lost the connection sends it again: both streams show one run. Its next question is another."""
    script = (reply("Hello."), reply("Again."), reply("Anew."))
    async with running_server(tmp_path, *script) as server:
        both = await asyncio.gather(sent(server, body()), sent(server, body()))
        later = await sent(server, body())
        other = await sent(server, body(question("Go on.", "q2")))
        same_id = await sent(server, body(question("What else?", "q2")))
        listed = await runs_of(server)
    assert both[0] == both[1] == later
    assert [text_of(chunks) for chunks in (later, other, same_id)] == ["Hello.", "Again.", "Anew."]
    assert [run["input"] for run in listed] == ["What else?", "Go on.", "Go."]


async def test_regenerating_what_never_reached_the_server_asks_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hello.")) as server:
        chunks = await sent(server, body(trigger="regenerate-message"))
    assert text_of(chunks) == "Hello."


async def test_regenerating_what_never_reached_the_server_forgets_nothing(tmp_path: Path) -> None:
    """The way a page tries a failed message again: what was answered before it is no matter of it."""
    async with running_server(tmp_path, reply("Hello Ann."), reply("You are Ann.")) as server:
        await sent(server, body(question("I am Ann.")))
        both = (question("I am Ann."), question("Who am I?", "q2"))
        await sent(server, body(*both, trigger="regenerate-message"))
        asked = [[m["content"] for m in request.json()["messages"][1:]] for request in server.provider.requests]
    assert asked[1] == ["I am Ann.", "Hello Ann.", "Who am I?"]


async def test_an_edited_question_that_is_sent_twice_is_asked_once(tmp_path: Path) -> None:
    """While it is answered; afterwards it may be asked in the same words once more."""
    async with running_server(tmp_path, reply("Hello."), STALLED, reply("Again."), config=WAIT) as server:
        await sent(server, body())
        edited, url = body(question("Edited."), messageId="q1"), f"{server.url}/ui/chat"
        async with server.client.post(url, json=edited) as first, server.client.post(url, json=edited) as second:
            begun = [await anext(chunks_in(each)) for each in (first, second)]
            await server.json("POST", "/ui/chat/chat/stop")
        anew = await sent(server, edited)
        asked = [[m["content"] for m in request.json()["messages"][1:]] for request in server.provider.requests]
    assert begun[0] == begun[1]
    assert text_of(anew) == "Again."
    assert asked[1:] == [["Edited."]] * 2


async def test_a_chat_goes_on_where_another_surface_began_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hello Ann."), reply("You are Ann."), reply("Still Ann.")) as server:
        run = await server.start("I am Ann.", session="chat")
        await server.app.agents.finished(run)
        await sent(server, body(question("Who am I?")))
        await sent(server, {"id": "chat", "trigger": "regenerate-message"})
        asked = [[m["content"] for m in request.json()["messages"][1:]] for request in server.provider.requests]
    assert asked[1] == asked[2] == ["I am Ann.", "Hello Ann.", "Who am I?"]


async def test_settings_of_the_page(tmp_path: Path) -> None:
    script = (reply(think("Hm."), "Hello."), reply(think("Hm."), "Again."))
    async with running_server(tmp_path, *script) as server:
        hidden = await sent(server, body(model="other/large", system="Be brief.", reasoning=False, theme="dark"))
        shown = await sent(server, body(question("Again?", "q2"), model="tailrace"))
        asked = server.provider.requests[0].json()
    assert (asked["model"], asked["messages"][0]) == ("large", {"role": "system", "content": "Be brief."})
    assert "reasoning-delta" not in [chunk["type"] for chunk in hidden]
    assert "reasoning-delta" in [chunk["type"] for chunk in shown]


async def test_text_comes_whole_where_the_api_does_not_stream(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(TEXT), config="streaming: {api_server: false}\n") as server:
        chunks = await sent(server, body())
    assert [chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta"] == [TEXT]


async def test_arguments_come_before_the_call_is_whole(tmp_path: Path) -> None:
    """The provider has fallen silent in the middle of the call."""
    written = reply("I launch.", call("launch", {"what": "E" * 200}))
    writing = Scenario(reply=written, broken=Break("stall", Offset(70, per_cent=True)))
    async with running_server(tmp_path, writing, tools=(Launch(),), config=WAIT) as server:
        chunks: list[dict[str, Any]] = []
        async with server.client.post(f"{server.url}/ui/chat", json=body()) as response:
            async for chunk in chunks_in(response):
                chunks.append(chunk)
                if "EE" in chunk.get("inputTextDelta", ""):
                    await server.json("POST", "/ui/chat/chat/stop")
    check_chunks(chunks)
    kinds = list(dict.fromkeys(chunk["type"] for chunk in chunks if chunk["type"].startswith("tool-")))
    assert kinds == ["tool-input-start", "tool-input-delta", "tool-input-error"]
    assert chunks[-1]["type"] == "abort"


async def test_calls_of_both_sides_in_one_answer(tmp_path: Path) -> None:
    """Our tool runs first; the page's call ends the run. The model gets both results at once."""
    (tmp_path / "notes.txt").write_text("rain", encoding="utf-8")
    both = reply(call("where_am_i", {}), call("read_file", {"path": "notes.txt"}))
    async with running_server(tmp_path, both, reply("Rain in Bergen.")) as server:
        asked = await sent(server, body(tools={"where_am_i": {}}))
        mine = next(chunk for chunk in asked if chunk.get("toolName") == "where_am_i")
        result = {"type": "tool-where_am_i", "state": "output-available", "output": "Bergen"}
        answer = {"id": "msg_1", "role": "assistant", "parts": [{**result, "toolCallId": mine["toolCallId"]}]}
        rest = await sent(server, body(question(), answer))
        again = await sent(server, body(question(), answer))
        told = server.provider.requests[1].json()["messages"][2:]
        listed = await runs_of(server)
    assert asked[-1]["messageMetadata"]["finishReason"] == "tool-calls"
    assert (rest[0]["messageId"], text_of(rest)) == ("msg_1", "Rain in Bergen.")
    assert "tool-output-available" not in [chunk["type"] for chunk in rest], "the page has its own result"
    assert again == rest, "results that come twice begin one run"
    assert [message["role"] for message in told] == ["assistant", "tool", "tool"]
    assert [message["content"] for message in told[1:]] == ["Bergen", "     1\train"]
    assert len(listed) == 2


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────


def said(*parts: JsonObject) -> JsonObject:
    return {"id": "msg_1", "role": "assistant", "parts": [{"type": "step-start"}, *parts]}


ANSWERED = {"type": "dynamic-tool", "toolName": "launch", "toolCallId": "t", "state": "approval-responded"}
RESULT = {"type": "tool-mine", "toolCallId": f"call_{'0' * 24}_0", "state": "output-available", "output": 1}


@pytest.mark.parametrize(
    ("sends", "status", "words"),
    [
        ({"messages": [question()]}, 400, "id: is missing"),
        ({"id": ""}, 400, "id: "),
        ({"id": "chat"}, 400, "messages: nothing was asked"),
        (body(question("  ")), 400, "messages[0]: nothing was asked"),
        (body({"id": "1", "role": "system", "parts": []}), 400, "must be the user's or the assistant's"),
        (body({"id": "1", "role": "robot", "parts": []}), 400, "messages[0].role"),
        (body(tools=[{"name": "unnamed"}]), 400, "tools: must be an object, not a list"),
        (body(model="nobody/knows"), 404, "no such provider"),
        (body(said()), 409, "no message that could go on"),
        (
            body({**question(), "parts": [{"type": "file", "mediaType": "image/png", "url": "file:///etc/passwd"}]}),
            400,
            "an image's address",
        ),
        (
            body({**question(), "parts": [{"type": "file", "mediaType": "text/plain", "url": "data:;base64,?"}]}),
            400,
            "is not base64",
        ),
    ],
)
async def test_one_clear_line_for_bad_input(tmp_path: Path, sends: JsonObject, status: int, words: str) -> None:
    async with running_server(tmp_path) as server:
        told = await refused(server, sends)
        listed = await runs_of(server)
    assert told[0] == status, told
    assert words in told[1]
    assert "\n" not in told[1]
    assert listed == []


async def test_answers_to_what_is_not_asked(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hello.")) as server:
        await sent(server, body())
        nothing = await refused(server, body(question(), said()))
        approval = await refused(server, body(said({**ANSWERED, "approval": {"id": "none", "approved": True}})))
        result = await refused(server, body(said(RESULT)))
        listed = await runs_of(server)
    assert [status for status, _ in (nothing, approval, result)] == [400, 409, 409]
    assert len(listed) == 1


async def test_a_chat_of_another_key(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path, STALLED, config=KEYS + WAIT, env=ENV) as server,
        server.client.post(f"{server.url}/ui/chat", json=body(), headers=key("ann")) as response,
    ):
        await anext(chunks_in(response))
        others = [await refused(server, body(question("Tell me.", "q2")), headers=key("ben"))]
        for method, path in (("GET", "stream"), ("POST", "stop")):
            url = f"{server.url}/ui/chat/chat/{path}"
            async with server.client.request(method, url, headers=key("ben")) as answer:
                others.append((answer.status, await answer.text()))
        nobody = await refused(server, body())
        states = [run["status"] for run in await runs_of(server, headers=key("ann"))]
    assert others == [(403, "id: this conversation belongs to another key; use another id")] * 3
    assert nobody[0] == 401
    assert states == ["running"]


# ── what outlives a connection ───────────────────────────────────────────────────────────────────────────────


async def test_a_closed_connection_stops_nothing_and_a_new_question_does(tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, reply("Hi."), config=WAIT) as server:
        async with server.client.post(f"{server.url}/ui/chat", json=body()) as response:
            async for chunk in chunks_in(response):
                if chunk["type"] == "text-delta":
                    break
        states = [[run["status"] for run in await runs_of(server)]]
        async with server.client.get(f"{server.url}/ui/chat/chat/stream") as resumed:
            assert (await anext(chunks_in(resumed)))["type"] == "start"
            chunks = await sent(server, body(question("Something else.", "q2")))
            rest = [chunk async for chunk in chunks_in(resumed)]
        states.append([run["status"] for run in await runs_of(server)])
    assert states == [["running"], ["completed", "stopped"]]
    assert rest[-1] == {"type": "abort"}
    assert text_of(chunks) == "Hi."


async def test_nothing_to_resume(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hello.")) as server:
        statuses = []
        for _ in range(2):
            async with server.client.get(f"{server.url}/ui/chat/chat/stream") as response:
                statuses.append((response.status, await response.read()))
            await sent(server, body())
    assert statuses == [(204, b"")] * 2


async def test_questions_as_data_for_pages_that_know_no_approvals(tmp_path: Path) -> None:
    """Of the AI SDK 5: the stream stays open, and the run's own route takes the answer."""
    script = (reply(call("launch", {"what": "rocket"})), reply("It flies."))
    async with (
        running_server(tmp_path, *script, tools=(Launch(),)) as server,
        server.client.post(f"{server.url}/ui/chat", json=body(approvals="data")) as response,
    ):
        chunks: list[dict[str, Any]] = []
        async for chunk in chunks_in(response):
            chunks.append(chunk)
            if chunk["type"] == "data-approval" and "decision" not in chunk["data"]:
                asked = chunk["data"]
                answer = {"approval_id": asked["approvalId"], "decision": "once"}
                assert (await server.json("POST", f"/runs/{asked['runId']}/approval", answer))[0] == 200
    check_chunks(chunks)
    assert text_of(chunks) == "It flies."
    assert [chunk["output"] for chunk in chunks if chunk["type"] == "tool-output-available"] == ["launched rocket"]


async def test_an_approval_for_the_session_is_not_asked_again(tmp_path: Path) -> None:
    launch = reply(call("launch", {"what": "rocket"}))
    async with running_server(tmp_path, launch, reply("Up."), launch, reply("Up again."), tools=(Launch(),)) as server:
        asked = await sent(server, body())
        approval = next(chunk for chunk in asked if chunk["type"] == "tool-approval-request")
        part = {**ANSWERED, "approval": {"id": approval["approvalId"], "approved": True}}
        rest = await sent(server, body(question(), said(part), decision="session"))
        late = await sent(server, body(question(), said(part)))
        again = await sent(server, body(question("Again!", "q2")))
    assert asked[-1]["messageMetadata"]["status"] == "waiting"
    assert (text_of(rest), text_of(again)) == ("Up.", "Up again.")
    assert rest[0]["messageId"] == "msg_1", "the page's own message goes on"
    assert late == rest, "an answer that comes twice shows the same"
    assert "tool-approval-request" not in [chunk["type"] for chunk in again]


async def test_a_message_whose_chunks_are_no_longer_kept(tmp_path: Path) -> None:
    """A page that was left open for a week sends its question again, and its answer to an approval."""
    launch = reply(think("Hm."), call("launch", {"what": "rocket"}))
    async with running_server(tmp_path, launch, reply("Up and away."), tools=(Launch(),)) as server:
        asked = await sent(server, body())
        approval = next(chunk for chunk in asked if chunk["type"] == "tool-approval-request")
        part = {**ANSWERED, "approval": {"id": approval["approvalId"], "approved": True}}
        rest = await sent(server, body(question(), said(part)))
        await server.app.journal.compact((await runs_of(server))[0]["id"])
        late, whole = await sent(server, body(question(), said(part))), await sent(server, body())
    check_chunks(late)
    assert (text_of(late), text_of(whole)) == (text_of(rest), "Up and away.")
    outputs = [
        [each["output"] for each in chunks if each["type"] == "tool-output-available"] for chunks in (late, whole)
    ]
    assert outputs == [["launched rocket"]] * 2
    assert "tool-approval-request" not in [chunk["type"] for chunk in late]
    assert late[-1]["messageMetadata"]["status"] == whole[-1]["messageMetadata"]["status"] == "completed"


async def test_pages_of_other_origins_as_the_config_says(tmp_path: Path) -> None:
    config = "server: {cors_origins: ['http://app.example'], drain_s: 0.05}\n"
    async with running_server(tmp_path, reply("Hello."), config=config) as server:
        asks = {"Origin": "http://app.example", "Access-Control-Request-Method": "POST"}
        async with server.client.options(f"{server.url}/ui/chat", headers=asks) as preflight:
            assert preflight.status == 204
            assert preflight.headers["Access-Control-Allow-Origin"] == "http://app.example"
        assert (await refused(server, body(), headers={"Origin": "http://evil.example"}))[0] == 403
        assert text_of(await sent(server, body(), headers={"Origin": "http://app.example"})) == "Hello."
