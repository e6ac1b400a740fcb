"""What the journal's fast paths win: each with and without, in turns within one run.

    python -m bench fast_paths

A fast path that wins less than 15 % of what it is for goes; one that stays has its number in its docstring.
"""

from __future__ import annotations

import asyncio
import random
import socket
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.table import Table
from tailrace.events import (
    AttemptStarted,
    Entry,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    RunFinished,
    UsageRecorded,
)
from tailrace.journal import live_tail
from tailrace.journal.live_tail import LiveViewers, PageViewer, Tail, Viewer
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.sqlite.places import INDEX_ROWS, index_rows
from tailrace.journal.sqlite.schema import SCHEMA, WAL_BYTES, WAL_PAGES_MAX, wal_bytes
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.journal.stored.ended_runs import INTERVAL_S
from tailrace.messages import Usage, assistant
from tailrace.ports import Batch, Durability, LogPage, NewRun, StoredLine

TURNS = 3


def main() -> list[Table]:
    return [deferred_index(), rounds(), recorded_at_the_end()]


def _in_loop(work: Callable[[], Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


# ── `places`: the deferred index of the log ──────────────────────────────────────────────────────────────────


def deferred_index() -> Table:
    table = Table("the index of the log", "streams", "rows a commit", "index", "bytes written per row", "µs per row")
    for streams, per_commit, commits in ((560, 56, 1500), (1, 1, 20_000)):
        measured = {
            deferred: [_write_rows(streams, per_commit, commits, deferred=deferred)] for deferred in (True, False)
        }
        for _ in range(TURNS - 1):
            for deferred, values in measured.items():
                values.append(_write_rows(streams, per_commit, commits, deferred=deferred))
        for deferred, values in measured.items():
            written, cpu_us = values[0][0], min(each for _, each in values)
            table.row(streams, per_commit, "deferred" if deferred else "plain", written, cpu_us)
    return table


def _write_rows(streams: int, per_commit: int, commits: int, *, deferred: bool) -> tuple[float, float]:
    """Bytes of the write-ahead log and CPU µs, per row."""
    rows = ", ".join(["(?, ?, ?, 1, 123456789, ?, 1.7e9)"] * per_commit)
    # `rows` are question marks that are made here, so that the text of the query has nothing from outside.
    insert = f"INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events, at) VALUES {rows}"  # noqa: S608
    event = b'{"type":"message_chunk","text":" quick"}\n'
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log.db"
        connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")
        connection.executescript(SCHEMA)
        if not deferred:
            connection.execute("CREATE UNIQUE INDEX batches_by_run ON batches (run, first_seq)")
        order, seqs = list(range(streams)), [0] * streams
        random.Random(1).shuffle(order)
        written = unplaced = at = 0
        began = time.process_time()
        for _ in range(commits):
            values: list[object] = []
            for _ in range(per_commit):
                run = order[at % streams]
                at += 1
                seqs[run] += 1
                values += (run, seqs[run], seqs[run], event)
            connection.execute(insert, values)
            unplaced += per_commit
            if deferred and unplaced >= INDEX_ROWS:
                connection.execute("BEGIN")
                index_rows(connection)
                connection.execute("COMMIT")
                unplaced = 0
            if (size := wal_bytes(path)) > WAL_BYTES:
                written += size
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        spent = time.process_time() - began
        written += wal_bytes(path)
        connection.close()
    return written / at, spent / at * 1e6


# ── rounds for many viewers of one run ───────────────────────────────────────────────────────────────────────

VIEWERS = 1000


class _InParts(LiveViewers):
    """The simplest that lets other runs in between: a callback for each hundred viewers, and nothing held."""

    def offer(self, batch: Batch) -> None:
        viewers: tuple[Viewer[Any], ...] = (*self._viewers,)
        for start in range(0, len(viewers), live_tail.AT_ONCE):
            some = viewers[start : start + live_tail.AT_ONCE]
            asyncio.get_running_loop().call_soon(live_tail._offer, some, batch)


def rounds() -> Table:
    table = Table(
        f"{VIEWERS:,} viewers of one run", "tokens/s", "offered", "µs per viewer and token", "a timer, p99 late (ms)"
    )
    for per_second in (20, 100, 200):
        best: dict[str, tuple[float, float]] = {}
        for _ in range(TURNS):
            for name, kind in (("in rounds", LiveViewers), ("a callback per 100", _InParts)):
                measured = _in_loop(lambda kind=kind, rate=per_second: _watched(kind, rate))  # type: ignore[misc]
                best[name] = min(best.get(name, measured), measured)
        for name, (cpu_us, late_ms) in best.items():
            table.row(per_second, name, cpu_us, late_ms)
    return table


def _frame(line: StoredLine) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (line.seq, line.json)


async def _watched(kind: type[LiveViewers], per_second: int, seconds: float = 2.0) -> tuple[float, float]:
    """Each viewer sends what it is given to a loopback socket that is never read."""
    tail, taken, late = Tail(last_seq=1), 0, list[float]()
    tail.live = kind()
    with socket.socket(type=socket.SOCK_DGRAM) as unread, socket.socket(type=socket.SOCK_DGRAM) as sender:
        unread.bind(("127.0.0.1", 0))
        sender.connect(unread.getsockname())

        def take(page: LogPage) -> bool:
            nonlocal taken
            taken += len(page)
            sender.send(page.framed(_frame))
            return True

        async def watch() -> None:
            viewer = PageViewer(MemoryJournal(), "run", 1, snapshot=False)
            viewer._tail = tail
            while True:
                await viewer.follow(take)
                if viewer.cursor < tail.last_seq:
                    take(await anext(viewer))

        async def measure_lateness() -> None:
            while True:
                began = time.perf_counter()
                await asyncio.sleep(0.001)
                late.append(time.perf_counter() - began - 0.001)

        tasks = [asyncio.ensure_future(watch()) for _ in range(VIEWERS)]
        await asyncio.sleep(0.05)
        tasks.append(asyncio.ensure_future(measure_lateness()))
        began, cpu = time.perf_counter(), time.process_time()
        for number in range(1, int(per_second * seconds) + 1):
            tail.publish(Batch((Entry(tail.last_seq + 1, MessageChunk(" quick")),)))
            await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        await asyncio.sleep(0.1)
        spent = time.process_time() - cpu
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return spent / taken * 1e6, sorted(late)[int(len(late) * 0.99)] * 1e3


# ── durability "memory": recorded when the run ends, several runs together ───────────────────────────────────


def recorded_at_the_end() -> Table:
    table = Table("a plain request in the journal", "requests/s", "durability", "recorded", "µs per request")
    for per_second in (200, 1000):
        best: dict[tuple[Durability, float], float] = {}
        for _ in range(TURNS):
            for durability, interval_s in (("memory", INTERVAL_S), ("memory", 0.0), ("committed", 0.0)):
                cpu_us = _in_loop(lambda d=durability, i=interval_s, r=per_second: _requests(d, i, r))  # type: ignore[misc]
                key: Any = (durability, interval_s)
                best[key] = min(best.get(key, cpu_us), cpu_us)
        for (durability, interval_s), cpu_us in best.items():
            alone = "each at its end" if durability == "memory" else "as it grows"
            how = f"together, once in {interval_s:g} s" if interval_s else alone
            table.row(per_second, durability, how, cpu_us)
    return table


async def _requests(durability: Durability, interval_s: float, per_second: int) -> float:
    body = {"api": "chat", "request": {"model": "up/bench", "messages": [{"role": "user", "content": "Go. " * 20}]}}
    count, done, all_done = int(per_second * 1.2), 0, asyncio.Event()

    def recorded(error: Exception | None) -> None:
        nonlocal done
        assert error is None
        done += 1
        if done == count:
            all_done.set()

    with tempfile.TemporaryDirectory() as directory:
        journal = MemoryFirst(await SqliteJournal.open(Path(directory) / "journal.db"), record_every_s=interval_s)
        await asyncio.sleep(0.1)  # its statements are compiled
        cpu, began = time.process_time(), time.perf_counter()
        for number in range(1, count + 1):
            _, lease = await journal.start(NewRun("call", body, "up/bench", durability=durability), "bench")
            assert lease is not None
            journal.append(lease, [AttemptStarted("up", "bench")])
            journal.append(lease, [MessageChunk("Hello")])
            journal.append(lease, [MessageChunk(" you")])
            journal.append(lease, [UsageRecorded(Usage(), "up", "bench"), MessageRecorded(assistant("Hello you"))])
            journal.append(lease, [MessageStop(final=True)])
            journal.seal_soon(lease, RunFinished("completed", "Hello you"), recorded)
            await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        await all_done.wait()
        spent = time.process_time() - cpu
        await journal.close()
    return spent / count * 1e6


if __name__ == "__main__":
    for measured_table in main():
        print(f"\n{measured_table}")
