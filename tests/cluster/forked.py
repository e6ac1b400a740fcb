"""Nodes without the cost of starting Python: one process imports everything once and forks each node, as `tailrace
serve --workers` does with its workers.

A node is a process of its own, with the command line, the environment and the working directory it is given. Run as a
program, this module is the process that forks; its one argument is the socket on which it is asked to.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

IMPORTED = (
    "tailrace.app.app",
    "tailrace.cli.commands.gateway",
    "tailrace.cli.commands.serve",
    "tailrace.integrations.postgres.store",
    "tailrace.integrations.redis.bus",
    "tailrace.journal.sqlite.store",
    "tailrace.gateway.conversations",
    "tailrace.gateway.gateway",
    "tailrace.integrations.telegram.adapter",
    "tailrace.server.app",
)
MAX_REQUEST_BYTES = 1 << 18


class ForkedProcess:
    """As `asyncio.subprocess.Process`, of a process that is no child of this one."""

    def __init__(self, pid: int, handle: int, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self._handle = handle  # of the process: its number may be another's once it is dead

    @property
    def has_ended(self) -> bool:
        return self._handle < 0 or bool(select.select([self._handle], [], [], 0)[0])

    def send_signal(self, number: signal.Signals) -> None:
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    async def wait(self) -> None:
        if self.has_ended:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._handle)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Forker:
    """Use `forker`."""

    def __init__(self, ask: socket.socket) -> None:
        self._ask = ask

    async def start(self, args: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> ForkedProcess:
        """`tailrace` with these arguments. What it exits with is in the file `exit_code` of its working directory."""
        out, err = os.pipe(), os.pipe()
        request = json.dumps([list(args), str(cwd), dict(environment)]).encode()
        socket.send_fds(self._ask, [request], [out[1], err[1]])
        answer, handles, _, _ = socket.recv_fds(self._ask, 64, 1)  # forking takes a few milliseconds
        os.close(out[1])
        os.close(err[1])
        return ForkedProcess(int(answer), handles[0], await _reader(out[0]), await _reader(err[0]))


async def _reader(end: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb", buffering=0)
    )
    return reader


@contextmanager
def forker() -> Iterator[Forker]:
    """Its nodes end with it."""
    ask, answer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, str(answer.fileno())]
    process = subprocess.Popen(command, pass_fds=[answer.fileno()], stdin=subprocess.DEVNULL)
    answer.close()
    try:
        with ask:
            yield Forker(ask)
    finally:
        process.wait()


# ── the process that forks ──


def main(ask: socket.socket) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not waited for
    handles: list[int] = []
    while True:
        request, ends, _, _ = socket.recv_fds(ask, MAX_REQUEST_BYTES, 2)
        if not request:
            break
        pid = os.fork()
        if pid == 0:
            ask.close()
            run_node(*json.loads(request), *ends)
        handles.append(os.pidfd_open(pid))
        ask.sendmsg([str(pid).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles[-1:]))])
        for end in ends:
            os.close(end)
    for handle in handles:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)


def run_node(args: list[str], cwd: str, environment: dict[str, str], out: int, err: int) -> NoReturn:
    from tailrace.cli.main import main as command

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    code = 1
    try:
        code = command(args)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        Path("exit_code").write_text(str(code))
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
