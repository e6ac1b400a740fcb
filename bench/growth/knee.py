"""What one PostgreSQL carries: nodes that append paced streams, more of them until it is late.

PostgreSQL has a core for itself, and the nodes, which are processes that open the journal as `tailrace serve` does,
share another. A node appends a token to each of its streams every 50 ms and commits as the journal does by itself; how
late a token is, from its append to the commit, is what `on_lag` tells. The knee is the last load that came whole with
99 % within `LATE_MS`. Others on the machine make it come sooner; the CPU of a token, of a commit and of a wake-up is
theirs alone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time

import msgspec
import uvloop

from bench.gateway.native import on_cores
from bench.stores import postgres_cpu_s
from bench.table import Table
from postgres_server import PostgresServer, running
from tailrace.events import MessageChunk
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.ports import NewRun

PACE_S = 0.05
LATE_MS = 3000.0
NODES = (1, 2, 4, 8)
FIRST, GROWTH, MOST = 100, 2.5, 12_000  # streams of all nodes


class Seen(msgspec.Struct):
    """By one node, in its window."""

    tokens: int
    cpu_s: float
    lags_ms: list[float]  # of each commit


async def node(url: str, streams: int, seconds: float) -> Seen:
    lags: list[float] = []
    journal = await PostgresJournal.open(url, on_lag=lambda lag_s: lags.append(lag_s * 1000))
    begun = await asyncio.gather(*(journal.start(NewRun("call"), "bench", lease_s=600.0) for _ in range(streams)))
    leases = [lease for _, lease in begun if lease is not None]
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    lags.clear()
    chunk, sent, began, cpu_s = [MessageChunk(" word")], 0, time.perf_counter(), time.process_time()
    total = int(streams * seconds / PACE_S)
    while sent < total:
        due = min(int((time.perf_counter() - began) / PACE_S * streams), total)
        while sent < due:
            journal.append(leases[sent % streams], chunk)
            sent += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*map(journal.commit, leases))
    took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    await journal.close()
    return Seen(int(total / max(1.0, took / seconds)), cpu_s, lags)


class Load(msgspec.Struct):
    tokens_per_s: float
    offered_per_s: float
    p50_ms: float
    p99_ms: float
    commits_per_s: float
    server_share: float  # of a core
    server_us: float  # a token
    nodes_us: float
    wal_bytes: float  # a token

    @property
    def fits(self) -> bool:
        return self.p99_ms <= LATE_MS and self.tokens_per_s >= 0.97 * self.offered_per_s


def load(server: PostgresServer, nodes: int, streams: int, seconds: float, core: int) -> Load:
    """A load of its own schema."""
    url, each = server.url(), max(1, streams // nodes)
    command = [sys.executable, "-m", "bench.growth.knee", "", str(each), str(seconds)]
    started: list[subprocess.Popen[str]] = []
    with on_cores(core):
        for _ in range(nodes):
            command[3] = url
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            assert started[-1].stdout is not None
            assert started[-1].stdout.readline() == "ready\n"
    before, cpu_s, began = _counters(server), postgres_cpu_s(server), time.perf_counter()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    seen = [msgspec.json.decode(process.communicate()[0], type=Seen) for process in started]
    took, cpu_s, after = time.perf_counter() - began, postgres_cpu_s(server) - cpu_s, _counters(server)
    tokens = sum(one.tokens for one in seen)
    offered = nodes * int(each * seconds / PACE_S)
    lags = sorted(lag for one in seen for lag in one.lags_ms) or [1e9]
    server.sql(f'DROP SCHEMA "{url.partition("schema=")[2]}" CASCADE')
    return Load(
        *(tokens / seconds, offered / seconds, statistics.median(lags), lags[int(len(lags) * 0.99)]),
        *((after[0] - before[0]) / took, cpu_s / took, cpu_s / offered * 1e6),
        *(sum(one.cpu_s for one in seen) / offered * 1e6, (after[1] - before[1]) / offered),
    )


def _counters(server: PostgresServer) -> tuple[int, int]:
    """Commits and bytes of the log."""
    told = server.sql(
        "SELECT sum(xact_commit), pg_current_wal_insert_lsn() - '0/0'::pg_lsn FROM pg_stat_database"
    ).split("|")
    return int(told[0]), int(told[1])


def one_postgres(quick: bool) -> list[Table]:
    seconds = 2.0 if quick else 4.0
    table = Table(
        f"one PostgreSQL on a core, nodes on another; p99 within {LATE_MS:g} ms",
        *("nodes", "tokens/s", "fits", "lag ms p50", "p99", "commits/s", "its core", "its µs a token", "nodes' µs"),
        "log bytes a token",
    )
    cores = sorted(os.sched_getaffinity(0))
    with on_cores(cores[0]), running(durable=True) as server:
        for nodes in NODES[:2] if quick else NODES:
            streams, before = FIRST * nodes, 0
            while streams <= MOST and streams != before:
                seen = load(server, nodes, streams, seconds, cores[-1])
                costs = (f"{seen.server_share:.0%}", seen.server_us, seen.nodes_us, seen.wal_bytes)
                fits = "yes" if seen.fits else "no"
                table.row(nodes, seen.tokens_per_s, fits, seen.p50_ms, seen.p99_ms, seen.commits_per_s, *costs)
                if not seen.fits:
                    break
                before, streams = streams, int(streams * GROWTH)
    return [table]


if __name__ == "__main__":
    print(msgspec.json.encode(uvloop.run(node(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))).decode())
