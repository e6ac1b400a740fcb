"""The timeline of a run over HTTP, for every kind of run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from server.http_server import RunningServer, running_server
from tailrace.testing.provider import Break, Offset, Scenario, reply, think

TEXT = "One two three four five six seven eight nine ten"
CUT = Scenario(reply=reply(TEXT), broken=Break("reset", Offset(60, per_cent=True)))


async def timeline(server: RunningServer, run_id: str, query: str = "") -> dict[str, Any]:
    status, shown = await server.json("GET", f"/runs/{run_id}/timeline{query}")
    assert status == 200, shown
    found: dict[str, Any] = shown
    return found


def kinds(shown: dict[str, Any]) -> list[str]:
    return [item["kind"] for item in shown["items"]]


async def test_a_turn_that_was_cut_and_went_on(tmp_path: Path) -> None:
    async with running_server(tmp_path, CUT, reply(" eight nine ten"), store="sqlite:///t.db") as server:
        run_id = await server.start("Count.")
        await server.events(f"/runs/{run_id}/stream")
        shown = await timeline(server, run_id)
    assert kinds(shown) == ["question", "attempt", "text", "attempt", "text", "finish"]
    first, second = (item for item in shown["items"] if item["kind"] == "attempt")
    assert (first["outcome"], first["reason"]) == ("failed", "the connection broke in the middle of the answer")
    assert (second["outcome"], second["goes_on"]) == ("answered", True)
    assert 0 <= first["first_token_s"] <= first["end"] <= second["start"] <= shown["duration_s"]
    assert (shown["question"], shown["status"], shown["model"]) == ("Count.", "completed", "faulty/ok")
    assert shown["times"][0] == [1, 0.0]


async def test_thoughts_are_shown_on_request_alone(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hi.", think("A secret."))) as server:
        run_id = await server.start()
        await server.events(f"/runs/{run_id}/stream")
        hidden = await timeline(server, run_id)
        asked_for = await timeline(server, run_id, "?reasoning=true")
    assert "secret" not in str(hidden)
    assert [item["text"] for item in asked_for["items"] if item["kind"] == "reasoning"] == ["A secret."]


async def test_raw_calls_background_responses_and_compacted_runs(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hi."), reply("Ho."), store="sqlite:///t.db") as server:
        asked = {"model": "faulty/ok", "messages": [{"role": "user", "content": "Say hi."}]}
        assert (await server.json("POST", "/v1/chat/completions", asked))[0] == 200
        body = {"model": "faulty/ok", "input": "Say ho.", "background": True}
        _, response = await server.json("POST", "/v1/responses", body)
        await server.events(f"/v1/responses/{response['id']}?stream=true")
        runs = (await server.json("GET", "/runs"))[1]["data"]
        shown = {(found := await timeline(server, run["id"]))["question"]: found for run in runs}
        await server.app.journal.compact(runs[0]["id"])
        compacted = await timeline(server, runs[0]["id"])
    assert {question: kinds(found) for question, found in shown.items()} == {
        "Say hi.": ["attempt", "text", "finish"],
        "Say ho.": ["attempt", "text", "finish"],
    }
    assert (compacted["compacted"], kinds(compacted)) == (True, ["attempt", "text", "finish"])
    assert compacted["items"][1]["text"] == "Ho."


async def test_a_sequence_has_its_steps(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Done.")) as server:
        definition = {
            "name": "greet",
            "blocks": [
                {
                    "type": "step",
                    "id": "ask",
                    "handler": "llm_call",
                    "params": {"provider": "faulty", "model": "ok", "prompt": "Go."},
                }
            ],
        }
        status, sequence = await server.json("POST", "/sequences", definition)
        assert status == 201, sequence
        _, instance = await server.json("POST", "/instances", {"sequence_id": sequence["id"]})
        await server.events(f"/instances/{instance['id']}/stream")
        shown = await timeline(server, instance["id"])
        async with server.client.get(f"{server.url}/runs/{instance['id']}/export") as response:
            exported = response.status, response.headers["Content-Disposition"]
        _, run = await server.json("GET", f"/runs/{instance['id']}")
    assert (shown["id"], shown["question"]) == (instance["id"], "greet")
    assert exported == (200, f'attachment; filename="{instance["id"]}.html"')
    assert (run["status"], run["state"]) == ("completed", "completed")
    assert [(item["block_id"], item["state"]) for item in shown["items"] if item["kind"] == "step"] == [
        ("ask", "finished")
    ]
    assert [(item["provider"], item["block_id"]) for item in shown["items"] if item["kind"] == "attempt"] == [
        ("faulty", "ask")
    ]


async def test_a_run_that_is_not_there_has_no_timeline(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        status, told = await server.json("GET", "/runs/run_x/timeline")
    assert (status, told["error"]["kind"]) == (404, "not_found")
