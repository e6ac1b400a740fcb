"""A store after each of many losses of power: whether it opens, what is missing, and whether every run can be read."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import TypeAlias

import msgspec

from proof.power_loss.disk import SYNC, WRITE, Disk, Done, write_disk
from proof.power_loss.workload import Promise, hash_of
from tailrace.events import MessageChunk, RunFinished, Snapshot
from tailrace.journal.open_journal import open_journal
from tailrace.ports import ENDED, Journal

PROMISES = "promises"
SURVIVAL = (0.0, 0.5, 1.0)  # of what was not synced: nothing, any part of it, all of it


class Loss(msgspec.Struct):
    """What one cut has cost. `broken` are the promises of the store that do not hold."""

    cut: int
    lost: int = 0  # acknowledged entries that are not in the store
    lost_synced: int = 0  # of those, told of before the last sync of the store's log
    runs: int = 0
    broken: list[str] = []


class Told(msgspec.Struct):
    """All that was promised before a cut."""

    entries: dict[str, dict[int, str]] = {}
    ended: set[str] = set()

    def add(self, data: bytes) -> None:
        for line in data.splitlines():
            made = msgspec.json.decode(line, type=Promise)
            seen = self.entries.setdefault(made.run_id, {})
            for seq, digest in made.entries.items():
                seen[seq] = digest or seen.get(seq, "")
            if made.ended:
                self.ended.add(made.run_id)

    def count(self) -> int:
        return sum(map(len, self.entries.values()))


Files: TypeAlias = dict[str, bytes | None]
OpenStore: TypeAlias = Callable[[Files, Path, list[str]], AbstractAsyncContextManager[Journal]]


async def look(
    done: Sequence[Done],
    cuts: int,
    seed: int,
    *,
    loses_nothing: bool,
    home: Path,
    base: Path | None = None,
    opened: OpenStore | None = None,
) -> list[Loss]:
    """The losses at so many moments. `base` is what the disk held before, `opened` starts the store from what a loss
    has left and adds what is wrong with it to the list; SQLite's without them."""
    rng = random.Random(seed)
    moments = sorted(rng.sample(range(len(done) + 1), min(cuts, len(done) + 1)))
    disk, told, synced, losses, at = Disk(base), Told(), Told(), list[Loss](), 0
    for moment in moments:
        for each in done[at:moment]:
            if each.path == PROMISES:
                if each.what == WRITE:
                    told.add(each.data)
                continue
            disk.apply(each)
            if each.what == SYNC and each.path.endswith("-wal"):
                synced = msgspec.json.decode(msgspec.json.encode(told), type=Told)
        at = moment
        files = disk.after_loss(rng, SURVIVAL[len(losses) % len(SURVIVAL)])
        place = Path(tempfile.mkdtemp(dir=home))
        loss = Loss(moment)
        try:
            async with (opened or sqlite_store)(files, place, loss.broken) as journal:
                await _read_all(journal, told, synced, loss)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the store did not open or a run was not read
            loss.broken.append(repr(exc))
        finally:
            shutil.rmtree(place)
        if loses_nothing and loss.lost:
            loss.broken.append(f"{loss.lost} entries that were promised are lost")
        if loss.lost_synced:
            loss.broken.append(f"{loss.lost_synced} entries from before a sync are lost")
        losses.append(loss)
    return losses


@asynccontextmanager
async def sqlite_store(files: Files, place: Path, problems: list[str]) -> AsyncGenerator[Journal, None]:
    """The index of the write-ahead log lives in memory: SQLite makes it anew."""
    write_disk(place, {name: data for name, data in files.items() if not name.endswith("-shm")})
    path = place / "t.db"
    problems += _damage(path)
    async with open_journal(f"sqlite:///{path}", path) as journal:
        yield journal


def _damage(path: Path) -> list[str]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    return [] if found == ["ok"] else found


async def _read_all(journal: Journal, told: Told, synced: Told, loss: Loss) -> None:
    runs = {run.id: run for run in await journal.runs(kind="power", limit=1000)}
    loss.runs = len(runs)
    for run_id, entries in told.entries.items():
        stored = await _stored(journal, run_id) if run_id in runs else {}
        missing = entries.keys() - stored.keys()
        loss.lost += len(missing)
        loss.lost_synced += len(missing & synced.entries.get(run_id, {}).keys())
        loss.broken += [f"{run_id}: entry {seq} is another" for seq in entries.keys() & stored.keys()
                        if entries[seq] and entries[seq] != stored[seq]]  # fmt: skip
        if sorted(stored) != list(range(1, len(stored) + 1)):
            loss.broken.append(f"{run_id}: a gap")
        if not missing and run_id in told.ended and runs[run_id].state not in ENDED:
            loss.broken.append(f"{run_id} was told to have ended")
    for run in runs.values():
        snapshot = (await journal.snapshot(run.id)).event
        if run.state in ENDED:
            continue
        lease = await journal.claim(run.id, "after the loss")
        journal.append(lease, [MessageChunk("on")])
        assert isinstance(snapshot, Snapshot)
        await journal.seal(lease, RunFinished("completed", snapshot.output + "on"))
        await _stored(journal, run.id)


async def _stored(journal: Journal, run_id: str) -> dict[int, str]:
    run, stored = await journal.get(run_id), dict[int, str]()
    viewer = journal.tail_pages(run_id)
    while len(stored) < run.last_seq:
        stored |= {line.seq: hash_of(line.json) for line in await anext(viewer)}
    return stored
