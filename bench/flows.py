"""Durable sequences, measured as ratios within one run on one machine.

    python -m bench flows

Steps do nothing, so what is measured is what it costs to make them durable: each instance is created, run and sealed
in a SQLite file with `committed` durability (it survives `kill -9`). Beside it stand a loop written by hand on the
same SQLite, without a plan, viewers, leases or signals, and DBOS where BENCH_DBOS_PYTHON names a Python that has it.
CPU is that of the whole process (both threads), so that a noisy neighbour costs it little.
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
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import uvloop

from bench.table import Table
from tailrace.config.sections import CallPolicy
from tailrace.flows.definition.definition import Definition, parsed
from tailrace.flows.engine.service import FlowService
from tailrace.flows.steps.base import Handler, Handlers, Params, StepContext
from tailrace.flows.steps.llm_call import LlmCall
from tailrace.flows.steps.llm_params import ProviderParam
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.messages import AnyDelta, Completion, Dialect, JsonObject, ModelRequest, TextDelta, Usage, assistant
from tailrace.ports import AnswerStream
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller

INSTANCES = 1000
ROUNDS = 3
GOAL_PER_S = 1500


class EchoParams(Params):
    n: int


class Nothing(Handler[EchoParams]):
    Params = EchoParams

    async def run(self, params: EchoParams, _step: StepContext) -> JsonObject:
        return {"n": params.n}


def steps(count: int) -> Definition:
    blocks = [{"type": "step", "id": f"s{n}", "handler": "do", "params": {"n": "{{input.n}}"}} for n in range(count)]
    return parsed({"name": "bench", "blocks": blocks})


# ── instances ────────────────────────────────────────────────────────────────────────────────────────────────


async def ours(path: Path, count: int) -> tuple[float, float]:
    """Wall and CPU seconds for all instances, started at once."""
    journal = await SqliteJournal.open(path)
    handlers: Handlers = {"do": Nothing()}
    async with FlowService(journal, handlers, owner="bench", directory=path.parent) as flows:
        version = await flows.create_sequence(steps(count))
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        runs = await asyncio.gather(*(flows.start(version, {"n": n}) for n in range(INSTANCES)))
        await flows.drain(120)
        spent = time.perf_counter() - wall, time.process_time() - cpu
        assert (await flows.finished(runs[-1].id)).status == "completed"
    await journal.close()
    return spent


def by_hand(path: Path, count: int) -> tuple[float, float]:
    """The least that makes steps durable: a row per workflow and a commit per step, one after another."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE flows (id INTEGER PRIMARY KEY, input BLOB, state TEXT)")
    connection.execute("CREATE TABLE steps (flow INTEGER, step INTEGER, output BLOB, PRIMARY KEY (flow, step))")
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    for number in range(INSTANCES):
        connection.execute("INSERT INTO flows VALUES (?, ?, 'running')", (number, msgspec.json.encode({"n": number})))
        for step in range(count):
            output = msgspec.json.encode({"ok": True})
            connection.execute("INSERT INTO steps VALUES (?, ?, ?)", (number, step, output))
        connection.execute("UPDATE flows SET state = 'done' WHERE id = ?", (number,))
    spent = time.perf_counter() - wall, time.process_time() - cpu
    connection.close()
    return spent


_DBOS = """
import sys, time
from dbos import DBOS
DBOS(config={"name": "bench", "system_database_url": "sqlite:///" + sys.argv[1], "log_level": "ERROR",
             "run_admin_server": False})
@DBOS.step()
def do(n):
    return {"ok": True}
@DBOS.workflow()
def flow(n, steps):
    for _ in range(steps):
        do(n)
DBOS.launch()
flow(0, 1)
count, steps = int(sys.argv[2]), int(sys.argv[3])
wall, cpu = time.perf_counter(), time.process_time()
for n in range(count):
    flow(n, steps)
print("SPENT", time.perf_counter() - wall, time.process_time() - cpu)
DBOS.destroy()
"""
DBOS_INSTANCES = 200


