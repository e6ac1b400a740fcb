"""Changing to the embedded model in a conversation: its engine and its weights take their time."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.screen.vt import VirtualTerminal
from tailrace.testing.provider import FaultyProvider, reply

SLOW = "open({gate!r}).read()\n"  # until somebody opens the gate


class Home:
    """A home directory, and a directory of modules that stand for slow ones."""

    def __init__(self, path: Path, server: FaultyProvider) -> None:
        self.path = path
        self.gate = path / "gate"
        os.mkfifo(self.gate)
        (path / "any.gguf").write_bytes(b"GGUF")
        self.server = server
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TAILRACE_", "HERMES_"))}
        self.env = {**kept, "TAILRACE_HOME": str(path), "PYTHONPATH": str(path)}

    def slow_module(self, name: str, then: str) -> None:
        (self.path / f"{name}.py").write_text(SLOW.format(gate=str(self.gate)) + then)

    def terminal(self, *, model_path: str = "") -> VirtualTerminal:
        faulty = {"dialect": "chat", "base_url": self.server.openai_url}
        local = {"local": {"model_path": model_path}} if model_path else {}
        config = {"model": {"provider": "faulty", "name": "ok"}, "providers": {"faulty": faulty, **local}}
        (self.path / "config.yaml").write_text(json.dumps(config))
        return VirtualTerminal([sys.executable, "-m", "tailrace", "chat"], self.env)

    def open_gate(self) -> None:
        self.gate.write_bytes(b"")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    async with FaultyProvider(script=[reply("Here I am.")]) as server:
        yield Home(tmp_path, server)


async def test_the_prompt_stays_while_the_embedded_model_is_loaded(home: Home) -> None:
    home.slow_module("xllamacpp", "raise ImportError('no engine')")
    async with home.terminal(model_path=str(home.path / "any.gguf")) as terminal:
        await terminal.until("/help")
        terminal.enter("/model local/any")
        await terminal.until("loading the embedded model; what you enter meanwhile is done afterwards")
        terminal.type("Who are you?")
        await terminal.until(lambda: "❯ Who are you?" in terminal.lines)
        terminal.type("\r")
        home.open_gate()
        await terminal.until("(no engine)")
        await terminal.until("● Here I am.")


async def test_lines_that_are_entered_during_a_download_stay_in_the_input_line(home: Home) -> None:
    home.slow_module("xllamacpp", "")
    home.slow_module("pip", "raise SystemExit('ERROR: no network')")
    async with home.terminal() as terminal:
        await terminal.until("/help")
        terminal.enter("/model local")
        await terminal.until("downloading the embedded model")
        terminal.enter("/verbose")
        terminal.enter("Who are you?")
        await terminal.until("Who are you?")
        home.open_gate()
        await terminal.until("pip: no network")
        await terminal.until("❯ /verbose")
        await terminal.until(lambda: terminal.text.rfind("Who are you?") > terminal.text.rfind("❯ /verbose"))
    assert home.server.requests == []
