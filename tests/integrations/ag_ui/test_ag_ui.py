"""`POST /ag-ui`: whole runs over a real socket, every event by the protocol's own types."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from integrations.ag_ui.ag_ui_client import Screen, asked, kinds, refused, run, stream, text, user
from server.dialect_api import WATER_LEVEL
from server.http_server import RunningServer, running_server, sse
from server.routes.test_runs import STALLED, Launch
from tailrace.messages import JsonObject, ToolFile
from tailrace.ports import ToolContext, ToolOutcome
from tailrace.testing.provider import Break, Offset, Scenario, call, reply, think
from tailrace.tools.typed import Arguments, TypedTool

WAIT = "call: {idle_timeout_s: 600}\n"
TEXT = "One two three four five six seven eight nine ten"


class Draw(TypedTool[Arguments]):
    name = "draw"
    description = "Draw a plan."
    Args = Arguments

    async def execute(self, _args: Arguments, _context: ToolContext) -> ToolOutcome:
        return ToolOutcome("drawn", files=(ToolFile("plan.png", "image/png", b"PNG"),))


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


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_our_tools_are_shown_with_arguments_and_results(tmp_path: Path) -> None:
    script = (reply("Let me look.", call("water_level", {"river": "Elbe"})), reply("3.2 m."), reply("As I said."))
    async with running_server(tmp_path, *script, tools=(WATER_LEVEL,)) as server:
        question = user("How high is the Elbe?")
        events = await run(server, asked(question))
        screen = Screen([question]).show(events)
        screen.messages.append(user("Sure?"))
        screen.show(await run(server, asked(*screen.messages)))
        told = server.provider.requests[-1].json()["messages"][1:]
    called = next(event for event in events if event["type"] == "TOOL_CALL_START")
    assert kinds(events) == [
        "RUN_STARTED",
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        "RUN_FINISHED",
    ]
    assert called["parentMessageId"] == screen.messages[1]["id"]
    assert screen.messages[1]["toolCalls"][0]["function"] == {"name": "water_level", "arguments": '{"river":"Elbe"}'}
    assert screen.said()[1:4] == [("assistant", "Let me look."), ("tool", "Elbe is at 3.2 m"), ("assistant", "3.2 m.")]
    assert [event["stepName"] for event in events if event["type"] == "STEP_STARTED"] == [
        "model#1",
        "water_level#0",
        "model#2",
    ]
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "assistant", "user"]


async def test_arguments_come_before_the_call_is_whole(tmp_path: Path) -> None:
    """The provider has fallen silent in the middle of the call."""
    writing = Scenario(
        reply=reply("I look.", call("water_level", {"river": "E" * 200})),
        broken=Break("stall", Offset(70, per_cent=True)),
    )
    async with running_server(tmp_path, writing, tools=(WATER_LEVEL,), config=WAIT) as server:
        question, events = user("How high?"), list[JsonObject]()
        async for event in stream(server, asked(question)):
            events.append(event)
            if kinds(events)[-1] == "TOOL_CALL_ARGS" and "EE" in event["delta"]:
                break
        run_path = f"{server.url}/runs/{events[0]['metadata']['tailrace']['runId']}"
        await server.client.post(f"{run_path}/stop")
        async with server.client.get(f"{run_path}/stream") as response:
            logged = [event async for event in sse(response) if event["type"] == "tool_arguments_chunk"]
        again = await run(server, asked(question, run=events[0]["runId"]))
        screen = Screen().show(again)
    assert kinds(events)[-2:] == ["TOOL_CALL_START", "TOOL_CALL_ARGS"]
    assert "".join(chunk["text"] for chunk in logged).startswith('{"river":"EE')
    assert kinds(again)[-3:] == ["MESSAGES_SNAPSHOT", "TOOL_CALL_END", "RUN_FINISHED"]
    assert not any("toolCalls" in message for message in screen.messages)


async def test_files_of_a_tool_are_activities(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(call("draw", {})), reply("There."), tools=(Draw(),)) as server:
        events = await run(server, asked(user("Draw.")))
    drawn = next(event for event in events if event["type"] == "ACTIVITY_SNAPSHOT")
    assert drawn["activityType"] == "tailrace.file"
    assert drawn["content"]["name"] == "plan.png"
    assert base64.b64decode(drawn["content"]["data"]) == b"PNG"


FRONT_END_TOOL = {"name": "pick_colour", "description": "Ask the user for a colour.", "parameters": {"type": "object"}}


async def test_the_front_ends_own_tools_end_the_run_and_their_results_begin_the_next(tmp_path: Path) -> None:
    both = reply("One moment.", call("water_level", {"river": "Elbe"}), call("pick_colour", {"of": "sky"}))
    async with running_server(tmp_path, both, reply("Blue it is."), reply("Blue."), tools=(WATER_LEVEL,)) as server:
        screen = Screen([user("Paint.")])
        first = await run(server, asked(*screen.messages, tools=[FRONT_END_TOOL]))
        screen.show(first)
        (pending,) = first[-1]["outcome"]["pendingToolCallIds"]
        screen.messages.append({"id": "result", "role": "tool", "toolCallId": pending, "content": "blue"})
        screen.show(await run(server, asked(*screen.messages, tools=[FRONT_END_TOOL])))
        screen.messages.append(user("Which?"))
        screen.show(await run(server, asked(*screen.messages, tools=[FRONT_END_TOOL])))
        offered = {tool["function"]["name"] for tool in server.provider.requests[0].json()["tools"]}
        told = server.provider.requests[1].json()["messages"][2:]
        last = server.provider.requests[2].json()["messages"][1:]
    assert {"water_level", "pick_colour"} <= offered
    called = {call["function"]["name"]: call["id"] for call in told[0]["tool_calls"]}
    assert {(m["tool_call_id"], m["content"]) for m in told[1:]} == {
        (called["water_level"], "Elbe is at 3.2 m"),
        (called["pick_colour"], "blue"),
    }
    assert [message["role"] for message in last] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert screen.said()[-1] == ("assistant", "Blue.")


async def test_a_message_beside_a_result_is_told_too(tmp_path: Path) -> None:
    async with running_server(tmp_path, reply(call("pick_colour", {})), reply("Red!"), reply("Red.")) as server:
        screen = Screen([user("Paint.")])
        first = await run(server, asked(*screen.messages, tools=[FRONT_END_TOOL]))
        (pending,) = first[-1]["outcome"]["pendingToolCallIds"]
        screen.show(first)
        screen.messages += [
            {"id": "res", "role": "tool", "toolCallId": pending, "content": "", "error": "closed"},
            user("Take red."),
        ]
        screen.show(await run(server, asked(*screen.messages, tools=[FRONT_END_TOOL])))
        screen.messages.append(user("Which?"))
        await run(server, asked(*screen.messages))
        told = [request.json()["messages"][1:] for request in server.provider.requests[1:]]
    assert [message["role"] for message in told[0]] == ["user", "assistant", "tool", "user"]
    assert "closed" in told[0][2]["content"]
    assert [message["role"] for message in told[1]] == ["user", "assistant", "tool", "user", "assistant", "user"]


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────────


LAUNCH = (reply("I launch it.", call("launch", {"what": "Apollo"})), reply("Done."))


async def interrupted(server: RunningServer, screen: Screen) -> JsonObject:
    """The interrupt that a run of the launch ends with."""
    events = await run(server, asked(*screen.messages))
    screen.show(events)
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    found: JsonObject = interrupt
    return found


async def test_an_approval_is_an_interrupt_that_the_next_request_answers(tmp_path: Path) -> None:
    async with running_server(tmp_path, *LAUNCH, tools=(Launch(),)) as server:
        screen = Screen([user("Launch!")])
        interrupt = await interrupted(server, screen)
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        body = asked(*screen.messages, run="second", resume=[answer])
        resumed = await run(server, body)
        again = await run(server, asked(*screen.messages, run="second", resume=[answer]))
        screen.show(resumed)
    assert (interrupt["reason"], interrupt["message"]) == (
        "tool_call",
        "Allow launch? launch it (acts outside this machine)",
    )
    assert interrupt["toolCallId"] == screen.messages[1]["toolCalls"][0]["id"]
    assert (resumed[0]["type"], resumed[0]["runId"]) == ("RUN_STARTED", "second")
    assert resumed[-1]["outcome"] == {"type": "success"}
    assert screen.said()[1:] == [("assistant", "I launch it."), ("tool", "launched Apollo"), ("assistant", "Done.")]
    assert again == resumed  # the same request again shows the same, and does not launch twice
    assert len(resumed[-1]["usage"]) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "cancelled"},
        {"status": "resolved", "payload": {"approved": False}},
        {"status": "resolved", "payload": {"decision": "deny", "reason": "not yet"}},
        {"status": "resolved", "payload": False},
    ],
)
async def test_an_approval_is_denied(tmp_path: Path, answer: JsonObject) -> None:
    async with running_server(tmp_path, *LAUNCH, tools=(Launch(),)) as server:
        screen = Screen([user("Launch!")])
        interrupt = await interrupted(server, screen)
        events = await run(server, asked(*screen.messages, resume=[{"interruptId": interrupt["id"], **answer}]))
    result = next(event for event in events if event["type"] == "TOOL_CALL_RESULT")
    assert result["metadata"]["tailrace"]["notExecuted"] == "denied"
    assert result["content"] == f"Not executed: denied by the user{': not yet' if 'not yet' in str(answer) else ''}."
    assert "expiresAt" in interrupt
    assert events[-1]["outcome"] == {"type": "success"}


async def test_an_approval_is_answered_at_the_run_and_the_client_goes_on_when_it_likes(tmp_path: Path) -> None:
    async with running_server(tmp_path, *LAUNCH, tools=(Launch(),)) as server:
        screen = Screen([user("Launch!")])
        interrupt = await interrupted(server, screen)
        named = interrupt["metadata"]["tailrace"]
        decision = {"approval_id": named["approvalId"], "decision": "once"}
        status, _ = await server.json("POST", f"/runs/{named['runId']}/approval", decision)
        await server.app.agents.finished(named["runId"])
        late = {"interruptId": interrupt["id"], "status": "cancelled"}  # too late: the launch was allowed
        screen.show(await run(server, asked(*screen.messages, resume=[late])))
    assert status == 200
    assert screen.said()[-2:] == [("tool", "launched Apollo"), ("assistant", "Done.")]


async def test_nobody_answers_in_time(tmp_path: Path) -> None:
    config = "approvals: {timeout_s: 0.05}\n"
    async with running_server(tmp_path, *LAUNCH, reply("Fine."), tools=(Launch(),), config=config) as server:
        screen = Screen([user("Launch!")])
        interrupt = await interrupted(server, screen)
        await server.app.agents.finished(interrupt["metadata"]["tailrace"]["runId"])
        late = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        events = await run(server, asked(*screen.messages, resume=[late]))
        screen.show(events)
        screen.messages.append(user("Never mind."))
        more = await run(server, asked(*screen.messages, resume=[late]))  # a client that still thinks it is open
    result = next(event for event in events if event["type"] == "TOOL_CALL_RESULT")
    assert result["metadata"]["tailrace"]["notExecuted"] == "no_answer"
    assert text(events) == "Done."
    assert text(more) == "Fine."


async def test_the_request_that_answers_may_have_the_first_ones_run_id(tmp_path: Path) -> None:
    async with running_server(tmp_path, *LAUNCH, reply("Fine."), tools=(Launch(),)) as server:
        screen = Screen([user("Launch!")])
        first = await run(server, asked(*screen.messages, run="same"))
        answer = {"interruptId": first[-1]["outcome"]["interrupts"][0]["id"], "status": "resolved", "payload": True}
        screen.show(first)
        screen.show(await run(server, asked(*screen.messages, run="same", resume=[answer])))
        screen.messages.append(user("Thanks."))
        body = asked(*screen.messages, resume=[answer])  # stale: the run has ended
        thanked = await run(server, body)
        again = await run(server, {**body, "messages": screen.show(thanked).messages})
    assert text(thanked) == "Fine."
    assert screen.show(again).said()[-4:] == [
        ("tool", "launched Apollo"),
        ("assistant", "Done."),
        ("user", "Thanks."),
        ("assistant", "Fine."),
    ]


async def test_a_new_message_takes_the_place_of_an_approval_that_is_denied(tmp_path: Path) -> None:
    async with running_server(tmp_path, *LAUNCH[:1], reply("Landed."), tools=(Launch(),)) as server:
        screen = Screen([user("Launch!")])
        interrupt = await interrupted(server, screen)
        screen.messages.append(user("No, land."))
        allowed = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        both = await refused(server, asked(*screen.messages, resume=[allowed]))
        denied = {"interruptId": interrupt["id"], "status": "cancelled"}
        events = await run(server, asked(*screen.messages, resume=[denied]))
        _, before = await server.json("GET", f"/runs/{interrupt['metadata']['tailrace']['runId']}")
    assert both[0] == 400
    assert "send the new message after" in both[1]
    assert text(events) == "Landed."
    assert before["status"] in ("stopped", "completed")
    assert "launched" not in str(before)


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_provider_that_fails_is_a_run_error(tmp_path: Path) -> None:
    async with running_server(tmp_path, *["status-500"] * 3, reply("Back.")) as server:
        screen = Screen([user("Well?")])
        events = await run(server, asked(*screen.messages))
        screen.show(events).messages.append(user("And now?"))
        more = await run(server, asked(*screen.messages))
    assert text(more) == "Back."
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["message"]
    assert events[-1]["metadata"]["tailrace"]["status"] == "failed"


async def test_a_page_instead_of_an_answer_has_a_code_that_clients_know(tmp_path: Path) -> None:
    """`retryable` is our own word. The APIs of `/v1` have the same code for it."""
    async with running_server(tmp_path, *["html"] * 9) as server:
        events = await run(server, asked(user("Well?")))
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "bad_gateway")
    assert "text/html" in events[-1]["message"]


async def test_a_run_is_stopped_by_its_id(tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, config="call: {idle_timeout_s: 600}\n") as server:
        seen: list[JsonObject] = []
        async for event in stream(server, asked(user("Count."))):
            seen.append(event)
            if event["type"] == "TEXT_MESSAGE_CONTENT" and len(seen) < 10:
                await server.json("POST", f"/runs/{seen[0]['metadata']['tailrace']['runId']}/stop")
    assert seen[-1]["type"] == "RUN_FINISHED"
    assert seen[-1]["outcome"] == {"type": "cancelled"}


async def test_a_closed_connection_stops_nothing_and_the_same_run_id_goes_on(tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, reply(TEXT), config="call: {idle_timeout_s: 600}\n") as server:
        question = user("Count.")
        seen: list[JsonObject] = []
        body = asked(question, run="r1")
        async for event in stream(server, body):
            seen.append(event)
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                break
        screen = Screen([question]).show(seen)
        partial = screen.messages[-1]["content"]
        run_id = seen[0]["metadata"]["tailrace"]["runId"]
        _, state = await server.json("GET", f"/runs/{run_id}")
        await server.app.agents.stop(run_id)
        whole = await run(server, body)
        rest = await run(server, body, **{"Last-Event-ID": seen[-1]["sse_id"]})
        again = await run(server, asked(*screen.messages, run="r1"))
        nothing = await run(server, body, **{"Last-Event-ID": whole[-1]["sse_id"]})
        ahead = await refused(server, body, **{"Last-Event-ID": "999.0"})
        odd = await refused(server, body, **{"Last-Event-ID": "7"})
        fresh = await run(server, asked(question, user("Go on.")), **{"Last-Event-ID": "999.0"})  # of another run
        asks = len(server.provider.requests)
    assert state["status"] == "running"
    assert seen + rest == whole
    assert nothing == []
    assert asks == 2
    assert fresh[0]["type"] == "RUN_STARTED"
    assert [event for event in again if event["type"] != "MESSAGES_SNAPSHOT"] == whole
    assert partial
    assert screen.show(again).said() == [("user", "Count."), ("assistant", text(whole))]
    assert (ahead[0], odd[0]) == (409, 400)


async def test_a_stream_that_breaks_goes_on_without_a_seam(tmp_path: Path) -> None:
    cut = Scenario(reply=reply(TEXT), broken=Break("cut", Offset(60, per_cent=True)))
    async with running_server(tmp_path, cut, reply(TEXT)) as server:
        question = user("Count.")
        events = await run(server, asked(question))
        _, runs = await server.json("GET", "/runs")
    assert Screen([question]).show(events).said()[1:] == [("assistant", runs["data"][0]["output"])]
    assert [event["value"]["number"] for event in events if event.get("name") == "tailrace.attempt"] == [2]
