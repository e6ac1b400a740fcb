"""`Agent.stream_sync`: the text of a run for code without an event loop, and what is left when that code leaves it."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provider_thread import provider
from scripted_agent import STALLED, config_for, runs_of
from tailrace import Agent, ConfigError, Context, RunFailed
from tailrace.app import open_app
from tailrace.errors import TailraceError
from tailrace.testing.provider import FaultyProvider, call, reply

HALF_READ = """
from tailrace import Agent

pieces = Agent().stream_sync("Count.")
print(next(pieces), flush=True)
"""
ITERATED = """
from tailrace import Agent

for piece in Agent().stream_sync("Count."):
    print(piece, flush=True)
"""


def level(ctx: Context[str], river: str) -> str:
    """The level of a river."""
    return f"{river} at {ctx.deps}: 1.2 m"


def ask(home: Path) -> list[str]:
    script = (reply("I look.", call("level", {"river": "Aare"})), reply("It is low, and sinking."), reply("Ann."))
    with provider(*script) as server:
        agent = Agent(config=config_for(server.url, home), directory=home, tools=[level])
        pieces = list(agent.stream_sync("How is the Aare? I am Ann.", deps="Bern"))
        assert server.requests[1].json()["messages"][-1]["content"] == "Aare at Bern: 1.2 m"
        assert list(agent.stream_sync("Who am I?", deps="Bern")) == ["Ann."]
        assert "I am Ann." in server.requests[2].json()["messages"][1]["content"]  # one conversation
    return pieces


async def in_a_loop(home: Path) -> list[str]:
    return ask(home)  # in the thread of a loop that runs, as a notebook's


def in_a_thread(home: Path) -> list[str]:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.extend(ask(home)))
    thread.start()
    thread.join()
    return said


@pytest.mark.parametrize(
    "asking", [ask, in_a_thread, lambda home: asyncio.run(in_a_loop(home))], ids=["script", "thread", "notebook"]
)
def test_the_text_comes_piece_by_piece_without_an_event_loop(
    asking: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    pieces = asking(tmp_path)
    assert "".join(pieces) == "I look.\nIt is low, and sinking."
    assert len(pieces) >= 2


def test_F76_leaving_the_iteration_stops_the_run_at_its_provider(tmp_path: Path) -> None:
    with provider(STALLED) as server:
        config = config_for(server.url, tmp_path)
        for piece in Agent(config=config, directory=tmp_path).stream_sync("Count."):
            assert piece.startswith("One")  # while the provider still answers
            assert server.requests[0].disconnected_at is None
            break
        [run] = runs_of(config)
        assert run.state == "stopped"
        assert server.requests[0].over.is_set()
    assert "tailrace-run" not in [thread.name for thread in threading.enumerate()]


def test_a_run_that_fails_raises_after_what_it_said(tmp_path: Path) -> None:
    with provider(reply("I look.", call("level", {"river": "Aare"})), *["status-401"] * 2) as server:
        agent = Agent(config=config_for(server.url, tmp_path), directory=tmp_path, tools=[level])
        said: list[str] = []
        with pytest.raises(RunFailed, match="Incorrect API key"):
            said.extend(agent.stream_sync("Look.", deps="Bern"))
    assert "".join(said) == "I look."


@pytest.mark.parametrize(
    ("question", "options", "error"),
    [("Hi.", {"model": "nobody/knows"}, ConfigError), (" ", {}, TailraceError), (3, {}, TypeError)],
)
def test_a_mistake_is_raised_before_anything_is_recorded(
    question: Any, options: dict[str, Any], error: type[Exception], tmp_path: Path
) -> None:
    with provider() as server:
        config = config_for(server.url, tmp_path)
        with pytest.raises(error):
            next(Agent(config=config, **options).stream_sync(question))
        assert server.requests == []
    assert runs_of(config) == []


@pytest.mark.slow
@pytest.mark.parametrize("sent", [None, signal.SIGINT], ids=["ends", "is interrupted"])
async def test_F76_a_program_may_end_with_half_a_text_and_ctrl_c_stops_the_run(
    sent: signal.Signals | None, tmp_path: Path
) -> None:
    async with FaultyProvider([STALLED]) as server:
        config = config_for(server.url, tmp_path)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HALF_READ if sent is None else ITERATED),
            env={"TAILRACE_HOME": str(tmp_path)},
            cwd=tmp_path,
            stdout=PIPE,
            stderr=PIPE,
        )
        try:
            assert child.stdout is not None
            assert (await child.stdout.readline()).startswith(b"One")
            if sent is not None:
                child.send_signal(sent)
            _, err = await asyncio.wait_for(child.communicate(), 60)
        finally:
            if child.returncode is None:
                child.kill()
                await child.communicate()
    assert child.returncode == (0 if sent is None else -sent), err.decode()
    async with open_app(config) as app:
        [run] = await app.journal.runs()
    assert sent is None or run.state == "stopped"
