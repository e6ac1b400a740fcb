"""`Agent(output=…)`: an object of the caller's type, streamed, validated, and asked for again where it is none."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, field_validator

from scripted_agent import config_for, opened
from tailrace import Agent, ConfigError, RunFailed, tool
from tailrace.messages import user
from tailrace.testing.provider import FaultyProvider, Scenario, call, reply

GOOD = '{"title": "Rain", "points": ["wet", "cold"], "source": {"name": "Yr"}}'


class Source(msgspec.Struct, frozen=True):
    name: str


class Report(msgspec.Struct):
    title: str
    points: list[str]
    source: Source | None = None


@dataclasses.dataclass(frozen=True)
class ReportClass:
    title: str
    points: list[str]
    source: Source | None = None


class ReportDict(TypedDict):
    title: str
    points: list[str]
    source: Source


class SourceModel(BaseModel):
    name: str


class ReportModel(BaseModel):
    title: str
    points: list[str]
    source: SourceModel | None = None

    @field_validator("title")
    @classmethod
    def begins_in_upper_case(cls, title: str) -> str:
        if title[:1].islower():
            raise ValueError("must begin with a capital letter")
        return title


@tool(parallel=True)
def lookup(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


TYPES = {
    Report: Report("Rain", ["wet", "cold"], Source("Yr")),
    ReportClass: ReportClass("Rain", ["wet", "cold"], Source("Yr")),
    ReportDict: {"title": "Rain", "points": ["wet", "cold"], "source": Source("Yr")},
    ReportModel: ReportModel(title="Rain", points=["wet", "cold"], source=SourceModel(name="Yr")),
}


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_an_answer_is_an_object_also_after_tools(kind: type[Any], dialect: str, tmp_path: Path) -> None:
    script = (reply("I look.", call("lookup", {"city": "Bergen"})), reply(GOOD))
    async with opened(tmp_path, *script, tools=[lookup], output=kind, dialect=dialect) as (agent, server):
        result = await agent.run("How is it in Bergen?")
    assert result.output == TYPES[kind]
    assert type(result.output) is type(TYPES[kind])
    assert result.text == GOOD
    asked = server.requests[0].json()
    schema = {
        "chat": lambda: asked["response_format"]["json_schema"]["schema"],
        "responses": lambda: asked["text"]["format"]["schema"],
        "anthropic": lambda: asked["output_config"]["format"]["schema"],
    }[dialect]()
    assert (schema["type"], schema["properties"]["points"]["items"]) == ("object", {"type": "string"})


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
async def test_the_object_can_be_watched_while_it_comes(kind: type[Any], tmp_path: Path) -> None:
    def read(draft: Any, field: str) -> Any:
        return draft.get(field) if isinstance(draft, dict) else getattr(draft, field)

    async with opened(tmp_path, reply(GOOD), output=kind) as (agent, _), agent.stream("Go.") as run:
        drafts = [draft async for draft in run.partial]
    assert drafts[-1] == TYPES[kind]
    points = [read(draft, "points") for draft in drafts]
    assert points[0] is None
    assert any(read(draft, "points") and read(draft, "source") is None for draft in drafts)
    assert all(type(draft) is type(TYPES[kind]) for draft in drafts)
    assert all(draft != after for draft, after in pairwise(drafts)), drafts  # each tells something new
    names = [
        source if isinstance(source, dict) else source.name for draft in drafts if (source := read(draft, "source"))
    ]
    assert names[-1] in ("Yr", {"name": "Yr"})


async def test_a_half_object_is_not_yielded_again_because_blanks_came(tmp_path: Path) -> None:
    spaced = GOOD.replace(', "points"', "," + " \n" * 200 + '"points"') + "\n" * 50
    async with opened(tmp_path, reply(spaced), output=Report) as (agent, _), agent.stream("Go.") as run:
        drafts = [draft async for draft in run.partial]
    assert drafts[-1] == TYPES[Report]
    assert all(draft != after for draft, after in pairwise(drafts)), drafts


async def test_a_result_is_shown_by_its_output(tmp_path: Path) -> None:
    async with opened(tmp_path, reply(GOOD), output=Report) as (agent, _):
        result = await agent.run("Go.")
    assert repr(result).startswith("RunResult(output=Report(title='Rain'")
    assert "value" not in repr(result)
    assert result.run_id in repr(result)


@pytest.mark.parametrize("kind", [None, Report])
async def test_the_words_of_a_limit_are_no_output(kind: type[Any] | None, tmp_path: Path) -> None:
    script = (reply("I look.", call("lookup", {"city": "Oslo"})), reply(GOOD))
    async with opened(tmp_path, *script, tools=[lookup], output=kind) as (agent, _):
        result = await agent.run("Go.", max_turns=1, raise_on_failure=False)
        with pytest.raises(RunFailed, match="a budget of the turn was used up") as failed:
            _ = result.output
    assert (result.status, failed.value.run) == ("incomplete", result)
    assert "max_turns" in result.text
    assert "output=" not in repr(result)


@pytest.mark.parametrize(
    ("kind", "wrong", "why"),
    [
        (Report, '{"title": 3, "points": []}', "title"),
        (ReportModel, GOOD.replace("Rain", "rain"), "capital letter"),  # no schema says so
        (ReportDict, "It rains.", "no JSON"),
    ],
)
async def test_an_answer_that_is_no_such_object_is_asked_for_again(
    kind: type[Any], wrong: str, why: str, tmp_path: Path
) -> None:
    async with opened(tmp_path, reply(wrong), reply(wrong), reply(f"```json\n{GOOD}\n```"), output=kind) as (
        agent,
        server,
    ):
        async with agent.stream("Go.") as run:
            said = "".join([text async for text in run.text])
            result = await run.result()
        drafts = await agent.messages()
    assert result.output == TYPES[kind]
    assert len(server.requests) == 3
    assert why in server.requests[1].json()["messages"][-1]["content"]
    assert said.endswith(GOOD + "\n```")
    assert result.text == f"```json\n{GOOD}\n```"  # what was withdrawn is no part of it
    assert [message.role for message in drafts] == ["user", "assistant", "user", "assistant", "user", "assistant"]


async def test_after_two_repairs_the_run_has_failed_and_carries_what_was_said(tmp_path: Path) -> None:
    async with opened(tmp_path, reply("No."), reply("No!"), reply("Never."), output=Report) as (agent, server):
        with pytest.raises(RunFailed, match="there is no JSON in the answer") as failed:
            await agent.run("Go.")
        with pytest.raises(RunFailed):
            _ = failed.value.run.output
    assert (failed.value.text, failed.value.status, failed.value.run.status) == ("Never.", "failed", "failed")
    assert len(server.requests) == 3


async def test_a_run_that_was_to_bring_an_object_and_was_cut_short_has_failed(tmp_path: Path) -> None:
    async with opened(tmp_path, reply(call("lookup", {"city": "Oslo"})), tools=[lookup], output=Report) as (agent, _):
        with pytest.raises(RunFailed, match="a budget of the turn was used up") as failed:
            await agent.run("Go.", max_turns=1)
        assert failed.value.status == "incomplete"
        result = await agent.run("Go.", max_turns=1, raise_on_failure=False)
    assert not result.completed


async def test_a_provider_that_knows_no_schema_is_told_it_in_words(tmp_path: Path) -> None:
    async with opened(tmp_path, Scenario(refuses=("response_format",)), reply(GOOD), output=Report) as (agent, server):
        assert (await agent.run("Go.")).output.title == "Rain"
    asked = server.requests[1].json()
    assert "response_format" not in asked
    assert "Answer with JSON alone" in asked["messages"][0]["content"]


async def test_any_other_type_stands_in_an_object(tmp_path: Path) -> None:
    async with opened(tmp_path, reply('{"value": ["Aare", "Rhine"]}'), output=list[str]) as (agent, _):
        assert (await agent.run("Rivers?")).output == ["Aare", "Rhine"]


def test_a_type_that_no_schema_describes_is_refused_where_the_agent_is_made() -> None:
    with pytest.raises(ConfigError, match="cannot be described to a model"):
        Agent(output=Path.open)  # type: ignore[arg-type]


async def test_a_history_of_the_caller_s_own_stands_for_the_conversation(tmp_path: Path) -> None:
    async with FaultyProvider([reply("Ann."), reply("Ann!"), reply("Who?")]) as server:
        agent = Agent(config=config_for(server.url, tmp_path), directory=tmp_path)
        first = await agent.run("Who am I?", history=[{"role": "user", "content": "I am Ann."}])
        await agent.run("Really?", history=(user("I am Ann."), *first.messages))
        await agent.run("Who am I?")
    assert [len(request.json()["messages"]) for request in server.requests] == [3, 5, 2]  # with the system's
