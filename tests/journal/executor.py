"""A process that executes one run for the tests of two processes on one database.

    python executor.py URL CHUNKS [die]

Prints the run's id, waits for a line on stdin, writes CHUNKS chunks one commit each and ends the run; with CHUNKS 0 it
waits for a stop signal first. With `die` it says "ready" instead of ending and waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys

from journal.stores import Store
from tailrace.events import MessageChunk, RunFinished
from tailrace.ports import NewRun
from tailrace.runs.lease import HeldLease


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main() -> None:
    journal = await Store(sys.argv[1]).open()
    chunks = int(sys.argv[2])
    run, lease = await journal.start(NewRun("call"), "the executor")
    assert lease is not None
    say(run.id)
    async with HeldLease(journal, lease):
        await asyncio.to_thread(sys.stdin.readline)
        for number in range(chunks):
            journal.append(lease, [MessageChunk(f"{number} ")])
            await journal.commit(lease)
        if "die" in sys.argv:
            say("ready")
            await asyncio.Event().wait()
        if not chunks:
            assert [signal.name for signal in await journal.signals(lease)] == ["stop"]
        output = "".join(f"{number} " for number in range(chunks))
        await journal.seal(lease, RunFinished("completed" if chunks else "stopped", output))
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main())
