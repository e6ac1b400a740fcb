"""L141: viewers that connect and do not read, against `tailrace serve` as a process of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from cli.commands.serve_process import Process, served
from cli.commands.test_serve import SQLITE
from server.http_server import config_for
from tailrace.events import AnyEvent, LlmDelta, MessageChunk, RunFinished, StepFinished, StepStarted
from tailrace.journal.fold import SEQUENCE, outputs_text
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import NewRun
from tailrace.testing.provider import FaultyProvider

TOKENS = 20_000
VIEWERS = 200
MAX_GROWTH_MB = 100
TOKENS_PER_COMMIT = 20
TOKEN_CHARS = 250  # so that the kernel's buffers do not take the whole log


async def stored_run(path: Path, kind: str) -> tuple[str, int]:
    """A run of so many tokens that has ended, and how many entries it has."""
    journal = await SqliteJournal.open(path)
    run, lease = await journal.start(NewRun(kind, session="s"), "me")
    assert lease is not None
    texts = [f"token {number:06} ".ljust(TOKEN_CHARS, "x") for number in range(TOKENS)]
    events: Sequence[AnyEvent] = list(map(MessageChunk, texts))
    output, ending = "".join(texts), list[AnyEvent]()
    if kind == SEQUENCE:
        events = [StepStarted("say"), *(LlmDelta("say", text) for text in texts)]
        output, ending = outputs_text({"say": "done"}), [StepFinished("say", "done")]
    for start in range(0, len(events), TOKENS_PER_COMMIT):
        journal.append(lease, events[start : start + TOKENS_PER_COMMIT])
        await journal.commit(lease)
    journal.append(lease, ending)
    end = await journal.seal(lease, RunFinished("completed", output))
    await journal.close()
    return run.id, end.seq


def memory_mb(process: Process, field: str) -> float:
    """`VmRSS`: now; `VmHWM`: the most so far."""
    status = Path(f"/proc/{process.child.pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


async def viewers(process: Process) -> int:
    async with process.client.get(process.url + "/metrics") as response:
        text = await response.text()
    return next(int(float(line.split()[-1])) for line in text.splitlines() if line.startswith("tailrace_viewers "))


async def stall(process: Process, path: str, stack: ExitStack) -> None:
    """Connects, asks for the stream, and never reads."""
    peer = socket.socket()
    stack.callback(peer.close)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setblocking(False)
    host, port = process.url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    await loop.sock_connect(peer, (host, int(port)))
    await loop.sock_sendall(peer, f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())


@pytest.mark.parametrize(("kind", "route"), [("agent", "/runs/{}/stream"), (SEQUENCE, "/instances/{}/stream")])
async def test_L141_two_hundred_stalled_viewers_cost_little(tmp_path: Path, kind: str, route: str) -> None:
    run_id, last_seq = await stored_run(tmp_path / "runs.db", kind)
    async with FaultyProvider() as provider:
        config_for(provider, tmp_path, store=SQLITE)
        async with served(tmp_path) as process:
            path = route.format(run_id)
            assert (await whole_stream(process, path)).count(b"\nid: ") > TOKENS  # what one reader costs is not counted
            before = memory_mb(process, "VmHWM")
            with ExitStack() as stack:
                for _ in range(VIEWERS):
                    await stall(process, path, stack)
                most = 0
                while most <= (now := await viewers(process)) < VIEWERS:  # until all are here, or the first was dropped
                    most = now
                    await whole_stream(process, path)
                body = await whole_stream(process, path)  # a viewer that reads is served beside them
                grown = memory_mb(process, "VmHWM") - before
    assert b"id: %d\n" % last_seq in body
    assert max(most, now) > VIEWERS // 2
    assert grown < MAX_GROWTH_MB, f"{grown:.0f} MB for {VIEWERS} viewers"


async def whole_stream(process: Process, path: str) -> bytes:
    async with process.client.get(process.url + path) as response:
        assert response.status == 200
        return await response.read()
