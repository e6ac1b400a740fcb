"""`tailrace approvals`: what was approved with "always" is listed and taken back, beside a server that runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.http_server import RunningServer, running_server, sse
from tailrace.app.approvals import AlwaysApproval, AlwaysApprovals
from tailrace.cli.main import main
from tailrace.cli.screen.approvals_table import approvals_table
from tailrace.journal.open_journal import open_journal
from tailrace.testing.provider import call, reply

NOON = 1_699_963_200.0  # 2023-11-14
ONE = AlwaysApproval("1a" * 32, "terminal", "rm -rf build", "/srv/a", "ann", "ann", "run_1", NOON - 7 * 86_400)
TWO = AlwaysApproval("1b" * 32, "post", '{"to": "Ada"}', "", "telegram:7", "telegram:7", "run_2", NOON - 8 * 86_400)
OLD = AlwaysApproval("2c" * 32, "post", "{}", at=1.0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    return tmp_path


async def tailrace(*args: str) -> int:
    return await asyncio.to_thread(main, ["approvals", *args])


async def approve(home: Path, approvals: Sequence[AlwaysApproval] = (ONE, TWO)) -> None:
    """These, and an old one."""
    async with open_journal("sqlite:///tailrace.db", home / "tailrace.db") as journal:
        for approval in (*approvals, OLD):
            await AlwaysApprovals(journal).add(approval)


async def kept(home: Path) -> list[str]:
    async with open_journal("sqlite:///tailrace.db", home / "tailrace.db") as journal:
        return [approval.id for approval in await AlwaysApprovals(journal).listed()]


# ── beside a server ──────────────────────────────────────────────────────────────────────────────────────────


async def questions(server: RunningServer) -> int:
    """How often one run asks. Each question is answered with "always"."""
    run, asked = await server.start(), 0
    async with server.client.get(f"{server.url}/runs/{run}/stream") as response:
        async for event in sse(response):
            if event["type"] == "approval_asked":
                asked += 1
                answer = {"approval_id": event["approval_id"], "decision": "always"}
                assert (await server.json("POST", f"/runs/{run}/approval", answer))[0] == 200
    return asked


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_what_is_taken_back_beside_a_server_is_asked_about_in_its_next_run(
    home: Path, store: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    url = request.getfixturevalue("postgres_url") if store == "postgres" else "sqlite:///runs.db"
    removes = reply(call("terminal", {"command": "rm -rf build-hunter2"}))
    script = [turn for _ in range(3) for turn in (removes, reply("Done."))]
    async with running_server(home, *script, store=url, config="agent: {redact: ['hunter\\d']}\n") as server:
        assert [await questions(server), await questions(server)] == [1, 0]
        assert await tailrace("--json") == 0
        shown = capsys.readouterr().out
        [approval] = [json.loads(line) for line in shown.splitlines()]
        runs = await server.app.journal.runs(kind="agent")
        assert await tailrace("--forget", approval["id"][:8]) == 0
        told = capsys.readouterr().out
        assert await questions(server) == 1
    assert "hunter2" not in shown + told
    assert (approval["tool_name"], approval["directory"], approval["run_id"]) == ("terminal", str(home), runs[-1].id)
    assert (approval["requester"], approval["by"]) == ("local", "local")
    assert approval["command"].startswith("rm -rf build-")
    assert told.startswith("asked about again: terminal: rm -rf build-")


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_list_has_the_newest_first(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await approve(home)
    assert await tailrace() == 0
    lines = capsys.readouterr().out.splitlines()
    at = [time.strftime("%Y-%m-%d %H:%M", time.localtime(each.at)).split() for each in (ONE, TWO, OLD)]
    assert [line.split() for line in lines] == [
        ["id", "when", "tool", "by", "run", "directory", "approved"],
        ["1a1a1a1a", *at[0], "terminal", "ann", "run_1", "/srv/a", "rm", "-rf", "build"],
        ["1b1b1b1b", *at[1], "post", "telegram:7", "run_2", '{"to":', '"Ada"}'],
        ["2c2c2c2c", *at[2], "post", "{}"],
    ]
    assert await tailrace("--json") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()][2]["id"] == OLD.id


def test_where_nothing_was_approved_it_says_so_and_creates_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for args in ((), ("--json",)):
        assert main(["approvals", *args]) == 0
        out, err = capsys.readouterr()
        assert (out, err) == ("", f'nothing was approved with "always" in {home / "tailrace.db"}\n')
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_table_keeps_to_the_window_and_the_command_keeps_its_room(width: int) -> None:
    command = f"rm -rf {'x' * 300}\n\x1b[2J"
    long = AlwaysApproval("3d" * 32, "terminal", command, "/srv", "ann", "ann", "run_" + "1" * 30, NOON)
    header, first, _ = approvals_table([long, TWO], width=width)
    assert all(len(line) <= max(width, 67) for line in (header, first))
    assert "rm -rf xxxxxxxxxxxxxxxx" in first
    assert first.endswith("…")
    assert ("run_" in first) is (width >= 200)
    assert "\x1b" not in first


# ── taking back ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("1a1", None),
        ("2C", None),
        ("1", "several approvals begin with '1': 1a1a1a1a1a1a1a1a, 1b1b1b1b1b1b1b1b; write more of the id"),
        ("9", "there is no approval '9'; tailrace approvals lists them"),
        ("", "there is no approval ''; tailrace approvals lists them"),
        ("\x1b[2J", "there is no approval '\\x1b[2J'; tailrace approvals lists them"),
    ],
)
async def test_one_is_taken_back_by_the_beginning_of_its_id_or_nothing_is(
    home: Path, word: str, said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    await approve(home)
    before = await kept(home)
    assert await tailrace("--forget", word) == (0 if said is None else 1)
    out, err = capsys.readouterr()
    if said is None:
        assert await kept(home) == [digest for digest in before if not digest.startswith(word.lower())]
        assert out.startswith("asked about again: ")
    else:
        assert (out, err) == ("", f"error: {said}\n")
        assert await kept(home) == before


async def test_what_is_taken_back_is_printed_as_json_where_that_is_asked_for(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await approve(home)
    assert await tailrace("--json") == 0
    listed = capsys.readouterr().out.splitlines(keepends=True)
    assert await tailrace("--forget", "1a1", "--json") == 0
    assert capsys.readouterr().out == next(line for line in listed if ONE.id in line)
    assert ONE.id not in await kept(home)
