"""`tailrace.llm_call`: one durable call per key, with the parameters and the output of the step of that name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace.app import open_app
from tailrace.app.costs import Costs
from tailrace.app.usage.ledger import UsageLedger
from tailrace.config.load import Config, load
from tailrace.errors import RunParked
from tailrace.events import LlmDelta, RunFailure
from tailrace.flows.definition.definition import parsed
from tailrace.journal.open_journal import open_journal
from tailrace.testing.provider import Break, FaultyProvider, Offset, Scenario, reply

TEXT = "One two three four five"
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))


def config_of(home: Path, server: FaultyProvider, more: str = "") -> Config:
    (home / "config.yaml").write_text(
        "model: {provider: faulty, name: ok}\n"
        f"providers: {{faulty: {{dialect: responses, base_url: '{server.url}', backoff_s: 0.001{more}}}}}\n"
        "store: {lease_s: 1}\n",
        encoding="utf-8",
    )
    return load({}, home)


async def runs_in(config: Config) -> list[str]:
    async with open_journal(config.store.url, config.database) as journal:
        return [run.id for run in await journal.runs()]


async def test_the_output_is_the_steps_own(tmp_path: Path) -> None:
    params: dict[str, Any] = {"prompt": "Count {{to}} five", "system": "Be brief", "temperature": 0.5, "max_tokens": 9}
    async with FaultyProvider(script=[reply(TEXT), reply(TEXT)]) as server:
        config = config_of(tmp_path, server)
        output = await tailrace.llm_call(idempotency_key="w/1", config=config, **params)
        step = {"type": "step", "id": "a", "handler": "llm_call", "params": {**params, "prompt": "Count five"}}
        async with open_app(config, directory=tmp_path) as app:
            run = await app.flows.start(parsed({"name": "s", "blocks": [step]}))
            by_step = msgspec.json.decode((await app.flows.finished(run.id)).output)["a"]
        assert output == by_step
        assert output["message"] == {"role": "assistant", "content": TEXT}
        assert "Count {{to}} five" in str(server.requests[0].json())  # what code says is no template


async def test_a_key_names_one_call_whoever_asks_again(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply(TEXT), reply("another")]) as server:
        config = config_of(tmp_path, server)
        seen: list[str] = []
        first = await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config, on_run=seen.append)
        again = await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config, on_run=seen.append)
        assert first == again
        assert len(server.requests) == 1
        assert seen == (await runs_in(config)) * 2
        other = await tailrace.llm_call(prompt="Hi", idempotency_key="w/2", config=config)
        assert other["message"]["content"] == "another"


async def test_what_it_uses_is_counted_once(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply(TEXT)]) as server:
        config = config_of(tmp_path, server)
        for _ in range(2):
            output = await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config)
    async with open_journal(config.store.url, config.database) as journal:
        (row,) = await UsageLedger(journal, Costs(config)).rows()
    assert (row.key, row.model, row.calls) == ("python", "faulty/ok", 1)
    assert row.output_tokens == output["usage"]["output_tokens"] > 0


async def test_two_that_ask_at_once_get_one_answer(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        config = config_of(tmp_path, server)
        calls = (tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config) for _ in range(3))
        first, *others = await asyncio.gather(*calls)
        assert others == [first, first]
        assert len(server.requests) == 1


async def test_viewers_see_it_live_and_a_cancelled_call_goes_on_with_the_next(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED]) as server:
        config = config_of(tmp_path, server, ", reattach: true")
        run_id: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        call = tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config, on_run=run_id.set_result)
        task = asyncio.create_task(call)
        async with open_journal(config.store.url, config.database) as journal:
            async for batch in journal.tail(await run_id):
                if any(isinstance(entry.event, LlmDelta) for entry in batch):
                    break
        task.cancel()
        await asyncio.wait([task])
        output = await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config)
        assert output["message"]["content"] == TEXT
        assert sum(request.method == "POST" for request in server.requests) == 1  # nothing was asked for twice
        assert await runs_in(config) == [await run_id]
        async with open_journal(config.store.url, config.database) as journal:
            entries = await journal.read(await run_id)
        assert "".join(e.event.delta for e in entries if isinstance(e.event, LlmDelta)) == TEXT


async def test_a_call_that_is_stopped_when_it_is_cancelled_ends_and_stays_ended(tmp_path: Path) -> None:
    async with FaultyProvider(script=[STALLED]) as server:
        config = config_of(tmp_path, server, ", reattach: true")
        call = tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config, stop_on_cancel=lambda: True)
        task = asyncio.create_task(call)
        await server.request()
        async with open_journal(config.store.url, config.database) as journal:
            [run] = await journal.runs()
            async for batch in journal.tail(run.id):
                if any(isinstance(entry.event, LlmDelta) for entry in batch):
                    break
        task.cancel()
        await asyncio.wait([task])
        assert len(server.kept.cancelled) == 1
        with pytest.raises(tailrace.LlmCallError, match="cancelled") as caught:
            await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config)
        assert caught.value.run_id == run.id


async def test_a_call_that_failed_is_made_anew_when_the_engine_tries_again(tmp_path: Path) -> None:
    async with FaultyProvider(script=["status-401", "status-401", reply(TEXT)]) as server:
        config = config_of(tmp_path, server)
        for _ in range(2):
            with pytest.raises(tailrace.LlmCallError) as caught:
                await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config)
            assert (caught.value.kind, caught.value.run_id[:4]) == ("permanent", "run_")
        output = await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config)
        assert output["message"]["content"] == TEXT
        assert await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config) == output
        assert len(server.requests) == 3


async def test_the_second_try_of_a_call_is_not_the_call_of_another_key(tmp_path: Path) -> None:
    async with FaultyProvider(script=["status-401", reply(TEXT), reply("another")]) as server:
        config = config_of(tmp_path, server)
        with pytest.raises(tailrace.LlmCallError):
            await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config)
        await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config)
        other = await tailrace.llm_call(prompt="Ho", idempotency_key="w/1/2", config=config)
        assert other["message"]["content"] == "another"


async def test_a_call_that_is_parked_is_said_and_not_waited_for(tmp_path: Path) -> None:
    async with FaultyProvider(script=["silence"]) as server:
        config = config_of(tmp_path, server)
        asking = asyncio.create_task(tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config))
        await server.request()
        asking.cancel()
        await asyncio.wait([asking])
        async with open_journal(config.store.url, config.database) as journal:
            [run] = await journal.runs()
            await journal.park(await journal.claim(run.id, "they"), RunFailure("crash_loop", "its owners died"))
        with pytest.raises(RunParked, match="its owners died"):
            await tailrace.llm_call(prompt="Hi", idempotency_key="w/1", config=config)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "nothing is asked"),
        ({"prompt": "Hi", "temprature": 1}, "temprature"),
        ({"prompt": "Hi", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "Hi", "idempotency_key": ""}, "idempotency_key: is empty"),
        ({"prompt": "Hi", "api_key_env": "HOME"}, "flows.env_allow"),
    ],
)
async def test_a_mistake_is_named_before_anything_is_stored(
    tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    async with FaultyProvider() as server:
        config = config_of(tmp_path, server)
        with pytest.raises(tailrace.LlmCallError, match=message):
            await tailrace.llm_call(**{"idempotency_key": "w/1", "config": config, **params})
        assert server.requests == []
        assert await runs_in(config) == []
