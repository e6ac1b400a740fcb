"""A terminal whose journal cannot be written, that comes late or that is small: the conversation stays."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from cli.chat.screen_home import Home, answered, ready
from cli.chat.test_screen_approvals import armed
from cli.screen.vt import VirtualTerminal
from tailrace.testing.provider import Scenario, call, reply

WORDS = " ".join(f"word{number}" for number in range(400))
needs_prlimit = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="a limit is set on another process")


def limit_files(terminal: VirtualTerminal, most_bytes: int) -> None:
    """No file of the program grows beyond that: as on a disk that is full."""
    assert terminal.process is not None
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


def size_of(path: Path) -> int:
    return path.stat().st_size


@needs_prlimit
async def test_a_full_disk_ends_an_answer_and_not_the_conversation(home: Home) -> None:
    home.server.extend(Scenario(reply=reply(WORDS), pace_s=0.01), *[reply(WORDS)] * 3)
    async with home.terminal(columns=120, rows=40) as terminal:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word3")
        limit_files(terminal, size_of(home.path / "tailrace.db-wal"))
        await terminal.until("/resume goes on with this answer")
        terminal.enter("And now?")
        await terminal.until(lambda: terminal.text.count("✗ ") == 2)
        assert not any("thinking" in line or "answering" in line for line in terminal.lines)
        assert "the next session cannot recall what is entered now" not in terminal.text
        limit_files(terminal, resource.RLIM_INFINITY)
        terminal.enter("/resume")
        await terminal.until("word399")
        await answered(terminal, 2)
        terminal.type("\x04")
        await terminal.until("go on with this conversation")
    assert "Traceback" not in terminal.text


@needs_prlimit
async def test_leaving_while_the_disk_is_full_is_no_traceback(home: Home) -> None:
    home.server.extend(Scenario(reply=reply(WORDS), pace_s=0.01))
    async with home.terminal(columns=120, rows=40) as terminal:
        await ready(terminal)
        terminal.enter("Count.")
        await terminal.until("word3")
        limit_files(terminal, size_of(home.path / "tailrace.db-wal"))
        terminal.type("\x04")
        await terminal.until("go on with this conversation")
        assert terminal.process is not None
        assert await terminal.process.wait() != signal.SIGKILL
    assert "Traceback" not in terminal.text


@needs_prlimit
async def test_a_dumb_terminal_outlives_a_full_disk_too(home: Home) -> None:
    home.server.extend(Scenario(reply=reply(WORDS), pace_s=0.01), reply("There is space."), reply("There is space."))
    async with VirtualTerminal(home.command(), home.env, term="dumb") as terminal:
        await terminal.until("Ctrl-D leaves")
        terminal.enter("Count.")
        await terminal.until("word3")
        limit_files(terminal, size_of(home.path / "tailrace.db-wal"))
        await terminal.until("error: ")
        limit_files(terminal, resource.RLIM_INFINITY)
        terminal.enter("And now?")
        await terminal.until("There is space.")


async def test_a_key_that_comes_after_the_answer_of_another_terminal_is_no_part_of_a_message(home: Home) -> None:
    home.server.extend(reply(call("terminal", {"command": "rm -rf ./x"})), reply("So it is."))
    async with (
        home.terminal("--session", "mill", columns=120, rows=40) as first,
        home.terminal("--session", "mill", columns=120, rows=40) as second,
    ):
        await ready(first)
        await ready(second)
        first.enter("Remove it.")
        await armed(first)
        second.enter("/resume mill")
        await armed(second)
        assert second.process is not None
        second.process.send_signal(signal.SIGSTOP)
        first.type("d")
        await first.until("So it is.")
        second.type("d")
        second.process.send_signal(signal.SIGCONT)
        await second.until("So it is.")
        second.enter("/cost")
        await second.until("❯ /cost")
        assert second.process.returncode is None
    assert "Traceback" not in second.text


async def test_a_menu_in_a_low_window_shows_each_of_its_keys(home: Home) -> None:
    home.server.extend(reply(call("terminal", {"command": "rm -rf ./x"})), reply("No."))
    async with home.terminal(columns=80, rows=9) as terminal:
        await ready(terminal)
        terminal.enter("Remove it.")
        await terminal.until("then it is denied")
        keys = [line.split()[0] for line in terminal.lines if line.startswith("   ") and line.strip()]
        assert keys == ["o", "s", "a", "d", "w"]
