"""`tailrace serve` whose loop measures itself: the CPU time of the longest callback, which no other load of the machine
makes longer. Printed at SIGUSR1, in milliseconds, and begun anew.

The loop is asyncio's own, as uvloop calls its callbacks unseen. Imports are left out: they happen once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from types import ModuleType
from typing import Any


def main() -> int:
    uvloop: Any = ModuleType("uvloop")
    uvloop.new_event_loop = asyncio.new_event_loop
    sys.modules["uvloop"] = uvloop
    times: list[float] = []
    run_handle = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began, modules = time.thread_time(), len(sys.modules)
        try:
            run_handle(handle)
        finally:
            if len(sys.modules) == modules:
                times.append(time.thread_time() - began)

    def tell(*_: object) -> None:
        os.write(sys.stdout.fileno(), b"%.1f\n" % (max(times) * 1000))
        times.clear()

    setattr(asyncio.Handle, "_run", timed)  # noqa: B010 - a private name
    signal.signal(signal.SIGUSR1, tell)
    from tailrace.cli.main import main as run_command

    return run_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
