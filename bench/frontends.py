"""What a token costs a viewer by a front end's protocol, against `/runs/{id}/stream`.

    python -m bench frontends

One process has the server, the run and clients that throw away what they read. `live`: a run is written token by token
while viewers watch; what the run costs without viewers is subtracted. `replayed`: a run that has ended is read again.
The figure is CPU time per token and viewer. Rounds alternate, so a noisy neighbour hits all of them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvloop

from bench.table import Table
from tailrace.agent.turn_spec import ClientTurn, TurnSpec
from tailrace.app import App, open_app
from tailrace.config.load import load
from tailrace.events import AttemptStarted, MessageChunk, MessageRecorded, MessageStop, RunFinished
from tailrace.messages import assistant, user
from tailrace.ports import Lease, NewRun
from tailrace.server.app import serving

TOKENS, VIEWERS, ROUNDS = 2000, 8, 7
WORDS = [f" word{number}" for number in range(TOKENS)]
BASELINE = "/runs/{id}/stream"


def requests(run_id: str) -> Mapping[str, bytes]:
    """How each protocol asks for the run."""
    asked = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "Count."}]}
    body = json.dumps(asked).encode()
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Count."}]}
    chat = json.dumps({"id": "t", "messages": [message]}).encode()  # a question that is sent again shows the same run
    head = b"host: 127.0.0.1\r\nconnection: close\r\n"
    return {
        BASELINE: b"GET /runs/%b/stream HTTP/1.1\r\n%b\r\n" % (run_id.encode(), head),
        "/ag-ui": b"POST /ag-ui HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body),
        "/ui/chat": b"POST /ui/chat HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (head, len(chat), chat),
    }


class Viewer(asyncio.Protocol):
    """Reads to the end and keeps nothing."""

    def __init__(self) -> None:
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.bytes = 0

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        if not self.begun.done():
            self.begun.set_result(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.ended.set_result(None)


async def view(port: int, request: bytes) -> Viewer:
    transport, viewer = await asyncio.get_running_loop().create_connection(Viewer, "127.0.0.1", port)
    transport.write(request)
    return viewer


async def begin(app: App) -> Lease:
    spec = TurnSpec(user("Count."), requester="local", client=ClientTurn("r", ("u",)))
    for run in await app.journal.runs(session="t"):
        await app.journal.delete(run.id)
    _, lease = await app.journal.start(NewRun("agent", msgspec.to_builtins(spec), session="t"), "bench")
    assert lease is not None
    app.journal.append(lease, [MessageRecorded(user("Count.")), AttemptStarted("p", "m")])
    await app.journal.commit(lease)
    return lease


async def write(app: App, lease: Lease) -> None:
    for word in WORDS:
        app.journal.append(lease, [MessageChunk(word)])
        await app.journal.commit(lease)
    text = "".join(WORDS)
    app.journal.append(lease, [MessageRecorded(assistant(text), "end"), MessageStop(final=True)])
    await app.journal.seal(lease, RunFinished("completed", text))


async def live(app: App, port: int, path: str | None) -> float:
    """CPU seconds of a whole run with its viewers; without a path, of the run alone."""
    lease = await begin(app)
    viewers = [await view(port, requests(lease.run_id)[path]) for _ in range(VIEWERS)] if path else []
    for viewer in viewers:
        await viewer.begun
    began = time.process_time()
    await write(app, lease)
    for viewer in viewers:
        await viewer.ended
    return time.process_time() - began


async def replayed(app: App, port: int, path: str) -> float:
    lease = await begin(app)
    await write(app, lease)
    began = time.process_time()
    viewers = [await view(port, requests(lease.run_id)[path]) for _ in range(VIEWERS)]
    for viewer in viewers:
        await viewer.ended
        assert viewer.bytes > TOKENS
    return time.process_time() - began


@asynccontextmanager
async def served(store: str) -> AsyncIterator[tuple[App, int]]:
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "config.yaml").write_text(f"store: {{url: '{store}'}}\n", encoding="utf-8")
        async with open_app(load({}, Path(home)), directory=Path(home)) as app, serving(app, port=0) as server:
            yield app, int(server.url.rpartition(":")[2])


async def measure(store: str, table: Table) -> None:
    paths = list(requests("x"))
    async with served(store) as (app, port):
        alone = [await live(app, port, None) for _ in range(ROUNDS)]
        watched: dict[str, list[float]] = {path: [] for path in paths}
        again: dict[str, list[float]] = {path: [] for path in paths}
        for _ in range(ROUNDS):
            for path in paths:
                watched[path].append(await live(app, port, path) - statistics.median(alone))
                again[path].append(await replayed(app, port, path))
    for name, spent in (("live", watched), ("replayed", again)):
        cost = {path: statistics.median(each) / TOKENS / VIEWERS for path, each in spent.items()}
        for path in paths:
            table.row(f"{name}, {store.partition(':')[0]}", path, cost[path] * 1e6, cost[path] / cost[BASELINE])


def main() -> Table:
    table = Table("a token for one viewer", "how", "path", "CPU µs", "ratio")
    for store in ("memory://", "sqlite:///tailrace.db"):
        uvloop.run(measure(store, table))
    return table
