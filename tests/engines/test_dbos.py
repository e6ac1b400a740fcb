"""A model call as a step of a real DBOS workflow: killed, hung and recovered, it gives one answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engines.test_durable_call import STALLED, TEXT, config_of
from tailrace.config.load import Config
from tailrace.events import LlmDelta, RunFinished
from tailrace.journal.open_journal import open_journal
from tailrace.testing.provider import FaultyProvider, reply

WORKER = Path(__file__).with_name("dbos_worker.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "engines" / "dbos_workflow.py"


@asynccontextmanager
async def process(home: Path, *args: str, database: str = "") -> AsyncGenerator[asyncio.subprocess.Process, None]:
    database = database or f"sqlite:///{home / 'dbos.sqlite'}"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, *(arg.replace("DATABASE", database) for arg in args)),
        env={"PATH": os.environ["PATH"], "TAILRACE_HOME": str(home), "DBOS_DATABASE_URL": database},
        cwd=home,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def result_of(child: asyncio.subprocess.Process) -> str:
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    return out.decode().rstrip().splitlines()[-1].removeprefix("result: ")


async def until_speaking(config: Config, server: FaultyProvider) -> str:
    """The one run, once a viewer in this process has seen a part of its answer."""
    await server.request()
    async with open_journal(config.store.url, config.database) as journal:
        [run] = await journal.runs()
        async for batch in journal.tail(run.id):
            if any(isinstance(entry.event, LlmDelta) for entry in batch):
                break
    return run.id


async def check_log(config: Config, run_id: str) -> None:
    """One run, one text, one end."""
    async with open_journal(config.store.url, config.database) as journal:
        assert [run.id for run in await journal.runs()] == [run_id]
        events = [entry.event for entry in await journal.read(run_id)]
    assert "".join(event.delta for event in events if isinstance(event, LlmDelta)) == TEXT
    assert sum(isinstance(event, RunFinished) for event in events) == 1


def posts(server: FaultyProvider) -> int:
    return sum(request.method == "POST" for request in server.requests)


async def test_a_workflow_that_is_killed_in_the_middle_of_the_answer_goes_on_with_it(tmp_path: Path) -> None:
    script = (str(WORKER), "DATABASE")
    async with FaultyProvider(script=[STALLED]) as server:
        config = config_of(tmp_path, server, ", reattach: true")
        async with process(tmp_path, *script) as first:
            run_id = await until_speaking(config, server)
            first.kill()
            await first.wait()
        async with process(tmp_path, *script) as second:
            assert await result_of(second) == TEXT
        assert posts(server) == 1  # one generation was paid for
        await check_log(config, run_id)


@pytest.mark.slow
async def test_the_example_on_postgresql_pays_for_each_step_once_and_shows_it_live(
    tmp_path: Path, postgres_url: str
) -> None:
    """It is killed while its two middle steps answer side by side."""
    script: list[Any] = [
        reply("An outline."),
        STALLED,
        STALLED,
        "ok",
        "ok",
        reply("All of it."),
    ]  # a GET for each kept answer
    async with FaultyProvider(script=script) as server:
        config = config_of(tmp_path, server, ", reattach: true")
        command, database = (str(EXAMPLE), "tide mills"), postgres_url.partition("?")[0]
        async with process(tmp_path, *command, database=database) as first:
            await server.request(2)
            async with open_journal(config.store.url, config.database) as journal:
                *middle, outline = await journal.runs()
                for run in middle:  # live, from another process
                    async for batch in journal.tail(run.id):
                        if any(isinstance(entry.event, LlmDelta) for entry in batch):
                            break
            first.kill()
            await first.wait()
        async with process(tmp_path, *command, database=database) as second:
            assert await result_of(second) == "All of it."
        assert posts(server) == 4
        asked = [request.json()["input"][-1]["content"] for request in server.requests if request.method == "POST"]
        assert TEXT in str(asked[3])
        async with open_journal(config.store.url, config.database) as journal:
            runs = await journal.runs()
        assert len(runs) == 4
        assert (runs[-1].id, {run.id for run in runs[1:3]}) == (outline.id, {run.id for run in middle})


async def test_an_answer_that_the_engine_has_not_heard_of_is_not_asked_for_again(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply(TEXT), reply("another")]) as server:
        config = config_of(tmp_path, server)
        async with process(tmp_path, str(WORKER), "DATABASE", "DIE") as first:
            await first.communicate()
            assert first.returncode == -signal.SIGKILL
        async with process(tmp_path, str(WORKER), "DATABASE") as second:
            assert await result_of(second) == TEXT
        assert posts(server) == 1
        async with open_journal(config.store.url, config.database) as journal:
            [run] = await journal.runs()
        await check_log(config, run.id)


async def test_a_hung_process_is_fenced_off_and_gets_the_same_answer_when_it_wakes(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED]) as server:
        config = config_of(tmp_path, server, ", reattach: true")
        async with process(tmp_path, str(WORKER), "DATABASE") as first:
            run_id = await until_speaking(config, server)
            first.send_signal(signal.SIGSTOP)
            async with process(tmp_path, str(WORKER), "DATABASE") as second:
                assert await result_of(second) == TEXT
            first.send_signal(signal.SIGCONT)
            assert await result_of(first) == TEXT
        assert posts(server) == 1
        await check_log(config, run_id)
