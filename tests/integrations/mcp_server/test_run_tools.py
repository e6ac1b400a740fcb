"""`tailrace mcp` with the official SDK's client as the host, over real pipes, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra is not installed")

from mcp import MCPError
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult, TextResourceContents

from integrations.mcp_server.mcp_host import COMMAND, Report, call, environment_of, host_of, write_config
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.messages import user
from tailrace.testing.provider import FaultyProvider, Reply, reply
from tailrace.testing.provider import call as tool_call
from tools.tool_context import is_alive

ANSWER = "The wheel turns."
ERAS = ["auto", "legacy"]
LONGEST_S = 30
DANGEROUS = {"command": "rm -rf ./mill"}


class Progress:
    """The progress notifications of one call."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.messages: list[str] = []
        self._came = asyncio.Condition()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        async with self._came:
            self.at.append(progress)
            self.messages.append(message or "")
            self._came.notify_all()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(LONGEST_S), self._came:
            await self._came.wait_for(lambda: any(text in message for message in self.messages))


def turn(*answers: Reply) -> FaultyProvider:
    return FaultyProvider(turns={"turn": answers or (reply(ANSWER),)})


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_starts_runs_watches_and_lists_them(tmp_path: Path, era: str) -> None:
    looked = tool_call("terminal", {"command": "echo 7 turns"})
    async with turn(reply("Let me look.", looked), reply(ANSWER)) as provider:
        write_config(tmp_path, provider)
        async with host_of(tmp_path, mode=era) as host:
            tools = {tool.name: tool for tool in (await host.list_tools()).tools}
            assert set(tools) == {"start_run", "watch_run", "stop_run", "steer_run", "answer_approval", "list_runs"}
            assert tools["start_run"].input_schema["required"] == ["question"]
            assert all(tool.output_schema and tool.output_schema["type"] == "object" for tool in tools.values())
            assert [name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint] == [
                "watch_run",
                "list_runs",
            ]
            progress = Progress()
            result = await host.call_tool(
                "start_run", {"question": "Does it turn?", "session": "mill"}, progress_callback=progress
            )
            started = Report(result)
            assert (started.text, started.is_error) == (ANSWER, False)
            assert (started["status"], started["answer"], started["session"]) == ("completed", ANSWER, "mill")
            assert started["text"] == f"Let me look.\n\n{ANSWER}"
            assert [(tool["name"], tool["ok"]) for tool in started["tools"]] == [("terminal", True)]
            assert progress.at == sorted(set(progress.at))
            assert progress.messages

            run_id = started["run_id"]
            again = await call(host, "watch_run", run_id=run_id)
            assert (again.text, again["text"], again["seq"]) == (ANSWER, started["text"], started["seq"])
            nothing_new = await call(host, "watch_run", run_id=run_id, after=started["seq"])
            assert (nothing_new["text"], nothing_new["answer"]) == (None, ANSWER)
            listed = await call(host, "list_runs", session="mill")
            assert [(run["run_id"], run["status"], run["question"]) for run in listed["runs"]] == [
                (run_id, "completed", "Does it turn?")
            ]
            assert (await call(host, "list_runs", unfinished=True)).text == "there are no runs"

            (resource,) = (await host.list_resources()).resources
            assert (resource.uri, resource.title) == (f"tailrace://runs/{run_id}", "Does it turn?")
            (template,) = (await host.list_resource_templates()).resource_templates
            assert template.uri_template == "tailrace://runs/{run_id}"
            (content,) = (await host.read_resource(resource.uri)).contents
            assert isinstance(content, TextResourceContents)
            assert content.text.startswith("> Does it turn?\n\nLet me look.")
            assert [content.text.count(said) for said in ("Let me look.", ANSWER)] == [1, 1]
            with pytest.raises(MCPError, match="cannot be read"):
                await host.read_resource("tailrace://runs/none")


