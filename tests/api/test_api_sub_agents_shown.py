"""What a called agent does is seen under its call, folded once: in `tail`, `show`, the terminal, chats, the state."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.screen.drawn_text import Drawn
from delivery.planning.played_plans import EDITING, Stage
from scripted_agent import config_for
from tailrace import Agent, tool
from tailrace.app import open_app
from tailrace.cli.main import main
from tailrace.events import Entry, ToolCallChunk, ToolCallFinished
from tailrace.journal.fold import fold
from tailrace.testing.provider import FaultyProvider, call, reply


class Told(NamedTuple):
    run_id: str
    child: str
    entries: list[Entry]


@tool(repeatable=True)
def level(river: str) -> str:
    """The level of a river."""
    return f"{river}: 1.2 m"


async def a_called_agent(home: Path) -> Told:
    script = (
        reply(call("research", {"input": "the Aare"})),
        reply(call("level", {"river": "Aare"})),
        reply(call("level", {"river": "Rhine"})),
        reply("1.2 m."),
        reply("It is low."),
    )
    async with FaultyProvider(script) as server:
        config = config_for(server.url, home)
        helper = Agent(config=config, directory=home, tools=[level])
        agent = Agent(config=config, directory=home, tools=[helper.as_tool("research", "Looks things up.")])
        run_id = (await agent.run("How is the Aare?")).run_id
    async with open_app(config) as app:
        child = next(run.id for run in await app.journal.runs() if run.id != run_id)
        return Told(run_id, child, list(await app.journal.read(run_id)))


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return asyncio.run(a_called_agent(tmp_path))


def test_the_state_of_the_caller_has_it(told: Told) -> None:
    [called] = fold(told.entries).snapshot().tools
    assert (called.run_id, called.steps) == (told.child, ("level Aare", "level Rhine"))
    for cut in range(1, len(told.entries)):
        begun = fold(told.entries[:cut]).entry()
        assert fold([begun, *told.entries[cut:]]).snapshot().tools == (called,)


def test_show_and_tail_have_it(
    told: Told, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    assert main(["show", told.run_id]) == 0
    shown = [line.strip(" │") for line in capfd.readouterr().out.splitlines()]
    begins = shown.index(f"agent {told.child}")
    assert shown[begins + 1 : begins + 3] == ["▸ level Aare", "▸ level Rhine"]
    assert main(["tail", told.run_id]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[:3] == [f"· research  {told.child}", "    … level Aare", "    … level Rhine"]
    assert main(["show", "--json", "--timeline", told.run_id]) == 0
    [item] = [item for item in json.loads(capfd.readouterr().out)["items"] if item["kind"] == "tool_call"]
    assert (item["run_id"], item["steps"]) == (told.child, ["level Aare", "level Rhine"])  # for the inspector


def test_the_terminal_has_it(told: Told) -> None:
    drawn = Drawn()
    for entry in told.entries:
        drawn.see(entry.event, attempt=entry.attempt)
        if isinstance(entry.event, ToolCallChunk) and entry.event.preview == "level Rhine":
            assert drawn.moving[-1].strip() == "▸ level Rhine"
        if isinstance(entry.event, ToolCallFinished):
            assert drawn.settled[-1].split()[:5] == ["✓", "research", "the", "Aare", "2"]
    expanded = drawn.painter.lines(drawn.transcript.tools.expand(), 60)
    rows = ["".join(segment.text for segment in line).strip() for line in expanded]
    assert rows[-3:] == ["▸ level Aare", "▸ level Rhine", "1.2 m."]


def test_a_chat_has_a_line_of_it(told: Told) -> None:
    stage = Stage(EDITING)
    seen: list[str] = []
    for entry in told.entries:
        stage.feed([entry])
        stage.run_until(stage.now + 5)
        seen += [text for text in stage.chat.texts if "research" in text and text not in seen]
    assert "⏳ **research** `the Aare` ▸ `level Rhine`" in seen
    assert seen[-1].startswith("✓ **research** `the Aare` · 2 steps (")
