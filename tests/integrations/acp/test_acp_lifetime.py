"""Requests beside each other, taken back and left behind; and what a loaded session has of forks and branches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from integrations.acp.acp_editor import model_calls, write_config
from integrations.acp.editor_in_process import EditorChannel, RefusedRequest, agent_in_process, result_of
from tailrace.agent.fork import ForkRequest
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App
from tailrace.config.load import load
from tailrace.events import RunFinished
from tailrace.integrations.acp.serve import serve_channel
from tailrace.messages import user
from tailrace.ports import NewRun, Run
from tailrace.testing.clock import driven
from tailrace.testing.provider import FaultyProvider, call, reply

TURNS = {
    "short": [reply("Short.")],
    "removes": [reply("Removing.", call("terminal", {"command": "rm -rf doomed"})), reply("That is that.")],
    "long": [reply(" ".join(f"word{number}" for number in range(200)))],
}


@driven
async def test_a_cancel_takes_no_time_of_ours(tmp_path: Path) -> None:
    """Within a second, also upstream: nothing on the way waits for a timer."""
    async with FaultyProvider(turns=TURNS) as provider, agent_in_process(tmp_path, provider) as agent:
        session = await agent.session("long+stall@50%")
        turn = agent.prompt(1, session)
        await agent.channel.until("session/update", "word9")
        request = model_calls(provider)[-1]
        loop = asyncio.get_running_loop()
        began = loop.time()
        agent.channel.notify("session/cancel", sessionId=session)
        assert result_of(await turn)["stopReason"] == "cancelled"
        await request.over.wait()
        assert loop.time() - began < 0.5
        assert request.disconnected_at is not None


@driven
async def test_two_prompts_come_one_after_the_other_and_one_can_be_taken_back(tmp_path: Path) -> None:
    async with FaultyProvider(turns=TURNS) as provider, agent_in_process(tmp_path, provider) as agent:
        session = await agent.session("long+stall@50%")
        first = agent.prompt(1, session)
        await agent.channel.until("session/update", "word9")
        second, third = agent.prompt(2, session), agent.prompt(3, session, "The third.")
        agent.channel.notify("$/cancel_request", requestId=2)
        agent.channel.notify("$/cancel_request", requestId="no such request")
        assert result_of(await second)["stopReason"] == "cancelled"
        assert not first.done()
        await agent.channel.request(
            "session/set_config_option", sessionId=session, configId="model", value="test/short"
        )
        agent.channel.notify("$/cancel_request", requestId=1)
        assert result_of(await first)["stopReason"] == "cancelled"
        assert result_of(await third)["stopReason"] == "end_turn"
        questions = [each["content"] for each in model_calls(provider)[-1].json()["messages"] if each["role"] == "user"]
        assert questions == ["Go on.", "The third."]


@driven
async def test_a_question_that_is_answered_elsewhere_is_taken_back(tmp_path: Path) -> None:
    (tmp_path / "doomed").mkdir()
    async with FaultyProvider(turns=TURNS) as provider, agent_in_process(tmp_path, provider) as agent:
        session = await agent.session("removes")
        turn = agent.prompt(1, session)
        asked = await agent.channel.until("session/request_permission")
        (run,) = await agent.app.journal.runs(session=session)
        facts = await agent.app.journal.facts(run.id)
        (approval,) = [fact.event.approval_id for fact in facts if hasattr(fact.event, "approval_id")]
        await agent.app.agents.answer(run.id, approval, "deny", by="editor")
        taken_back = await agent.channel.until("$/cancel_request")
        assert taken_back["params"] == {"requestId": asked["id"]}
        agent.channel.say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32800, "message": "cancelled"}})
        assert result_of(await turn)["stopReason"] == "end_turn"
        assert (tmp_path / "doomed").exists()


@driven
async def test_a_load_that_is_taken_back_leaves_no_session_open(tmp_path: Path) -> None:
    async with FaultyProvider(turns=TURNS) as provider, agent_in_process(tmp_path, provider) as agent:
        session = await agent.session("short")
        result_of(await agent.prompt(1, session))
        stuck = asyncio.Event()
        facts_of_runs = agent.app.journal.facts_of_runs

        async def hanging(_: Any) -> Any:
            stuck.set()
            await asyncio.get_running_loop().create_future()

        agent.app.journal.facts_of_runs = hanging  # type: ignore[method-assign, assignment]
        place = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        loading = agent.channel.ask(2, "session/load", **place)
        await stuck.wait()
        with pytest.raises(RefusedRequest, match="under way"):
            await agent.load(session)
        waiting = agent.prompt(3, session)
        agent.channel.notify("session/cancel", sessionId=session)
        assert result_of(await waiting)["stopReason"] == "cancelled"
        agent.channel.notify("$/cancel_request", requestId=2)
        with pytest.raises(RefusedRequest) as refused:
            result_of(await loading)
        assert refused.value.code == -32800
        with pytest.raises(RefusedRequest, match="load it first"):
            result_of(await agent.prompt(4, session))
        agent.app.journal.facts_of_runs = facts_of_runs  # type: ignore[method-assign]
        await agent.load(session)
        assert agent.channel.text() == "Short.Short."


@driven
async def test_a_session_that_was_never_prompted_is_not_kept(tmp_path: Path) -> None:
    async with FaultyProvider(turns=TURNS) as provider, agent_in_process(tmp_path, provider) as agent:
        session = await agent.session("short")
        await agent.load(session)  # as long as it is open
        assert await agent.app.journal.list_values("editors.sessions") == {}
        result_of(await agent.prompt(1, session))
        assert [*await agent.app.journal.list_values("editors.sessions")] == [session]


@driven
async def test_a_fork_is_loaded_with_what_was_said_before_it(tmp_path: Path) -> None:
    async with FaultyProvider(turns=TURNS) as provider, agent_in_process(tmp_path, provider) as agent:
        session = await agent.session("short")
        result_of(await agent.prompt(1, session, "The first?"))
        (run,) = await agent.app.journal.runs(session=session)
        request = ForkRequest(run.id, run.last_seq, user("The fork's own?"))
        fork = await agent.app.agents.start_fork(await agent.app.agents.forked_turn(request))
        await agent.app.agents.finished(fork.id)
        agent.channel.told.clear()
        await agent.load(fork.new.session)
        assert agent.channel.text("user_message_chunk") == "The first?The fork's own?"
        assert agent.channel.text() == "Short.Short."


@driven
async def test_turns_that_were_replaced_are_not_loaded(tmp_path: Path) -> None:
    async with FaultyProvider(turns=TURNS) as provider, agent_in_process(tmp_path, provider) as agent:
        agents = agent.app.agents
        for question, previous_run in (("The first?", None), ("Edited away?", None), ("The second?", "first")):
            first = (await agent.app.journal.runs(session="ses_page"))[-1:]
            spec = TurnSpec(user(question), model="test/short", previous_run=first[0].id if previous_run else None)
            await agents.finished((await agents.submit(spec, session="ses_page")).id)
        await agent.load("ses_page")
        assert agent.channel.text("user_message_chunk") == "The first?The second?"


@driven
async def test_a_long_session_is_loaded_with_few_reads(tmp_path: Path) -> None:
    async with FaultyProvider(turns=TURNS) as provider, agent_in_process(tmp_path, provider) as agent:
        journal = agent.app.journal
        for _ in range(120):
            spec = TurnSpec(user("?"), directory=str(tmp_path))
            new = NewRun("agent", _input(spec), session="ses_long")
            _, lease = await journal.start(new, "me")
            assert lease is not None
            await journal.seal(lease, RunFinished("completed", ""))
        reads = 0
        facts_of_runs, runs = journal.facts_of_runs, journal.runs

        async def counted_facts(run_ids: Any) -> Any:
            nonlocal reads
            reads += 1
            return await facts_of_runs(run_ids)

        async def counted_runs(**wanted: Any) -> list[Run]:
            nonlocal reads
            reads += 1
            return await runs(**wanted)

        journal.facts_of_runs, journal.runs = counted_facts, counted_runs  # type: ignore[method-assign]
        await agent.load("ses_long")
        assert reads <= 8


def _input(spec: TurnSpec) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(spec)
    return made


@driven
async def test_an_editor_that_leaves_while_it_is_asked_leaves_the_turn_as_it_is(tmp_path: Path) -> None:
    """The question is neither a yes nor a no: it is asked again where the session is loaded."""
    (tmp_path / "doomed").mkdir()
    facts: list[str] = []

    async def read_facts(app: App) -> None:
        (run,) = await app.journal.runs()
        assert run.finished is None
        facts.extend([type(fact.event).__name__ for fact in await app.journal.facts(run.id)])

    async with FaultyProvider(turns=TURNS) as provider:
        async with agent_in_process(tmp_path, provider, afterwards=read_facts) as agent:
            turn = agent.prompt(1, await agent.session("removes"))
            await agent.channel.until("session/request_permission")
            agent.channel.say(None)
        assert not turn.done()
    assert ("ApprovalAsked" in facts, "ApprovalAnswered" in facts) == (True, False)


async def test_a_store_that_does_not_answer_keeps_no_process_alive(tmp_path: Path) -> None:
    pytest.importorskip("asyncpg", reason="the extra is not installed")
    connected = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    write_config(tmp_path, "http://127.0.0.1:9", store={"url": f"postgresql://me:x@127.0.0.1:{port}/none"})
    stop = asyncio.Event()
    channel = EditorChannel()
    serving = asyncio.create_task(serve_channel(load({"TAILRACE_HOME": str(tmp_path)}), channel, stop))
    assert result_of(await channel.ask(1, "initialize", protocolVersion=1))["protocolVersion"] == 1
    await asyncio.wait_for(connected.wait(), 30)
    stop.set()
    await asyncio.wait_for(serving, 10)
    server.close()
