"""The run log, measured as ratios within one run on one machine.

Figures are CPU time of the whole process (both threads), so that a noisy neighbour costs them little.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from tailrace.events import MessageChunk, RunFinished, to_json
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.viewed_lines import sse_without_reasoning
from tailrace.ports import Lease, LogPage, NewRun

T = TypeVar("T")
READ = [MessageChunk(" the"), MessageChunk(" quick"), MessageChunk(" brown"), MessageChunk(" fox")]  # one read's deltas
EVENTS = 200_000
PER_COMMIT = (20, 200)  # events: a server with a handful of streams, and a busy one


def _run(work: Coroutine[Any, Any, T]) -> T:
    """On the loop that the product runs on."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _start(journal: SqliteJournal) -> Lease:
    _, lease = await journal.start(NewRun("call"), "bench")
    assert lease is not None
    return lease


# ── throughput ───────────────────────────────────────────────────────────────────────────────────────────────


async def _append_and_tail(path: Path, events: int, per_commit: int, *, sse: bool = False) -> float:
    """CPU seconds for `events` entries through append, group commit and one tail, a read's worth per append. With
    `sse` the viewer is sent them as server-sent events."""
    journal = await SqliteJournal.open(path)
    lease = await _start(journal)
    await journal.commit(lease)
    seen, sent = 0, list[int]()

    async def watch() -> None:
        nonlocal seen
        viewer = journal.tail_pages(lease.run_id, after=1) if sse else journal.tail(lease.run_id, after=1)
        async for batch in viewer:
            seen += len(batch)
            if isinstance(batch, LogPage):
                sent.append(len(batch.framed(sse_without_reasoning)))
            if seen == events:
                return

    gc.collect()
    before = time.process_time()
    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        for _ in range(events // per_commit):
            for _ in range(per_commit // len(READ)):
                journal.append(lease, READ)
            await journal.commit(lease)
    spent = time.process_time() - before
    await journal.close()
    return spent


def _executemany(path: Path, events: int, per_commit: int) -> float:
    """The same events, encoded beforehand, a row each, in as many commits: nothing but SQLite."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(
        "CREATE TABLE events (run INTEGER, seq INTEGER, event BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID"
    )
    encoded = [to_json(event) for event in READ]
    rows = [(1, seq, encoded[seq % len(encoded)]) for seq in range(events)]
    gc.collect()
    before = time.process_time()
    for start in range(0, events, per_commit):
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO events VALUES (?, ?, ?)", rows[start : start + per_commit])
        connection.execute("COMMIT")
    spent = time.process_time() - before
    connection.close()
    return spent


def throughput(directory: Path) -> None:
    print("events per second of CPU: append + commit + one tail, beside the bare executemany of a row per event")
    for per_commit in PER_COMMIT:
        ours, shown, bare = [], [], []
        for turn in range(3):
            name = f"{per_commit}-{turn}.db"
            ours.append(EVENTS / _run(_append_and_tail(directory / f"tail{name}", EVENTS, per_commit)))
            shown.append(EVENTS / _run(_append_and_tail(directory / f"sse{name}", EVENTS, per_commit, sse=True)))
            bare.append(EVENTS / _executemany(directory / f"bare{name}", EVENTS, per_commit))
        mine, theirs = statistics.median(ours), statistics.median(bare)
        print(
            f"  {per_commit:>4} a commit   {mine:>9,.0f}   {theirs:>9,.0f}   ratio {mine / theirs:.0%}   (goal: 60 %)"
        )
        sent = statistics.median(shown)
        print(f"       sent as SSE too   {sent:>9,.0f}   {sent / mine:.0%} of the first")


# ── many runs ────────────────────────────────────────────────────────────────────────────────────────────────


async def _many_runs(
    path: Path, runs: int, per_second: float, seconds: float
) -> tuple[list[float], list[float], float]:
    """Seconds from append to viewer; how late a timer of 1 ms was meanwhile, in seconds; CPU seconds per second."""
    journal = await SqliteJournal.open(path)
    leases = [await _start(journal) for _ in range(runs)]
    sent: dict[tuple[str, int], float] = {}
    waits: list[float] = []
    late: list[float] = []
    total = int(runs * per_second * seconds)

    async def watch(lease: Lease) -> None:
        async for batch in journal.tail(lease.run_id, after=1):
            now = time.perf_counter()
            waits.extend(now - at for entry in batch if (at := sent.pop((lease.run_id, entry.seq), None)) is not None)

    async def pace() -> None:
        begin, number = time.perf_counter(), 0
        while number < total:
            now = time.perf_counter()
            while number < min((now - begin) * runs * per_second, total):
                lease = leases[number % runs]
                seq = journal.append(lease, READ[:1])
                sent[lease.run_id, seq] = time.perf_counter()
                number += 1
            slept = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append(time.perf_counter() - slept - 0.001)
        text = READ[0].text * (total // runs)
        await asyncio.gather(*(journal.seal(lease, RunFinished("completed", text)) for lease in leases))

    gc.collect()
    gc.freeze()  # as a server does once it has started: a full collection is a pause of its own
    before = time.process_time()
    async with asyncio.TaskGroup() as group:
        for lease in leases:
            group.create_task(watch(lease))
        group.create_task(pace())
    spent = time.process_time() - before
    gc.unfreeze()
    await journal.close()
    return waits, late, spent / seconds


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)] * 1e3


def many_runs(directory: Path) -> None:
    waits, late, cpu = _run(_many_runs(directory / "many.db", 1000, 20.0, 5.0))
    print(f"1,000 runs at 20 events/s, a viewer each ({len(waits):,} events, {cpu:.0%} of a core):")
    print(f"  append to viewer         p50 {_percentile(waits, 0.5):6.1f} ms   p99 {_percentile(waits, 0.99):6.1f} ms")
    print(
        f"  a bare timer meanwhile   p50 {_percentile(late, 0.5):6.1f} ms   p99 {_percentile(late, 0.99):6.1f} ms late"
    )
    print("  (goal: p99 under 20 ms on an idle machine; the timer shows how idle it was)")


# ── DBOS ─────────────────────────────────────────────────────────────────────────────────────────────────────

DBOS_ITEMS = 300
_DBOS = f"""
import sys, time
from dbos import DBOS
database = "sqlite:///" + sys.argv[1]
DBOS(config={{"name": "bench", "system_database_url": database, "log_level": "ERROR", "run_admin_server": False}})
@DBOS.workflow()
def write(n):
    before = time.process_time()
    for number in range(n):
        DBOS.write_stream("tokens", {{"text": " the"}})
    return time.process_time() - before
DBOS.launch()
write(20)
print("CPU", write({DBOS_ITEMS}) / {DBOS_ITEMS})
DBOS.destroy()
"""


async def _one_by_one(path: Path, events: int) -> float:
    journal = await SqliteJournal.open(path)
    lease = await _start(journal)
    before = time.process_time()
    for _ in range(events):
        journal.append(lease, READ[:1])
        await journal.commit(lease)
    spent = time.process_time() - before
    await journal.close()
    return spent / events


def dbos(directory: Path, python: str) -> None:
    done = subprocess.run(
        [python, "-c", _DBOS, str(directory / "dbos.db")], capture_output=True, text=True, check=False
    )
    theirs = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("CPU ")]
    streamed = _run(_append_and_tail(directory / "item.db", EVENTS, PER_COMMIT[0])) / EVENTS
    alone = _run(_one_by_one(directory / "alone.db", 5_000))
    print(f"one event of 20 in a group commit    {streamed * 1e6:8.1f} µs of CPU, tail included")
    print(f"one event, committed by itself       {alone * 1e6:8.1f} µs of CPU")
    if not theirs:
        print(f"DBOS write_stream: not measured, {python} cannot import dbos (set BENCH_DBOS_PYTHON to one that can)")
        return
    cost = float(theirs[0])
    print(f"DBOS write_stream, one item          {cost * 1e6:8.1f} µs of CPU   (SQLite, same machine)")
    print(f"ratio                                {cost / streamed:8.0f} in a group, {cost / alone:.0f} by itself")


def main() -> None:
    """`BENCH_DBOS_PYTHON` names an interpreter that can import dbos, which is no dependency of ours."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        throughput(directory)
        many_runs(directory)
        dbos(directory, os.environ.get("BENCH_DBOS_PYTHON", sys.executable))


if __name__ == "__main__":
    main()
