"""What a home keeps is for its owner alone, whatever the umask and whatever was there before."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.app import open_app
from tailrace.cli.setup.config_file import write_config
from tailrace.cli.setup.doctor import findings
from tailrace.cli.setup.finding import Finding
from tailrace.config.load import load
from tailrace.events import MessageChunk
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.system.private_files import make_private_directory, make_private_file, tighten
from tailrace.testing.conformance.sample_runs import started, written
from tailrace.tools.checkpoint.checkpoint import TurnSnapshots

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")


@pytest.fixture(params=[0o000, 0o022, 0o077], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes_below(path: Path) -> dict[str, int]:
    """Of everything that other users could reach if the directory itself were open."""
    return {str(each.relative_to(path)): mode(each) for each in sorted(path.rglob("*"))}


async def test_a_new_database_and_all_beside_it_are_private(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    journal = await SqliteJournal.open(home / "runs.db")
    _, lease = await started(journal)
    await written(journal, lease, [MessageChunk("secret")])
    modes = modes_below(tmp_path)
    assert {name: bits for name, bits in modes.items() if bits & 0o077} == {}
    assert {"new/home/runs.db", "new/home/runs.db-wal", "new/home/runs.db-shm", "new/home/runs.db-pipes"} <= set(modes)
    await journal.close()


async def test_what_an_earlier_version_left_open_is_tightened_when_it_is_opened(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(0o755)
    first = await SqliteJournal.open(home / "runs.db")
    home.chmod(0o755)
    for path in home.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    second = await SqliteJournal.open(home / "runs.db")  # its -wal and -shm are there
    assert {mode(path) for path in home.iterdir() if path.is_file()} == {0o600}
    assert mode(home / "runs.db-pipes") == 0o700
    assert mode(home) == 0o755  # any directory may hold a database
    await first.close()
    await second.close()
    async with open_app(load({}, home), directory=tmp_path):
        assert mode(home) == 0o700


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
async def test_what_root_makes_in_the_home_directory_of_a_service_is_the_services(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(0o700)
    (home / "config.yaml").write_text("{}\n")
    for path in (home, home / "config.yaml"):
        os.chown(path, 12345, 12346)
    write_config(home / "config.yaml", "model: {provider: local}\n")  # as `tailrace add` and `tailrace init` do
    write_config(home / "env", "TOKEN=secret\n")
    make_private_directory(home / "checkpoints" / "files")
    journal = await SqliteJournal.open(home / "tailrace.db")
    _, lease = await started(journal)
    await written(journal, lease, [MessageChunk("hello")])
    made = {str(each.relative_to(home)): each.stat() for each in home.rglob("*")}
    await journal.close()
    assert {name for name, of in made.items() if (of.st_uid, of.st_gid) != (12345, 12346)} == set()
    assert {"config.yaml", "env", "checkpoints/files", "tailrace.db", "tailrace.db-wal", "tailrace.db-pipes"} <= set(
        made
    )


def test_directories_that_users_share_are_left_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private_directory(shared)
    assert mode(shared) == 0o1777
    make_private_directory(shared / "a" / "b")
    assert (mode(shared / "a"), mode(shared / "a" / "b")) == (0o700, 0o700)
    make_private_file(shared / "a" / "file")
    assert mode(shared / "a" / "file") == 0o600
    tighten(shared / "not there")


@pytest.mark.skipif(shutil.which("git") is None, reason="checkpoints need git")
async def test_checkpoints_are_private_also_where_they_were_not(tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    (home / "checkpoints").mkdir(parents=True)
    (home / "checkpoints").chmod(0o755)
    (work / "a.txt").write_text("a", encoding="utf-8")
    await TurnSnapshots(home / "checkpoints", work, label="a", turn="run_1").before_change()
    (location,) = (home / "checkpoints").iterdir()
    assert mode(location) == 0o700


async def of_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.setenv("TAILRACE_HOME", str(home))
    return [finding async for finding in findings(offline=True) if "other users" in finding.what]


async def test_doctor_says_what_is_open_and_its_remedy_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "my home"
    home.mkdir(0o755)
    (home / "config.yaml").write_text("store: {url: 'sqlite:///runs.db'}\n", encoding="utf-8")
    for name in ("runs.db", "history"):
        (home / name).touch()
        (home / name).chmod(0o644)
    home.chmod(0o755)
    (finding,) = await of_files(home, monkeypatch)
    assert finding.state == "broken"
    assert str(home / "history") in finding.what
    remedy = await asyncio.create_subprocess_shell(finding.advice)  # as a user would, from the terminal
    assert await remedy.wait() == 0
    assert await of_files(home, monkeypatch) == []
    assert (mode(home), mode(home / "history")) == (0o700, 0o600)