def dbos(path: Path, count: int) -> tuple[float, float] | None:
    python = os.environ.get("BENCH_DBOS_PYTHON", sys.executable)
    command = [python, "-c", _DBOS, str(path), str(DBOS_INSTANCES), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("SPENT "):
            _, wall, cpu = line.split()
            scale = INSTANCES / DBOS_INSTANCES
            return float(wall) * scale, float(cpu) * scale
    return None


def instances(directory: Path) -> Table:
    table = Table(
        f"{INSTANCES:,} instances at once, SQLite, committed (goal: above {GOAL_PER_S:,} of one step per second)",
        *("", "steps", "instances/s", "ms of CPU each", "ms of CPU per step"),
    )
    ways: list[tuple[str, Callable[[Path, int], tuple[float, float] | None]]] = [
        ("tailrace", lambda path, count: uvloop.run(ours(path, count))),
        ("by hand, one at a time", by_hand),
        ("DBOS, one at a time", dbos),
    ]
    for count in (1, 3):
        for name, way in ways:
            rounds = ROUNDS if way is not dbos else 1
            found = [way(directory / f"{name[:4]}{count}{turn}.db", count) for turn in range(rounds)]
            spent = [one for one in found if one is not None]
            if not spent:
                continue
            wall = statistics.median(wall for wall, _ in spent)
            cpu = statistics.median(cpu for _, cpu in spent) / INSTANCES * 1e3
            table.row(name, count, INSTANCES / wall, cpu, cpu / count)
    return table


# ── deltas without a viewer ────────────────────────────────────────────────────────────────────────────────

TOKENS = 500
TALKS = 40
TALK_ROUNDS = 6


class Talker:
    """A provider that says so many words, one at a time, as fast as it is asked."""

    name = "talker"
    dialect: Dialect = "chat"

    @asynccontextmanager
    async def _talk(self) -> AsyncGenerator[AnswerStream, None]:
        yield _Talk()

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AnswerStream]:
        del request
        return self._talk()

    async def complete(self, request: ModelRequest) -> Completion:
        raise TypeError(f"this one only streams: {request.model}")


class _Talk(AnswerStream):
    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        for _ in range(TOKENS):
            await asyncio.sleep(0)
            take([TextDelta(" word")])

    def completion(self) -> Completion:
        return Completion("chat", {}, assistant(" word" * TOKENS), model="talker", usage=Usage(10, TOKENS))


class Routes:
    def check(self, ref: ProviderParam) -> None:
        self.route(ref)

    def may_use(self, variable: str) -> bool:
        del variable
        return False

    def route(self, ref: ProviderParam) -> Route:
        del ref
        return Route(Talker(), "talker", CallPolicy())


async def talk(path: Path, *, stream: bool, watched: bool) -> float:
    """CPU seconds per step of a model that says `TOKENS` words."""
    journal = await SqliteJournal.open(path)
    params = {"prompt": "Go.", "stream": stream}
    definition = parsed({"name": "t", "blocks": [{"type": "step", "id": "s", "handler": "llm_call", "params": params}]})
    async with FlowService(
        journal, {"llm_call": LlmCall(Caller(), Routes())}, owner="bench", directory=path.parent
    ) as flows:
        version = await flows.create_sequence(definition)
        gc.collect()
        before = time.process_time()
        for _ in range(TALKS):
            run = await flows.start(version)
            if watched:
                async for _events in flows.watch(run.id):
                    pass
            else:
                await flows.drain(60)
        spent = time.process_time() - before
    await journal.close()
    return spent / TALKS


def deltas(directory: Path) -> Table:
    table = Table(
        f"one step of {TOKENS} deltas, from a provider that costs nothing",
        *("", "ms of CPU per step", "µs more per delta", "of not streaming"),
    )
    ways = {"not streamed": (False, False), "streamed, no viewer": (True, False), "streamed, one viewer": (True, True)}
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TALK_ROUNDS):
        for name, (stream, watched) in ways.items():
            path = directory / f"talk-{turn}-{stream}-{watched}.db"
            spent[name].append(uvloop.run(talk(path, stream=stream, watched=watched)))
    base = min(spent["not streamed"])  # the least disturbed round: the differences are small
    for name, times in spent.items():
        table.row(name, min(times) * 1e3, (min(times) - base) / TOKENS * 1e6, min(times) / base)
    return table


def main() -> list[Table]:
    with tempfile.TemporaryDirectory() as name:
        return [instances(Path(name)), deltas(Path(name))]


if __name__ == "__main__":
    for measured in main():
        print(f"\n{measured}")
