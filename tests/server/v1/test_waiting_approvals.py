"""An approval that a client of `/v1` causes waits, the client is told in its own dialect, and who may answers it, once
(N168)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse

from server.http_server import RunningServer, running_server
from server.web.opened_page import Launch
from tailrace.events import ApprovalAnswered
from tailrace.messages import JsonObject
from tailrace.testing.provider import Reply, call, reply
from tailrace.wire.sse import SseDecoder

KEYS = """server:
  keys:
    - {name: app, key_env: APP}
    - {name: other, key_env: OTHER}
    - {name: boss, key_env: BOSS, scopes: [approvals]}
"""
ENV = {"APP": "the-key-of-app", "OTHER": "the-key-of-other", "BOSS": "the-key-of-boss"}
APP, OTHER, BOSS = ({"x-api-key": ENV[name]} for name in ("APP", "OTHER", "BOSS"))
BODIES: dict[str, JsonObject] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Launch it."}]},
    "/v1/messages": {"messages": [{"role": "user", "content": "Launch it."}], "max_tokens": 99},
    "/v1/responses": {"input": "Launch it."},
}


async def sse(response: ClientResponse) -> AsyncIterator[dict[str, Any]]:
    decoder = SseDecoder()
    async for chunk in response.content.iter_any():
        for event in decoder.feed(chunk):
            if event.data != b"[DONE]":
                yield json.loads(event.data)


def launch() -> Reply:
    return reply("On it.", call("launch", {"what": "it"}))


async def waiting(server: RunningServer, headers: dict[str, str] | None = None) -> list[JsonObject]:
    _, listed = await server.json("GET", "/approvals", headers=headers or {})
    data: list[JsonObject] = listed["data"]
    return data


async def decide(server: RunningServer, question: JsonObject, decision: str, headers: dict[str, str]) -> int:
    answer = {"approval_id": question["approval_id"], "decision": decision}
    status, _ = await server.json("POST", f"/runs/{question['run_id']}/approval", answer, headers=headers)
    return status


def text_of(path: str, events: list[dict[str, Any]]) -> str:
    match path:
        case "/v1/chat/completions":
            deltas = [event["choices"][0]["delta"] for event in events if event.get("choices")]
            return "".join(delta.get("content") or "" for delta in deltas)
        case "/v1/messages":
            return "".join(event["delta"].get("text", "") for event in events if "delta" in event)
        case _:
            return "".join(event["delta"] for event in events if event.get("type") == "response.output_text.delta")


@pytest.mark.parametrize("path", BODIES)
async def test_N168_a_streaming_client_is_told_and_its_stream_goes_on(tmp_path: Path, path: str) -> None:
    script = (launch(), reply("Launched."))
    async with running_server(tmp_path, *script, tools=(Launch(),)) as server:
        body = {"model": "tailrace", "stream": True, **BODIES[path]}
        async with server.client.post(server.url + path, json=body) as response:
            events: list[dict[str, Any]] = []
            question: JsonObject = {}
            async for event in sse(response):
                events.append(event)
                if not question and (path == "/v1/responses") == ("mcp_approval_request" in json.dumps(event)):
                    found = await waiting(server)
                    if found and ("/?run=" in text_of(path, events) or path == "/v1/responses"):
                        (question,) = found
                        assert await decide(server, question, "once", {}) == 200
        (run,) = await server.app.journal.runs(kind="agent")
        [answered] = [
            entry.event for entry in await server.app.journal.facts(run.id) if isinstance(entry.event, ApprovalAnswered)
        ]
    assert (answered.decision, answered.by) == ("once", "local")
    assert text_of(path, events).endswith("Launched.")
    if path == "/v1/responses":
        (item,) = [item for item in events[-1]["response"]["output"] if item["type"] == "mcp_approval_request"]
        assert (item["id"], item["server_label"], item["name"]) == (question["approval_id"], "tailrace", "launch")
        assert json.loads(item["arguments"])["command"] == "launch it"
    else:
        told = f"launch waits 60 s for an approval: launch it (answer at {server.url}/?run={run.id})"
        assert f"On it.\n\n⏸ {told}\n\nLaunched." in text_of(path, events)


async def test_a_stored_response_repeats_the_question_and_takes_it_back_in_a_later_request(tmp_path: Path) -> None:
    script = (launch(), reply("Launched."), reply("Again."))
    async with running_server(tmp_path, *script, tools=(Launch(),)) as server:
        _, begun = await server.json(
            "POST", "/v1/responses", {"model": "tailrace", "background": True, **BODIES["/v1/responses"]}
        )
        while not (found := await waiting(server)):
            await server.app.waiting.next_version(await server.app.waiting.version())
        assert await decide(server, found[0], "once", {}) == 200
        await server.app.agents.finished(begun["id"].replace("resp_", "run_"))
        _, whole = await server.json("GET", f"/v1/responses/{begun['id']}")
        kinds = [item["type"] for item in whole["output"]]
        given = [{"role": "user", "content": "Launch it."}, *whole["output"], {"role": "user", "content": "Again?"}]
        status, again = await server.json("POST", "/v1/responses", {"model": "faulty/ok", "input": given})
        asked = json.loads(server.provider.requests[-1].body)["messages"]
    assert kinds == ["message", "mcp_approval_request", "message"]
    assert (status, again["output"][0]["content"][0]["text"]) == (200, "Again.")
    assert "approval" not in json.dumps(asked)


@pytest.mark.parametrize(("who", "status"), [("APP", 200), ("BOSS", 200), ("OTHER", 403)])
async def test_who_may_answer(tmp_path: Path, who: str, status: int) -> None:
    headers = {"x-api-key": ENV[who]}
    script = (launch(), reply("Launched."))
    async with running_server(tmp_path, *script, config=KEYS, env=ENV, tools=(Launch(),)) as server:
        body = {"model": "tailrace", "stream": True, **BODIES["/v1/chat/completions"]}
        async with server.client.post(f"{server.url}/v1/chat/completions", json=body, headers=APP) as response:
            events = []
            asked = False
            async for event in sse(response):
                events.append(event)
                if not asked and "/?run=" in text_of("/v1/chat/completions", events):
                    asked = True
                    (question,) = await waiting(server, headers)
                    assert question["may_answer"] == (status == 200)
                    assert await decide(server, question, "once", headers) == status
                    assert await decide(server, question, "deny", APP) in (200, 409)
        (run,) = await server.app.journal.runs(kind="agent")
        answers = [
            entry.event for entry in await server.app.journal.facts(run.id) if isinstance(entry.event, ApprovalAnswered)
        ]
    expected = ("once", who.lower()) if status == 200 else ("deny", "app")
    assert [(answer.decision, answer.by) for answer in answers] == [expected]


async def test_approvals_api_deny_denies_at_once_with_the_reason(tmp_path: Path) -> None:
    config = "approvals: {api: deny}\n"
    async with running_server(tmp_path, launch(), reply("Not done."), config=config, tools=(Launch(),)) as server:
        body = {"model": "tailrace", **BODIES["/v1/chat/completions"]}
        _, answer = await server.json("POST", "/v1/chat/completions", body)
        told = json.loads(server.provider.requests[-1].body)["messages"][-1]["content"]
    assert answer["choices"][0]["message"]["content"] == "On it.\n\nNot done."
    assert "no person could be asked" in told
