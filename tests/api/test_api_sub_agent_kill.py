"""A program is killed while the agent that its agent calls is answering, and is started again."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from scripted_agent import STALLED, config_for
from tailrace.app import open_app
from tailrace.config.load import Config
from tailrace.events import MessageChunk, UsageRecorded
from tailrace.messages import Usage
from tailrace.testing.provider import FaultyProvider, call, reply

PROGRAM = Path(__file__).with_name("sub_agent_program.py")


@asynccontextmanager
async def started(home: Path) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(home), stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(home: Path) -> str:
    async with started(home) as process:
        assert process.stdout is not None
        return (await process.stdout.read()).decode()


async def child_text(config: Config) -> str:
    """What the journal has of the called agent's answer, once there is some of it."""
    async with open_app(config) as app:
        child = next(run for run in await app.journal.runs() if run.new.idempotency_key.startswith("call/"))
        async for batch in app.journal.tail(child.id):
            if any(isinstance(entry.event, MessageChunk) for entry in batch):
                break
        return "".join(e.event.text for e in await app.journal.read(child.id) if isinstance(e.event, MessageChunk))


@pytest.mark.slow
async def test_a_killed_program_goes_on_with_the_answer_of_the_agent_that_it_calls(tmp_path: Path) -> None:
    script = (reply(call("research", {"input": "the Aare"})), STALLED, reply(" and low."), reply("It is low."))
    async with FaultyProvider(script) as server:
        config = config_for(server.url, tmp_path)
        async with started(tmp_path) as first:
            await server.request(1)
            await child_text(config)
            first.kill()
            assert await first.wait() == -signal.SIGKILL
        paid = await child_text(config)
        answer = await said(tmp_path)
        assert await said(tmp_path) == answer  # a run that has ended is read, and nothing is asked
    asked = [request.json()["messages"] for request in server.requests]
    assert [messages[-1]["role"] for messages in asked] == ["user", "user", "user", "tool"]
    assert paid.startswith("One")
    assert asked[2][-2] == {"role": "assistant", "content": paid}  # it goes on from there
    assert asked[3][-1]["content"] == f"{paid} and low."
    assert answer.endswith(" It is low.")
    async with open_app(config) as app:
        [caller, child] = sorted(
            await app.journal.runs(kind="agent"), key=lambda run: run.new.idempotency_key != "once"
        )
        own = [e.event.usage for e in await app.journal.facts(caller.id) if isinstance(e.event, UsageRecorded)]
    assert caller.finished is not None
    assert child.finished is not None
    assert own.count(child.finished.usage) == 1
    assert caller.finished.usage == sum(own, Usage())