async def test_mistakes_are_results_that_a_model_can_act_on(tmp_path: Path) -> None:
    async with turn() as provider:
        write_config(tmp_path, provider)
        async with host_of(tmp_path) as host:
            mistakes = [
                ("watch_run", {"run_id": "run_none"}, "list_runs lists those that there are"),
                ("stop_run", {"run_id": "run_none"}, "list_runs lists those that there are"),
                ("start_run", {"question": " "}, "question is empty"),
                ("start_run", {"question": "?", "model": "nobody/x"}, "no such provider; there are"),
                ("start_run", {"question": "?", "modle": "x"}, "there is no field 'modle'; there are model, question"),
                ("start_run", {}, "question: is missing"),
                ("no_such_tool", {}, "there are: start_run, watch_run"),
            ]
            for tool, arguments, why in mistakes:
                failed = await call(host, tool, **arguments)
                assert (failed.is_error, failed.value) == (True, None)
                assert why in failed.text
            done = await call(host, "start_run", question="Does it turn?")
            ahead = await call(host, "watch_run", run_id=done["run_id"], after=10_000)
            assert (ahead.is_error, "0 gives all of it" in ahead.text) == (True, True)
            late = await call(host, "answer_approval", run_id=done["run_id"], approval_id="x", decision="once")
            assert (late.is_error, "has ended: completed" in late.text) == (True, True)


async def test_a_failed_run_is_an_error_that_says_why(tmp_path: Path) -> None:
    async with FaultyProvider(script=["status-401"]) as provider:
        write_config(tmp_path, provider)
        async with host_of(tmp_path) as host:
            failed = await call(host, "start_run", question="?")
    assert (failed.is_error, failed["status"]) == (True, "failed")
    assert "Incorrect API key" in failed.text
    assert failed["error"]["message"] in failed.text


async def test_a_run_that_is_not_waited_for_is_watched_and_stopped(tmp_path: Path) -> None:
    async with FaultyProvider(script=["long+stall@50%"]) as provider:
        write_config(tmp_path, provider)
        async with host_of(tmp_path) as host:
            started = await call(host, "start_run", question="?", wait_s=0)
            assert (started["status"], started.is_error) == ("running", False)
            run_id = started["run_id"]
            assert f"watch_run with after={started['seq']}" in started.text
            progress = Progress()
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(
                    host.call_tool("watch_run", {"run_id": run_id}, progress_callback=progress)
                )
                await progress.until("word")
                stopped = await call(host, "stop_run", run_id=run_id)
            watched = Report(watching.result())
            asked = await provider.request()
            await asked.over.wait()
    assert (stopped["status"], stopped.is_error) == ("stopped", False)
    assert (watched["status"], watched["answer"]) == ("stopped", stopped["answer"])
    assert len(stopped["answer"]) > 100
    assert asked.disconnected_at is not None


async def test_a_run_that_works_takes_a_message(tmp_path: Path) -> None:
    async with FaultyProvider(script=["long+stall@50%"]) as provider:
        write_config(tmp_path, provider)
        async with host_of(tmp_path) as host:
            started = await call(host, "start_run", question="?", wait_s=0)
            given = await call(host, "steer_run", run_id=started["run_id"], message="Also count.")
            await call(host, "stop_run", run_id=started["run_id"])
            late = await call(host, "steer_run", run_id=started["run_id"], message="Too late.")
    assert given["steer_id"].startswith("steer_")
    assert late.is_error
    assert "has ended" in late.text


async def test_J110_the_turn_of_another_requester_takes_no_message(tmp_path: Path) -> None:
    async with FaultyProvider(script=["long+stall@50%"]) as provider:
        write_config(tmp_path, provider)
        async with open_app(load({}, tmp_path), directory=tmp_path) as app, host_of(tmp_path) as host:
            run = await app.agents.submit(TurnSpec(user("?"), requester="terminal", yolo=True))
            refused = await call(host, "steer_run", run_id=run.id, message="Delete all.")
            kept = await app.steering.list(run.id)
    assert refused.is_error
    assert "another requester" in refused.text
    assert kept == ()


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────


def mill(home: Path) -> Path:
    directory = home / "work" / "mill"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.mark.parametrize("era", ERAS)
