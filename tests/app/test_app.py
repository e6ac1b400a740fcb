"""What the config says of turns reaches them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.errors import ConfigError
from tailrace.events import MessageChunk, ReasoningChunk, ToolOutputRecorded
from tailrace.messages import user
from tailrace.ports import NewRun, Run
from tailrace.testing.provider import FaultyProvider, Scenario, call, reply


async def test_the_agents_settings_reach_a_turn(tmp_path: Path) -> None:
    home, roots = tmp_path / "home", tmp_path / "notes"
    home.mkdir()
    roots.mkdir()
    (roots / "a.txt").write_text("the key is tok_abc", encoding="utf-8")
    script = [reply(call("read_file", {"path": str(roots / "a.txt")})), reply("<musing>hm</musing>It is tok_xyz .")]
    async with FaultyProvider(script=script) as server:
        (home / "config.yaml").write_text(
            f"model: {{provider: p, name: ok}}\nproviders: {{p: {{dialect: chat, base_url: '{server.url}'}}}}\n"
            f"agent: {{roots: ['{roots}'], think_tags: [musing], redact: ['tok_[a-z]+'], max_tokens: 500}}\n",
            encoding="utf-8",
        )
        async with open_app(load({}, home), directory=home) as app:
            run = await app.agents.submit(TurnSpec(user("go")))
            finished = await app.agents.finished(run.id)
            events = [entry.event for entry in await app.journal.read(run.id)]
        asked = server.requests[0].json()
    (output,) = [event.output for event in events if isinstance(event, ToolOutputRecorded)]
    assert "the key is [redacted]" in output
    assert finished.output == "It is [redacted] ."
    assert "".join(event.text for event in events if isinstance(event, MessageChunk)) == finished.output
    assert [event.text for event in events if isinstance(event, ReasoningChunk)] == ["hm"]
    assert asked["max_tokens"] == 500


async def test_the_stores_durability_is_every_turns(tmp_path: Path) -> None:
    async with FaultyProvider(script=[reply("Yes.")]) as server:
        (tmp_path / "config.yaml").write_text(
            f"model: {{provider: p, name: ok}}\nproviders: {{p: {{dialect: chat, base_url: '{server.url}'}}}}\n"
            "store: {durability: fsync}\n",
            encoding="utf-8",
        )
        async with open_app(load({}, tmp_path), directory=tmp_path) as app:
            run = await app.agents.submit(TurnSpec(user("go")))
            await app.agents.finished(run.id)
    assert run.new.durability == "fsync"


async def test_runs_of_a_dead_process_go_on_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tailrace")
    stalled = Scenario(reply=reply("One two"), pace_s=60.0)
    async with FaultyProvider(script=[stalled, stalled, reply("One."), reply("Two.")]) as server:
        (tmp_path / "config.yaml").write_text(
            f"model: {{provider: p, name: ok}}\nproviders: {{p: {{dialect: chat, base_url: '{server.url}'}}}}\n",
            encoding="utf-8",
        )
        async with open_app(load({}, tmp_path), directory=tmp_path) as app:
            await app.recover()
            begun = [await app.agents.submit(TurnSpec(user("go"))) for _ in range(2)]
            await server.request(1)
        assert not any("resuming" in said for said in caplog.messages)
        async with open_app(load({}, tmp_path), directory=tmp_path) as app:
            assert sorted(await app.recover()) == sorted(run.id for run in begun)
            for run in begun:
                await app.agents.finished(run.id)
    assert [said for said in caplog.messages if "resuming" in said] == ["resuming 2 unfinished runs"]


async def test_a_pattern_that_is_none_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("agent: {redact: ['(']}", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"agent\.redact: not a regular expression"):
        async with open_app(load({}, tmp_path)):
            pass


async def test_a_history_for_the_embedded_model_grows_no_longer_than_it_reads(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("agent: {context_tokens: 50000}", encoding="utf-8")
    async with open_app(load({"OPENAI_API_KEY": "sk-1"}, tmp_path), directory=tmp_path) as app:
        run = Run("run_1", NewRun("agent"), "running", 0, 1, 0.0, 1)
        wanted = {"": 8192, "openai/gpt-5": 50_000}
        given = {model: app.equip(TurnSpec(user("go"), model=model), run).model.context_tokens for model in wanted}
    assert given == wanted
