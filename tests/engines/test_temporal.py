"""A model call as a Temporal activity: in Temporal's environment for activities, and in a workflow on a real server."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engines.temporal_server import PACKAGES, sdk_packages, temporal_server
from engines.test_durable_call import STALLED, TEXT, config_of
from tailrace.events import LlmDelta
from tailrace.journal.open_journal import open_journal
from tailrace.ports import Journal
from tailrace.testing.provider import FaultyProvider, Reply, Scenario, reply

EXAMPLE = Path(__file__).parents[2] / "examples" / "engines" / "temporal_activity.py"
# Temporal keeps a workflow's tasks for the worker that has it cached, for 10 s. Its test server keeps them for ever.
RUNNER = """
import functools, runpy, sys
sys.path.append({packages!r})
import temporalio.worker
temporalio.worker.Worker = functools.partial(temporalio.worker.Worker, max_cached_workflows=0)
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def example() -> Any:
    spec = importlib.util.spec_from_file_location("temporal_activity", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def testing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path, str(sdk_packages(tmp_path))])
    return importlib.import_module("temporalio.testing")


@asynccontextmanager
async def worker(home: Path, address: str) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """The example in a process of its own, which finds Temporal's SDK beside our packages."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RUNNER.format(packages=str(home / PACKAGES))),
        *(str(EXAMPLE), "tide mills"),
        env={"PATH": os.environ["PATH"], "TAILRACE_HOME": str(home), "TEMPORAL_ADDRESS": address},
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


async def until_both_parts_speak(journal: Journal) -> list[str]:
    """The runs of the two calls that are made side by side, once each is seen from this process."""
    *middle, _ = await journal.runs()
    assert len(middle) == 2
    for run in middle:
        async for batch in journal.tail(run.id):
            if any(isinstance(entry.event, LlmDelta) for entry in batch):
                break
    return [run.id for run in middle]


@pytest.mark.slow
async def test_the_example_pays_for_each_step_once_and_shows_it_live(tmp_path: Path) -> None:
    part = Scenario(reply=reply("word " * 200), pace_s=0.02)
    script: list[Reply | Scenario] = [reply("An outline."), part, part]
    sdk_packages(tmp_path)
    async with FaultyProvider(script=[*script, reply("All of it.")]) as server, temporal_server() as address:
        config = config_of(tmp_path, server)
        async with worker(tmp_path, address) as child:
            await server.request(2)
            async with open_journal(config.store.url, config.database) as journal:
                await until_both_parts_speak(journal)
                server.flowing.clear()
                assert [run.state for run in await journal.runs()] == ["running", "running", "completed"]
            server.flowing.set()
            out, err = await child.communicate()
        assert out.decode().endswith("All of it.\n"), err.decode()
        assert len(server.requests) == 4
        async with open_journal(config.store.url, config.database) as journal:
            assert len(await journal.runs()) == 4


@pytest.mark.slow
async def test_a_worker_that_is_killed_in_its_second_step_is_followed_by_one_that_goes_on_with_both_calls(
    tmp_path: Path,
) -> None:
    script: list[Any] = [reply("An outline."), STALLED, STALLED, "ok", "ok", reply("All of it.")]
    sdk_packages(tmp_path)
    async with FaultyProvider(script=script) as server, temporal_server() as address:
        config = config_of(tmp_path, server, ", reattach: true")  # a GET for each kept answer
        async with worker(tmp_path, address) as first:
            await server.request(2)
            async with open_journal(config.store.url, config.database) as journal:
                parts = await until_both_parts_speak(journal)
            first.kill()
            assert await first.wait() == -signal.SIGKILL
        async with worker(tmp_path, address) as second:
            out, err = await second.communicate()
        assert out.decode().endswith("All of it.\n"), err.decode()
        assert [request.method for request in server.requests] == ["POST", "POST", "POST", "GET", "GET", "POST"]
        async with open_journal(config.store.url, config.database) as journal:
            runs = await journal.runs()
            assert [run.id for run in runs[1:3]] == parts
            assert [run.state for run in runs] == ["completed"] * 4
            for run_id in parts:  # one text each, told once
                events = [entry.event for entry in await journal.read(run_id)]
                assert "".join(event.delta for event in events if isinstance(event, LlmDelta)) == TEXT


async def test_attempts_of_one_activity_give_one_answer(
    testing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FaultyProvider(script=[reply(TEXT), reply("another")]) as server:
        config_of(tmp_path, server)
        monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
        ask = example().ask
        beats: list[object] = []
        outputs = []
        for _ in range(2):  # each environment is an attempt in another worker
            environment = testing.ActivityEnvironment()
            environment.on_heartbeat = lambda *details: beats.append(details)
            outputs.append(await environment.run(ask, "Count"))
        assert outputs[0] == outputs[1]
        assert outputs[0]["message"]["content"] == TEXT
        assert len(server.requests) == 1
        assert beats


@pytest.mark.parametrize("shutdown", [False, True])
async def test_a_cancelled_activity_is_stopped_and_one_of_a_worker_that_ends_goes_on(
    testing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shutdown: bool
) -> None:
    async with FaultyProvider(script=[STALLED]) as server:
        config = config_of(tmp_path, server, ", reattach: true")
        monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
        environment = testing.ActivityEnvironment()
        task = asyncio.ensure_future(environment.run(example().ask, "Count"))
        await server.request()
        async with open_journal(config.store.url, config.database) as journal:
            [run] = await journal.runs()
            async for batch in journal.tail(run.id):
                if any(isinstance(entry.event, LlmDelta) for entry in batch):
                    break
            if shutdown:
                environment.worker_shutdown()
            environment.cancel()
            await asyncio.wait([task])
            assert (await journal.get(run.id)).state == ("pending" if shutdown else "stopped")
        assert len(server.kept.cancelled) == (0 if shutdown else 1)
        if shutdown:
            assert (await testing.ActivityEnvironment().run(example().ask, "Count"))["message"]["content"] == TEXT
            assert sum(request.method == "POST" for request in server.requests) == 1
