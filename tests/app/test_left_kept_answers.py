"""A process that ends while it cannot read on what its provider keeps leaves that answer there: it is paid for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flows.stages import sequence
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.calls.service import CallSpec
from tailrace.config.load import load
from tailrace.events import AttemptStarted, GatewayNotice, UsageRecorded
from tailrace.messages import user
from tailrace.ports import Run
from tailrace.testing.provider import FaultyProvider

CONFIG = """
model: {{provider: faulty, name: ok{stand_in}}}
providers:
  faulty: {{dialect: responses, base_url: '{url}', reattach: true, backoff_s: 0.001, max_attempts: 2}}
  other: {{dialect: chat, base_url: '{url}', backoff_s: 0.001, max_attempts: 1}}
"""
BREAKS, GONE = "ok+cut@60%", ["drop"] * 3  # the answer is read on twice without success; the last is for a cancellation
STAND_IN = ", fallbacks: [{provider: other, name: ok}]"
WHOLE = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."


@asynccontextmanager
async def opened(home: Path, provider: FaultyProvider, *, stand_in: str = "") -> AsyncGenerator[App, None]:
    text = CONFIG.format(url=provider.openai_url, stand_in=stand_in)
    (home / "config.yaml").write_text(text, encoding="utf-8")
    async with open_app(load({}, home), directory=home) as app, asyncio.timeout(30):
        yield app


async def ask_agent(app: App) -> Run:
    return await app.agents.submit(TurnSpec(user("Tell me."), requester="web"))


async def ask_model(app: App) -> Run:
    spec = CallSpec({"input": "Tell me.", "model": "faulty/ok", "stream": True})
    return await app.calls.submit(spec, model="faulty/ok", session="", durability="committed")


async def ask_in_step(app: App) -> Run:
    params = {"provider": "faulty", "model": "ok", "messages": [{"role": "user", "content": "Tell me."}]}
    return await app.flows.start(sequence({"type": "step", "id": "say", "handler": "llm_call", "params": params}))


async def left(app: App, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], Awaitable[object]]) -> None:
    """Returns when the process, which is about to end, has left what was begun so to the next one."""
    is_left = asyncio.Event()
    for service in (app.agents, app.calls, app.flows):

        def noted(run_id: str, why: str, hand_over: Callable[[str, str], bool] = service.hand_over_run) -> bool:
            found = hand_over(run_id, why)
            if found:
                is_left.set()
            return found

        monkeypatch.setattr(service, "hand_over_run", noted)
    await app.hand_over()
    await begin()
    await is_left.wait()


@pytest.mark.parametrize("ask", [ask_agent, ask_model, ask_in_step])
@pytest.mark.parametrize("times", [1, 2])
async def test_the_answer_is_read_on_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[App], Awaitable[Run]], times: int
) -> None:
    run_ids: list[str] = []

    async def begin() -> None:
        run_ids.append((await ask(app)).id)

    async with FaultyProvider(script=[BREAKS, *GONE * 2]) as provider:
        async with opened(tmp_path, provider) as app:
            await left(app, monkeypatch, begin)
        for _ in range(1, times):
            async with opened(tmp_path, provider) as app:
                await left(app, monkeypatch, app.recover)
        assert provider.kept.cancelled == []
    async with FaultyProvider() as back:
        back.kept = provider.kept
        async with opened(tmp_path, back) as app:
            assert await app.recover() == run_ids
            for service in (app.agents, app.calls, app.flows):
                await service.left(run_ids[0])
            end = (await app.journal.get(run_ids[0])).finished
            events = [entry.event for entry in await app.journal.read(run_ids[0])]
        assert [request.method for request in back.requests] == ["GET"]
    assert end is not None
    assert (end.status, WHOLE in str(end.output)) == ("completed", True)
    kinds = [type(event) for event in events]
    assert (kinds.count(AttemptStarted), kinds.count(UsageRecorded), kinds.count(GatewayNotice)) == (1, 1, 0)


async def test_a_stand_in_that_answers_now_takes_its_place(tmp_path: Path) -> None:
    async with FaultyProvider(script=[BREAKS, *GONE[:2], "ok", "status-503", "ok"]) as provider:
        async with opened(tmp_path, provider, stand_in=STAND_IN) as app:
            await app.hand_over()
            run = await ask_agent(app)
            await app.agents.drain(600)
            end = await app.agents.finished(run.id)
        assert len(provider.kept.cancelled) == 1
    assert end.status == "completed"


async def test_what_only_this_process_knows_is_cancelled(tmp_path: Path) -> None:
    async with FaultyProvider(script=[BREAKS, *GONE[:2], "ok", "ok"]) as provider:
        async with opened(tmp_path, provider) as app:
            await app.hand_over()
            run = await app.agents.submit(TurnSpec(user("Tell me."), requester="web"), durability="memory")
            await app.agents.drain(600)
            end = await app.agents.finished(run.id)
        assert len(provider.kept.cancelled) == 1
    assert end.status == "completed"
