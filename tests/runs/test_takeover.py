"""A live process goes on with the runs of one that was killed or hangs: every kind, without a restart (L145)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from proof.memory_platform import MemoryPlatform

from runs.victim import PLACE
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import Config, load
from tailrace.delivery.port import Capabilities
from tailrace.events import MessageChunk
from tailrace.gateway.gateway import Gateway
from tailrace.messages import user
from tailrace.runs.recovery import finished
from tailrace.testing.provider import Break, FaultyProvider, Offset, Scenario, reply

TEXT = "One two three four five"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))
VICTIM = Path(__file__).with_name("victim.py")


def config_of(home: Path, server: FaultyProvider, *, lease_s: float = 3.0) -> Config:
    (home / "config.yaml").write_text(
        "model: {provider: faulty, name: ok}\n"
        f"providers: {{faulty: {{dialect: chat, base_url: '{server.url}', backoff_s: 0.001}}}}\n"
        f"store: {{lease_s: {lease_s}}}\n",
        encoding="utf-8",
    )
    return load({}, home)


@asynccontextmanager
async def victim(home: Path, *args: str) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str], None]:
    """A process that executes a run of this kind, and the run's id."""
    path = os.pathsep.join(filter(None, [str(VICTIM.parents[2]), os.environ.get("PYTHONPATH")]))  # it imports `proof`
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(VICTIM),
        str(home),
        *args,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def recovering(app: App) -> AsyncGenerator[None, None]:
    task = asyncio.create_task(app.keep_recovering())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def killed(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()


@pytest.mark.parametrize("kind", ["agent", "call"])
async def test_L145_an_answer_goes_on_from_the_text_on_record(tmp_path: Path, kind: str) -> None:
    async with FaultyProvider(script=[STALLED, reply(TEXT)]) as server:
        config = config_of(tmp_path, server)
        async with (
            open_app(config, directory=tmp_path) as app,
            recovering(app),
            victim(tmp_path, kind) as (process, run_id),
        ):
            assert (await app.journal.get(run_id)).owner != app.owner
            await killed(process)
            end = await finished(app.journal, run_id)
            run = await app.journal.get(run_id)
            entries = await app.journal.read(run_id)
    assert (end.status, end.output) == ("completed", TEXT)
    assert (run.claims, run.kills) == (2, 1)
    assert "".join(entry.event.text for entry in entries if isinstance(entry.event, MessageChunk)) == TEXT


async def test_L145_an_instance_goes_on(tmp_path: Path) -> None:
    async with (
        FaultyProvider() as server,
        open_app(config_of(tmp_path, server), directory=tmp_path) as app,
        recovering(app),
        victim(tmp_path, "instance") as (process, run_id),
    ):
        await killed(process)
        await app.flows.signal(run_id, "go")
        end = await app.flows.finished(run_id)
        run = await app.journal.get(run_id)
    assert (end.status, run.claims) == ("completed", 2)


async def test_L145_a_delivery_goes_on(tmp_path: Path) -> None:
    """The run itself is executed by the process that lives."""
    async with FaultyProvider(script=[STALLED]) as server:
        platform = MemoryPlatform(Capabilities(mode="edit", edits=True))
        async with open_app(config_of(tmp_path, server), directory=tmp_path) as app, Gateway(app, [platform]):
            run = await app.agents.submit(TurnSpec(user("count")))
            async with victim(tmp_path, "delivery", run.id) as (process, delivery_id):
                await killed(process)
                await app.agents.stop(run.id)
                end = await finished(app.journal, delivery_id)
            delivery = await app.journal.get(delivery_id)
    assert (end.status, delivery.claims) == ("completed", 2)
    assert platform.chat(PLACE.chat).texts


async def test_L145_a_process_that_hangs_loses_its_run(tmp_path: Path) -> None:
    """It is alive, so only its lease tells."""
    async with FaultyProvider(script=[STALLED, reply(TEXT)]) as server:
        config = config_of(tmp_path, server, lease_s=1.0)
        async with (
            open_app(config, directory=tmp_path) as app,
            recovering(app),
            victim(tmp_path, "agent") as (process, run_id),
        ):
            process.send_signal(signal.SIGSTOP)
            end = await finished(app.journal, run_id)
    assert (end.status, end.output) == ("completed", TEXT)
