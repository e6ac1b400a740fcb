"""`tailrace demo`: the faults are real, the recovery is, and it checks itself."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from io import StringIO
from pathlib import Path

import aiohttp
import pytest
from rich.console import Console

from tailrace.cli.demo.board import Board
from tailrace.cli.demo.scenes import SCENES
from tailrace.cli.demo.stage import Seen
from tailrace.testing.provider.server import rest_of


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def demo(home: Path, *args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tailrace", "demo", *args),
        env={**os.environ, "TMPDIR": str(home), "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_every_scene_breaks_something_and_nothing_is_lost(tmp_path: Path) -> None:
    process = await demo(tmp_path, "--fast")
    out, err = await process.communicate()
    shown = out.decode()
    assert (process.returncode, err) == (0, b""), shown
    assert "4 of 4 answers are stored exactly as they were shown; the file was written once." in shown
    assert "Attempt 2: the provider canal goes on" in shown
    assert shown.index("a terminal, a page, a chat.") < shown.index("Shown equals stored"), "the answer, then its check"
    assert re.search(r"✗ kill -9 \d+: the server is gone", shown)
    assert shown.count("Shown equals stored") == len(SCENES)
    assert left_in(tmp_path) == [], "its home is removed"


async def test_ctrl_c_leaves_no_server_and_no_file(tmp_path: Path) -> None:
    process = await demo(tmp_path)
    assert process.stdout is not None
    while not (found := re.search(rb"http://\S+/", await process.stdout.readline())):
        pass
    url = found[0].decode()
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(url)
    assert left_in(tmp_path) == []


def test_a_run_that_lost_or_doubled_an_event_is_not_whole() -> None:
    seen = Seen("run_x")
    seen.text = seen.output = "All."
    seen.status, seen.seqs = "completed", [1, 2, 3]
    assert seen.is_whole
    for seqs in ([1, 3], [1, 2, 2], [2, 1]):
        seen.seqs = seqs
        assert not seen.is_whole
    seen.seqs, seen.text = [1, 2], "All. All"
    assert not seen.is_whole


@pytest.mark.parametrize(("columns", "beside"), [(120, True), (60, False)])
def test_notes_stand_beside_the_answer_where_there_is_room(columns: int, beside: bool) -> None:
    console = Console(file=StringIO(), width=columns, force_terminal=True, color_system=None)
    board = Board(console)
    board.scene(1, "Title", "Why?")
    board.note("NOTE")
    board.show("ANSWER")
    with console.capture() as capture:
        console.print(board._drawn())
    rows = capture.get().splitlines()
    assert (
        any("Why?" in row and "NOTE" in row for row in rows) is beside
        or any("Title" in row and "NOTE" in row for row in rows) is beside
    )
    assert max(map(len, rows)) <= columns


def test_a_model_goes_on_after_what_it_is_told() -> None:
    text = "One two three four five six."
    assert rest_of(text, {"messages": [{"content": ["…", "One two three"]}]}) == " four five six."
    assert rest_of(text, {"messages": ["One two"]}) == text, "too little to know it by"
