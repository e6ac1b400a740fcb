"""How late the machine itself is: a timer in a process that does nothing else, observed as a server observes its loop.

On a machine that is shared, a process that wants to run may have to wait for a second. A server is not to blame for
that, and without this measure nobody could tell.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_left
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import TypeVar

from proof.soak.samples import Buckets
from tailrace.server.metrics.loop_lag import observed_lag
from tailrace.server.metrics.registry import LAG_BUCKETS

_BOUNDS = (*LAG_BUCKETS, float("inf"))


class BareTimer:
    """What the process has told so far."""

    def __init__(self) -> None:
        self._counts = [0.0] * len(_BOUNDS)

    def observe(self, late_s: float) -> None:
        self._counts[bisect_left(_BOUNDS, late_s)] += 1

    def buckets(self) -> Buckets:
        return tuple(zip(_BOUNDS, accumulate(self._counts), strict=True))


T = TypeVar("T", bound=BareTimer)


@asynccontextmanager
async def bare_timer(timer: T) -> AsyncGenerator[T, None]:
    """Runs the process within the block."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    reading = asyncio.create_task(_read(process.stdout, timer))
    try:
        yield timer
    finally:
        process.stdin.close()
        await asyncio.gather(process.wait(), reading)


async def _read(lines: asyncio.StreamReader, timer: BareTimer) -> None:
    async for line in lines:
        timer.observe(float(line))


async def _tell() -> None:
    """Prints how late each timer was, until the input ends: also where whoever reads has died."""
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), over.set)
    with observed_lag(_print):
        await over.wait()


def _print(late_s: float) -> None:
    sys.stdout.write(f"{late_s:.6f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_tell())
