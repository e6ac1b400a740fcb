"""`POST /ag-ui`: whole runs over a real socket, every event by the protocol's own types."""

from __future__ import annotations

from pathlib import Path

from server.frontends.ag_ui_client import Screen, asked, kinds, run, text, user
from server.http_server import running_server
from tailrace.testing.provider import reply, think

TEXT = "One two three four five six seven eight nine ten"


async def test_a_run_of_text(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(TEXT)) as server:
        events = await run(server, asked(user("Count."), thread="t1", run="r1"))
        _, runs = await server.json("GET", "/runs?session=t1")
    assert kinds(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    started, finished = events[0], events[-1]
    assert (started["threadId"], started["runId"], started["protocolVersion"]) == ("t1", "r1", "1.0")
    assert started["metadata"] == {"tailrace": {"runId": runs["data"][0]["id"]}}
    assert (finished["threadId"], finished["runId"], finished["outcome"]) == ("t1", "r1", {"type": "success"})
    assert text(events) == TEXT
    used = runs["data"][0]["usage"]
    assert [usage["totalTokens"] for usage in finished["usage"]] == [used["input_tokens"] + used["output_tokens"]]
    assert [e["stepName"] for e in events if e["type"].startswith("STEP_")] == ["model#1", "model#1"]
    assert len({event["sse_id"] for event in events}) == len(events)


async def test_several_turns_add_only_what_is_new(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hi Ann."), reply("Ann."), reply("Bye.")) as server:
        screen = Screen()
        for said in ("I am Ann.", "Who am I?", "Thanks."):
            screen.messages.append(user(said))
            screen.show(await run(server, asked(*screen.messages)))
        requests = [request.json()["messages"][1:] for request in server.provider.requests]
    assert [message["content"] for message in requests[-1]] == ["I am Ann.", "Hi Ann.", "Who am I?", "Ann.", "Thanks."]
    assert screen.said()[-2:] == [("user", "Thanks."), ("assistant", "Bye.")]


async def test_thoughts_are_shown_to_those_who_ask(tmp_path: Path) -> None:
    thoughtful = reply(think("Hm. "), "Yes.")
    async with running_server(tmp_path, thoughtful, thoughtful) as server:
        hidden = await run(server, asked(user("Well?"), thread="a"))
        shown = await run(server, asked(user("Well?"), thread="b", forwardedProps={"reasoning": True}))
    assert not [event for event in hidden if event["type"].startswith("REASONING")]
    assert kinds(shown)[1:6] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
    ]
    assert Screen().show(shown).said() == [("reasoning", "Hm. "), ("assistant", "Yes.")]
