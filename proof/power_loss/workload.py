"""The process whose disk is recorded: runs that are written and watched in a real store, and what was promised of
them.

A promise is a line in the file `promises` beside the store: an entry that a viewer was shown, or a commit or an end
that the caller was told of. The recorder sees that line among the writes of the store, so it is known which promises
were made before the power went.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from tailrace.events import MessageChunk, RunFinished
from tailrace.journal.open_journal import open_journal
from tailrace.ports import Journal, NewRun

Durability = Literal["committed", "fsync"]
Tell = Callable[["Promise"], None]
AT_ONCE, RUNS = 4, 10
LONGEST = 30_000  # of one text: a checkpoint comes every few runs


class Promise(msgspec.Struct, array_like=True):
    """The entries of a run, by seq, with a hash of each as it is stored where a viewer has seen it."""

    run_id: str
    entries: dict[int, str] = {}
    ended: bool = False


def hash_of(json: bytes) -> str:
    return hashlib.blake2b(json, digest_size=8).hexdigest()


async def write_runs(url: str, promises: Path, seed: int, durability: Durability) -> None:
    database = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else None
    rng = random.Random(seed)
    told = os.open(promises, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def promise(made: Promise) -> None:
        os.write(told, msgspec.json.encode(made) + b"\n")

    async with open_journal(url, database) as journal:
        for _ in range(RUNS // AT_ONCE + 1):
            await asyncio.gather(*(_run(journal, rng, durability, promise) for _ in range(AT_ONCE)))


async def _run(journal: Journal, rng: random.Random, durability: Durability, promise: Tell) -> None:
    new = NewRun("power", {"text": "go"}, durability=durability)
    run, lease = await journal.start(
        new, owner=f"{os.getpid()}", lease_s=0.0
    )  # over at once: it is claimed after the loss
    assert lease is not None
    watching = asyncio.create_task(_watch(journal, run.id, promise))
    texts = []
    for _ in range(rng.randrange(4, 20)):
        some = [f"{rng.random()}" * rng.randrange(1, LONGEST // 18 if rng.random() < 0.1 else 20) for _ in range(3)]
        seq = journal.append(lease, [MessageChunk(text) for text in some])
        texts += some
        if rng.random() < 0.5:
            await journal.commit(lease)
            promise(Promise(run.id, {seq: ""}))
        await asyncio.sleep(0)
    if rng.random() < 0.2:
        await journal.release(lease)  # for the next process
        watching.cancel()
        return
    last = await journal.seal(lease, RunFinished("completed", "".join(texts)))
    promise(Promise(run.id, {last.seq: ""}, ended=True))
    await watching


async def _watch(journal: Journal, run_id: str, promise: Tell) -> None:
    async for page in journal.tail_pages(run_id):
        promise(Promise(run_id, {line.seq: hash_of(line.json) for line in page}))


if __name__ == "__main__":
    url, promises, seed, durability = sys.argv[1:]
    asyncio.run(write_runs(url, Path(promises), int(seed), "fsync" if durability == "fsync" else "committed"))
