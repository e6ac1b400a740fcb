"""`/sequences` and `/instances` over real sockets: create, run, watch, resume, signal, retry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flows.stages import FAST_RETRY, ask, step
from server.http_server import RunningServer, running_server, sse
from tailrace.flows.engine.instance_state import instance_states
from tailrace.messages import JsonObject
from tailrace.testing.provider import REPLIES

PACED = "ok+pace@0.02"


async def create(server: RunningServer, *blocks: JsonObject, name: str = "greet") -> str:
    status, body = await server.json("POST", "/sequences", {"name": name, "blocks": list(blocks)})
    assert status == 201, body
    assert body["version"] >= 1
    sequence_id: str = body["id"]
    return sequence_id


async def start(server: RunningServer, sequence_id: str, **fields: Any) -> str:
    status, body = await server.json("POST", "/instances", {"sequence_id": sequence_id, **fields})
    assert status == 201, body
    instance_id: str = body["id"]
    return instance_id


def text_of(events: list[dict[str, Any]], block_id: str = "say") -> str:
    text = ""
    for event in events:
        if event.get("block_id") == block_id and event["type"] == "llm_delta":
            text += event["delta"]
        if event.get("block_id") == block_id and event["type"] == "attempt_discarded":
            text = ""
    return text


def model(name: str = "say", **params: Any) -> JsonObject:
    return ask(name, provider="faulty", model="ok", **params)


async def test_a_sequence_runs_and_its_instance_shows_states_and_outputs(tmp_path: Path) -> None:
    async with running_server(tmp_path, "ok") as server:
        sequence_id = await create(server, model(stream=True), step("b", {"seconds": 0}, "sleep"))
        instance_id = await start(server, sequence_id, input={"x": 1})
        events = await server.events(f"/instances/{instance_id}/stream")
        status, instance = await server.json("GET", f"/instances/{instance_id}")
        assert status == 200
        assert instance["state"] == "completed"
        assert instance["sequence_id"] == sequence_id
        assert instance["outputs"]["say"]["message"]["content"] == REPLIES["ok"].reply.text
        assert text_of(events) == REPLIES["ok"].reply.text
        drawn = (await server.json("GET", f"/sequences/{sequence_id}/graph"))[1]
        assert ([node["id"] for node in drawn["nodes"]], drawn["edges"]) == (
            ["say", "b"],
            [{"source": "say", "target": "b"}],
        )
        states = {"say": "finished", "b": "finished"}
        assert (await server.json("GET", f"/instances/{instance_id}/graph"))[1] == {**drawn, "states": states}
        assert next(event["state"] for event in events if event["type"] == "state") == "scheduled"
        assert [event["block_id"] for event in events if event["type"] == "output"] == ["say", "b"]
        assert events[-1]["type"] == events[-1]["sse_event"] == "done"
        assert events[-1]["state"] == "completed"
        ids = [int(event["sse_id"]) for event in events]
        assert ids == sorted(set(ids))
        delta = next(event for event in events if event["type"] == "llm_delta")
        assert {"type", "block_id", "delta"} <= delta.keys()


async def test_deltas_arrive_while_the_model_speaks(tmp_path: Path) -> None:
    async with running_server(tmp_path, PACED) as server:
        instance_id = await start(server, await create(server, model(stream=True)))
        async with server.client.get(f"{server.url}/instances/{instance_id}/stream") as response:
            events = sse(response)
            first = await _next(events, "llm_delta")
            _, instance = await server.json("GET", f"/instances/{instance_id}")
            assert instance["state"] == "running"
            assert instance["outputs"] == {}
            rest = [event async for event in events]
        assert len([event for event in rest if event["type"] == "llm_delta"]) > 3
        assert text_of([first, *rest]) == REPLIES["ok"].reply.text


async def _next(events: AsyncIterator[dict[str, Any]], kind: str) -> dict[str, Any]:
    async for event in events:
        if event["type"] == kind:
            return event
    raise AssertionError(f"no {kind}")


async def test_N166_a_late_viewer_gets_what_was_said_and_a_cut_one_resumes(tmp_path: Path) -> None:
    async with running_server(tmp_path, PACED) as server:
        instance_id = await start(server, await create(server, model(stream=True)))
        path = f"/instances/{instance_id}/stream"
        seen: list[dict[str, Any]] = []
        async with server.client.get(server.url + path) as response:
            async for event in sse(response):
                seen.append(event)
                if len([e for e in seen if e["type"] == "llm_delta"]) == 3:
                    break
        resumed = await server.events(path, headers={"Last-Event-ID": seen[-1]["sse_id"]})
        assert text_of(seen + resumed) == REPLIES["ok"].reply.text
        assert text_of(await server.events(path)) == REPLIES["ok"].reply.text
        assert await server.events(path + f"?after={seen[-1]['sse_id']}") == resumed
        async with server.client.get(server.url + path, headers={"Last-Event-ID": resumed[-1]["sse_id"]}) as response:
            assert response.status == 204
        assert (await server.json("GET", path + "?after=999"))[0] == 409
        assert (await server.json("GET", path, headers={"Last-Event-ID": "x"}))[0] == 400


async def test_after_a_retry_the_stream_takes_the_text_back(tmp_path: Path) -> None:
    async with running_server(tmp_path, "ok+cut@60%", "ok") as server:
        instance_id = await start(server, await create(server, model(stream=True, retry=FAST_RETRY)))
        events = await server.events(f"/instances/{instance_id}/stream")
        (discarded,) = [event for event in events if event["type"] == "attempt_discarded"]
        assert (discarded["block_id"], discarded["attempt"]) == ("say", 1)
        assert text_of(events) == REPLIES["ok"].reply.text


async def test_a_viewer_of_another_instance_sees_nothing_of_this_one(tmp_path: Path) -> None:
    async with running_server(tmp_path, "long", "ok") as server:
        sequence_id = await create(server, model(stream=True))
        ids = [await start(server, sequence_id) for _ in range(2)]
        seen = await asyncio.gather(*(server.events(f"/instances/{one}/stream") for one in ids))
        texts = {text_of(events) for events in seen}
        assert texts == {REPLIES["long"].reply.text, REPLIES["ok"].reply.text}


async def test_signals_pause_resume_cancel_and_custom_ones(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        sequence_id = await create(server, step("w", {"signal": "go"}, "wait_signal"))
        instance_id = await start(server, sequence_id)
        path = f"/instances/{instance_id}"
        async with server.client.get(f"{server.url}{path}/stream") as response:
            events = sse(response)
            await _state(events, "waiting")
            assert (await server.json("POST", f"{path}/signals", {"signal": "pause"}))[0] == 200
            await _state(events, "paused")
            assert (await server.json("GET", path))[1]["state"] == "paused"
            (listed,) = (await server.json("GET", "/instances"))[1]["data"]
            assert (listed["id"], listed["state"]) == (instance_id, "paused")
            (listed,) = (await server.json("GET", "/runs?kind=sequence"))[1]["data"]
            assert (listed["id"], listed["status"], listed["state"]) == (instance_id, "running", "paused")
            assert (await server.json("GET", f"/runs/{instance_id}"))[1]["state"] == "paused"
            await server.json("POST", f"{path}/signals", {"signal": "resume"})
            await _state(events, "waiting")
            status, body = await server.json("POST", f"{path}/signals", {"signal": "gone"})
            assert (status, body["error"]["kind"], body["error"]["param"]) == (400, "unknown_signal", "signal")
            await server.json("POST", f"{path}/signals", {"signal": "go", "payload": {"n": 7}})
            await _state(events, "completed")
        assert (await server.json("GET", path))[1]["outputs"]["w"]["payload"] == {"n": 7}
        status, body = await server.json("POST", f"{path}/signals", {"signal": "go"})
        assert status == 409, body

        other = await start(server, sequence_id)
        async with server.client.get(f"{server.url}/instances/{other}/stream") as response:
            events = sse(response)
            await _state(events, "waiting")
            await server.json("POST", f"/instances/{other}/signals", {"signal": "cancel"})
            assert (await _next(events, "done"))["state"] == "cancelled"


async def _state(events: AsyncIterator[dict[str, Any]], state: str) -> None:
    async for event in events:
        if event["type"] == "state" and event["state"] == state:
            return
    raise AssertionError(f"never {state}")


async def test_failed_instances_are_listed_and_retried(tmp_path: Path) -> None:
    async with running_server(tmp_path, "ok", "status-401", "ok") as server:
        instance_id = await start(server, await create(server, model("a"), model("b")))
        await server.events(f"/instances/{instance_id}/stream")
        _, listed = await server.json("GET", "/instances?failed=true")
        assert [(one["id"], one["state"], one["name"]) for one in listed["data"]] == [(instance_id, "failed", "greet")]
        assert listed["data"][0]["error"]["kind"] == "permanent"
        status, again = await server.json("POST", f"/instances/{instance_id}/retry")
        assert status == 201
        await server.events(f"/instances/{again['id']}/stream")
        _, instance = await server.json("GET", f"/instances/{again['id']}")
        assert (instance["state"], instance["retry_of"]) == ("completed", instance_id)
        assert len(server.provider.requests) == 3
        assert (await server.json("POST", f"/instances/{again['id']}/retry"))[0] == 409


async def test_ids_say_what_they_name_and_the_runs_own_are_understood(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        sequence_id = await create(server, step("w", {"seconds": 0}, "sleep"))
        ids = [await start(server, sequence_id) for _ in range(3)]
        assert (sequence_id[:4], {one[:4] for one in ids}) == ("seq_", {"ins_"})
        old = [one.replace("ins_", "run_").replace("seq_", "run_") for one in (sequence_id, *ids)]
        for path in (f"/sequences/{old[0]}", f"/instances/{old[1]}", f"/runs/{ids[1]}", f"/runs/{old[1]}"):
            assert (await server.json("GET", path))[0] == 200, path
        same = await start(server, sequence_id, idempotency_key="k")
        assert await start(server, old[0], idempotency_key="k") == same
        await server.json("POST", f"/runs/{same}/stop")
        newest = [same, *reversed(ids)]
        for before, where in ((None, "/instances"), (old[3], "/instances"), (ids[2], "/runs")):
            path = f"{where}?limit=2" + (f"&before={before}" if before else "")
            _, listed = await server.json("GET", path)
            at = newest.index(ids[2]) + 1 if before else 0
            assert [one["id"] for one in listed["data"]][:2] == newest[at : at + 2], path
            assert listed["page"]["more"] == (len(newest) > at + 2 or where == "/runs")
            assert listed.get("next", listed["page"]["next"]) == listed["page"]["next"]
        second = await create(server, step("w", {"seconds": 1}, "sleep"))
        _, listed = await server.json("GET", "/sequences?limit=1")
        assert ([one["id"] for one in listed["data"]], listed["page"]) == ([second], {"more": True, "next": second})
        _, listed = await server.json("GET", f"/sequences?limit=1&before={second}")
        assert ([one["id"] for one in listed["data"]], listed["page"]["more"]) == ([sequence_id], False)


async def test_idempotency_keys_dry_runs_and_versions(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        first = await create(server, model())
        assert await create(server, model()) == first
        second = await create(server, model(temperature=0.5))
        assert second != first
        _, listed = await server.json("GET", "/sequences")
        assert [version["version"] for version in listed["data"]] == [2, 1]
        _, detail = await server.json("GET", f"/sequences/{second}")
        assert detail["definition"]["blocks"][0]["params"]["temperature"] == 0.5

        one = await start(server, first, idempotency_key="k", dry_run=True)
        assert await start(server, first, idempotency_key="k", dry_run=True) == one
        body = {"sequence_id": second, "idempotency_key": "k"}
        assert (await server.json("POST", "/instances", body))[0] == 409
        await server.events(f"/instances/{one}/stream")
        _, instance = await server.json("GET", f"/instances/{one}")
        assert (instance["state"], instance["dry_run"]) == ("completed", True)
        assert server.provider.requests == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "x"}, "blocks"),
        ({"name": "x", "blocks": [{"type": "stepp"}]}, "blocks[0].type"),
        ({"name": "x", "blocks": [step("a", handler="nobody")]}, "blocks[0].handler"),
        ({"name": "x", "blocks": [step("a", {"signal": "{{nobody}}"}, "wait_signal")]}, "blocks[0].params.signal"),
    ],
)
async def test_a_mistake_in_a_definition_is_400_with_its_place(body: Any, param: str | None, tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        status, answer = await server.json("POST", "/sequences", body)
        assert status == 400
        assert answer["error"].get("param") == param


async def test_yaml_is_taken_by_its_content_type(tmp_path: Path) -> None:
    text = "name: x\nblocks:\n  - {type: step, id: a, handler: sleep, params: {seconds: 0}}\n"
    async with running_server(tmp_path) as server:
        url, headers = f"{server.url}/sequences", {"Content-Type": "application/yaml"}
        async with server.client.post(url, data=text, headers=headers) as response:
            assert response.status == 201
        async with server.client.post(url, data=text.replace("step", "stepp"), headers=headers) as response:
            assert (response.status, (await response.json())["error"]["param"]) == (400, "blocks[0].type")
        for broken in ("name: [", b"name: \xff"):
            async with server.client.post(url, data=broken, headers=headers) as response:
                assert response.status == 400
                assert "param" not in (await response.json())["error"]


async def test_J116_a_tool_of_orch8s_may_be_at_a_private_host_that_the_config_names(tmp_path: Path) -> None:
    calling = step("a", {"url": "{{context.data.at}}", "tool_name": "look"}, "tool_call")
    async with running_server(tmp_path, config="flows: {allow_hosts: [127.0.0.1]}\n") as server:
        _, made = await server.json("POST", "/sequences", {"tenant_id": "t", "name": "x", "blocks": [calling]})
        address = f"{server.url}/v1/messages/count_tokens"  # of this machine; it answers 400
        instance_id = await start(server, made["id"], context={"data": {"at": address}})
        await server.events(f"/instances/{instance_id}/stream")
        _, instance = await server.json("GET", f"/instances/{instance_id}")
    assert "is not on the public Internet" not in instance["error"]["message"]
    assert "400" in instance["error"]["message"]


async def test_what_is_not_there_is_404_and_without_the_key_nothing_is(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        for method, path in (
            ("GET", "/instances/run_0"),
            ("GET", "/instances/run_0/graph"),
            ("GET", "/sequences/run_0/graph"),
            ("GET", "/instances/run_0/stream"),
            ("POST", "/instances/run_0/retry"),
            ("GET", "/sequences/run_0"),
        ):
            assert (await server.json(method, path))[0] == 404, path
        assert (await server.json("POST", "/instances", {"sequence_id": "run_0"}))[0] == 404
        run_id = await server.start()
        assert (await server.json("GET", f"/instances/{run_id}"))[0] == 404
    async with running_server(tmp_path / "locked", env={"TAILRACE_API_KEY": "secret-key"}) as server:
        for method, path in (("POST", "/sequences"), ("POST", "/instances"), ("GET", "/instances/x/stream")):
            assert (await server.json(method, path))[0] == 401, path


async def test_an_instance_is_listed_as_failed_only_together_with_its_error(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        failing = ask("say", provider="faulty", model="status-400")
        instance_id = await start(server, await create(server, failing))
        await server.events(f"/instances/{instance_id}/stream")
        ended = await server.app.flows.get(instance_id)
        _, listed = await server.json("GET", "/instances?failed=true")
        # read right before its end was recorded, and its log right after
        read_before = msgspec.structs.replace(ended, state="running", finished=None)
        states = await instance_states(server.app.journal, [read_before])
    assert [(each["state"], each["error"] is not None) for each in listed["data"]] == [("failed", True)]
    assert states == {ended.id: "running"}


@pytest.mark.parametrize("as_yaml", [False, True])
async def test_orch8s_documents_and_instance_bodies_are_taken_as_they_are(tmp_path: Path, as_yaml: bool) -> None:
    messages = [{"role": "user", "content": "For {{context.data.whom}}"}]
    asking = step("a", {"provider": "faulty", "model": "ok", "messages": messages, "stream": True}, "llm_call")
    shown = step("b", {"said": "{{outputs.a.message.content}}"}, "noop", timeout=5000)
    written = {"id": "1", "tenant_id": "t", "namespace": "n", "name": "x", "version": 1, "blocks": [asking, shown]}
    async with running_server(tmp_path, "ok") as server:
        kind = {"content-type": "application/yaml" if as_yaml else "application/json"}
        async with server.client.post(f"{server.url}/sequences", data=json.dumps(written), headers=kind) as response:
            sequence_id = (await response.json())["id"]
        instance_id = await start(
            server, sequence_id, tenant_id="t", namespace="n", context={"data": {"whom": "the miller"}}
        )
        events = await server.events(f"/instances/{instance_id}/stream?poll_ms=100")
        _, instance = await server.json("GET", f"/instances/{instance_id}")
        both = {"sequence_id": sequence_id, "input": {"whom": "Ada"}, "context": {"data": {}}}
        status, refused = await server.json("POST", "/instances", both)
    assert (status, refused["error"]["param"]) == (400, "input")
    assert instance["outputs"]["b"] == {"said": REPLIES["ok"].reply.text}
    assert "prompt_tokens" in instance["outputs"]["a"]["usage"]
    assert text_of(events, "a") == REPLIES["ok"].reply.text
    assert b"For the miller" in server.provider.requests[0].body
