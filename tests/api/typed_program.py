"""What a type checker knows of the library: each `assert_type` holds, each line with an expected error has one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypedDict, assert_type

import msgspec
from pydantic import BaseModel

from tailrace import Agent, Context, RunFailed, RunResult, RunStream, tool


class Struct(msgspec.Struct):
    title: str


@dataclass
class Data:
    title: str


class Model(BaseModel):
    title: str


class Dict(TypedDict):
    title: str


@dataclass
class Deps:
    city: str


@tool
def lookup(ctx: Context[Deps], river: str) -> int:
    assert_type(ctx.deps, Deps)
    return len(ctx.deps.city + river)


@tool(repeatable=True)
async def look(river: str) -> str:
    return river


def plain(river: str) -> str:
    return river


async def main() -> None:
    assert_type(Agent(), Agent[str])
    assert_type(Agent("openai/gpt-5", output=Struct), Agent[Struct])
    assert_type(Agent(tools=[lookup, look, plain], output=Struct), Agent[Struct])
    assert_type((await Agent().run("x")).output, str)
    assert_type((await Agent(output=Struct).run("x")).output, Struct)
    assert_type((await Agent(output=Data).run("x", deps=Deps("Bern"))).output.title, str)
    assert_type(Agent(output=Model).run_sync("x").output, Model)
    assert_type(list(Agent(output=Model).stream_sync("x", max_turns=3)), list[str])
    assert_type((await Agent(output=Dict).run("x")).output["title"], str)
    assert_type((await Agent(output=list[Data]).run("x")).output, list[Data])
    agent = Agent(output=Data)
    async with agent.stream("x", max_turns=3, history=[{"role": "user", "content": "y"}]) as run:
        assert_type(run, RunStream[Data])
        async for text in run.text:
            assert_type(text, str)
        async for draft in run.partial:
            assert_type(draft, Data)
        assert_type(await run.result(), RunResult[Data])
    async with agent.resume("run_1") as again:
        assert_type(again, RunStream[Data])
    await agent.run("x", max_turn=3)  # expected error
    await agent.run(3)  # expected error
    agent.stream_sync("x", max_turn=3)  # expected error
    Agent(tools=[3])  # expected error
    _ = (await agent.run("x")).output.titel  # expected error
    lookup(Deps("Bern"), "Aare")  # expected error


try:
    asyncio.run(main())
except RunFailed as exc:
    assert_type(exc.text, str)
