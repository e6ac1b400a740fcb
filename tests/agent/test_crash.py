"""A turn killed at each of its facts, in a real process with a real file, goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.strict_history import problems_in
from agent.turns import LONG_TEXT
from tailrace.events import (
    MessageChunk,
    MessageStop,
    RunFinished,
    SteerAccepted,
    SteerCommitted,
    SteerReturned,
    ToolOutputRecorded,
)
from tailrace.journal.open_journal import open_journal
from tailrace.messages import Dialect
from tailrace.testing.provider import FaultyProvider, Scenario, call, reply
from tailrace.testing.scripted.request_reader import ScriptedRequest

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
FIRST = reply("I will write it down.", call("terminal", {"command": "echo done >> effects.txt"}, id="c1"))
LAST = reply(LONG_TEXT)


class Conversation(FaultyProvider):
    """Answers by what was said so far, as a model would, so that it does not matter how often it is asked."""

    pace_s = 0.0

    def choose(self, told: ScriptedRequest) -> Scenario:
        said = str(told.body.get("messages") or told.body.get("input"))
        reply = LAST if "[exit code" in said or "was interrupted" in said else FIRST
        return Scenario(reply=reply, pace_s=self.pace_s)


class Victims:
    """Processes that run a turn, one after the other."""

    def __init__(self, forking: asyncio.subprocess.Process) -> None:
        self._forking = forking

    async def run_until(self, home: Path, die_at: int) -> str:
        """The run's id, or nothing where the process died before it had ended."""
        assert self._forking.stdin is not None
        assert self._forking.stdout is not None
        self._forking.stdin.write(f"{home} {die_at}\n".encode())
        status, _, said = (await self._forking.stdout.readline()).decode().rstrip("\n").partition(" ")
        assert status in ("0", "-9")
        return said


@asynccontextmanager
async def victims() -> AsyncGenerator[Victims, None]:
    program = Path(__file__).with_name("crashing_turn.py")
    forking = await asyncio.create_subprocess_exec(
        sys.executable, str(program), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Victims(forking)
    finally:
        await forking.communicate(b"")  # the end of its input is its end


@pytest.mark.skipif(not hasattr(os, "fork"), reason="victims are forked")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_I100_I106_a_turn_killed_at_any_fact_ends_once_and_acts_once(tmp_path: Path, dialect: Dialect) -> None:
    async with Conversation() as server, victims() as processes:

        async def killed_at(die_at: int) -> int:
            home = tmp_path / str(die_at)
            home.mkdir()
            (home / "config.yaml").write_text(
                "model: {provider: faulty, name: ok}\n"
                f"providers: {{faulty: {{dialect: {dialect}, base_url: '{server.url}'}}}}\n"
                "agent: {tools: [terminal]}\n",
                encoding="utf-8",
            )
            await processes.run_until(home, die_at)
            run_id = await processes.run_until(home, 10_000)
            return await check(home, run_id)

        last = await killed_at(10_000)
        # Between them the dialects take every fact: what the log holds does not depend on who wrote the bytes.
        places = range(2 + DIALECTS.index(dialect), last + 1, len(DIALECTS))
        for at in places:
            await killed_at(at)
        assert [p for request in server.requests for p in problems_in(dialect, request.json())] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="victims are forked")
@pytest.mark.parametrize("how", ["once", "again"])
@pytest.mark.parametrize("steer_at", [1, 12])
@pytest.mark.slow
async def test_N164_a_message_for_a_turn_that_is_killed_has_one_fate(tmp_path: Path, steer_at: int, how: str) -> None:
    async with Conversation() as server, victims() as processes:
        server.pace_s = 0.002  # time for the message

        async def killed_at(die_at: int) -> tuple[int, str]:
            home = tmp_path / str(die_at)
            home.mkdir()
            (home / "config.yaml").write_text(
                "model: {provider: faulty, name: ok}\n"
                f"providers: {{faulty: {{dialect: chat, base_url: '{server.url}'}}}}\n"
                "agent: {tools: [terminal]}\n",
                encoding="utf-8",
            )
            (home / "steer").write_text(f"{steer_at} {how}", encoding="utf-8")
            before = len(server.requests)
            await processes.run_until(home, die_at)
            run_id = await processes.run_until(home, 10_000)
            return await fate(home, run_id, [request.json()["messages"] for request in server.requests[before:]])

        last, _ = await killed_at(10_000)
        fates = {(await killed_at(at))[1] for at in range(2, last + 1)}
        assert "committed" in fates
        assert [p for request in server.requests for p in problems_in("chat", request.json())] == []


async def fate(home: Path, run_id: str, asked: list[list[dict[str, Any]]]) -> tuple[int, str]:
    """The length of the log, and what became of the message: exactly one thing, which the model was told of or not."""
    async with open_journal("sqlite:///tailrace.db", home / "tailrace.db") as journal:
        entries = await journal.read(run_id)
    told = [entry.event for entry in entries if isinstance(entry.event, SteerAccepted | SteerCommitted | SteerReturned)]
    (finished,) = [entry.event for entry in entries if isinstance(entry.event, RunFinished)]
    assert finished.status == "completed"
    said = [message["content"] for message in asked[-1] if message["content"] in ("go", "Also count.")]
    if not told:
        assert not (home / "accepted").exists()
        assert said == ["go"]
        return entries[-1].seq, "refused"
    accepted, end = told
    assert isinstance(accepted, SteerAccepted)
    assert said == (["go", "Also count."] if isinstance(end, SteerCommitted) else ["go"])
    return entries[-1].seq, "committed" if isinstance(end, SteerCommitted) else "returned"


async def check(home: Path, run_id: str) -> int:
    async with open_journal("sqlite:///tailrace.db", home / "tailrace.db") as journal:
        entries = await journal.read(run_id)
    events = [entry.event for entry in entries]
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [e.final for e in events if isinstance(e, MessageStop)].count(True) == 1
    (finished,) = [e for e in events if isinstance(e, RunFinished)]
    assert (finished.status, finished.output) == ("completed", LONG_TEXT)
    shown = "".join(e.text for e in events if isinstance(e, MessageChunk))
    assert shown == "I will write it down." + LONG_TEXT
    outputs = [e for e in events if isinstance(e, ToolOutputRecorded)]
    assert len(outputs) == 1
    effects = (home / "effects.txt").read_text(encoding="utf-8") if (home / "effects.txt").exists() else ""
    assert effects in ("", "done\n")  # killed between the start and the act: then the model was told, and nothing ran
    assert effects or not outputs[0].ok
    return entries[-1].seq
