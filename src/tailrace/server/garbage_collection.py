"""When a server looks for garbage in reference cycles: when few streams would wait for it.

Requests leave no cycles behind (L148), so what is there after start-up is frozen, the youngest generation is collected
by count, and a full collection is made when few requests are in flight or memory has grown by a lot
(docs/decisions/0016-garbage-collector.md). What is freed goes back to the system: see `return_freed_memory`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import mmap
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

log = logging.getLogger("tailrace.server")

YOUNG: Final = 2_000  # new objects before the youngest generation is collected: about a millisecond
NEVER: Final = 1_000_000_000
LOOK_EVERY_S: Final = 5.0
STEP_EVERY_S: Final = 0.2  # while many streams are open, the youngest generation is collected this often at least
QUIET_EVERY_S: Final = 60.0  # at least this long between two full collections of a quiet server
FEW: Final = 20  # with so many requests in flight or fewer, a server is quiet
GROWN_BYTES: Final = 256 << 20  # beyond this, and twice of what it was, memory has grown by a lot;
GROWN_AT_MOST_BYTES: Final = 1 << 30  # beyond this, whatever it was

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h
MAPPED_BYTES: Final = 512 * 1024  # from this size on a text has pages of its own, which go back when it is freed
ARENAS: Final = 2

Reason = Literal["quiet", "memory"]


def return_freed_memory() -> bool:
    """Sets the allocator's limits for this process and the children that it forks. False where it has none.

    glibc keeps texts of up to 32 MB in its heaps once one of them was freed, and has a heap for each thread: an answer
    of 8 MB took 390 MB, and half of that with these limits (O178)."""
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_ARENA_MAX, ARENAS))


class FullCollections:
    """Decides when a full collection is due; makes none."""

    def __init__(self, now: float, memory_bytes: int, young: int) -> None:
        self.made(now, memory_bytes, young)

    def due(self, now: float, memory_bytes: int, young: int, in_flight: int) -> Reason | None:
        """`young` counts the collections of the youngest generation so far: where there was none, nothing is new."""
        if young == self._young:
            return None
        if memory_bytes - self._memory_bytes >= max(GROWN_BYTES, min(self._memory_bytes, GROWN_AT_MOST_BYTES)):
            return "memory"
        return "quiet" if in_flight <= FEW and now - self._made_at >= QUIET_EVERY_S else None

    def made(self, now: float, memory_bytes: int, young: int) -> None:
        self._made_at = now
        self._memory_bytes = memory_bytes
        self._young = young


@asynccontextmanager
async def collected_when_quiet(in_flight: Callable[[], int]) -> AsyncGenerator[None, None]:
    """Freezes what is there and collects by this module's rules while the block lasts."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, NEVER, NEVER)
    collecting = asyncio.create_task(_collect_when_due(in_flight))
    try:
        yield
    finally:
        collecting.cancel()
        await asyncio.wait([collecting])
        gc.set_threshold(*before)


async def _collect_when_due(in_flight: Callable[[], int]) -> None:
    now = asyncio.get_running_loop().time
    full, is_first = FullCollections(now(), memory_bytes(), young_collections()), True
    while True:
        is_busy = in_flight() > FEW
        await asyncio.sleep(STEP_EVERY_S if is_busy else LOOK_EVERY_S)
        if is_busy:
            gc.collect(0)
        reason = full.due(now(), memory_bytes(), young_collections(), in_flight())
        if reason is None:
            continue
        if reason == "memory":
            gc.unfreeze()  # what was frozen may have become garbage since
        before_s, found = now(), gc.collect()
        log.debug("a full garbage collection (%s) took %.0f ms, freed %d", reason, (now() - before_s) * 1000, found)
        if is_first:
            gc.freeze()  # with what the first requests have loaded
        is_first = False
        full.made(now(), memory_bytes(), young_collections())


def young_collections() -> int:
    return int(gc.get_stats()[0]["collections"])


def memory_bytes() -> int:
    """Resident memory; where the system has no /proc, an estimate from the number of small blocks."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
    except OSError:
        return sys.getallocatedblocks() * 80
