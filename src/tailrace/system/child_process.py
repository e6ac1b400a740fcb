"""A pure function in a process of its own, with a deadline: for input whose cost cannot be known before the work.

A thread would hold the interpreter, and cannot be ended. Owns the process; the function takes and returns bytes. The
child has no environment, a limit on its memory, and imports the function's module alone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from tailrace.errors import TailraceError

MAX_CHILDREN: Final = 2  # at once: the others wait
MAX_MEMORY_BYTES: Final = 2 << 30
_START: Final = (
    "import sys; sys.path[:] = sys.argv.pop(1).splitlines(); from tailrace.system.child_process import main; main()"
)
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class ChildFailed(TailraceError):
    """The work could not be done: no process, no memory, or a mistake of ours."""


class ChildTimedOut(ChildFailed):
    """The work took longer than it may."""


async def run_in_child(function: Callable[[bytes], bytes], payload: bytes, *, timeout_s: float) -> bytes:
    """What a module's function returns for this payload. `timeout_s` begins when the process does. A cancelled caller
    leaves no process behind. Raises `ChildTimedOut`, `ChildFailed`."""
    name = f"{function.__module__}:{function.__qualname__}"
    async with _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_CHILDREN)):
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-W", "ignore", "-c", _START, _import_path(), name, f"{timeout_s:.0f}"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={},
                cwd="/",
            )
        except OSError as exc:
            raise ChildFailed(f"a process cannot be started: {exc.strerror}") from exc
        try:
            async with asyncio.timeout(timeout_s):
                result, _ = await process.communicate(payload)
        except TimeoutError as exc:
            raise ChildTimedOut(f"it takes more than {timeout_s:g} s") from exc
        finally:
            with suppress(ProcessLookupError):
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    if process.returncode != 0:
        raise ChildFailed(f"the process ended with the code {process.returncode}")
    return result


def _import_path() -> str:
    """Where this very package and its dependencies are imported from, one a line."""
    return "\n".join([str(Path(__file__).parents[2]), *(entry for entry in sys.path if entry)])


def main() -> None:
    """The child: its arguments are the function's name and its seconds, its input is the payload."""
    import resource
    from importlib import import_module

    seconds = int(sys.argv[2]) + 1
    for limit, value in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, MAX_MEMORY_BYTES)):
        with suppress(OSError, ValueError):  # a lower limit is set already
            resource.setrlimit(limit, (value, value))
    module, _, function = sys.argv[1].partition(":")
    result: bytes = getattr(import_module(module), function)(sys.stdin.buffer.read())
    sys.stdout.buffer.write(result)