async def test_the_person_at_the_host_is_asked(tmp_path: Path, era: str) -> None:
    asked: list[str] = []
    answers = {
        "once": ElicitResult(action="accept", content={"decision": "once"}),
        "deny": ElicitResult(action="accept", content={"decision": "deny"}),
        "closed": ElicitResult(action="cancel"),
    }
    given: list[ElicitResult] = []

    async def ask(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        assert params.requested_schema["properties"]["decision"]["enum"] == ["once", "session", "always", "deny"]
        asked.append(params.message)
        return given.pop()

    async with turn(reply(tool_call("terminal", DANGEROUS)), reply(ANSWER)) as provider:
        write_config(tmp_path, provider)
        async with host_of(tmp_path, mode=era, elicitation_callback=ask) as host:
            for decision, answer in answers.items():
                given.append(answer)
                directory = mill(tmp_path)
                done = await call(host, "start_run", question="?")
                assert DANGEROUS["command"] in asked[-1]
                assert str(tmp_path / "work") in asked[-1]
                assert (done["status"], done["answer"]) == ("completed", ANSWER)
                assert directory.exists() == (decision != "once")
                if decision != "once":
                    assert done["not_executed"][0]["command"].startswith("rm -rf")
                    assert "Not executed: rm -rf" in done.text
            assert len((await call(host, "list_runs"))["runs"]) == len(asked) == 3


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_that_cannot_ask_gets_the_question(tmp_path: Path, era: str) -> None:
    async with turn(reply(tool_call("terminal", DANGEROUS)), reply(ANSWER)) as provider:
        write_config(tmp_path, provider)
        directory = mill(tmp_path)
        async with host_of(tmp_path, mode=era) as host:
            waits = await call(host, "start_run", question="?")
            assert (waits["status"], waits.is_error) == ("waiting_for_approval", False)
            (approval,) = waits["approvals"]
            assert (approval["tool"], approval["command"]) == ("terminal", DANGEROUS["command"])
            assert approval["command"] in waits.text
            which = {"run_id": waits["run_id"], "approval_id": approval["approval_id"]}
            wrong = await call(host, "answer_approval", **{**which, "approval_id": "none"}, decision="once")
            assert (wrong.is_error, approval["approval_id"] in wrong.text) == (True, True)
            vague = await call(host, "answer_approval", **which, decision="perhaps")
            assert vague.is_error
            assert vague.text.endswith("decision: must be one of always, deny, once, session, not 'perhaps'")
            answered = await call(host, "answer_approval", **which, decision="once")
            assert answered["approvals"] is None
            done = await call(host, "watch_run", run_id=waits["run_id"], after=waits["seq"])
    assert (done["status"], done["answer"], directory.exists()) == ("completed", ANSWER, False)


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_approval_of_a_run_that_began_elsewhere_is_awaited(tmp_path: Path) -> None:
    (tmp_path / "work/mill").mkdir(parents=True)
    async with turn(reply(tool_call("terminal", DANGEROUS)), reply(ANSWER)) as provider:
        write_config(tmp_path, provider)
        async with open_app(load({"TAILRACE_HOME": str(tmp_path)})) as app, host_of(tmp_path) as host:
            spec = TurnSpec(user("?"), directory=str(tmp_path / "work"), requester="chat", reachable=True)
            run = await app.agents.submit(spec)
            waiting = await call(host, "watch_run", run_id=run.id, wait_s=0)
            while waiting["status"] != "waiting_for_approval":
                waiting = await call(host, "watch_run", run_id=run.id, wait_s=0.2)
            (approval,) = waiting["approvals"]
            assert (approval["elsewhere"], "the user answers there" in waiting.text) == (True, True)
            assert "call answer_approval" not in waiting.text
            rest = asyncio.create_task(call(host, "watch_run", run_id=run.id))
            await call(host, "list_runs")  # the watch is under way
            assert not rest.done()
            await app.agents.answer(run.id, approval["approval_id"], "deny", by="chat")
            async with asyncio.timeout(LONGEST_S):
                assert (await rest)["status"] == "completed"


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_stops_its_run_and_one_that_timed_out_does_not(tmp_path: Path, era: str) -> None:
    async with FaultyProvider(script=["long+stall@50%", "long+stall@50%"]) as provider:
        write_config(tmp_path, provider)
        async with host_of(tmp_path, mode=era) as host:
            progress = Progress()
            cancelled = asyncio.create_task(
                host.call_tool("start_run", {"question": "?", "session": "cancelled"}, progress_callback=progress)
            )
            await progress.until("word")
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            (run,) = (await call(host, "list_runs", session="cancelled"))["runs"]
            ended = await call(host, "watch_run", run_id=run["run_id"])
            assert ended["status"] == "stopped"

            with pytest.raises(MCPError, match="timed out"):
                await host.call_tool("start_run", {"question": "?", "session": "slow"}, read_timeout_seconds=1)
            (run,) = (await call(host, "list_runs", session="slow"))["runs"]
            goes_on = await call(host, "watch_run", run_id=run["run_id"], wait_s=0.2)
            assert goes_on["status"] == "running"


def processes_below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in children.read_text().split() if is_alive(int(child))]


