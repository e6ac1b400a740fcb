"""Runs a program, reads what it prints, and ends everything it started when it must.

Owns the life of one process tree: its own session and process group, its output pipe, its time limit, its end. What
the program is and what its output means is for the tools to know.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tailrace.system.own_task import finish
from tailrace.system.unread_bytes import unread_bytes

MARK = "TAILRACE_CALL_"  # with a name of its own per tree, so that trees within trees carry all their marks
GRACE_S = 1.0  # between asking a tree to end and ending it
_REAP_S = 5.0  # a killed process that is still not gone is stuck in the kernel: waiting does not help
_READ_BYTES = 65_536
_NO_GROUP = -1
_MAX_ROUNDS = 20  # a tree that forks while it is killed is looked at again


async def run_process(
    command: Sequence[str],
    take: Callable[[bytes], None],
    *,
    directory: Path,
    environment: Mapping[str, str],
    timeout_s: float,
) -> int | None:
    """The exit code, or None when it had to be ended because its time was up.

    `take` gets standard output and error together, as they come. Returns when the program has ended: a child that it
    left in the background holds nothing up, and goes on. When the time is up, when `take` raises and when the caller
    is cancelled, the whole tree is dead before this returns. Raises `OSError` where the program cannot be started.
    """
    tree = await _Tree.start(command, directory, environment, take)
    try:
        async with asyncio.timeout(timeout_s):
            return await tree.ended()
    except TimeoutError:
        await finish(tree.kill())
        return None
    except BaseException:
        await finish(tree.kill())
        raise
    finally:
        tree.close()


class _Tree:
    """A running program and its descendants."""

    def __init__(self, process: asyncio.subprocess.Process, pipe: int, mark: bytes, take: Callable[[bytes], None]):
        self._process = process
        self._pipe = pipe
        self._mark = mark
        self._take = take
        self._closed = asyncio.Event()  # the other end of the pipe is closed
        self._error: Exception | None = None  # what `take` raised
        asyncio.get_running_loop().add_reader(pipe, self._read)

    @classmethod
    async def start(
        cls, command: Sequence[str], directory: Path, environment: Mapping[str, str], take: Callable[[bytes], None]
    ) -> _Tree:
        mark = MARK + secrets.token_hex(8)
        # A pipe of our own, not one of asyncio's: its transport would wait for whatever else holds the other end.
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=directory,
                env={**environment, mark: "1"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        except BaseException as exc:
            os.close(ours)
            if isinstance(exc, asyncio.CancelledError) and sys.platform == "linux":  # asyncio ends the leader alone
                await finish(asyncio.to_thread(_kill_all, f"{mark}=1".encode(), _NO_GROUP))
            raise
        finally:
            os.close(theirs)
        return cls(process, ours, f"{mark}=1".encode(), take)

    async def ended(self) -> int:
        """Waits for the program; then everything it wrote has been taken."""
        code = await self._process.wait()
        # All that it wrote is in the pipe now. What a child in the background adds from here on is not waited for.
        if left := unread_bytes(self._pipe):
            self._read(left)
        if self._error is not None:
            raise self._error
        return code

    async def kill(self) -> None:
        """Asks the process group to end, gives it a moment, and ends the whole tree."""
        self._signal_group(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self._process.wait()
                await self._closed.wait()  # the children that print to us have had their moment too
        except TimeoutError:
            pass
        self._signal_group(signal.SIGKILL)
        if sys.platform == "linux":
            await asyncio.to_thread(_kill_all, self._mark, self._process.pid)
        try:
            async with asyncio.timeout(_REAP_S):
                await self._process.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # no such group, or not ours to signal
            os.killpg(self._process.pid, number)  # the group outlives its leader

    def _read(self, max_bytes: int = _READ_BYTES) -> None:
        data = os.read(self._pipe, max_bytes)
        if not data:
            self._closed.set()
            asyncio.get_running_loop().remove_reader(self._pipe)
            return
        try:
            self._take(data)
        except Exception as exc:  # noqa: BLE001 - called by the loop, which would log it and go on: `ended` raises it
            self._error = exc
            self._closed.set()
            asyncio.get_running_loop().remove_reader(self._pipe)
            self._process.kill()


# Linux only from here on: those that left the process group (setsid, a daemon's double fork) still carry the mark.


def _kill_all(mark: bytes, group: int) -> None:
    """Returns when they are gone. Those that were born meanwhile are looked for again."""
    for _ in range(_MAX_ROUNDS):
        running = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        dying = [handle for pid in running if (handle := _killed(pid, mark, group)) is not None]
        for handle in dying:
            _is_gone(handle, _REAP_S)
            os.close(handle)
        if not dying:
            return


def _killed(pid: int, mark: bytes, group: int) -> int | None:
    """A descriptor of the process where it belonged to the tree and lived; it holds the process, not its number."""
    try:
        if os.getpgid(pid) != group and not _carries(pid, mark):
            return None
        handle = os.pidfd_open(pid)
    except OSError:  # gone, or not ours
        return None
    if _is_gone(handle, 0):
        os.close(handle)
        return None
    with suppress(OSError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    return handle


def _is_gone(handle: int, timeout_s: float) -> bool:
    gone = select.poll()
    gone.register(handle, select.POLLIN)
    return bool(gone.poll(timeout_s * 1000))


def _carries(pid: int, mark: bytes) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - hundreds of these
        return mark in file.read().split(b"\0")
