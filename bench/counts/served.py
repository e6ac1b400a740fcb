"""`tailrace serve` with its function calls counted: what a request or a token costs, without a clock.

    python -m bench.counts.served HOME

It runs the command itself, in this process, with a profile function in every thread. A thread of its own reads orders
from stdin and answers each with a line of JSON on stdout; it ends the process when there are no more.

    start    counts from here on, with the garbage collector off
    stop     the calls since then by function, and what the collector finds now: objects in cycles
    blocks   how many blocks of memory are allocated, after a collection
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import threading
from collections import Counter
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType
from typing import Any

import msgspec

from tailrace.cli.main import main

# left out before a function's name
PLACES = (f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).parents[2]}/", "src/", "site-packages/")


class CallCount:
    """A profile function and what it has seen."""

    def __init__(self) -> None:
        self.counting = False
        self._python: Counter[CodeType] = Counter()
        self._native: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if not self.counting:
            return
        if event == "call":
            self._python[frame.f_code] += 1
        elif event == "c_call":
            self._native[_native_name(arg)] += 1

    def start(self) -> None:
        self._python.clear()
        self._native.clear()
        self.counting = True

    def stop(self) -> dict[str, int]:
        self.counting = False
        calls = Counter(self._native)
        for code, count in self._python.items():
            calls[_python_name(code)] += count
        return dict(calls)


def _python_name(code: CodeType) -> str:
    path = code.co_filename
    for place in PLACES:
        path = path.rpartition(place)[2]
    return f"{path.removesuffix('.py')}:{code.co_qualname}"


def _native_name(function: BuiltinFunctionType) -> str:
    return f"{function.__qualname__} (C)"


class Cycles:
    """Objects that collections have found in cycles."""

    def __init__(self) -> None:
        self.found = 0
        gc.callbacks.append(self._noted)

    def _noted(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            self.found += info["collected"] + info["uncollectable"]


def obey(calls: CallCount, cycles: Cycles) -> None:
    """The thread that takes orders. Nothing of it is counted."""
    sys.setprofile(None)
    for line in sys.stdin:
        answer: object = None
        match line.strip():
            case "start":
                gc.collect()
                gc.disable()
                cycles.found = 0
                calls.start()
            case "stop":
                by_function = calls.stop()
                gc.collect()
                gc.enable()
                answer = {"calls": by_function, "cycles": cycles.found}
            case "blocks":
                gc.collect()
                answer = sys.getallocatedblocks()
            case unknown:
                answer = f"no such order: {unknown}"
        print(msgspec.json.encode(answer).decode(), flush=True)
    os._exit(0)


def serve(home: str) -> int:
    os.environ["TAILRACE_HOME"] = home
    sys.modules["tailrace_relay"] = None  # type: ignore[assignment]  # installed or not: Python is what is counted
    count = CallCount()
    threading.Thread(target=obey, args=(count, Cycles()), daemon=True).start()
    threading.setprofile(count)
    sys.setprofile(count)
    return main(["serve", "--port", "0"])


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
