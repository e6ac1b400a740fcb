"""`agent.as_tool`: an agent as a tool of another is a run of its own under its parent's call."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripted_agent import STALLED, config_for
from tailrace import Agent, ConfigError, Context, tool
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.events import ApprovalAsked, UsageRecorded
from tailrace.messages import Usage, user
from tailrace.ports import Run
from tailrace.runs.charged_to import charged_to
from tailrace.runs.view import changes
from tailrace.testing.provider import FaultyProvider, call, reply


class Finding(msgspec.Struct):
    river: str


@dataclasses.dataclass
class Station:
    city: str


@tool
def level(river: str, ctx: Context[Station]) -> str:
    """The level of a river."""
    return f"{river} in {ctx.deps.city}: 1.2 m"


@tool(effect="external")
def order(what: str) -> str:
    """Orders something."""
    return f"{what} is on its way"


def parent_and_helper(config: Any, home: Path, *tools: Any, **options: Any) -> Agent[str]:
    helper = Agent(config=config, directory=home, tools=list(tools), system="You research.", **options)
    return Agent(config=config, directory=home, tools=[helper.as_tool("research", "Looks things up.")])


async def child_of(agent: Agent[Any], parent: str) -> Run:
    assert agent._open is not None
    runs = await agent._open.app.journal.runs(kind="agent")
    return next(run for run in runs if run.new.idempotency_key.startswith(f"call/{parent}/"))


ASKS = reply(call("research", {"input": "the Aare"}))


async def test_a_called_agent_answers_its_caller_and_is_seen_under_the_call(tmp_path: Path) -> None:
    script = (ASKS, reply(call("level", {"river": "Aare"})), reply("1.2 m."), reply("It is low."))
    seen: list[changes.Change] = []

    async def on_change(change: changes.Change) -> None:
        seen.append(change)

    async with FaultyProvider(script) as server:
        agent = parent_and_helper(config_for(server.url, tmp_path), tmp_path, level)
        agent.on_change = on_change
        async with agent:
            result = await agent.run("How is the Aare?", deps=Station("Bern"))
            child = await child_of(agent, result.run_id)
    assert result.text == "It is low."
    offered = [[tool["function"]["name"] for tool in request.json().get("tools", [])] for request in server.requests]
    assert offered == [["research"], ["level"], ["level"], ["research"]]
    assert server.requests[3].json()["messages"][-1]["content"] == "1.2 m."
    assert "Aare in Bern: 1.2 m" in server.requests[2].json()["messages"][-1]["content"]
    assert child.new.session == ""  # no conversation of its own
    [began] = [change for change in seen if isinstance(change, changes.SubRunBegan)]
    assert (began.run_id, began.tool_name, began.index) == (child.id, "research", 0)
    lines = [change.text for change in seen if isinstance(change, changes.UserNotice)]
    assert "level Aare" in lines  # as the progress of the call, on every surface
    assert sum(isinstance(change, changes.Ended) for change in seen) == 2


async def test_a_called_agent_may_answer_with_an_object(tmp_path: Path) -> None:
    script = (ASKS, reply("The Aare."), reply('{"river": "Aare"}'), reply("Done."))
    async with FaultyProvider(script) as server:
        agent = parent_and_helper(config_for(server.url, tmp_path), tmp_path, output=Finding)
        result = await agent.run("Which river?")
    assert result.messages[2].parts[0].text == '{"river": "Aare"}'  # type: ignore[union-attr]
    assert len(server.requests) == 4


async def test_what_a_called_agent_used_counts_for_its_caller(tmp_path: Path) -> None:
    used = Usage(100, 10)
    script = [msgspec.structs.replace(each, usage=used) for each in (ASKS, reply("1.2 m."), reply("It is low."))]
    async with (
        FaultyProvider(script) as server,
        parent_and_helper(config_for(server.url, tmp_path), tmp_path) as agent,
        agent.stream("Go.") as run,
    ):
        recorded = [event.usage async for event in run if isinstance(event, UsageRecorded)]
        result = await run.result()
    assert recorded == [used, used, used]
    assert result.usage == Usage(300, 30)


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"max_tokens": 150}, "stopped after 220 tokens"), ({"max_usd": 0.0005}, r"stopped after \$0.0007 \(max_usd\)")],
)
async def test_a_limit_of_the_caller_counts_what_a_called_agent_used(
    limits: dict[str, Any], words: str, tmp_path: Path
) -> None:
    pytest.importorskip("genai_prices")
    script = [msgspec.structs.replace(each, usage=Usage(100, 10)) for each in (ASKS, reply("1.2 m."))]
    async with FaultyProvider(script) as server:
        config = config_for(server.url, tmp_path)
        config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, name="gpt-4o"))
        result = await parent_and_helper(config, tmp_path).run("Go.", **limits)
    assert result.status == "incomplete"
    assert result.error is not None
    assert re.search(words, result.text + result.error.message)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("limits", "own", "words"),
    [
        ({"max_turns": 3}, {}, r"stopped after 2 model calls"),  # of its caller's three, one is made
        ({"max_tokens": 250}, {}, r"stopped after 220 tokens"),  # 110 of 250 are used
        ({"max_tokens": 500}, {"max_tokens": 100}, r"stopped after 110 tokens"),
        ({"max_usd": 0.0010}, {}, r"stopped after \$0.0007"),
    ],
)
async def test_a_called_agent_may_use_what_its_caller_has_left(
    limits: dict[str, Any], own: dict[str, Any], words: str, tmp_path: Path
) -> None:
    pytest.importorskip("genai_prices")
    looks = [reply(call("level", {"river": str(number)})) for number in range(5)]
    script = [msgspec.structs.replace(each, usage=Usage(100, 10)) for each in (ASKS, *looks)]
    async with FaultyProvider(script) as server:
        config = config_for(server.url, tmp_path)
        config = msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, name="gpt-4o"))
        async with parent_and_helper(config, tmp_path, level, **own) as agent:
            result = await agent.run("Go.", deps=Station("Bern"), **limits)
            child = await child_of(agent, result.run_id)
    assert child.finished is not None
    assert child.finished.status == "incomplete"
    assert child.finished.error is not None
    assert re.search(words, child.finished.output + child.finished.error.message)


async def test_agents_that_are_called_side_by_side_share_what_is_left(tmp_path: Path) -> None:
    used = Usage(50, 10)
    calls = [call("research", {"input": river}, id=f"c{river}") for river in ("Aare", "Rhine")]
    looks = [reply(call("level", {"river": str(number)})) for number in range(20)]
    script = [msgspec.structs.replace(each, usage=used) for each in (reply(*calls), *looks)]
    async with (
        FaultyProvider(script) as server,
        parent_and_helper(config_for(server.url, tmp_path), tmp_path, level) as agent,
    ):
        result = await agent.run("Go.", deps=Station("Bern"), max_tokens=300)
        assert agent._open is not None
        children = [run for run in await agent._open.app.journal.runs() if run.id != result.run_id]
    spent = [run.finished.usage for run in children if run.finished is not None]
    assert spent == [used + used, used + used]  # of 240 tokens each may use 120
    assert result.usage == sum(spent, used)


async def test_O174_a_called_agent_is_charged_to_the_key_of_its_caller_and_stops_at_its_budget(tmp_path: Path) -> None:
    script = [msgspec.structs.replace(each, usage=Usage(900, 200)) for each in (ASKS, reply("1.2 m."), reply("Low."))]
    async with FaultyProvider(script) as server:
        config_for(server.url, tmp_path)
        with (tmp_path / "config.yaml").open("a", encoding="utf-8") as file:
            file.write("server: {keys: [{name: ci, key_env: CI_KEY, tokens_per_day: 1000}]}\n")
        config = load({"CI_KEY": "k" * 20}, tmp_path)
        async with parent_and_helper(config, tmp_path) as agent:
            assert agent._open is not None
            app = agent._open.app
            turn = msgspec.structs.replace(agent._spec, message=user("Go."), origin={"owner": "ci"})
            run = await app.agents.submit(turn)
            finish = await app.agents.finished(run.id)
            child = await child_of(agent, run.id)
    assert (charged_to(run), charged_to(child)) == ("ci", "ci")
    assert child.finished is not None
    assert child.finished.error is not None
    assert (child.finished.status, child.finished.error.kind) == ("failed", "insufficient_quota")
    assert finish.status == "failed"  # its own next call is over the budget, too
    assert len(server.requests) == 1


async def test_a_limit_in_dollars_wants_a_price_for_each_model_that_it_counts(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        config = config_for(server.url, tmp_path)
        helper = Agent(config=config, directory=tmp_path)
        agent = Agent(config=config, directory=tmp_path, model="faulty/gpt-4o", tools=[helper.as_tool("research")])
        with pytest.raises(ConfigError, match="faulty/ok has no price"):
            await agent.run("Go.", max_usd=1.0)
    assert not server.requests


async def test_stopping_the_caller_stops_the_called_agent(tmp_path: Path) -> None:
    async with (
        FaultyProvider([ASKS, STALLED]) as server,
        parent_and_helper(config_for(server.url, tmp_path), tmp_path) as agent,
    ):
        async with agent.stream("Go.") as run:
            await server.request(1)
            await run.stop()
            result = await run.result()
        child = await child_of(agent, run.id)
        assert agent._open is not None
        await agent._open.app.agents.finished(child.id)
        assert (await child_of(agent, run.id)).state == "stopped"
    assert result.status == "stopped"


async def test_a_process_that_ends_leaves_both_to_the_next_one_and_asks_nothing_twice(tmp_path: Path) -> None:
    async with FaultyProvider([ASKS, STALLED, reply("1.2 m."), reply("It is low.")]) as server:
        config = config_for(server.url, tmp_path)
        async with parent_and_helper(config, tmp_path) as agent:
            assert agent._open is not None
            streaming = agent.stream("Go.", key="once")
            run = await streaming.__aenter__()
            await server.request(1)
            await agent._open.app.agents.release()  # as a process that goes away does
            run_id = run.id
        async with parent_and_helper(config, tmp_path) as agent, agent.resume(run_id) as run:
            result = await run.result()
            child = await child_of(agent, run_id)
    assert (result.text, child.state) == ("It is low.", "completed")
    asked = [request.json()["messages"][-1] for request in server.requests]
    assert [message["role"] for message in asked].count("tool") == 1  # the caller's second call alone


async def test_questions_of_a_called_agent_reach_the_caller_s_callback(tmp_path: Path) -> None:
    asked: list[str] = []

    def on_approval(question: ApprovalAsked) -> bool:
        asked.append(question.command)
        return True

    script = (ASKS, reply(call("order", {"what": "tea"})), reply("Ordered."), reply("Done."))
    async with FaultyProvider(script) as server:
        agent = parent_and_helper(config_for(server.url, tmp_path), tmp_path, order)
        agent.on_approval = on_approval
        assert (await agent.run("Go.")).text == "Done."
    assert asked == ['order {"what":"tea"}']
    assert "tea is on its way" in server.requests[2].json()["messages"][-1]["content"]


async def test_a_tool_that_lacks_its_dependency_is_told_before_anything_is_recorded(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        config = config_for(server.url, tmp_path)
        agent = parent_and_helper(config, tmp_path, level)
        with pytest.raises(ConfigError, match=r"the tool level wants deps=Station\(…\), found None"):
            await agent.run("Go.")
    async with open_app(config) as app:
        assert await app.journal.runs() == []
    assert not server.requests


async def test_another_process_leaves_a_run_whose_tools_it_lacks_to_its_program(tmp_path: Path) -> None:
    async with FaultyProvider([STALLED]) as server:
        config = config_for(server.url, tmp_path)
        for tools, is_taken in (([order], False), ([], True)):
            async with Agent(config=config, directory=tmp_path, tools=tools) as agent:
                await agent.stream("Go.").__aenter__()
                assert agent._open is not None
                await agent._open.app.agents.release()
            server.extend(STALLED)
            async with open_app(config) as other:
                assert bool(await other.agents.recover()) == is_taken
                await asyncio.sleep(0)
