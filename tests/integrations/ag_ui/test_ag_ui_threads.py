"""Threads of `/ag-ui`: what a front end repeats, edits, cuts and opens; whose a thread is; what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from integrations.ag_ui.ag_ui_client import Screen, asked, kinds, refused, run, stream, text, user
from server.http_server import RunningServer, running_server
from server.routes.test_runs import STALLED, Launch
from tailrace.agent.turn_spec import ClientTurn, TurnSpec
from tailrace.events import RunFailure, RunFinished
from tailrace.messages import JsonObject, Message, Text
from tailrace.ports import NewRun
from tailrace.testing.provider import call, reply

KEYS = """
server:
  keys:
    - {name: ann, key_env: ANN, scopes: [runs]}
    - {name: bob, key_env: BOB, scopes: [runs]}
    - {name: ops, key_env: OPS, scopes: [admin]}
    - {name: reader, key_env: READER, scopes: [models]}
  cors_origins: ['https://app.example']
  drain_s: 0.05
"""
ENV = {name: f"secret-of-{name}" for name in ("ANN", "BOB", "OPS", "READER")}


def told(server: RunningServer, number: int = -1) -> list[str]:
    """What the model was told in that request, without our own instructions."""
    return [message["content"] for message in server.provider.requests[number].json()["messages"][1:]]


async def talk(server: RunningServer, screen: Screen, *texts: str) -> Screen:
    for said in texts:
        screen.messages.append(user(said))
        screen.show(await run(server, asked(*screen.messages)))
    return screen


async def test_an_edited_message_cuts_off_what_followed_it(tmp_path: Path) -> None:
    async with running_server(tmp_path, *map(reply, ("1!", "2!", "3!", "4!", "2?"))) as server:
        screen = await talk(server, Screen(), "one", "two", "three")
        before = [*screen.messages]
        screen.messages = screen.messages[:2]
        await talk(server, screen, "two, edited")
        edited = told(server)
        opened = Screen().show(await run(server, asked()))
        elsewhere = Screen(before[:4])  # another tab still shows what was cut
        await talk(server, elsewhere, "more of two")
    assert edited == ["one", "1!", "two, edited"]
    assert opened.messages == screen.messages
    assert told(server) == ["one", "1!", "two", "2!", "more of two"]


async def test_a_list_that_ends_with_a_known_question_asks_it_anew(tmp_path: Path) -> None:
    async with running_server(tmp_path, *map(reply, ("1!", "2!", "2 again!", "3!"))) as server:
        screen = await talk(server, Screen(), "one", "two")
        screen.messages.pop()
        events = await run(server, asked(*screen.messages))
        again = told(server)
        await talk(server, screen.show(events), "three")
    assert again == ["one", "1!", "two"]
    assert told(server) == ["one", "1!", "two", "2 again!", "three"]


async def test_a_client_without_a_list_adds_to_the_thread(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("1!"), reply("2!")) as server:
        await talk(server, Screen(), "one")
        await run(server, asked(user("two")))
    assert told(server) == ["one", "1!", "two"]


async def test_a_thread_that_began_elsewhere_keeps_its_beginning(tmp_path: Path) -> None:
    greeting = {"id": "g", "role": "assistant", "content": "Hello, I am Tim."}
    async with running_server(tmp_path, reply("1!"), reply("2!"), reply("1 again!")) as server:
        screen = await talk(server, Screen([greeting]), "one", "two")
        later = told(server)
        opened = Screen().show(await run(server, asked()))
        await run(server, asked(*screen.messages[:2]))
    assert later == ["Hello, I am Tim.", "one", "1!", "two"]
    assert told(server) == ["Hello, I am Tim.", "one"]
    assert opened.said() == screen.said()


async def test_an_empty_list_opens_the_thread(tmp_path: Path) -> None:
    config = "call: {idle_timeout_s: 600}\n"
    async with running_server(tmp_path, reply("1!"), STALLED, config=config) as server:
        nothing = await run(server, asked(thread="unknown"))
        screen = await talk(server, Screen(), "one")
        ended = await run(server, asked())
        question = user("two")
        async for event in stream(server, asked(*screen.messages, question, state={"page": 2})):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                break
        opened: list[JsonObject] = []
        async for event in stream(server, asked(run="other")):
            opened.append(event)
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                await server.app.agents.stop(opened[0]["metadata"]["tailrace"]["runId"])
    assert kinds(nothing) == kinds(ended) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert nothing[1]["messages"] == []
    assert ended[1]["messages"] == screen.messages
    assert kinds(opened)[:4] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_START"]
    again = Screen().show(opened)
    assert again.state == {"page": 2}
    assert again.said() == [*screen.said(), ("user", "two"), ("assistant", text(opened))]
    assert opened[-1]["runId"] == "other"


async def test_a_list_that_says_nothing_new_is_not_answered_again(tmp_path: Path) -> None:
    """A client that opened a thread lost its connection: it has the question, and a half of the answer."""
    async with running_server(tmp_path, STALLED, config="call: {idle_timeout_s: 600}\n") as server:
        question = user("one")
        async for event in stream(server, asked(question)):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                run_id = event["messageId"].partition("-")[0]
                break
        half = {"id": f"{run_id}-0", "role": "assistant", "content": "One"}
        shown: list[list[JsonObject]] = []
        for messages in ([question], [question, half]):
            shown.append([])
            async for event in stream(server, asked(*messages)):
                shown[-1].append(event)
                if event["type"] == "TEXT_MESSAGE_CONTENT":
                    break
        await server.app.agents.stop(run_id)
        await server.app.agents.finished(run_id)
        after = Screen([question, half]).show(await run(server, asked(question, half)))
        asks = len(server.provider.requests)
    assert [kinds(events) for events in shown] == [
        ["RUN_STARTED", "MESSAGES_SNAPSHOT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT"]
    ] * 2
    assert after.said()[1][1] != "One"
    assert asks == 1


async def test_an_opened_thread_asks_what_it_waits_for(tmp_path: Path) -> None:
    launch = reply(call("launch", {"what": "Apollo"}), call("launch", {"what": "Gemini"}))
    async with running_server(tmp_path, launch, reply("Done."), tools=(Launch(),)) as server:
        await run(server, asked(user("Launch both.")))
        first = await run(server, asked())
        screen = Screen().show(first)
        answer = {"interruptId": first[-1]["outcome"]["interrupts"][0]["id"], "status": "resolved", "payload": True}
        second = await run(server, asked(*screen.messages, resume=[answer]))
        opened = await run(server, asked())  # the first approval is settled, the second is open
        both = Screen().show(opened)
        answer["interruptId"] = opened[-1]["outcome"]["interrupts"][0]["id"]
        both.show(await run(server, asked(*both.messages, resume=[answer])))
    assert second[-1]["outcome"]["interrupts"][0]["id"] == answer["interruptId"]
    assert both.said()[2:] == [("tool", "launched Apollo"), ("tool", "launched Gemini"), ("assistant", "Done.")]


async def test_a_new_message_interrupts_the_run_of_its_thread(tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, reply("2!"), config="call: {idle_timeout_s: 600}\n") as server:
        first: list[JsonObject] = []
        question = user("one")
        async for event in stream(server, asked(question)):
            first.append(event)
            if event["type"] == "TEXT_MESSAGE_CONTENT" and first[-2]["type"] == "TEXT_MESSAGE_START":
                second = await run(server, asked(question, user("two")))
    assert first[-1]["outcome"] == {"type": "cancelled"}
    assert text(second) == "2!"
    assert told(server)[::2] == ["one", "two"]


async def test_context_state_instructions_and_model(tmp_path: Path) -> None:
    more: JsonObject = {
        "context": [{"description": "The user's name", "value": "Ann"}],
        "state": {"cart": ["tea"]},
        "forwardedProps": {"model": "other/special", "theme": "dark"},
        "parentRunId": "r0",
        "protocolVersion": "1.0",
    }
    rules = {"id": "s", "role": "system", "content": "Rhyme."}
    async with running_server(tmp_path, reply("Yes.")) as server:
        events = await run(server, asked(rules, user("Well?"), **more))
        request = server.provider.requests[0].json()
    assert request["model"] == "special"
    system = request["messages"][0]["content"]
    assert all(words in system for words in ("Rhyme.", "The user's name:\nAnn", '{"cart":["tea"]}'))
    assert events[1] == {"type": "STATE_SNAPSHOT", "snapshot": {"cart": ["tea"]}, "sse_id": "1.1"}


async def test_images_and_documents(tmp_path: Path) -> None:
    png, pdf = "iVBORw0KGgo=", "JVBERi0="
    content = [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"type": "data", "value": png, "mimeType": "image/png"}},
        {"type": "image", "source": {"type": "url", "value": "https://pictures.example/a.png"}},
        {
            "type": "document",
            "source": {"type": "data", "value": pdf, "mimeType": "application/pdf"},
            "metadata": {"filename": "a.pdf"},
        },
        {"type": "binary", "mimeType": "image/png", "data": png},
    ]
    async with running_server(tmp_path, reply("I see.")) as server:
        await run(server, asked(user(content)))
        opened = await run(server, asked())
        sent: list[Any] = server.provider.requests[0].json()["messages"][-1]["content"]
    assert [part["type"] for part in sent] == ["text", "image_url", "image_url", "file", "image_url"]
    assert sent[1]["image_url"]["url"] == f"data:image/png;base64,{png}"
    assert opened[1]["messages"][0]["content"][:4] == content[:4]


def message(**fields: object) -> JsonObject:
    return {"id": "m", "role": "user", "content": "Hi.", **fields}


REFUSED: list[tuple[object, int, str]] = [
    ([], 400, "the body: must be an object, not a list"),
    ({"runId": "r", "messages": []}, 400, "threadId: is missing"),
    ({"threadId": "t", "messages": []}, 400, "runId: is missing"),
    ({"threadId": "t", "runId": "r"}, 400, "messages: is missing"),
    (asked(message(), thread=""), 400, "threadId: must not be empty"),
    (asked(message(role="robot")), 400, "messages[0].role: cannot be 'robot'"),
    (asked({"id": "m", "role": "user"}), 400, "messages[0].content: is missing"),
    (asked(message(content="")), 400, "messages[0].content: is empty"),
    (asked(message(content=" ")), 400, "messages[0].content: is empty"),
    (asked(message(role="assistant")), 400, "messages: there is nothing to answer"),
    (asked(message(role="system")), 400, "messages: there is nothing to answer"),
    (asked(message(role="tool", toolCallId="x")), 400, "messages[0].toolCallId: no call of this thread waits for"),
    (asked(message(content=[{"type": "audio"}])), 400, "messages[0].content[0].type: "),
    (
        asked(message(content=[{"type": "image", "source": {"type": "file", "value": "f"}}])),
        400,
        "messages[0].content[0].source.type: ",
    ),
    (asked(message(), tools=[{"name": "a b", "description": ""}]), 400, "tools[0].name: 1 to 64 letters"),
    (asked(message(), tools=[{"name": "a"}, {"name": "a"}]), 400, "tools[1].name: there are two tools named a"),
    (asked(message(), forwardedProps={"model": 7}), 400, "forwardedProps.model: must be text, not a number"),
    (asked(message(), forwardedProps={"model": "nobody/x"}), 404, "no such provider"),
    (asked(message(), resume=[{"interruptId": "x", "status": "cancelled"}]), 404, "resume[0].interruptId: this thr"),
    (asked(message(), resume=[{"interruptId": "x", "status": "?"}]), 400, "resume[0].status: cannot be '?'"),
]


async def test_what_is_refused(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        said = [(await refused(server, body), status, words) for body, status, words in REFUSED]
    assert [told for told, status, words in said if told[0] != status or words not in told[1]] == []


async def test_a_run_id_is_for_one_message(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("1!"), reply("2!")) as server:
        first = await run(server, asked(user("one"), run="same"))
        status, said = await refused(server, asked(user("two"), run="same"))
        other_thread = await run(server, asked(user("two"), run="same", thread="t2"))
        for number in range(60):  # so many that the first one is not looked at
            new = NewRun("agent", {"requester": "local", "client": {"request_id": f"r{number}"}}, session="t")
            _, lease = await server.app.journal.start(new, "another process")
            assert lease is not None
            await server.app.journal.seal(lease, RunFinished("completed"))
        late = await refused(server, asked(user("three"), run="same"))
    assert (status, "runId: 'same' was used for another message" in said) == (409, True)
    assert late == (status, said)
    assert [text(first), text(other_thread)] == ["1!", "2!"]


async def test_the_same_request_at_once_is_one_run(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("1!"), reply("2!")) as server:
        body = asked(user("one"), run="same")
        shown = await asyncio.gather(*(run(server, body) for _ in range(5)))
        asks = len(server.provider.requests)
    assert [text(events) for events in shown] == ["1!"] * 5
    assert asks == 1


async def test_answers_that_are_neither_yes_nor_no_allow_nothing(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(call("launch", {"what": "it"})), tools=(Launch(),)) as server:
        question = user("Launch!")
        events = await run(server, asked(question))
        messages = Screen([question]).show(events).messages
        interrupt = events[-1]["outcome"]["interrupts"][0]["id"]
        answers: list[JsonObject] = [{}, {"payload": "yes"}, {"payload": {"approved": "true"}}]
        answers += [{"payload": {"approved": True, "editedArgs": {"what": "else"}}}]
        said = []
        for answer in answers:
            entry = {"interruptId": interrupt, "status": "resolved", **answer}
            said.append(await refused(server, asked(*messages, resume=[entry])))
        elsewhere = {"interruptId": interrupt, "status": "resolved", "payload": True}
        other = await refused(server, asked(*messages, thread="t2", resume=[elsewhere]))
        _, runs = await server.json("GET", "/runs")
    assert [status for status, _ in said] == [400] * 4
    assert "resume[0].payload: expected" in said[0][1]
    assert "a call runs as it was asked for" in said[3][1]
    assert other[0] == 404
    assert runs["data"][0]["status"] == "running"


async def test_whose_a_thread_is(tmp_path: Path) -> None:
    async with running_server(
        tmp_path, reply(call("launch", {"what": "it"})), reply("2!"), tools=(Launch(),), config=KEYS, env=ENV
    ) as server:
        ann, bob, ops = ({"x-api-key": ENV[name]} for name in ("ANN", "BOB", "OPS"))
        question = user("one")
        events = await run(server, asked(question, run="r1"), **ann)
        messages = Screen([question]).show(events).messages
        entry = {"interruptId": events[-1]["outcome"]["interrupts"][0]["id"], "status": "resolved", "payload": True}
        strangers = [
            await refused(server, body, **bob)
            for body in (asked(question, run="r1"), asked(user("two")), asked(), asked(*messages, resume=[entry]))
        ]
        opened = await run(server, asked(), **ops)
        answered_by_admin = await run(server, asked(*messages, resume=[entry]), **ops)
        without = await refused(server, asked(user("two")))
        reader = await refused(server, asked(user("two")), **{"x-api-key": ENV["READER"]})
    assert strangers == [(403, "threadId: this conversation belongs to another key; use another id")] * 4
    assert opened[-1]["outcome"]["type"] == "interrupt"
    assert answered_by_admin[-1]["outcome"]["type"] == "success"
    assert (without[0], reader[0]) == (401, 403)


async def test_pages_of_other_origins(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("Hi."), config=KEYS, env=ENV) as server:
        key = {"x-api-key": ENV["ANN"]}
        preflight = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        async with server.client.options(f"{server.url}/ag-ui", headers=preflight) as response:
            allowed = response.status, response.headers["Access-Control-Allow-Origin"]
        evil = await refused(server, asked(user("Hi.")), **key, Origin="https://evil.example")
    assert allowed == (204, "https://app.example")
    assert evil[0] == 403


async def test_a_compacted_run_is_shown_from_its_facts(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply("One two three.")) as server:
        question = user("Count.")
        whole = await run(server, asked(question, run="r1"))
        await server.app.journal.compact(whole[0]["metadata"]["tailrace"]["runId"])
        again = await run(server, asked(question, run="r1"))
    assert Screen().show(again).messages == Screen().show(whole).messages
    assert again[-1]["outcome"] == whole[-1]["outcome"]


async def test_a_run_that_was_set_aside_is_said(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        spec = TurnSpec(Message("user", (Text("one"),)), client=ClientTurn("r1", ("u",)))
        new = NewRun("agent", msgspec.to_builtins(spec), session="t")
        _, lease = await server.app.journal.start(new, "another process")
        assert lease is not None
        body = asked(user("one", "u"), run="r1")
        watching = stream(server, body)
        begun = [await anext(watching)]
        await server.app.journal.park(lease, RunFailure("crash_loop", "it died three times"))
        live = begun + [event async for event in watching]
        later = await run(server, body)
    assert live == later
    assert kinds(live) == ["RUN_STARTED", "CUSTOM", "RUN_ERROR"]
    assert "it died three times" in live[-1]["message"]


async def test_a_fork_is_a_thread_of_its_own(tmp_path: Path) -> None:
    async with running_server(tmp_path, *map(reply, ("1!", "2!", "another 2!", "3!"))) as server:
        await talk(server, Screen(), "one", "two")
        _, runs = await server.json("GET", "/runs?session=t")
        source = runs["data"][0]
        status, forked = await server.json("POST", f"/runs/{source['id']}/fork", {"after": 0, "input": "two, again"})
        await server.app.agents.finished(forked["id"])
        _, fork = await server.json("GET", f"/runs/{forked['id']}")
        opened = Screen().show(await run(server, asked(thread=fork["session"])))
        opened.messages.append(user("three"))
        await run(server, asked(*opened.messages, thread=fork["session"]))
    assert status == 201
    assert opened.said()[:-1] == [
        ("user", "one"),
        ("assistant", "1!"),
        ("user", "two, again"),
        ("assistant", "another 2!"),
    ]
    assert told(server) == ["one", "1!", "two, again", "another 2!", "three"]
