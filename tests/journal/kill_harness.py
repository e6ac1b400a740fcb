"""Kills a writing process with SIGKILL, again and again, on one database, and holds it to its word.

    python kill_harness.py URL SEED KILLS

Each victim is a process of its own, forked from this one (which has no loop and no threads) so that starting it takes
milliseconds. It takes over what the one before left, writes, and has viewers that say on a pipe what they have seen.
Whatever was seen must be in storage after the kill, with the same number and content, for ever. Prints what happened
as JSON; any broken promise is an assertion.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

from journal.stores import AnyStored, Store
from tailrace.events import MessageChunk, MessageStop, RunFinished, Snapshot, entry_to_json
from tailrace.journal.fold import fold
from tailrace.journal.sqlite.queries import all_entries
from tailrace.journal.sqlite.schema import connect
from tailrace.ports import ENDED, Batch, Durability, Lease, NewRun
from tailrace.runs.recovery import recover

WRITERS = 4
CHUNKS_PER_RUN = 40
LIFE_S = 0.06  # a victim's longest life after it has shown its first entry
CHECK_EVERY = 4  # looking clears the write-ahead log up: the victims in between must do that themselves
NEVER_PARK = 1_000_000
LEASES_APART_S = 40.0
Seen = dict[tuple[str, int], str]


# ── the victim ───────────────────────────────────────────────────────────────────────────────────────────────


async def live(store: Store, pipe: int, seed: int, generation: int, *, until_done: bool) -> None:
    clock = partial(later, generation * LEASES_APART_S) if store.is_postgres else None
    journal = await store.open(clock=clock)
    chance = random.Random(seed)
    owner = f"victim-{os.getpid()}"
    async with asyncio.TaskGroup() as group:
        async for found in recover(journal, owner, max_kills=NEVER_PARK):
            group.create_task(watch(journal, found.run.id, pipe))
            group.create_task(write(journal, found.lease, chance))
        if not until_done:
            for _ in range(WRITERS):
                group.create_task(write_runs(journal, owner, pipe, chance, group))
    await journal.close()


def later(by_s: float) -> float:
    """Nothing but a lease tells PostgreSQL that a process is dead: each victim lives after its predecessor's leases."""
    return time.time() + by_s


async def write_runs(
    journal: AnyStored, owner: str, pipe: int, chance: random.Random, group: asyncio.TaskGroup
) -> None:
    while True:
        durability: Durability = "fsync" if chance.random() < 0.05 else "committed"
        _, lease = await journal.start(NewRun("call", durability=durability), owner)
        assert lease is not None
        group.create_task(watch(journal, lease.run_id, pipe))
        await write(journal, lease, chance)


async def write(journal: AnyStored, lease: Lease, chance: random.Random) -> None:
    state = (await journal.snapshot(lease.run_id)).event
    assert isinstance(state, Snapshot)
    text = [state.output]
    for number in range(chance.randrange(CHUNKS_PER_RUN)):
        chunks = [f"{lease.epoch}.{os.getpid()}.{number}.{part} " for part in range(chance.randrange(1, 4))]
        journal.append(lease, [MessageChunk(chunk) for chunk in chunks], attempt=lease.epoch)
        text += chunks
        if chance.random() < 0.5:
            await journal.commit(lease)
        else:
            await asyncio.sleep(0)
    if not any(message.final for message in state.messages):
        journal.append(lease, [MessageStop(final=True)], attempt=lease.epoch)
    await journal.seal(lease, RunFinished("completed", "".join(text)))


async def watch(journal: AnyStored, run_id: str, pipe: int) -> None:
    async for batch in journal.tail(run_id):
        os.write(pipe, b"".join(b"%b %b\n" % (run_id.encode(), entry_to_json(entry)) for entry in batch))


# ── the killer ───────────────────────────────────────────────────────────────────────────────────────────────


