"""`tailrace top`: its frames and its keys."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.cells import cell_len

from cli.screen.vt import VirtualTerminal
from tailrace.cli.main import main
from tailrace.cli.runs.top import Dashboard, TopState, frame_lines, newest_runs
from tailrace.config.load import load
from tailrace.events import ApprovalAsked, AttemptStarted, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.messages import user
from tailrace.ports import Lease, NewRun, Signal
from tailrace.server.http.auth import LOCAL

RUNS = (("Build it", "cli"), ("Other's", "telegram:7"), ("Explain 漢字 " * 20, ""))
COMMAND = "rm -r build && " + "make everything " * 8


async def a_journal(runs: Sequence[tuple[str, str]] = RUNS) -> tuple[MemoryJournal, dict[str, Lease]]:
    journal = MemoryJournal()
    leases: dict[str, Lease] = {}
    for question, requester in runs:
        given = {"message": msgspec.to_builtins(user(question))}
        _, lease = await journal.start(NewRun("agent", given, "fake/small"), "me")
        assert lease is not None
        leases[question.split()[0]] = lease
        journal.append(lease, [AttemptStarted("fake", "small")])
        if requester:
            journal.append(lease, [ApprovalAsked(f"a-{requester}", "terminal", COMMAND, "d", requester)])
        await journal.commit(lease)
    return journal, leases


@pytest.mark.parametrize("width", [60, 80, 120, 200])
async def test_a_frame_fills_the_window_and_no_more(width: int) -> None:
    journal, leases = await a_journal()
    runs = await newest_runs(journal)
    selected = leases["Build"].run_id
    for height in (6, 12, 40):
        lines = [each.plain for each in frame_lines(TopState(runs, "x.db", selected), width, height)]
        assert len(lines) == height
        assert max(map(cell_len, lines)) <= width
        assert sum(line.startswith("❯ ") for line in lines) == 1
    text = "\n".join(lines)
    assert "1 running  2 asking  0 orphaned" in text
    assert "q quit" in lines[-1]


async def test_J110_an_approval_is_shown_whole_before_it_is_given() -> None:
    journal, leases = await a_journal()
    runs = await newest_runs(journal)
    state = TopState(runs, selected=leases["Build"].run_id, prompt=f"approve once?  y yes  n no\n{COMMAND}")
    lines = [each.plain for each in frame_lines(state, 60, 20)]
    assert COMMAND in "".join(lines[-6:])


class _Window(DummyOutput):
    def get_size(self) -> Size:
        return Size(rows=24, columns=100)


@pytest.fixture
async def dashboard(tmp_path: Path) -> AsyncIterator[tuple[Dashboard, PipeInput, MemoryJournal, dict[str, Lease]]]:
    config = load({"TAILRACE_HOME": str(tmp_path)})
    config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=0))
    journal, leases = await a_journal()
    with create_pipe_input() as keys, create_app_session(input=keys, output=_Window()):
        yield Dashboard(journal, config), keys, journal, leases


async def until(top: Dashboard, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20.0):
        while not holds():
            top.changed.clear()
            await top.changed.wait()


async def test_keys_choose_stop_approve_and_quit(
    dashboard: tuple[Dashboard, PipeInput, MemoryJournal, dict[str, Lease]],
) -> None:
    top, keys, journal, leases = dashboard
    showing = asyncio.ensure_future(top.show())
    await until(top, lambda: bool(top.state.selected))
    assert top.state.selected == leases["Explain"].run_id, "the newest"
    keys.send_text("a")
    await until(top, lambda: top.state.prompt == "this run waits for no approval")
    keys.send_text("ja")
    await until(top, lambda: top.state.prompt == "only telegram:7 may answer this, where it was asked")
    keys.send_text("y")  # nothing was asked
    keys.send_text("ja")
    await until(top, lambda: top.state.prompt.startswith("approve once?") and COMMAND in top.state.prompt)
    keys.send_text("n")
    await until(top, lambda: not top.state.prompt)
    keys.send_text("ay")
    await until(top, lambda: top.state.prompt == "approved")
    lease = leases["Build"]
    payload = {"approval_id": "a-cli", "decision": "once"}
    assert await journal.signals(lease) == [Signal("approval", payload, "cli", 1)]
    keys.send_text("s")
    await until(top, lambda: top.state.prompt == "stop Build it?  y yes  n no")
    keys.send_text("y")
    await until(top, lambda: top.state.prompt == "stopping")
    assert [signal.name for signal in await journal.signals(lease, after=1)] == ["stop"]
    await journal.seal(lease, RunFinished("stopped"))
    keys.send_text("q")
    await showing


async def test_the_user_of_a_server_without_keys_answers_here_and_a_key_does_not(tmp_path: Path) -> None:
    config = load({"TAILRACE_HOME": str(tmp_path)})
    config = msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, port=0))
    journal, leases = await a_journal([("Mine", LOCAL.name), ("Theirs", "default")])
    with create_pipe_input() as keys, create_app_session(input=keys, output=_Window()):
        top = Dashboard(journal, config)
        showing = asyncio.ensure_future(top.show())
        await until(top, lambda: bool(top.state.selected))
        keys.send_text("a")
        await until(top, lambda: top.state.prompt.startswith("only the key default may answer this: on the page"))
        keys.send_text("ja")
        await until(top, lambda: top.state.prompt.startswith("approve once?"))
        keys.send_text("y")
        await until(top, lambda: top.state.prompt == "approved")
        keys.send_text("q")
        await showing
    payload = {"approval_id": "a-local", "decision": "once"}
    assert await journal.signals(leases["Mine"]) == [Signal("approval", payload, "local", 1)]


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
        terminal.type("s")
        await terminal.until("this run has ended")
        terminal.type("q")
        assert await terminal.exit_code() == 0
