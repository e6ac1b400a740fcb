"""The power goes while SQLite and PostgreSQL write: what was promised is there, and what is left can be read.

`python -m proof.power_loss --cuts 500` is the long form.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from proof.power_loss.cuts import PROMISES, Files, Loss, look
from proof.power_loss.disk import CREATE, SYNC, TRUNCATE, WRITE, Disk, Done, recorded, write_disk
from proof.power_loss.record import record_sqlite, recorder, recording, work

from postgres_server import PostgresServer, running
from tailrace.journal.open_journal import open_journal
from tailrace.ports import Journal

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def broken(losses: list[Loss]) -> list[str]:
    return [problem for loss in losses for problem in loss.broken]


@needs_compiler
@pytest.mark.timeout(300)
@pytest.mark.parametrize("durability", ["fsync", "committed"])
async def test_what_was_promised_survives_as_documented(tmp_path: Path, durability: str) -> None:
    done = await asyncio.to_thread(record_sqlite, tmp_path, 1, durability, 2)
    losses = await look(done, 40, 1, loses_nothing=durability == "fsync", home=tmp_path)
    assert broken(losses) == []
    assert sum(loss.runs for loss in losses) > 40
    if durability == "committed":  # the same store, held to the other promise: the search finds losses where they are
        assert broken(await look(done, 40, 1, loses_nothing=True, home=tmp_path))


@needs_compiler
async def test_the_record_is_whole(tmp_path: Path) -> None:
    done = await asyncio.to_thread(record_sqlite, tmp_path, 3, "fsync", 2)
    disk, everything = tmp_path / "disk", tmp_path / "everything"
    rebuilt = Disk()
    for each in done:
        rebuilt.apply(each)
    write_disk(everything, rebuilt.after_loss(AllThere(), 1.0))
    assert (everything / "t.db").read_bytes() == (disk / "t.db").read_bytes()
    assert (everything / PROMISES).read_bytes() == (disk / PROMISES).read_bytes()


def test_a_disk_forgets_what_was_not_synced() -> None:
    disk = Disk()
    for done in (
        Done(CREATE, "a", "", 0, b""),
        Done(WRITE, "a", "", 0, b"kept"),
        Done(SYNC, "a", "", 0, b""),
        Done(WRITE, "a", "", 2, b"lost"),
        Done(TRUNCATE, "a", "", 1, b""),
        Done(CREATE, "b", "", 0, b""),
    ):
        disk.apply(done)
    assert disk.after_loss(AllThere(), 0.0) == {"a": b"kept"}
    assert disk.after_loss(AllThere(), 1.0) == {"a": b"k", "b": b""}


class AllThere(random.Random):
    def random(self) -> float:
        return 0.75


@needs_compiler
@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", ["fsync", "committed"])
async def test_postgresql_loses_nothing_in_either_durability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    cuts = int(os.environ.get("TAILRACE_POWER_CUTS", "6"))
    with running(durable=True) as server:
        library = Path(shutil.copy(recorder(tmp_path), server.directory / "recorder.so"))
        data, base, log = server.data, server.directory / "base", server.directory / "record"
        server.stop()
        shutil.copytree(data, base)
        log.touch()
        log.chmod(0o666)
        for name, value in recording(library, data, log).items():
            monkeypatch.setenv(name, value)
        server.start()
        for name in recording(library, data, log):
            monkeypatch.delenv(name)
        url = server.url("power")
        await asyncio.to_thread(work, url, data, 1, durability, recording(library, data, log))
        server.stop("immediate")
        done = list(recorded(log.read_bytes(), data))
        opened = Restarted(server, url).opened
        losses = await look(done, cuts, 1, loses_nothing=True, home=server.directory, base=base, opened=opened)
    assert broken(losses) == []
    assert len(losses) == cuts
    assert sum(loss.runs for loss in losses) > 0


class Restarted:
    """The server, started from what a loss has left in the place of its directory."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self._url = url

    @asynccontextmanager
    async def opened(self, files: Files, _place: Path, _problems: list[str]) -> AsyncGenerator[Journal, None]:
        shutil.rmtree(self._server.data)
        kept = {name: data for name, data in files.items() if not name.startswith(("postmaster.", "pg_dynshmem"))}
        self._server.data.mkdir(0o700)
        write_disk(self._server.data, {**kept, "pg_dynshmem": None})
        self._server.own(self._server.data)
        await asyncio.to_thread(self._server.start)
        try:
            async with open_journal(self._url, None) as journal:
                yield journal
        finally:
            await asyncio.to_thread(self._server.stop, "immediate")
