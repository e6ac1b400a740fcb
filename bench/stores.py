"""The journal on PostgreSQL against the journal on SQLite, in one run on one machine.

PostgreSQL is started from the installed binaries, as the tests do, with `fsync` on. The processor time of its processes
is counted too: on one machine it is part of the price, on two it is not this machine's.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench.table import Table
from tailrace.events import MessageChunk
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.journal import StoredJournal
from tailrace.ports import Lease, NewRun

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from postgres_server import PostgresServer, running

READ = [MessageChunk(" the"), MessageChunk(" quick"), MessageChunk(" brown"), MessageChunk(" fox")]  # one read's deltas
SHAPES = ((1, 5), (1, 50), (50, 1), (200, 1))  # runs, and reads of each in a commit
EVENTS = 40_000
LATENCY_EVENTS = 1_000
Open = Callable[[], Awaitable[StoredJournal]]


def postgres_cpu_s(server: PostgresServer | None) -> float:
    """Of every process of the server, those that have ended since included in their parent's."""
    if server is None:
        return 0.0
    parent = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == parent:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == parent:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def _start(journal: StoredJournal) -> Lease:
    _, lease = await journal.start(NewRun("call"), "bench")
    assert lease is not None
    return lease


async def _append(open_journal: Open, server: PostgresServer | None, runs: int, reads: int) -> tuple[float, ...]:
    """Events a second, and microseconds of CPU for each event: of this process, and of the server."""
    journal = await open_journal()
    leases = [await _start(journal) for _ in range(runs)]
    gc.collect()
    cpu, server_cpu, before, written = time.process_time(), postgres_cpu_s(server), time.perf_counter(), 0
    while written < EVENTS:
        for lease in leases:
            for _ in range(reads):
                journal.append(lease, READ)
        await asyncio.gather(*map(journal.commit, leases))
        written += runs * reads * len(READ)
    took = time.perf_counter() - before
    spent = (time.process_time() - cpu, postgres_cpu_s(server) - server_cpu)
    await journal.close()
    return (written / took, *(each / written * 1e6 for each in spent))


async def _latency(open_journal: Open) -> list[float]:
    """Milliseconds from an append to a viewer whose process is another: two journals in one process stand for two."""
    ours, theirs = await open_journal(), await open_journal()
    lease = await _start(ours)
    viewer = theirs.tail(lease.run_id, after=1)
    took = []
    for _ in range(LATENCY_EVENTS):
        before = time.perf_counter()
        ours.append(lease, READ[:1])
        await anext(viewer)
        took.append((time.perf_counter() - before) * 1e3)
    await ours.close()
    await theirs.close()
    return took


def main() -> None:
    if not Path("/usr/lib/postgresql").exists():
        print("PostgreSQL is not installed in /usr/lib/postgresql: not measured")
        return
    columns = ("store", "runs", "events a commit", "events/s", "CPU µs/event", "of SQLite's", "server's µs")
    table = Table("appending", *columns)
    waits = Table("to a viewer in another process, ms", "store", "p50", "p99")
    with tempfile.TemporaryDirectory() as name, running(durable=True) as server:

        def sqlite() -> Awaitable[StoredJournal]:
            return SqliteJournal.open(Path(name) / f"{time.monotonic_ns()}.db")

        def postgres() -> Awaitable[StoredJournal]:
            return PostgresJournal.open(url)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for runs, reads in SHAPES:
                url = server.url()
                rate, cost, _ = runner.run(_append(sqlite, None, runs, reads))
                size = runs * reads * len(READ)
                table.row("SQLite", runs, size, round(rate), round(cost, 1), 1.0, "")
                rate, other, servers = runner.run(_append(postgres, server, runs, reads))
                costs = (other, other / cost, servers)
                table.row("PostgreSQL", runs, size, round(rate), *(round(each, 1) for each in costs))
            url, file = server.url(), Path(name) / "latency.db"
            stores: tuple[tuple[str, Open], ...] = (
                ("SQLite", lambda: SqliteJournal.open(file)),
                ("PostgreSQL", postgres),
            )
            for store, open_journal in stores:
                took = runner.run(_latency(open_journal))
                waits.row(store, round(statistics.median(took), 2), round(statistics.quantiles(took, n=100)[98], 2))
    print(f"{table}\n\n{waits}")


if __name__ == "__main__":
    main()