def victim(store: Store, seed: int, generation: int, life_s: float | None) -> bytes:
    """What the victim's viewers said before it was killed, or before it was done (no `life_s`)."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        try:
            asyncio.run(live(store, theirs, seed, generation, until_done=life_s is None))
            os._exit(0)
        except BaseException as exc:  # noqa: BLE001 - the parent must hear of it
            print(f"victim: {exc!r}", file=sys.stderr)  # noqa: T201
            os._exit(1)
    os.close(theirs)
    said = drain(ours, life_s, pid)
    os.close(ours)
    _, status = os.waitpid(pid, 0)
    if life_s is None:
        assert status == 0, f"the last victim ended with {status}"
    else:
        assert os.WIFSIGNALED(status), f"a victim ended by itself: {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL
    return said


def drain(pipe: int, life_s: float | None, pid: int) -> bytes:
    said = bytearray()
    deadline: float | None = None
    killed = life_s is None
    while True:
        timeout = None if deadline is None or killed else max(0.0, deadline - time.monotonic())
        if select.select([pipe], [], [], timeout)[0]:
            piece = os.read(pipe, 1 << 20)
            if not piece:
                return bytes(said)
            said += piece
            if deadline is None and life_s is not None:
                deadline = time.monotonic() + life_s
        if not killed and deadline is not None and time.monotonic() >= deadline:
            os.kill(pid, signal.SIGKILL)
            killed = True


def note(seen: Seen, said: bytes) -> set[str]:
    """Adds what was said; the same entry must never be seen with another content. Returns the runs it is about."""
    runs = set()
    for line in said.split(b"\n")[:-1]:  # what follows the last line end was cut by the kill
        run_id, _, entry = line.decode().partition(" ")
        key = (run_id, int(json.loads(entry)["seq"]))
        assert seen.setdefault(key, entry) == entry, f"{key} was seen twice, with different contents"
        runs.add(run_id)
    return runs


async def check(store: Store, seen: Seen, run_ids: set[str]) -> None:
    async with reading(store) as read:
        stored = {
            (run_id, entry.seq): entry_to_json(entry).decode() for run_id in run_ids for entry in await read(run_id)
        }
    for key, entry in seen.items():
        if key[0] in run_ids:
            assert stored.get(key) == entry, f"{key} was seen and is not there: {entry} / {stored.get(key)}"


@asynccontextmanager
async def reading(store: Store) -> AsyncIterator[Callable[[str], Awaitable[Batch]]]:
    """Reads whole logs and leaves the database as it is."""
    if store.is_postgres:
        journal = await store.open()
        yield journal.read
        await journal.close()
        return

    async def read(run_id: str) -> Batch:
        return Batch(all_entries(connection, run_id))

    with closing(connect(Path(store.url.removeprefix("sqlite:///")), writer=False)) as connection:
        yield read
        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
        assert integrity == "ok"


async def check_ends(store: Store) -> int:
    journal = await store.open()
    runs = await journal.runs(limit=1_000_000)
    for run in runs:
        entries = await journal.read(run.id)
        assert run.state in ENDED, run
        assert [entry.seq for entry in entries] == list(range(1, run.last_seq + 1))
        ends = [entry.event for entry in entries if isinstance(entry.event, RunFinished)]
        assert ends == [entries[-1].event]
        assert ends == [run.finished]
        assert fold(entries).output == ends[0].output
    await journal.close()
    return len(runs)


def main() -> None:
    store, seed, kills = Store(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    gc.collect()
    gc.freeze()  # a collection in a victim would copy the pages that it shares with this process
    chance = random.Random(seed)
    seen: Seen = {}
    unchecked: set[str] = set()
    for number in range(1, kills + 1):
        unchecked |= note(
            seen,
            victim(
                store, seed * 1_000_003 + number, number, chance.uniform(0.0, LIFE_S * (5 if store.is_postgres else 1))
            ),
        )
        if number % CHECK_EVERY == 0:
            asyncio.run(check(store, seen, unchecked))
            unchecked.clear()
    note(seen, victim(store, seed, kills + 1, None))
    asyncio.run(check(store, seen, {run_id for run_id, _ in seen}))
    ended = asyncio.run(check_ends(store))
    print(json.dumps({"kills": kills, "seen": len(seen), "runs": ended}))  # noqa: T201


if __name__ == "__main__":
    main()
