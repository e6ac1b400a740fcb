"""`tailrace backup`, and the way back that docs/operations.md gives, with the commands that stand there."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from journal.filled_journal import fill
from postgres_server import PostgresServer, binaries
from tailrace.cli.commands import backup
from tailrace.cli.main import main
from tailrace.events import MessageChunk
from tailrace.integrations.postgres.address import dump_command
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Journal, NewRun
from tailrace.testing.conformance.sample_runs import started, written

OPERATIONS = Path(__file__).parents[3] / "docs/operations.md"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / ".tailrace"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".tailrace"


async def contents(journal: Journal) -> dict[str, tuple[object, ...]]:
    """Every run with its entries."""
    return {run.id: (run, *await journal.read(run.id)) for run in await journal.runs(limit=100)}


def restore_commands(kept: str) -> str:
    found = re.search(r"```sh\n(cd ~/\.tailrace\n.*?)```", OPERATIONS.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    assert "/var/backups/tailrace.db" in found[1]
    return found[1].replace("/var/backups/tailrace.db", kept)


async def test_a_backup_of_a_live_journal_is_restored_as_the_documents_say(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = await SqliteJournal.open(home / "tailrace.db")
    runs = await fill(journal)
    before = await contents(journal)
    assert main(["backup", "copy.db"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"copy\.db has {len(runs)} runs \(\d\.\d MB\), verified\n", out)
    assert err == "", "it took no second"
    _, lease = await started(journal, NewRun("agent"))  # what comes later is in a write-ahead log that must go
    await written(journal, lease, [MessageChunk("later")])
    left = {name: (home / name).read_bytes() for name in ("tailrace.db-wal", "tailrace.db-shm")}
    await journal.close()
    for name, data in left.items():
        (home / name).write_bytes(data)  # as after a kill

    script = "set -e\n" + restore_commands(str(home.parent / "copy.db"))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(  # noqa: ASYNC221
        ["sh", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=60
    )
    assert "tailrace.db, format " in done.stdout, done.stdout + done.stderr
    again = await SqliteJournal.open(home / "tailrace.db", clock=lambda: time.time() + 3600.0)
    assert await contents(again) == before
    assert await again.list_values("chats") == {f"k{number}": b"v%d\0" % number for number in range(3)}
    lease = await again.claim(runs["unfinished"], "next", lease_s=10.0)
    await written(again, lease, [MessageChunk(" and on")])
    await again.close()


async def test_a_backup_restored_into_an_empty_home_has_every_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = await SqliteJournal.open(home / "tailrace.db")
    runs = await fill(journal)
    before = await contents(journal)
    assert main(["backup", str(tmp_path / "copy.db")]) == 0
    await journal.close()
    (tmp_path / "new").mkdir()
    (tmp_path / "copy.db").rename(tmp_path / "new" / "tailrace.db")
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path / "new"))
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["runs", "--limit", "50", "--json"]) == 0
    listed = capsys.readouterr().out
    assert all(run.removeprefix("run_") in listed for run in runs.values())  # an instance is listed as ins_…
    again = await SqliteJournal.open(tmp_path / "new" / "tailrace.db")
    assert await contents(again) == before
    await again.close()


def test_one_line_says_why_there_is_no_backup(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", "copy.db"]) == 1
    assert capsys.readouterr() == ("", f"error: there is no journal at {home / 'tailrace.db'}\n")
    assert not home.exists(), "a backup makes nothing but itself"
    home.mkdir()
    (home / "config.yaml").write_text("store: {url: 'memory://'}")
    assert main(["backup", "copy.db"]) == 2
    assert capsys.readouterr().err == "error: store.url is memory://: there is nothing to back up\n"
    assert sorted(path.name for path in home.parent.iterdir()) == [".tailrace"]


def test_a_backup_that_takes_long_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0.0, 0.5, 1.2, 1.4, 2.3, 3.4])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    show = backup._Progress()
    for number in range(1, 5):
        show("copied", number * 10_000_000, 40_000_000)
    show("verifying", 0, 40_000_000)
    assert capsys.readouterr().err == "copied 20 of 40 MB\ncopied 40 of 40 MB\nverifying 40 MB\n"


# ── PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_backup_is_not_written_to_stdout(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    assert main(["backup", "-"]) == 2
    assert capsys.readouterr().err == "error: a backup is a file, which is checked when it is complete: name one\n"


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("postgresql://ann:hunter2@db:5432/runs", "postgresql://ann@db:5432/runs"),
        ("postgres://ann@db/runs?password=hunter2&sslmode=require", "'postgresql://ann@db/runs?sslmode=require'"),
        ("postgresql://a,b:5433/runs?schema=mine", "postgresql://a,b:5433/runs"),
    ],
)
def test_J114_postgresql_is_backed_up_by_its_own_program(
    home: Path, capsys: pytest.CaptureFixture[str], url: str, source: str
) -> None:
    home.mkdir()
    (home / "config.yaml").write_text(f"store: {{url: '{url}'}}")
    assert main(["backup", "my copy.dump"]) == 2
    schema = "mine" if "mine" in url else "tailrace"
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "error: the store is PostgreSQL; back it up with: "
        f"(umask 077; pg_dump --format=custom --schema={schema} '--file=my copy.dump' {source})\n"
    )


async def test_the_command_for_postgresql_makes_a_backup_that_is_restored(
    postgres_server: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    journal = await PostgresJournal.open(postgres_url)
    await fill(journal)
    await journal.close()  # gives back what was being executed
    journal = await PostgresJournal.open(postgres_url)
    before = await contents(journal)
    await journal.close()
    program, *arguments = shlex.split(dump_command(postgres_url, tmp_path / "copy.dump"))
    subprocess.run([str(binaries() / program), *arguments], check=True, timeout=60)  # noqa: ASYNC221
    schema = arguments[1].partition("=")[2]
    postgres_server.sql(f"DROP SCHEMA {schema} CASCADE")
    restore = [str(binaries() / "pg_restore"), f"--dbname={arguments[-1]}", str(tmp_path / "copy.dump")]
    subprocess.run(restore, check=True, timeout=60)  # noqa: ASYNC221
    again = await PostgresJournal.open(postgres_url)
    assert await contents(again) == before
    await again.close()
