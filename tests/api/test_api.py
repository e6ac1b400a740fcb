"""`Agent`: what a turn streams and returns, what stops it, and what is refused before anything is asked."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

import tailrace
from parked_turns import REASON, park_turn
from scripted_agent import STALLED, config_for, opened
from tailrace import Agent, tool
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.errors import ConfigError, RunFailed, RunParked, TailraceError
from tailrace.events import MessageChunk, RunFinished
from tailrace.messages import ToolSpec
from tailrace.testing.provider import FaultyProvider, call, reply


async def test_a_stream_is_what_was_stored(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Hello there.")) as (agent, _), agent.stream("Hi.") as run:
        events = [event async for event in run]
        result = await run.result()
    assert "".join(e.text for e in events if isinstance(e, MessageChunk)) == result.text == "Hello there."
    assert result.completed
    assert isinstance(events[-1], RunFinished)


async def test_the_text_of_a_turn_comes_piece_by_piece(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    script = (reply("I look.", call("read_file", {"path": "a.txt"})), reply("It says x, and no more."))
    async with opened(tmp_path, *script, builtin=["read_file"]) as (agent, _), agent.stream("Hi.") as run:
        pieces = [text async for text in run.text]
    assert "".join(pieces) == "I look.\nIt says x, and no more."
    assert len(pieces) > 2


async def test_a_turn_that_fails_is_not_silent(tmp_path: Path) -> None:
    async with opened(tmp_path, "status-401", "status-401") as (agent, _):
        async with agent.stream("Hi.") as run:
            with pytest.raises(RunFailed) as streamed:
                [_ async for _ in run.text]
        with pytest.raises(RunFailed, match="Incorrect API key") as whole:
            await agent.run("Hi.")
    assert (streamed.value.status, streamed.value.kind) == (whole.value.status, whole.value.kind)


async def test_one_agent_is_one_conversation(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Hello Ann."), reply("Ann.")) as (agent, _):
        await agent.run("I am Ann.")
        result = await agent.run("Who am I?")
        messages = await agent.messages()
    assert result.text == "Ann."
    assert [m.text for m in messages] == ["I am Ann.", "Hello Ann.", "Who am I?", "Ann."]


async def test_F76_leaving_the_stream_stops_the_turn(tmp_path: Path) -> None:
    async with opened(tmp_path, STALLED) as (agent, server):
        async with agent.stream("Count.") as run:
            async for event in run:
                if isinstance(event, MessageChunk):
                    break
        result = await run.result()
        await server.requests[0].over.wait()
    assert server.requests[0].disconnected_at is not None
    assert result.status == "stopped"


async def test_F76_leaving_the_agent_with_the_stream_stops_the_turn_for_good(tmp_path: Path) -> None:
    """Another process that found it unfinished would go on with it."""
    async with FaultyProvider([STALLED]) as server:
        config = config_for(server.url, tmp_path)
        async with Agent(config=config, directory=tmp_path) as agent, agent.stream("Count.") as run:
            async for _ in run.text:
                break
    async with open_app(config) as app:
        assert (await app.journal.get(run.id)).state == "stopped"


async def test_F76_a_task_that_is_cancelled_again_and_again_leaves_no_run_behind(tmp_path: Path) -> None:
    """As a scope of anyio does it, and with it Starlette when a client has left."""
    digging = asyncio.Event()

    @tool
    async def dredge() -> str:
        """Dredge the canal."""
        digging.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(100):  # it takes a while to put the shovels away
                await asyncio.sleep(0)
        return "done"

    async with FaultyProvider([reply(call("dredge", {}))]) as server:
        config = config_for(server.url, tmp_path)

        async def ask() -> None:
            async with Agent(config=config, directory=tmp_path, tools=[dredge]) as agent:
                await agent.run("Dredge.")

        asking = asyncio.create_task(ask())
        await digging.wait()
        while not asking.done():
            asking.cancel()
            await asyncio.sleep(0)
        assert asking.cancelled()
    async with open_app(config) as app:
        [run] = await app.journal.runs(kind="agent")
        assert run.state == "stopped"


async def test_F76_an_agent_whose_task_was_cancelled_as_it_left_can_be_opened_again(tmp_path: Path) -> None:
    async with FaultyProvider([reply("Hello."), reply("Hello again.")]) as server:
        agent = Agent(config=config_for(server.url, tmp_path), directory=tmp_path)
        leaving = asyncio.Event()

        async def ask() -> None:
            async with agent:
                await agent.run("Hi.")
                leaving.set()

        asking = asyncio.create_task(ask())
        await leaving.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        async with agent:
            assert (await agent.run("And now?")).text == "Hello again."


def test_what_is_no_tool_is_refused_where_the_agent_is_made() -> None:
    def forecast(city: str) -> str:
        return city

    def untyped(city):  # type: ignore[no-untyped-def]
        return city

    for wrong in (["terminal"], "terminal", [dict]):
        no_tools: Any = wrong
        with pytest.raises(ConfigError, match="is no tool: give a typed function, or name one of ours in builtin="):
            Agent(tools=no_tools)
    with pytest.raises(ConfigError, match="tools: untyped: the parameter city has no type"):
        Agent(tools=[untyped])
    for twin in (tool(forecast), forecast):
        with pytest.raises(ConfigError, match="two have the name 'forecast'"):
            Agent(tools=[forecast, twin])


async def test_a_plain_typed_function_is_a_tool(tmp_path: Path) -> None:
    class Gauge:
        def level(self, river: str) -> str:
            """The level of a river."""
            return f"{river}: 1.2 m"

    async def tide(harbour: str) -> str:
        return f"{harbour}: high"

    script = (reply(call("level", {"river": "Aare"})), reply(call("tide", {"harbour": "Brest"})), reply("Low."))
    async with opened(tmp_path, *script, tools=[Gauge().level, tide]) as (agent, server), agent.stream("Hi.") as run:
        assert "".join([text async for text in run.text]) == "Low."
    offered = [tool["function"] for tool in server.requests[0].json()["tools"]]
    assert [(tool["name"], tool.get("description")) for tool in offered] == [
        ("level", "The level of a river."),
        ("tide", None),
    ]
    told = [message["content"] for message in server.requests[2].json()["messages"] if message["role"] == "tool"]
    assert told == ["Aare: 1.2 m", "Brest: high"]


async def test_a_directory_may_be_a_str(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("In the mill.")
    script = (reply(call("read_file", {"path": "a.txt"})), reply("Read."))
    async with (
        FaultyProvider(script) as server,
        Agent(config=config_for(server.url, tmp_path), directory=str(tmp_path), builtin=["read_file"]) as agent,
    ):
        assert (await agent.run("What is in a.txt?")).text == "Read."
        assert "In the mill." in server.requests[1].json()["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("question", "error", "words"),
    [
        ("", TailraceError, "nothing was asked"),
        (" \n", TailraceError, "nothing was asked"),
        (None, TypeError, "a question is a str, a Path, bytes, or a list of these, not NoneType"),
        ([3], TypeError, "a part of a question is a str, a Path or bytes, not int"),
        (["", " "], TailraceError, "nothing was asked"),
    ],
)
async def test_what_is_no_question_is_sent_to_nobody(
    question: Any, error: type[Exception], words: str, tmp_path: Path
) -> None:
    async with opened(tmp_path) as (agent, server):
        with pytest.raises(error, match=words):
            await agent.run(question)
        assert not server.requests


async def test_an_agent_is_opened_once_at_a_time(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("Still here."), reply("And again.")) as (agent, _):
        with pytest.raises(TailraceError, match="the agent is open already"):
            await agent.__aenter__()
        assert (await agent.run("Are you there?")).text == "Still here."
    async with agent:
        pass


async def test_a_busy_session_is_waited_for_where_the_agent_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("First."), reply("Second."), busy="queue") as (agent, _):
        results = await asyncio.gather(agent.run("One?"), agent.run("Two?"))
    assert [result.status for result in results] == ["completed", "completed"]
    assert {result.text for result in results} == {"First.", "Second."}  # two at once: either may come first


async def test_an_agent_need_not_be_open_for_a_call_and_stays_one_conversation(tmp_path: Path) -> None:
    async with FaultyProvider([reply("Hello Ann."), reply("Ann.")]) as server:
        agent = Agent(config=config_for(server.url, tmp_path), directory=tmp_path)
        await agent.run("I am Ann.")
        assert (await agent.run("Who am I?")).text == "Ann."
        assert [message.text for message in await agent.messages()] == ["I am Ann.", "Hello Ann.", "Who am I?", "Ann."]


@pytest.mark.parametrize("iterated", [False, True])
async def test_I102_a_turn_that_is_set_aside_is_told_and_left_alone(tmp_path: Path, iterated: bool) -> None:
    async with opened(tmp_path, STALLED) as (agent, server):
        assert agent._open is not None
        app = agent._open.app

        async def ask() -> None:
            async with agent.stream("Count.") as run:
                if iterated:
                    async for _ in run:
                        pass
                await run.result()

        asking = asyncio.create_task(ask())
        await server.request(0)
        run_id = await park_turn(app)
        with pytest.raises(RunParked, match=REASON):
            await asking
        assert (await app.journal.get(run_id)).state == "parked"


def test_an_object_that_is_no_tool_is_told_what_it_lacks() -> None:
    class Adder:
        def preview(self, _args: object) -> str:
            return "adds"

    class Named(Adder):
        spec = ToolSpec("add", "Adds.", {"type": "object"})

    lacking = "spec, repeatable, parallel, invalid, effect, run of tailrace.ports.Tool"
    with pytest.raises(ConfigError, match=f"is no tool: it lacks {lacking}"):
        Agent(tools=[Adder()])  # type: ignore[list-item]
    with pytest.raises(
        ConfigError, match="tools: 'add' is no tool: it lacks repeatable, parallel, invalid, effect, run of"
    ):
        Agent(tools=[Named()])  # type: ignore[list-item]


def test_no_module_takes_any_name_for_one_of_its_own_where_a_type_checker_reads() -> None:
    """`from tailrace import Agnet` is an error for mypy too: a plain module's `__getattr__` would hide it."""
    package = Path(tailrace.__file__).parent
    plain = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"^def __getattr__", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert plain == []
    assert {"Agent", "AIAgent", "tool"} <= set(dir(tailrace))
    with pytest.raises(ImportError, match="Agnet"):
        from tailrace import Agnet  # type: ignore[attr-defined] # noqa: F401


@pytest.mark.parametrize("text", ["", " \n"])
async def test_a_turn_that_asks_nothing_is_refused_and_costs_no_call(tmp_path: Path, text: str) -> None:
    async with opened(tmp_path, reply("Hello.")) as (agent, server):
        with pytest.raises(TailraceError, match="nothing was asked: the text is empty"):
            await agent.run(text)
        assert (await agent.run("Hi.")).text == "Hello."
    assert len(server.requests) == 1


async def test_a_model_means_what_it_means_on_the_command_line(tmp_path: Path) -> None:
    made = load({}, tmp_path)
    with pytest.raises(ConfigError, match="no such provider; did you mean openai"):
        async with Agent(model="opnai/gpt-5", config=made):
            pass
    assert not os.listdir(tmp_path)  # noqa: PTH208 - pathlib's may not be called here
    with pytest.raises(ConfigError, match="a slash follows the provider: openai/gpt-5, not openai:gpt-5"):
        await Agent("openai:gpt-5", config=made).run("Hi.")
