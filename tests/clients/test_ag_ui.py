"""`/ag-ui` judged by AG-UI's own client: its schemas, its verifier of the order of events, its list of messages."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from clients.installed import client_environment
from clients.node_driver import NodeDriver, node_driver
from server.dialect_api import WATER_LEVEL
from server.http_server import running_server
from server.routes.test_runs import STALLED, Launch
from tailrace.testing.provider import Break, FaultyProvider, Offset, Scenario, call, reply, think

TEXT = "One two three four five six seven eight nine ten"
WAIT = "call: {idle_timeout_s: 600}\n"
RETURNED = """
  return {said: agent.said(), types: agent.seen.map((event) => event.type), last: agent.seen.at(-1), complaints};
"""
LAUNCH = (reply("I launch it.", call("launch", {"what": "Apollo"})), reply("Done."), reply("Fine."))
ALLOWED = ["user", "Launch!", 0], ["assistant", "I launch it.", 1], ["tool", "launched Apollo", 0]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    with node_driver(tmp_path_factory.mktemp("driver"), "ag_ui.mjs") as running:
        yield running


async def test_several_turns_with_thoughts_our_tools_and_the_pages_own(driver: NodeDriver, tmp_path: Path) -> None:
    script = (
        reply(think("Hm."), "Let me see.", call("water_level", {"river": "Elbe"}), call("pick", {"of": "sky"})),
        reply("3.2 m, and blue."),
        reply(think("Easy."), "I said so."),
    )
    async with running_server(tmp_path, *script, tools=(WATER_LEVEL,)) as server:
        shown = await driver.run(
            server.url,
            """
              const agent = newAgent({threadId: "thread/ä 1", initialState: {page: 1}});
              const options = {
                tools: [{name: "pick", description: "Pick a colour.", parameters: {type: "object"}}],
                context: [{description: "Name", value: "Ann"}],
                forwardedProps: {reasoning: true},
              };
              let pending;
              agent.subscribe({onRunFinishedEvent: ({pendingToolCallIds}) => { pending = pendingToolCallIds; }});
              await agent.say("How high is the Elbe?", options);
              const [toolCallId] = pending;
              agent.addMessage({id: "picked", role: "tool", toolCallId, content: "blue"});
              await agent.runAgent(options);
              await agent.say("Sure?", options);
            """
            + RETURNED,
        )
        asked = [message["role"] for message in server.provider.requests[-1].json()["messages"]]
        _, runs = await server.json("GET", "/runs", params={"session": "thread/ä 1"})
    assert shown["complaints"] == []
    assert shown["said"] == [
        ["user", "How high is the Elbe?", 0],
        ["reasoning", "Hm.", 0],
        ["assistant", "Let me see.", 2],
        ["tool", "Elbe is at 3.2 m", 0],
        ["tool", "blue", 0],
        ["assistant", "3.2 m, and blue.", 0],
        ["user", "Sure?", 0],
        ["reasoning", "Easy.", 0],
        ["assistant", "I said so.", 0],
    ]
    assert asked[1:] == ["user", "assistant", "tool", "tool", "assistant", "user"], "the history is not told twice"
    assert len(runs["data"]) == 3


async def test_a_call_that_breaks_off_is_made_anew(driver: NodeDriver, tmp_path: Path) -> None:
    """Arguments come in pieces. The client hears of a new call when it is whole, and only then."""
    broken = Scenario(
        reply=reply("Let me see.", call("pick", {"of": "x" * 200})), broken=Break("cut", Offset(70, per_cent=True))
    )
    script = (broken, reply("Let me see.", call("pick", {"of": "sky"})), reply("Blue."))
    async with running_server(tmp_path, *script) as server:
        shown = await driver.run(
            server.url,
            """
              const agent = newAgent();
              const options = {tools: [{name: "pick", description: "Pick a colour.", parameters: {type: "object"}}]};
              const called = [];
              let pending;
              agent.subscribe({
                onNewToolCall: ({toolCall}) => { called.push(toolCall.function.arguments); },
                onRunFinishedEvent: ({pendingToolCallIds}) => { pending = pendingToolCallIds; },
              });
              await agent.say("Which colour?", options);
              const pieces = agent.seen.filter((event) => event.type === "TOOL_CALL_ARGS").map((event) => event.delta);
              agent.addMessage({id: "picked", role: "tool", toolCallId: pending[0], content: "blue"});
              await agent.runAgent(options);
              return {said: agent.said(), called, pieces, complaints};
            """,
        )
        told = server.provider.requests[-1].json()["messages"][1:]
    assert "xxx" in "".join(shown["pieces"])
    assert shown["called"] == ['{"of":"sky"}']
    assert shown["said"][1:] == [["assistant", "Let me see.", 1], ["tool", "blue", 0], ["assistant", "Blue.", 0]]
    assert [complaint for complaint in shown["complaints"] if "TOOL_CALL_END" not in complaint] == []
    assert [message["role"] for message in told] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ('{status: "resolved", payload: {approved: true}}', "launched Apollo"),
        ('{status: "cancelled"}', "Not executed: denied by the user."),
    ],
)
async def test_an_approval_answered_by_the_next_request(
    driver: NodeDriver, tmp_path: Path, answer: str, result: str
) -> None:
    async with running_server(tmp_path, *LAUNCH, tools=(Launch(),)) as server:
        shown = await driver.run(
            server.url,
            f"""
              const agent = newAgent();
              await agent.say("Launch!");
              const [interrupt] = agent.pendingInterrupts;
              const before = agent.said();
              await agent.runAgent({{resume: buildResumeArray([interrupt], {{[interrupt.id]: {answer}}})}});
              const open = agent.pendingInterrupts;
              await agent.say("Thanks.");
              return {{interrupt, before, open, said: agent.said(), complaints}};
            """,
        )
    assert shown["complaints"] == []
    assert shown["interrupt"]["message"] == "Allow launch? launch it (acts outside this machine)"
    assert shown["open"] == []
    assert shown["before"] == [*ALLOWED[:2]]
    assert shown["said"][2:] == [
        ["tool", result, 0],
        *(["assistant", "Done.", 0], ["user", "Thanks.", 0], ["assistant", "Fine.", 0]),
    ]


async def test_an_approval_answered_elsewhere_and_one_that_nobody_answers(driver: NodeDriver, tmp_path: Path) -> None:
    script = (*LAUNCH[:2], *LAUNCH)
    config = "approvals: {timeout_s: 3}\n"
    async with running_server(tmp_path, *script, tools=(Launch(),), config=config) as server:
        shown = await driver.run(
            server.url,
            """
              const answered = newAgent(), late = newAgent();
              for (const agent of [answered, late]) {
                await agent.say("Launch!");
                const {runId, approvalId} = agent.pendingInterrupts[0].metadata.tailrace;
                const decision = {approval_id: approvalId, decision: "once"};
                if (agent === answered) await post(`${url}/runs/${runId}/approval`, decision);
                await (await fetch(`${url}/runs/${runId}/stream`)).text(); // to its end
                const status = agent === answered ? "resolved" : "cancelled"; // the client refuses to answer too late
                const resume = [{interruptId: agent.pendingInterrupts[0].id, status, payload: true}];
                await agent.runAgent({resume});
              }
              await late.say("Never mind.");
              return {answered: answered.said(), late: late.said(), complaints};
            """,
        )
    assert shown["complaints"] == []
    assert shown["answered"] == [*ALLOWED, ["assistant", "Done.", 0]]
    assert shown["late"][2][1].startswith("Not executed: it needs an approval, and no answer came")
    assert shown["late"][3:] == [["assistant", "Done.", 0], ["user", "Never mind.", 0], ["assistant", "Fine.", 0]]


async def test_a_stop_a_provider_that_fails_and_what_is_refused(driver: NodeDriver, tmp_path: Path) -> None:
    async with running_server(tmp_path, STALLED, *["status-500"] * 3, reply("Back."), config=WAIT) as server:
        shown = await driver.run(
            server.url,
            """
              const agent = newAgent();
              const running = agent.say("Count.");
              await agent.event((event) => event.type === "TEXT_MESSAGE_CONTENT");
              await post(`${url}/runs/${agent.durableRun()}/stop`);
              await running;
              const stopped = agent.seen.at(-1);
              await agent.say("Again.");
              const failed = agent.seen.at(-1);
              const quiet = [...complaints];
              const refusal = await agent.say([{type: "audio", source: {type: "data", value: "", mimeType: "a/b"}}])
                .catch((error) => ({status: error.status, message: error.payload.error.message}));
              agent.messages.pop();
              await agent.say("And now?");
              return {stopped, failed, refusal, said: agent.said(), quiet};
            """,
        )
    assert shown["quiet"] == []
    assert shown["stopped"]["outcome"] == {"type": "cancelled"}
    assert (shown["failed"]["type"], bool(shown["failed"]["message"])) == ("RUN_ERROR", True)
    assert shown["refusal"]["status"] == 400
    assert "messages[3].content[0]" in shown["refusal"]["message"]
    assert "audio" in shown["refusal"]["message"]
    assert shown["said"][-1] == ["assistant", "Back.", 0]


async def test_a_connection_that_is_lost_in_the_middle(driver: NodeDriver, tmp_path: Path) -> None:
    """The same `runId` again, with the half answer in the list; a page that knows nothing; nothing lost or doubled."""
    paced = Scenario(reply=reply(think("Hm. Hm. Hm."), TEXT), pace_s=0.02)
    async with running_server(tmp_path, paced, tools=()) as server:
        shown = await driver.run(
            server.url,
            """
              const agent = newAgent({threadId: "t"}), options = {runId: "r1", forwardedProps: {reasoning: true}};
              const running = agent.say("Count.", options);
              await agent.event((event) => event.type === "TEXT_MESSAGE_CONTENT");
              agent.abortRun();
              await running;
              const half = agent.said();
              const other = newAgent({threadId: "t"});
              await Promise.all([agent.runAgent(options), other.runAgent({forwardedProps: {reasoning: true}})]);
              return {half, said: agent.said(), other: other.said(), complaints};
            """,
        )
        asks = len(server.provider.requests)
    whole = [["user", "Count.", 0], ["reasoning", "Hm. Hm. Hm.", 0], ["assistant", TEXT, 0]]
    assert shown["complaints"] == []
    assert shown["half"][-1][0] == "assistant"
    assert shown["half"] != whole
    assert sorted(shown["said"]) == sorted(shown["other"]) == sorted(whole)
    assert asks == 1


@contextmanager
def served(home: Path, port: int) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "tailrace", "serve", "--port", str(port)]
    environment = {**client_environment(home, {}), "TAILRACE_HOME": str(home)}
    with subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline().decode())
            assert found
            yield found[0], process
        finally:
            process.kill()


async def test_a_server_that_is_killed_in_the_middle(driver: NodeDriver, tmp_path: Path) -> None:
    """Another server on the same journal goes on with the run, and the same request with the answer. The call that was
    being written is gone."""
    written = reply(TEXT, call("read_file", {"path": "x" * 400}))
    stalled = Scenario(reply=written, broken=Break("stall", Offset(80, per_cent=True)))
    async with FaultyProvider(script=(stalled, reply(" and so on."))) as provider:
        settings: dict[str, Any] = {
            "model": {"provider": "faulty", "name": "ok"},
            "providers": {"faulty": {"base_url": provider.openai_url, "dialect": "chat"}},
            "call": {"idle_timeout_s": 600},
        }
        (tmp_path / "config.yaml").write_bytes(msgspec.json.encode(settings))  # JSON is YAML
        with served(tmp_path, 0) as (url, process):
            half = await driver.run(
                url,
                """
                  const agent = newAgent({name: "killed", threadId: "t"});
                  agent.running = agent.say("Count.", {runId: "r1"}).catch((error) => String(error));
                  await agent.event((event) => event.type === "TOOL_CALL_ARGS" && event.delta.includes("xx"));
                  return agent.said();
                """,
            )
            process.send_signal(signal.SIGKILL)
            process.wait()
        with served(tmp_path, int(url.rpartition(":")[2])) as (again, _):
            assert again == url
            shown = await driver.run(
                url,
                """
                  const agent = agents.get("killed");
                  const failure = await agent.running;
                  const half = agent.said();
                  complaints.length = 0;
                  await agent.runAgent({runId: "r1"});
                  return {failure, half, said: agent.said(), run: agent.durableRun(), complaints};
                """,
            )
            async with aiohttp.ClientSession() as client, client.get(f"{url}/runs/{shown['run']}") as response:
                state = await response.json()
        asks = len(provider.requests)
    assert half[-1][0] == shown["half"][-1][0] == "assistant"
    assert "terminated" in shown["failure"]
    assert [complaint for complaint in shown["complaints"] if "TOOL_CALL_END" not in complaint] == []
    assert shown["said"] == [["user", "Count.", 0], ["assistant", state["output"], 0]]
    assert state["output"].startswith(shown["half"][-1][1])
    assert asks == 2
