"""A process that ends while its provider fails leaves what was cut to the next one: both may end with their machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flows.stages import sequence
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.calls.service import CallSpec
from tailrace.config.load import load
from tailrace.events import RunFinished
from tailrace.messages import user
from tailrace.ports import Durability
from tailrace.testing.provider import FaultyProvider, Reply

CONFIG = """
model: {{provider: faulty, name: ok}}
providers: {{faulty: {{dialect: chat, base_url: '{url}', backoff_s: 0.001}}}}
"""
WHOLE = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."


@asynccontextmanager
async def opened(home: Path, *answers: str | Reply) -> AsyncGenerator[App, None]:
    """With a provider that answers so, the last of them as often as a call asks it."""
    script = answers or ("ok",)
    async with FaultyProvider(script=[*script, *script[-1:] * 4]) as provider:
        (home / "config.yaml").write_text(CONFIG.format(url=provider.url), encoding="utf-8")
        async with open_app(load({}, home), directory=home) as app:
            yield app


async def ask(app: App, *, session: str = "", durability: Durability | None = None) -> str:
    spec = TurnSpec(user("Tell me."), requester="web", busy="queue")
    return (await app.agents.submit(spec, session=session, durability=durability)).id


async def drained(app: App) -> None:
    async with asyncio.timeout(30):
        await asyncio.gather(app.agents.drain(600), app.calls.drain(600))


async def end_of(home: Path, run_id: str) -> RunFinished:
    """How the run ends in the next process, whose provider is well."""
    async with opened(home) as app, asyncio.timeout(30):
        assert run_id in await app.recover()
        for service in (app.agents, app.calls, app.flows):
            await service.left(run_id)
        finished = (await app.journal.get(run_id)).finished
    assert finished is not None
    return finished


@pytest.mark.parametrize("model", ["ok+cut@50%", "drop", "status-503"])
async def test_a_turn_whose_provider_is_gone_goes_on_after_the_next_start(tmp_path: Path, model: str) -> None:
    async with opened(tmp_path, model) as app:
        await app.hand_over()
        run_id = await ask(app)
        await drained(app)
        run = await app.journal.get(run_id)
    assert (run.finished, run.owner) == (None, "")
    end = await end_of(tmp_path, run_id)
    assert (end.status, end.output) == ("completed", WHOLE)


@pytest.mark.parametrize("model", ["ok+cut@50%", "drop", "status-503"])
async def test_a_provider_that_answers_the_next_try_is_asked_again_first(tmp_path: Path, model: str) -> None:
    async with opened(tmp_path, model, "ok") as app:
        await app.hand_over()
        run_id = await ask(app)
        await drained(app)
        end = await app.agents.finished(run_id)
    assert (end.status, end.output) == ("completed", WHOLE)


async def test_what_waits_behind_it_is_not_begun_here(tmp_path: Path) -> None:
    async with opened(tmp_path, "ok+cut@50%") as app:
        await app.hand_over()
        runs = [await ask(app, session="s"), await ask(app, session="s")]
        await drained(app)
        assert [(await app.journal.get(run_id)).owner for run_id in runs] == ["", ""]
    end = await end_of(tmp_path, runs[1])
    assert (end.status, end.output) == ("completed", WHOLE)


async def test_a_stored_call_goes_on_from_its_text(tmp_path: Path) -> None:
    async with opened(tmp_path, "ok+cut@50%") as app:
        await app.hand_over()
        spec = CallSpec({"input": "Tell me.", "model": "faulty/ok", "stream": True})
        run = await app.calls.submit(spec, model="faulty/ok", session="", durability="committed")
        await drained(app)
        left = await app.journal.get(run.id)
    assert (left.finished, left.owner) == (None, "")
    end = await end_of(tmp_path, run.id)
    assert (end.status, end.output) == ("completed", WHOLE)


async def test_a_step_waits_for_the_end_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = asyncio.Event()
    params = {"provider": "faulty", "model": "ok", "messages": [{"role": "user", "content": "Tell me."}]}
    async with opened(tmp_path, "ok+cut@50%") as app:
        await app.hand_over()
        hand_over = app.flows.hand_over_run

        def noted(run_id: str, why: str) -> bool:
            left.set()
            return hand_over(run_id, why)

        monkeypatch.setattr(app.flows, "hand_over_run", noted)
        run = await app.flows.start(sequence({"type": "step", "id": "say", "handler": "llm_call", "params": params}))
        async with asyncio.timeout(30):
            await left.wait()
        assert run.id in app.flows.running
    end = await end_of(tmp_path, run.id)
    assert end.status == "completed"


async def test_what_only_this_process_knows_ends_here(tmp_path: Path) -> None:
    async with opened(tmp_path, "status-503") as app:
        await app.hand_over()
        run_id = await ask(app, durability="memory")
        await drained(app)
        assert (await app.agents.finished(run_id)).status == "failed"


async def test_a_request_that_no_provider_takes_ends_here(tmp_path: Path) -> None:
    async with opened(tmp_path, "status-400") as app:
        await app.hand_over()
        run_id = await ask(app)
        await drained(app)
        assert (await app.agents.finished(run_id)).status == "failed"
