"""The text of an answer and what is told besides it, on one terminal: in the order in which it happened."""

from __future__ import annotations

import json
import os
import pty
import tty
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import App, open_app
from tailrace.cli.chat.run_printer import RunPrinter
from tailrace.config.load import load
from tailrace.events import MessageChunk, MessageStop, ReasoningChunk, RunFinished, ToolCallChunk
from tailrace.messages import user
from tailrace.ports import NewRun
from tailrace.testing.provider import FaultyProvider, call, reply

END = "\x04"  # after all that is shown


async def test_a_tool_that_ended_before_the_text_began_is_told_above_it(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        server.extend(reply("I will.", call("terminal", {"command": "rm -rf /"})), reply("I may not."))
        shown = await _shown_at_once(tmp_path, server)
    assert [line[:14] for line in shown.splitlines()] == [
        "I will.",
        "not executed: ",
        "✗ terminal  rm",
        "",
        "I may not.",
    ]


async def test_a_notice_in_the_middle_of_a_line_has_its_own(tmp_path: Path) -> None:
    async with FaultyProvider() as server:
        server.extend("long+stall@5%", reply("And so on."))
        shown = await _shown_at_once(tmp_path, server)
    words, notice, rest = shown.splitlines()
    assert words.startswith("word0 word1 ")
    assert notice.startswith("⚠️ No response from provider for ")
    assert rest == "And so on."


@pytest.mark.parametrize(("verbose", "shown"), [(False, "It is done.\n"), (True, "It is \n    … half\ndone.\n")])
async def test_what_is_not_shown_breaks_no_line(tmp_path: Path, verbose: bool, shown: str) -> None:
    """The progress of a tool is shown with the details of tools alone."""
    progress = ToolCallChunk("draw", "half", index=0)
    async with open_app(load({}, tmp_path)) as app:
        run, lease = await app.journal.start(NewRun("agent"), "me")
        assert lease is not None
        said = (ToolCallChunk("draw"), MessageChunk("It is "), progress, MessageChunk("done."), MessageStop(final=True))
        app.journal.append(lease, said)
        await app.journal.seal(lease, RunFinished("completed", "It is done."))
        assert await _watched(app, run.id, verbose=verbose) == shown


async def test_reasoning_ends_its_line_before_what_follows(tmp_path: Path) -> None:
    async with open_app(load({}, tmp_path)) as app:
        run, lease = await app.journal.start(NewRun("agent"), "me")
        assert lease is not None
        said = (ReasoningChunk("Let me "), ReasoningChunk("think."), MessageChunk("Four."), MessageStop(final=True))
        app.journal.append(lease, said)
        await app.journal.seal(lease, RunFinished("completed", "Four."))
        assert await _watched(app, run.id, reasoning=True) == "Let me think.\nFour.\n"


async def _shown_at_once(home: Path, server: FaultyProvider) -> str:
    """What a run looks like whose whole log is there when it is looked at, as on a busy machine."""
    provider = {"dialect": "chat", "base_url": server.openai_url, "backoff_s": 0.001, "idle_timeout_s": 2}
    config = {"model": {"provider": "faulty", "name": "ok"}, "providers": {"faulty": provider}}
    (home / "config.yaml").write_text(json.dumps(config))
    async with open_app(load({}, home)) as app:
        run = await app.agents.submit(TurnSpec(user("Go."), reachable=False))
        await app.agents.finished(run.id)
        return await _watched(app, run.id)


async def _watched(app: App, run_id: str, *, verbose: bool = False, reasoning: bool = False) -> str:
    """What is on a terminal when the run has been watched there."""
    reader, writer = pty.openpty()
    tty.setraw(writer)
    with os.fdopen(reader, "rb", buffering=0) as shown, os.fdopen(writer, "w", encoding="utf-8") as screen:
        with redirect_stdout(screen), redirect_stderr(screen):
            shown_too = {"verbose": verbose, "reasoning": reasoning}
            printer = RunPrinter(app.journal, app.config, streamed=True, as_json=False, **shown_too)
            await printer.watch(run_id)
        screen.write(END)
        screen.flush()
        text = b""
        while not text.endswith(END.encode()):  # a terminal hands out what it has, piece by piece
            text += shown.read(100_000)
        return text.decode().removesuffix(END)