async def test_after_a_kill_the_next_process_goes_on_with_the_run(tmp_path: Path) -> None:
    """Nothing is lost and nothing doubled: the text that was shown before the kill is the beginning of the answer."""
    async with FaultyProvider(script=["long+stall@50%"]) as provider:
        write_config(tmp_path, provider)
        before = set(processes_below(os.getpid()))
        progress = Progress()
        async with host_of(tmp_path) as host:
            (server,) = set(processes_below(os.getpid())) - before
            starting = asyncio.create_task(host.call_tool("start_run", {"question": "?"}, progress_callback=progress))
            await progress.until("word")
            (run,) = (await call(host, "list_runs"))["runs"]
            shown = await call(host, "watch_run", run_id=run["run_id"], wait_s=0)
            os.kill(server, signal.SIGKILL)
            with pytest.raises(MCPError):
                await starting
        provider.extend("long")
        async with host_of(tmp_path) as host:
            rest = await call(host, "watch_run", run_id=run["run_id"], after=shown["seq"])
            whole = await call(host, "watch_run", run_id=run["run_id"])
    assert (rest["status"], rest["replaces"], whole["status"]) == ("completed", None, "completed")
    assert shown["text"]
    assert shown["text"] + (rest["text"] or "") == whole["answer"]


async def test_nothing_but_the_protocol_on_stdout_and_junk_is_answered(tmp_path: Path) -> None:
    """The end of stdin ends it, and a run under way is left for the next process."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    start = {"name": "start_run", "arguments": {"question": "?", "wait_s": 0}}
    lines: list[Any] = [
        b"hello?",
        b"[]",
        b"",
        b'\xff\xfe{"jsonrpc"',
        {"jsonrpc": "2.0", "id": "odd"},
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        b"{" * 100_000,
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": start},
    ]
    async with FaultyProvider(script=["long+stall@50%"]) as provider:
        write_config(tmp_path, provider)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *COMMAND),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment_of(tmp_path),
            cwd=tmp_path,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for line in lines:
            process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        answers = [json.loads(await process.stdout.readline()) for _ in range(7)]
        await provider.request()
        process.stdin.close()
        async with asyncio.timeout(LONGEST_S):
            rest, _ = await process.communicate()
        assert (process.returncode, rest) == (0, b"")
        refused = [(answer["id"], answer["error"]["code"]) for answer in answers if "error" in answer]
        assert sorted(refused, key=str) == sorted(
            [(None, -32700), (None, -32600), (None, -32700), ("odd", -32600), (None, -32700)], key=str
        )
        (run_id,) = (a["result"]["structuredContent"]["run_id"] for a in answers if a.get("id") == 2)
        listed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tailrace", "runs", "--unfinished", "--json"),
            stdout=asyncio.subprocess.PIPE,
            env=environment_of(tmp_path),
        )
        out, _ = await listed.communicate()
        assert [(run["id"], run["state"]) for run in map(json.loads, out.splitlines())] == [(run_id, "pending")]


async def test_a_signal_ends_it_while_the_host_says_nothing(tmp_path: Path) -> None:
    async with turn() as provider:
        write_config(tmp_path, provider)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *COMMAND),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment_of(tmp_path),
            cwd=tmp_path,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"junk\n")
        await process.stdout.readline()  # it serves
        process.terminate()
        async with asyncio.timeout(LONGEST_S):
            assert await process.wait() == 0
        process.stdin.close()
        await process.stdout.read()


async def test_an_agent_that_is_its_own_server_does_not_start_without_end(tmp_path: Path) -> None:
    """The agent may use another `tailrace mcp`, which finds itself among its servers and is refused a third."""
    itself = {"command": [sys.executable, *COMMAND], "env_allow": ["TAILRACE_HOME"], "timeout_s": 120}
    async with turn() as provider:
        write_config(tmp_path, provider, {"mcp": {"servers": {"again": itself}}})
        async with host_of(tmp_path) as host:
            assert (await call(host, "start_run", question="?"))["answer"] == ANSWER
    assert [name for name in provider.requests[0].json()["tools"] if name["function"]["name"] == "again__start_run"]
