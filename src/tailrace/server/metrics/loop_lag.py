"""How late the loop runs what is due: the longest that a token waits for something else in its process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

EVERY_S: Final = 0.1


@contextmanager
def observed_lag(observe: Callable[[float], None]) -> Iterator[None]:
    """Within the block, tells `observe` ten times a second how many seconds late a timer fired. The clock is the
    system's: the loop's own stands still while a callback runs."""
    loop, clock = asyncio.get_running_loop(), time.monotonic
    timer: asyncio.TimerHandle

    def fired(due: float) -> None:
        nonlocal timer
        now = clock()
        observe(max(0.0, now - due))
        timer = loop.call_later(EVERY_S, fired, now + EVERY_S)

    timer = loop.call_later(EVERY_S, fired, clock() + EVERY_S)
    try:
        yield
    finally:
        timer.cancel()
