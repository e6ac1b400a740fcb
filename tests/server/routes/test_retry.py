"""A question that is asked again, in the place of the run that failed."""

from __future__ import annotations

from pathlib import Path

from server.http_server import RunningServer, running_server
from tailrace.testing.provider import Break, Offset, Scenario, reply

SILENT = Scenario(reply=reply("one two three"), broken=Break("stall", Offset(60, per_cent=True)))


async def ask(server: RunningServer, text: str, session: str = "s") -> str:
    _, created = await server.json("POST", "/runs", {"input": text, "session": session})
    return str(created["id"])


async def test_the_model_is_not_told_of_the_first_try(tmp_path: Path) -> None:
    script = (reply("One."), "status-401", "status-401", reply("Two."), reply("Three."))
    async with running_server(tmp_path, *script) as server:
        first = await ask(server, "First?")
        await server.app.agents.finished(first)
        failed = await ask(server, "Second?")
        await server.app.agents.finished(failed)
        _, state = await server.json("GET", f"/runs/{failed}")
        body = {"idempotency_key": "k"}
        status, again = await server.json("POST", f"/runs/{failed}/retry", body)
        finished = await server.app.agents.finished(again["id"])
        repeated = await server.json("POST", f"/runs/{failed}/retry", body)
        earlier, _ = await server.json("POST", f"/runs/{first}/retry", {})
        unknown, _ = await server.json("POST", "/runs/run_of_nobody/retry", {})
        third = await ask(server, "Third?")
        await server.app.agents.finished(third)
        later = await server.json("POST", f"/runs/{failed}/retry", body)
        other, _ = await server.json("POST", f"/runs/{again['id']}/retry", {"idempotency_key": "k"})
        seen = [[each["content"] for each in request.json()["messages"][1:]] for request in server.provider.requests]
    assert (state["status"], state["error"]["status"]) == ("failed", 401)
    assert (status, finished.output) == (201, "Two.")
    assert [(each[0], each[1]["id"]) for each in (repeated, later)] == [(201, again["id"])] * 2
    assert (earlier, unknown, other) == (400, 404, 400)
    assert seen[-2] == ["First?", "One.", "Second?"]
    assert seen[-1] == ["First?", "One.", "Second?", "Two.", "Third?"]


async def test_a_run_that_goes_on_is_not_asked_again(tmp_path: Path) -> None:
    async with running_server(tmp_path, SILENT) as server:
        run = await ask(server, "First?")
        status, _ = await server.json("POST", f"/runs/{run}/retry", {})
    assert status == 409


async def test_it_takes_no_body_where_there_is_nothing_to_say(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One."), reply("Two.")) as server:
        run = await ask(server, "First?")
        await server.app.agents.finished(run)
        status, again = await server.json("POST", f"/runs/{run}/retry")
        finished = await server.app.agents.finished(again["id"])
        needed, _ = await server.json("POST", "/runs")
    assert (status, finished.output) == (201, "Two.")
    assert needed == 400


async def test_a_failure_comes_with_what_to_do(tmp_path: Path) -> None:
    async with running_server(tmp_path, "status-401", "status-401", reply("Fine.")) as server:
        failed = await ask(server, "Hi?")
        await server.app.agents.finished(failed)
        _, state = await server.json("GET", f"/runs/{failed}")
        fine = await ask(server, "Hi?", "another")
        await server.app.agents.finished(fine)
        _, other = await server.json("GET", f"/runs/{fine}")
    assert "key" in state["advice"]
    assert (other["status"], other["advice"]) == ("completed", "")
