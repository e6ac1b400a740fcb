"""The answer in a real terminal: streamed, interrupted, resized."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from bench.render import answer, chunks_of

from cli.chat.screen_home import MARKDOWN, Home, answered, body, last_word, ready
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.testing.provider import Scenario, reply, think
from tailrace.testing.scripted.reply import Reply, TextBlock


async def test_streamed_or_not_the_final_screen_is_the_same(home: Home) -> None:
    home.server.extend(Scenario(reply=reply(MARKDOWN), write_bytes=37), reply(MARKDOWN))
    screens = []
    for switch in ("--stream", "--no-stream"):
        async with home.terminal(switch) as terminal:
            await ready(terminal)
            terminal.enter("What is a mill?")
            await answered(terminal)
            terminal.type("\x04")
            assert await terminal.exit_code() == 0
            screens.append(body(terminal.text))
    assert screens[0] == screens[1]
    assert sum(line.startswith("● ") for line in screens[0]) == 1
    assert "    def grind(grain: float) -> float:" in screens[0]


async def test_a_long_answer_in_2000_chunks_scrolls_by_whole(home: Home) -> None:
    text = answer(10_000)
    home.server.extend(Reply((TextBlock(tuple(chunks_of(text, 2000))),)), reply(text))
    screens = []
    for switch in ("--stream", "--no-stream"):
        async with home.terminal(switch, columns=100) as terminal:
            await ready(terminal)
            terminal.enter("Tell me everything.")
            await answered(terminal)
            terminal.type("\x04")  # leaving draws the last frame whole
            assert await terminal.exit_code() == 0
            screens.append(body(terminal.text))
    assert screens[0] == screens[1]
    assert len(screens[0]) > 300


async def test_typing_while_the_answer_streams(home: Home) -> None:
    home.server.extend("long+pace@0.02")
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Go on and on.")
        await terminal.until("word2")
        terminal.type("My next question")
        await terminal.until(lambda: "❯ My next question" in terminal.lines)
        before = last_word(terminal)
        await terminal.until(lambda: last_word(terminal) > before)  # it goes on meanwhile
        terminal.type("\x1b")  # nothing waits for the model
        await terminal.until("interrupted")
        await terminal.until(lambda: "❯ My next question" in terminal.lines)
    assert "word1999" not in terminal.text


async def test_ctrl_c_interrupts_in_mid_stream_and_twice_leaves(home: Home) -> None:
    home.server.extend("long+stall@30%", reply("Still here."))
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Go.")
        await terminal.until("word599")
        terminal.type("\x03")
        await terminal.until("interrupted")
        await home.server.requests[0].over.wait()
        assert home.server.requests[0].disconnected_at is not None
        terminal.enter("There?")
        await terminal.until("Still here.")
        await answered(terminal, 2)
        terminal.type("\x03")
        await terminal.until("Ctrl-C again leaves")
        terminal.type("\x03")
        assert await terminal.exit_code() == 130


async def test_an_answer_that_another_terminal_stops_says_so(home: Home) -> None:
    home.server.extend("long+stall@1%")
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Go.")
        await terminal.until("word2")
        async with open_app(load(home.env)) as app:
            [run] = await app.journal.runs()
            await app.agents.stop(run.id, by="cli")
        await terminal.until("◼ stopped by another terminal")


async def test_the_window_changes_its_size_in_mid_stream(home: Home) -> None:
    home.server.extend(Scenario(reply=reply(" ".join(["flow"] * 400) + "\n\nAnd *done*."), pace_s=0.004))
    async with home.terminal(columns=80, rows=24) as terminal:
        await ready(terminal)
        terminal.enter("Go.")
        await terminal.until(lambda: terminal.text.count("flow") > 60)
        terminal.resize(50, 24)
        await terminal.until("And done.")
        await answered(terminal)
        assert max(map(len, terminal.lines)) <= 50
        assert sum(line.startswith("❯") for line in terminal.lines) == 1
        assert terminal.text.count("● flow") == 1
        assert terminal.text.count("flow") == 400  # nothing of what moved was left behind


def resized_in_tmux(home: Home, socket: Path, fifo: Path) -> str:
    """An answer that stands still in mid-sentence, the window made narrower and wider, Ctrl-C: all that is seen."""
    tmux = ("tmux", "-S", str(socket), "-f", "/dev/null")

    def do(*command: str) -> str:
        return subprocess.run([*tmux, *command], env=env, capture_output=True, text=True, check=True).stdout

    def shown() -> str:
        return do("capture-pane", "-p", "-S", "-200")

    def until(text: str) -> None:
        while text not in shown():
            assert changes.read(4096), shown()

    env = {**home.env, "LANG": "C.UTF-8"}
    os.mkfifo(fifo)
    do("new-session", "-d", "-x", "90", "-y", "30", " ".join(home.command()))
    try:
        do("pipe-pane", "-o", f"cat > {fifo}")  # whatever is drawn from now on tells us to look again
        with fifo.open("rb", buffering=0) as changes:
            until("❯")
            do("send-keys", "/help", "Enter")  # tmux keeps no blank rows: what moves is not at the very top
            until("as does Ctrl-D")
            do("send-keys", "go", "Enter")
            until("word98")
            do("resize-window", "-x", "60", "-y", "30")
            until("word8\n")
            do("resize-window", "-x", "100", "-y", "30")
            until("word14\n")
            do("send-keys", "C-c")
            until("interrupted")
        return shown()
    finally:
        do("kill-server")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_a_terminal_that_reflows_keeps_no_traces(home: Home, tmp_path: Path) -> None:
    home.server.extend("long+stall@5%")
    screen = await asyncio.to_thread(resized_in_tmux, home, tmp_path / "tmux", tmp_path / "changes")
    assert [screen.split().count(f"word{number}") for number in range(98)] == [1] * 98
    assert screen.count("❯") == 3


async def test_reasoning_is_shown_when_asked_for(home: Home) -> None:
    home.server.extend(*[reply(think("Water runs downhill."), "Down.")] * 2)
    async with home.terminal() as terminal:
        await ready(terminal)
        terminal.enter("Where?")
        await answered(terminal)
        assert "Water runs" not in terminal.text
        terminal.enter("/reasoning")
        await terminal.until("reasoning shown")
        terminal.enter("Where?")
        await terminal.until("Water runs downhill.")
