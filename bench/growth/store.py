"""What a run, a token and a list cost in a store with so many runs, in a session with so many turns, in a log with so
many entries; how much is written."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench.growth.fill import add_run, add_samples, fill_postgres, fill_sqlite
from bench.stores import postgres_cpu_s
from bench.table import Table
from postgres_server import PostgresServer, running
from tailrace.agent.session import TURN_KIND, history_of
from tailrace.events import MessageChunk, RunFinished
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.sqlite.places import index_rows
from tailrace.journal.sqlite.schema import connect
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Journal, Lease, NewRun

RUNS = (1_000, 10_000, 100_000, 1_000_000)
TURNS = (1, 10, 100, 1_000)
ENTRIES = (1_000, 10_000, 100_000, 1_000_000)
TIMES = 5  # the median counts
STREAMS = (1, 50, 500)  # that have a token in each commit
PACED = "a token, 50 streams a commit"
Work = Callable[[Journal], Awaitable[object]]


class Store(NamedTuple):
    """A new store of its kind."""

    name: str
    open: Callable[[], Awaitable[Journal]]
    fill: Callable[[int], None]
    server: PostgresServer | None
    written: Callable[[], int]  # bytes so far: of SQLite's log and file, of PostgreSQL's log
    rows: Callable[[], tuple[int, int]]  # of entries, and the bytes that they and their places take

    def cpu_s(self) -> float:
        return time.process_time() + postgres_cpu_s(self.server)


@contextmanager
def stores() -> Iterator[list[Store]]:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "runs.db"
        sqlite = Store(
            "SQLite",
            lambda: SqliteJournal.open(path),
            lambda runs: fill_sqlite(path, runs),
            None,
            lambda: int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0]),
            lambda: _sqlite_rows(path),
        )
        if not Path("/usr/lib/postgresql").exists():
            yield [sqlite]
            return
        with running(durable=True) as server:
            url = server.url()
            schema = url.partition("schema=")[2]

            def execute(statement: str) -> str:
                return server.sql(statement, timeout_s=600)

            yield [
                sqlite,
                Store(
                    "PostgreSQL",
                    lambda: PostgresJournal.open(url),
                    lambda runs: fill_postgres(execute, schema, runs),
                    server,
                    lambda: int(server.sql("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")),
                    lambda: _postgres_rows(server, schema),
                ),
            ]


def _sqlite_rows(path: Path) -> tuple[int, int]:
    with closing(connect(path, writer=True)) as connection:
        index_rows(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (rows,) = connection.execute("SELECT count(*) FROM batches").fetchone()
    return rows, path.stat().st_size


def _postgres_rows(server: PostgresServer, schema: str) -> tuple[int, int]:
    told = server.sql(f"SELECT count(*), pg_total_relation_size('{schema}.batches') FROM {schema}.batches")  # noqa: S608
    rows, stored = map(int, told.split("|"))
    return rows, stored


def run(work: Callable[[], Awaitable[object]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_awaited(work))


async def _awaited(work: Callable[[], Awaitable[object]]) -> None:
    await work()


async def cost_us(store: Store, journal: Journal, work: Work, count: int) -> float:
    """CPU µs of one of `count`, which one call of `work` does."""
    costs = []
    for _ in range(TIMES + 1):
        before = store.cpu_s()
        await work(journal)
        costs.append((store.cpu_s() - before) / count * 1e6)
    return statistics.median(costs[1:])  # the first one reads what the others find in memory


# ── runs in the store ────────────────────────────────────────────────────────────────────────────────────────


async def _lease(journal: Journal) -> Lease:
    _, lease = await journal.start(NewRun("call"), "bench")
    assert lease is not None
    return lease


async def _runs(journal: Journal) -> None:
    for number in range(40):
        await add_run(journal, f"new{number % 4}" if number % 2 else "")


async def _tokens(journal: Journal, leases: Sequence[Lease]) -> None:
    for _ in range(40):
        for lease in leases:
            journal.append(lease, [MessageChunk(" word")])
        await asyncio.gather(*map(journal.commit, leases))


def _again(times: int, work: Work) -> Work:
    async def again(journal: Journal) -> None:
        for _ in range(times):
            await work(journal)

    return again


MEASURED: tuple[tuple[str, int, Work], ...] = (
    ("a run of ten tokens", 40, _runs),
    ("the history of a session of ten turns", 20, _again(20, lambda j: history_of(j, "s40"))),
    ("50 runs, the newest", 20, _again(20, lambda j: j.runs(limit=50))),
    ("50 runs of a kind", 20, _again(20, lambda j: j.runs(kind=TURN_KIND, limit=50))),
    ("runs under way", 20, _again(20, lambda j: j.runs(states=("pending", "running")))),
    ("runs that have failed, one in 1,000", 10, _again(10, lambda j: j.runs(states=["failed"], limit=10))),
    ("20 conversations", 10, _again(10, lambda j: j.sessions(TURN_KIND, limit=20))),
    ("runs to take over", 20, _again(20, lambda j: j.orphans())),
    ("runs to compact, none", 20, _again(20, lambda j: j.runs(ended_before=1.0, compacted=False))),
)


def by_runs(quick: bool) -> list[Table]:
    sizes = RUNS[:2] if quick else RUNS
    tables = []
    with stores() as opened:
        for store in opened:
            columns = [f"{size:,} runs" for size in sizes]
            table = Table(f"{store.name}: CPU µs, by runs in the store", "what", *columns, "last / first")
            run(partial(add_samples, store.open))
            costs: dict[str, list[float]] = {name: [] for name in (PACED, *(name for name, *_ in MEASURED))}
            for size in sizes:
                store.fill(size)
                run(partial(_measure, store, costs))
            for name, found in costs.items():
                table.row(name, *found, found[-1] / found[0])
            tables.append(table)
    return tables


async def _measure(store: Store, costs: dict[str, list[float]]) -> None:
    journal = await store.open()
    leases = [await _lease(journal) for _ in range(50)]
    costs[PACED].append(await cost_us(store, journal, lambda j: _tokens(j, leases), 40 * len(leases)))
    for lease in leases:
        await journal.seal(lease, RunFinished("completed", " word" * 40 * (TIMES + 1)))
    for name, count, work in MEASURED:
        costs[name].append(await cost_us(store, journal, work, count))
    await journal.close()


# ── turns in a session, entries in a log ─────────────────────────────────────────────────────────────────────


def by_history(quick: bool) -> list[Table]:
    turns, entries = (TURNS[:3], ENTRIES[:3]) if quick else (TURNS, ENTRIES)
    tables = []
    with stores() as opened:
        for store in opened:
            tables.append(
                Table(f"{store.name}: CPU µs, by turns in the session", "what", *map(_shown, turns), "last / first")
            )
            costs: dict[str, list[float]] = {"a turn in the journal": [], "its history read": [], "a turn of it": []}
            run(partial(_turns, store, turns, costs))
            for name, found in costs.items():
                tables[-1].row(name, *found, found[-1] / found[0])
            tables.append(
                Table(f"{store.name}: CPU µs, by entries in the log", "what", *map(_shown, entries), "last / first")
            )
            found = []
            run(partial(_entries, store, entries, found))
            tables[-1].row("an entry, 20 a commit", *found, found[-1] / found[0])
    return tables


def _shown(number: int) -> str:
    return f"{number:,}"


async def _turns(store: Store, sizes: Sequence[int], costs: dict[str, list[float]]) -> None:
    journal = await store.open()
    for size in sizes:
        name = f"session of {size}"
        for _ in range(size):
            await add_run(journal, name)
        times = max(1, 100 // size)
        read = await cost_us(store, journal, _again(times, partial(history_of, session=name)), times)
        costs["its history read"].append(read)
        costs["a turn of it"].append(read / size)
        costs["a turn in the journal"].append(
            await cost_us(store, journal, _again(10, partial(add_run, session=name)), 10)
        )
    await journal.close()


async def _entries(store: Store, sizes: Sequence[int], found: list[float]) -> None:
    journal = await store.open()
    lease, done = await _lease(journal), 0
    for size in sizes:
        sample = min(size - done, 20_000)
        while done < size - sample:
            journal.append(lease, [MessageChunk(" word")] * 200)
            await journal.commit(lease)
            done += 200
        before = store.cpu_s()
        for _ in range(sample // 20):
            journal.append(lease, [MessageChunk(" word")] * 20)
            await journal.commit(lease)
        done += sample
        found.append((store.cpu_s() - before) / sample * 1e6)
    await journal.close()


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────


def volume(quick: bool) -> list[Table]:
    """Streams that have a token in each commit, and one whose tokens come two hundred at a time."""
    table = Table(
        "written per 1,000 tokens",
        "store",
        "streams",
        "tokens a commit",
        "rows",
        "kB of rows",
        "kB written",
        "CPU µs a token",
    )
    total = 4_000 if quick else 20_000
    for shape in (*((streams, 1) for streams in STREAMS), (1, 200)):
        with stores() as opened:
            for store in opened:
                run(partial(_volume, store, shape, total, table))
    return [table]


async def _volume(store: Store, shape: tuple[int, int], total: int, table: Table) -> None:
    streams, tokens = shape
    journal = await store.open()
    leases = [await _lease(journal) for _ in range(streams)]
    written, cpu_s, commits = store.written(), store.cpu_s(), total // (streams * tokens)
    for _ in range(commits):
        for lease in leases:
            journal.append(lease, [MessageChunk(" word")] * tokens)
        await asyncio.gather(*map(journal.commit, leases))
    thousands = commits * streams * tokens / 1000
    cpu_us, written = (store.cpu_s() - cpu_s) / thousands * 1e3, store.written() - written
    for lease in leases:
        await journal.seal(lease, RunFinished("completed", " word" * (commits * tokens)))
    await journal.close()
    rows, stored = store.rows()
    rows -= 2 * streams  # of a beginning and an end
    table.row(
        store.name,
        streams,
        streams * tokens,
        rows / thousands,
        stored / 1000 / thousands,
        written / 1000 / thousands,
        cpu_us,
    )
