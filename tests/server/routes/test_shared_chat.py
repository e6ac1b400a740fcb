"""A group's conversation over HTTP: whose a question is, and that it stays that person's."""

from __future__ import annotations

from pathlib import Path

from server.http_server import running_server
from server.shared_chat import ASKED, BEN, SESSION, group_chat, said
from tailrace.testing.provider import reply


async def test_a_question_over_http_says_whose_it_is_also_when_it_is_sent_again(tmp_path: Path) -> None:
    async with running_server(tmp_path, *map(reply, "1234")) as server:
        await group_chat(server)
        body = {"input": "and for me", "session": SESSION, "idempotency_key": "k"}
        first, again = [await server.json("POST", "/runs", body) for _ in range(2)]
        await server.events(f"/runs/{first[1]['id']}/stream")
        _, shown = await server.json("GET", f"/runs/{first[1]['id']}")
        other, _ = await server.json("POST", "/runs", {**body, "input": "and for you"})
        assert said(server)[-1] == '[from tailrace:local "a person on the page"]\n| and for me'
    assert (first[0], first[1]["id"]) == (again[0], again[1]["id"])
    assert other == 409
    assert (shown["speaker"], shown["input"]) == ("a person on the page", "a person on the page: and for me")


async def test_a_question_in_another_wording_is_still_that_persons(tmp_path: Path) -> None:
    async with running_server(tmp_path, *map(reply, "123")) as server:
        _, ben = await group_chat(server)
        body = {"after": 0, "input": "for my dog too", "idempotency_key": "k"}
        made, again = [await server.json("POST", f"/runs/{ben}/fork", body) for _ in range(2)]
        await server.events(f"/runs/{made[1]['id']}/stream")
        _, shown = await server.json("GET", f"/runs/{made[1]['id']}")
        sent = said(server)
    assert (made[0], made[1]["id"]) == (again[0], again[1]["id"])
    assert sent == [ASKED, f"{BEN.head}\n| for my dog too"]
    assert (shown["speaker"], shown["input"]) == ("Ben", "Ben: for my dog too")


async def test_a_question_of_nobody_in_particular_has_no_speaker(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Yes.")) as server:
        _, shown = await server.json("GET", f"/runs/{await server.start('Go.')}")
    assert (shown["speaker"], shown["input"]) == ("", "Go.")


async def test_a_session_may_be_called_as_anything_that_python_has(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Yes.")) as server:
        status, run = await server.json("POST", "/runs", {"input": "Go.", "session": "__class__"})
        await server.events(f"/runs/{run['id']}/stream")
    assert status == 201
