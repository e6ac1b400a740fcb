"""A question that is asked again, or in another wording, as a further version of its turn."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

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
        unknown, _ = await server.json("POST", "/runs/run_of_nobody/retry", {})
        third = await ask(server, "Third?")
        await server.app.agents.finished(third)
        later = await server.json("POST", f"/runs/{failed}/retry", body)
        other, _ = await server.json("POST", f"/runs/{again['id']}/retry", {"idempotency_key": "k"})
        seen = [[each["content"] for each in request.json()["messages"][1:]] for request in server.provider.requests]
    assert (state["status"], state["error"]["status"]) == ("failed", 401)
    assert (status, finished.output) == (201, "Two.")
    assert [(each[0], each[1]["id"]) for each in (repeated, later)] == [(201, again["id"])] * 2
    assert (unknown, other) == (404, 409)
    assert seen[2] == ["First?", "One.", "Second?"]
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


async def test_a_version_of_an_earlier_turn_is_told_nothing_of_what_followed_it(tmp_path: Path) -> None:
    script = [reply(f"Answer {number}.") for number in range(6)]
    async with running_server(tmp_path, *script) as server:

        async def post(path: str, body: dict[str, Any]) -> str:
            status, created = await server.json("POST", path, body)
            assert status == 201
            await server.app.agents.finished(created["id"])
            return str(created["id"])

        async def ask_after(previous: str) -> str:
            return await post("/runs", {"input": "And?", "session": "s", "previous_run": previous})

        first = await post("/runs", {"input": "First?", "session": "s"})
        second = await post("/runs", {"input": "Second?", "session": "s"})
        edited = await post(f"/runs/{first}/retry", {"input": "First, edited?"})
        follows = await post("/runs", {"input": "And?", "session": "s"})
        elsewhere = await ask_after(second)
        again = await post(f"/runs/{second}/retry", {})
        refused, _ = await server.json("POST", "/runs", {"input": "x", "session": "t", "previous_run": first})
        _, session = await server.json("GET", "/sessions/s")
        seen = [[each["content"] for each in request.json()["messages"][1:]] for request in server.provider.requests]
    assert seen[2:] == [
        ["First, edited?"],
        ["First, edited?", "Answer 2.", "And?"],
        ["First?", "Answer 0.", "Second?", "Answer 1.", "And?"],
        ["First?", "Answer 0.", "Second?"],
    ]
    assert [(run["id"], run["previous_run"]) for run in session["data"]] == [
        *((first, None), (second, None), (edited, ""), (follows, None), (elsewhere, second), (again, first))
    ]
    assert session["title"] == "First?"
    assert refused == 400


MISSING = ("1", "x", "9" * 5000)


async def test_an_image_of_a_question_is_there_for_the_page_and_for_a_version(tmp_path: Path) -> None:
    image = "data:image/png;base64," + b64encode(b"\x89PNG").decode()
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": image}}]
    async with running_server(tmp_path, reply("A pixel."), reply("A dot.")) as server:
        body = {"input": [{"role": "user", "content": parts}], "session": "s"}
        _, created = await server.json("POST", "/runs", body)
        await server.app.agents.finished(created["id"])
        edited = {"input": "What colour?", "keep_files": True}
        _, again = await server.json("POST", f"/runs/{created['id']}/retry", edited)
        await server.app.agents.finished(again["id"])
        got = []
        for path in (
            *(f"{run['id']}/images/0" for run in (created, again)),
            *(f"{again['id']}/images/{n}" for n in MISSING),
        ):
            async with server.client.get(f"{server.url}/runs/{path}") as response:
                got.append((response.status, response.content_type, await response.read()))
    assert got[:2] == [(200, "image/png", b"\x89PNG")] * 2
    assert [status for status, *_ in got[2:]] == [404, 404, 404]
