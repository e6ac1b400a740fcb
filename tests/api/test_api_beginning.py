"""How the turns of an `Agent` begin: in the order of the questions, and not behind the back of who has left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from scripted_agent import STALLED, config_for, opened
from tailrace import Agent, AIAgent
from tailrace.agent.service import AgentService
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.errors import ConfigError
from tailrace.ports import Run
from tailrace.testing.provider import FaultyProvider, reply


async def test_F76_a_turn_that_was_being_begun_as_its_task_was_cancelled_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the journal: another process that found it unfinished would go on with it."""
    stored, answered = asyncio.Event(), asyncio.Event()
    submit = AgentService.submit

    async def slow_submit(*args: Any, **options: Any) -> Run:
        run = await submit(*args, **options)
        stored.set()
        await answered.wait()
        return run

    monkeypatch.setattr(AgentService, "submit", slow_submit)
    async with FaultyProvider([STALLED]) as server:
        config = config_for(server.url, tmp_path)
        async with Agent(config=config, directory=tmp_path) as agent:
            asking = asyncio.create_task(agent.run("Count."))
            await stored.wait()
            for _ in range(3):
                asking.cancel()
                await asyncio.sleep(0)
            answered.set()
            await asyncio.wait([asking])
            assert asking.cancelled()
    async with open_app(config) as app:
        [run] = await app.journal.runs(kind="agent")
        assert run.state == "stopped"


async def test_questions_that_are_asked_at_once_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, asked = AgentService.submit, list[str]()

    async def slow_submit(service: AgentService, spec: TurnSpec, **options: Any) -> Run:
        asked.append(spec.message.text)
        for _ in range(100 if len(asked) == 1 else 0):  # the journal may read for the second one first
            await asyncio.sleep(0)
        return await submit(service, spec, **options)

    monkeypatch.setattr(AgentService, "submit", slow_submit)
    async with opened(tmp_path, reply("First."), reply("Second."), busy="queue") as (agent, _):
        results = await asyncio.gather(agent.run("One?"), agent.run("Two?"))
    assert [result.text for result in results] == ["First.", "Second."]


async def test_a_mistake_in_the_file_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("\nagent:\n  redact: ['(']\n", encoding="utf-8")
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="not a regular expression") as caught:
        await Agent(directory=tmp_path).__aenter__()
    assert (caught.value.file, caught.value.line) == (str(file), 3)
    with pytest.raises(ConfigError, match=r"^agent\.redact: not a regular"):  # a program may have made that config
        await Agent(config=load({}, tmp_path), directory=tmp_path).__aenter__()


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("model", 3, "Expected `str`, got `int`"),
        ("system", None, "Expected `str`, got `null`"),
        ("session", 5, "Expected `str`, got `int`"),
        ("directory", 5, "Expected `str | null`, got `int`"),
        ("config", "config.yaml", "Expected `object | null`, got `str`"),
        ("yolo", "no", "Expected `bool`, got `str`"),
        ("max_turns", "3", "Expected `int | null`, got `str`"),
        ("busy", "wait", "Invalid enum value 'wait'"),
        ("on_approval", True, "Expected `Callable`, got `bool`"),
    ],
)
@pytest.mark.parametrize("kind", [Agent, AIAgent])
def test_an_option_of_another_type_is_refused(kind: type[Agent | AIAgent], option: str, value: Any, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**{option: value})
    assert str(caught.value) == f"Agent({option}={value!r}): {why}"


@pytest.mark.parametrize(("option", "value"), [("max_turns", 0), ("max_tokens", "9"), ("max_usd", "0.5"), ("key", 7)])
async def test_an_option_of_a_run_of_another_type_is_refused(tmp_path: Path, option: str, value: Any) -> None:
    async with Agent(model="local/smollm2-135m", config=load({}, tmp_path)) as agent:
        with pytest.raises(ConfigError, match=option):
            await agent.run("Go.", **{option: value})
        assert await agent.messages() == ()
