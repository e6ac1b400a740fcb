"""The wall clock over the time that a run is executed here. It may be set back meanwhile, and a run took what it took.

The loop's clock says how much time has passed at least. It says nothing of a machine that was suspended, so a wall
clock that is set forward is believed.
"""

from __future__ import annotations

import asyncio
import time


def clock_offset() -> float:
    """The wall clock's time at 0 of the loop's clock; for `steady_time`, from when a run begins here."""
    return time.time() - asyncio.get_running_loop().time()


def steady_time(offset: float) -> float:
    """The wall clock's time now; where it was set back since the offset was taken, as if it had not been."""
    return max(time.time(), offset + asyncio.get_running_loop().time())
