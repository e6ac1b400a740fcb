"""`tailrace serve --workers N` as real processes, and connections to the worker that a test names."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from cli.commands.serve_process import command

_SERVES = re.compile(r"worker (\d+) serves \(process (\d+)\)")


class WorkerServer:
    """`pids` are those of the workers that serve now, by index; `lines` is the log so far."""

    def __init__(self, child: asyncio.subprocess.Process, url: str) -> None:
        self.child = child
        self.url = url
        self.pids: dict[int, int] = {}
        self.lines: list[str] = []
        self._more = asyncio.Condition()

    async def read_log(self) -> None:
        assert self.child.stderr is not None
        async for line in self.child.stderr:
            async with self._more:
                self.lines.append(line.decode().rstrip())
                if found := _SERVES.search(self.lines[-1]):
                    self.pids[int(found[1])] = int(found[2])
                self._more.notify_all()

    async def logged(self, pattern: str, times: int = 1) -> None:
        """Returns when so many lines of the log match."""
        async with self._more:
            await self._more.wait_for(lambda: sum(bool(re.search(pattern, line)) for line in self.lines) >= times)

    @asynccontextmanager
    async def via(self, worker: int) -> AsyncGenerator[aiohttp.ClientSession, None]:
        """A client with one connection, which this worker has accepted: the others are halted meanwhile."""
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(self.url, connector=connector) as client:
            with ExitStack() as stack:
                for index, pid in self.pids.items():
                    if index != worker:
                        os.kill(pid, signal.SIGSTOP)
                        stack.callback(os.kill, pid, signal.SIGCONT)
                async with client.get("/healthz") as response:
                    assert response.status == 200
            yield client

    async def stop(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return await self.child.wait()


@asynccontextmanager
async def worker_server(home: Path, workers: int, *args: str, **env: str) -> AsyncGenerator[WorkerServer, None]:
    """All workers serve. Afterwards none of their processes is left."""
    async with asyncio.timeout(120), command(home, "--workers", str(workers), *args, **env) as child:
        assert child.stdout is not None
        line = (await child.stdout.readline()).decode()
        assert line.startswith("tailrace listens on http://127.0.0.1:"), (await child.communicate())[1].decode()
        server = WorkerServer(child, line.split()[-1])
        reading = asyncio.create_task(server.read_log())
        try:
            await server.logged("serves", workers)
            yield server
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
            for pid in server.pids.values():
                await process_gone(pid)
            await reading


async def process_gone(pid: int) -> None:
    """Returns when there is no such process."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(fd, over.set)
    try:
        async with asyncio.timeout(30):
            await over.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


async def metrics_of(client: aiohttp.ClientSession) -> dict[str, float]:
    async with client.get("/metrics") as response:
        pairs = [line.rpartition(" ") for line in (await response.text()).splitlines() if not line.startswith("#")]
    return {name: float(number) for name, _, number in pairs}


async def ids(response: aiohttp.ClientResponse) -> AsyncIterator[int]:
    """The ids of a stream's events as they come."""
    async for line in response.content:
        if line.startswith(b"id: "):
            yield int(line[4:])
