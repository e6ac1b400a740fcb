"""The text of an answer and what is told besides it, on one terminal: in the order in which it happened."""

from __future__ import annotations

import json
import os
import pty
import tty
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from tailrace.agent.service import TurnSpec
from tailrace.app import open_app
from tailrace.cli.chat.oneshot import OneShot
from tailrace.config.load import load
from tailrace.messages import user
from tailrace.testing.provider import FaultyProvider, call, reply


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


async def _shown_at_once(home: Path, server: FaultyProvider) -> str:
    """What a run looks like whose whole log is there when it is looked at, as on a busy machine."""
    provider = {"dialect": "chat", "base_url": server.openai_url, "backoff_s": 0.001, "idle_timeout_s": 2}
    config = {"model": {"provider": "faulty", "name": "ok"}, "providers": {"faulty": provider}}
    (home / "config.yaml").write_text(json.dumps(config))
    async with open_app(load({}, home)) as app:
        run = await app.agents.submit(TurnSpec(user("Go."), reachable=False))
        await app.agents.finished(run.id)
        reader, writer = pty.openpty()
        tty.setraw(writer)
        with os.fdopen(reader, "rb", buffering=0) as shown, os.fdopen(writer, "w", encoding="utf-8") as screen:
            with redirect_stdout(screen), redirect_stderr(screen):
                await OneShot(app, streamed=True, as_json=False).watch(run.id)
            return shown.read(100_000).decode()
