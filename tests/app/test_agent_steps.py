"""A turn of the agent as a step of a sequence: it ends with the step, and not with the process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.test_left_failing import WHOLE, opened
from flows.stages import ask, sequence, step
from tailrace.agent.session import TURN_KIND
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.events import ApprovalAnswered, MessageChunk, RunFinished, StepFinished
from tailrace.flows.definition.definition import DefinitionError
from tailrace.messages import JsonObject, SpentTokens, Usage
from tailrace.ports import ENDED, Run, Signal
from tailrace.runs.approval_words import NO_SURFACE
from tailrace.testing.provider import FaultyProvider, Reply, call, reply

STEP = {"type": "step", "id": "say", "handler": "agent", "params": {"prompt": "Tell me."}}


async def begun(app: App, **fields: Any) -> tuple[Run, str]:
    """The instance, and the turn of its step once that has shown half of its answer."""
    running = asyncio.Event()
    app.agents.on_running = lambda _: running.set()
    instance = await app.flows.start(sequence({**STEP, **fields}))
    await running.wait()
    [turn_id] = app.agents.running
    said = ""
    async for batch in app.journal.tail(turn_id):
        said += "".join(entry.event.text for entry in batch if isinstance(entry.event, MessageChunk))
        if said.endswith("carries the"):
            break
    return instance, turn_id


@pytest.mark.parametrize("hands_over", [True, False])
async def test_an_orderly_end_of_the_process_leaves_the_turn_of_a_step_to_the_next(
    tmp_path: Path, hands_over: bool
) -> None:
    async with opened(tmp_path, "stall@50%") as app, asyncio.timeout(30):
        instance, turn_id = await begun(app)
        if hands_over:
            await app.hand_over()
    async with opened(tmp_path) as app, asyncio.timeout(30):
        assert {instance.id, turn_id} <= set(await app.recover())
        turn = await app.agents.finished(turn_id)
        end = await app.flows.finished(instance.id)
    assert (turn.status, turn.output, end.status) == ("completed", WHOLE, "completed")
    assert WHOLE in end.output


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_a_step_that_is_given_up_stops_its_turn(tmp_path: Path, how: str) -> None:
    async with opened(tmp_path, "stall@50%") as app, asyncio.timeout(30):
        instance, turn_id = await begun(app, **({"timeout_secs": 1} if how == "timeout" else {}))
        if how == "cancel":
            await app.journal.signal(instance.id, Signal("cancel"))
        turn = await app.agents.finished(turn_id)
        await app.flows.finished(instance.id)
        assert (await app.journal.get(instance.id)).state in ENDED
    assert turn.status == "stopped"


async def test_a_step_where_nobody_can_be_asked_is_denied_at_once(tmp_path: Path) -> None:
    removes = reply(call("terminal", {"command": "rm x"}))
    async with opened(tmp_path, removes, reply("It stays.")) as app, asyncio.timeout(30):
        instance = await app.flows.start(sequence(STEP))
        assert "It stays." in (await app.flows.finished(instance.id)).output
        [turn] = await app.journal.runs(kind=TURN_KIND)
        facts = [entry.event for entry in await app.journal.facts(turn.id)]
    assert [event.by for event in facts if isinstance(event, ApprovalAnswered)] == [NO_SURFACE]


@pytest.mark.parametrize("session", ["a\0b", "s" * 257], ids=["control character", "too long"])
async def test_a_session_that_not_every_store_takes_fails_its_step(tmp_path: Path, session: str) -> None:
    async with priced(tmp_path) as (app, provider):
        said = step("say", {"prompt": "Tell me.", "session": "{{input.session}}"}, "agent")
        instance = await app.flows.start(sequence(said), {"session": session})
        end = await app.flows.finished(instance.id)
        assert provider.requests == []
    assert end.error is not None
    assert "session" in end.error.message


# ── what they cost ───────────────────────────────────────────────────────────────────────────────────────────

USED = Usage(40, 2)
AGENT = step("say", {"prompt": "Tell me."}, "agent")


@asynccontextmanager
async def priced(
    home: Path, *answers: str | Reply, prices: str = "{ok: {input: 1, output: 1}}"
) -> AsyncGenerator[tuple[App, FaultyProvider], None]:
    """A provider that answers so, then with 42 tokens each, and prices in the config alone."""
    async with FaultyProvider(script=[*answers, *[reply("It flows.", usage=USED)] * 9]) as provider:
        faulty = f"{{base_url: '{provider.openai_url}', backoff_s: 0.001, prices: {prices}}}"
        text = f"model: {{provider: faulty, name: ok}}\nproviders: {{faulty: {faulty}}}\n"
        (home / "config.yaml").write_text(text, encoding="utf-8")
        async with open_app(load({}, home), directory=home) as app, asyncio.timeout(30):
            yield app, provider


async def ended(app: App, *blocks: JsonObject, **fields: Any) -> RunFinished:
    instance = await app.flows.start(sequence(*blocks, **fields))
    return await app.flows.finished(instance.id)


@pytest.mark.parametrize("say", [AGENT, ask()], ids=["agent", "llm_call"])
@pytest.mark.parametrize("budget", [{"max_tokens": 100}, {"max_cost_usd": 0.0001}])
async def test_a_budget_ends_the_steps_of_its_instance(
    tmp_path: Path, say: JsonObject, budget: JsonObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the prices of the config: the extra with the list prices is not needed."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    each = {"type": "for_each", "id": "all", "collection": [1, 2, 3, 4, 5, 6], "max_concurrency": 1, "body": [say]}
    async with priced(tmp_path) as (app, provider):
        end = await ended(app, each, budget=budget)
        assert len(provider.requests) == 3
    assert end.error is not None
    assert (end.status, end.error.code) == ("failed", "budget")
    assert end.usage == Usage(120, 6)


async def test_the_next_process_holds_the_budget_and_finishes_the_turn_under_way(tmp_path: Path) -> None:
    both = {"type": "parallel", "id": "both", "branches": [[AGENT], [{**AGENT, "id": "too"}]]}
    async with priced(tmp_path, reply("It flows.", usage=USED), "silence") as (app, _):
        last = {**AGENT, "id": "last"}
        instance = await app.flows.start(sequence(both, last, budget={"max_tokens": 40}))
        async for batch in app.journal.tail(instance.id):
            if any(isinstance(entry.event, StepFinished) for entry in batch):
                break
    async with priced(tmp_path) as (app, provider):
        await app.recover()
        end = await app.flows.finished(instance.id)
        assert len(provider.requests) == 1
        assert (await app.flows.instance(instance.id)).outputs.keys() == {"say", "too", "both"}
    assert end.error is not None
    assert end.error.code == "budget"


@pytest.mark.parametrize("say", [AGENT, ask()], ids=["agent", "llm_call"])
async def test_a_budget_in_dollars_asks_no_model_without_a_price(tmp_path: Path, say: JsonObject) -> None:
    async with priced(tmp_path, prices="{other: {input: 1, output: 1}}") as (app, provider):
        end = await ended(app, say, budget={"max_cost_usd": 5})
        assert provider.requests == []
    assert end.error is not None
    assert end.error.message.startswith("say: faulty/ok has no price")


async def test_a_budget_in_dollars_where_nothing_has_a_price_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    async with priced(tmp_path, prices="{}") as (app, _):
        with pytest.raises(DefinitionError, match="max_cost_usd"):
            app.flows.check(sequence(AGENT, budget={"max_cost_usd": 1}))


async def test_the_tokens_of_an_agent_step_have_a_price(tmp_path: Path) -> None:
    async with priced(tmp_path) as (app, _):
        end = await ended(app, AGENT, ask("ask"))
        assert end.spent == (SpentTokens("faulty", "ok", USED + USED),)
        assert app.costs.of(end.spent) == 0.000084
        output = (await app.flows.instance((await app.journal.runs(kind="sequence"))[0].id)).outputs["ask"]
        assert output["cost_usd"] == 0.000042
