"""A model call as a Temporal activity, in Temporal's own environment for activities."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from engines.test_durable_call import STALLED, TEXT, config_of
from tailrace.events import LlmDelta
from tailrace.journal.open_journal import open_journal
from tailrace.testing.provider import FaultyProvider, reply

testing: Any = pytest.importorskip(
    "temporalio.testing",
    reason="temporalio is not installed; it is large, so it is not among the tools",
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "engines" / "temporal_activity.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("temporal_activity", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_attempts_of_one_activity_give_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shutdown: bool
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
