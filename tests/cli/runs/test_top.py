"""`tailrace top`: its frames."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from cli.screen.vt import VirtualTerminal
from tailrace.cli.main import main
from tailrace.cli.runs.top import TopState, frame_lines, newest_runs
from tailrace.events import ApprovalAsked, AttemptStarted, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.messages import user
from tailrace.ports import NewRun

RUNS = (("Build it", "cli"), ("Other's", "telegram:7"), ("Explain 漢字 " * 20, ""))
COMMAND = "rm -r build && " + "make everything " * 8


async def a_journal(runs: Sequence[tuple[str, str]] = RUNS) -> MemoryJournal:
    journal = MemoryJournal()
    for question, requester in runs:
        given = {"message": msgspec.to_builtins(user(question))}
        _, lease = await journal.start(NewRun("agent", given, "fake/small"), "me")
        assert lease is not None
        journal.append(lease, [AttemptStarted("fake", "small")])
        if requester:
            journal.append(lease, [ApprovalAsked(f"a-{requester}", "terminal", COMMAND, "d", requester)])
        await journal.commit(lease)
    return journal


@pytest.mark.parametrize("width", [60, 80, 120, 200])
async def test_a_frame_fills_the_window_and_no_more(width: int) -> None:
    runs = await newest_runs(await a_journal())
    for height in (6, 12, 40):
        lines = [each.plain for each in frame_lines(TopState(runs, "x.db"), width, height)]
        assert len(lines) == height
        assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    assert "1 running  2 asking  0 orphaned" in text
    assert text.index("Explain") < text.index("Build it"), "the newest first"
    assert lines[-1].startswith("q quit")


def test_without_a_terminal_one_frame_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    assert main(["top"]) == 0
    assert capsys.readouterr() == ("", f"no runs yet in {tmp_path / 'tailrace.db'}\n")
    assert not (tmp_path / "tailrace.db").exists()


async def test_the_table_of_runs_is_drawn_on_the_screen(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "tailrace.db")
    _, lease = await journal.start(NewRun("agent", {"message": msgspec.to_builtins(user("Build it"))}, "fake/x"), "me")
    assert lease is not None
    await journal.seal(lease, RunFinished("completed"))
    await journal.close()
    command = [sys.executable, "-m", "tailrace", "top"]
    async with VirtualTerminal(command, {**os.environ, "TAILRACE_HOME": str(tmp_path)}) as terminal:
        await terminal.until("Build it")
        terminal.type("q")
        assert await terminal.exit_code() == 0
