"""Several real processes on one store, to be killed, stopped and watched from each other.

A `Cluster` is made from the store and the platforms it serves; each node has a home and a port of its own. The
provider and the platforms are servers on loopback, in the test's own process. Nothing here knows which store it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

import aiohttp
import msgspec
import pytest

from cluster.forked import ForkedProcess, Forker
from tailrace.config.load import load
from tailrace.journal.open_journal import open_journal
from tailrace.ports import Journal
from tailrace.wire.sse import SseDecoder

# A hung process loses its runs after so long; others go on within two of them. A node that has no processor for as
# long counts as hung: a machine under load needs more.
LEASE_S = float(os.environ.get("TAILRACE_TEST_LEASE_S", "2.5"))
PATIENCE_S = 60.0  # after which a test gives up
LAST_WORDS_S = 10.0  # for the rest of the log of a process that was killed

CONFIG = """\
model: {{provider: fake, name: any}}
providers: {{fake: {{dialect: chat, base_url: "{provider}", backoff_s: 0.001}}}}
agent: {{tools: [terminal, read_file]}}
approvals: {{mode: {approvals}, timeout_s: 60}}
streaming: {{enabled: true, min_tokens: 1}}
store: {{url: "{store}", lease_s: {lease_s}, durability: {durability}}}
bus: {{url: "{bus}"}}
server: {{port: {port}, drain_s: {drain_s}, keys: [{keys}]}}
platforms: {{{platforms}}}
"""


# Redis carries entries to viewers: what is about neither is shown without it.
WITHOUT_REDIS = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("store", ["postgres"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("store", ["sqlite"], indirect=True)


class SharedStore(NamedTuple):
    """What every node of a cluster shares. `forker` starts its nodes."""

    forker: Forker
    name: str
    url: str
    bus: str = "auto"
    durability: Literal["committed", "fsync"] = "committed"


class HttpServer(Protocol):
    """A node, or what stands before nodes."""

    @property
    def url(self) -> str: ...


class Node:
    """One process of the cluster. `url` is where it serves HTTP; empty for a gateway."""

    def __init__(self, name: str, home: Path, child: ForkedProcess) -> None:
        self.name = name
        self.home = home
        self.url = ""
        self.log: list[str] = []
        self.pid = child.pid
        self._child = child
        self._logged = asyncio.Condition()
        self._reading = asyncio.create_task(self._read_log())

    async def ready(self) -> None:
        """Returns when the command has said its one line."""
        line = (await self._child.stdout.readline()).decode().strip()
        assert line.startswith("tailrace "), f"{self.name} did not start: {self.log}"
        self.url = line.removeprefix("tailrace listens on ") if "listens" in line else ""

    async def _read_log(self) -> None:
        async for line in self._child.stderr:
            async with self._logged:
                self.log.append(line.decode().rstrip())
                self._logged.notify_all()

    async def logged(self, text: str, *, times: int = 1) -> str:
        """The line of the log that has this text, as soon as it is there."""

        def found() -> list[str]:
            return [line for line in self.log if text in line]

        async with asyncio.timeout(PATIENCE_S), self._logged:
            await self._logged.wait_for(lambda: len(found()) >= times)
        return found()[times - 1]

    # ── what becomes of it ──

    async def kill(self) -> None:
        """As `kill -9` does."""
        self._child.send_signal(signal.SIGKILL)
        await self._child.wait()
        with contextlib.suppress(TimeoutError):  # a tool that it left behind may hold the end of its log open
            await asyncio.wait_for(self._reading, LAST_WORDS_S)
        self._child.close()

    def hang(self) -> None:
        """SIGSTOP between two commits: stopped within one, it would hold the lock of a SQLite file, and nobody could
        write."""
        database = load({}, self.home).database
        self._child.send_signal(signal.SIGSTOP)
        while not _has_stopped(self.pid) or (database is not None and _is_locked(database)):
            self._child.send_signal(signal.SIGCONT)
            time.sleep(0.001)  # it must come to the end of its commit
            self._child.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._child.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """SIGTERM; returns its exit code."""
        self._child.send_signal(signal.SIGTERM)
        await self._child.wait()
        await self._reading
        return int((self.home / "exit_code").read_text())

    def terminate(self) -> None:
        """SIGTERM, without waiting for the end."""
        self._child.send_signal(signal.SIGTERM)


def _has_stopped(pid: int) -> bool:
    """Every thread of it: a signal takes a moment to reach them."""
    try:
        states = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):  # a thread that has just ended
        return False
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)


def _is_locked(database: Path) -> bool:
    with contextlib.closing(sqlite3.connect(database, timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


class Cluster:
    """Nodes on one store. Use it as an async context manager: leaving kills them."""

    def __init__(
        self,
        directory: Path,
        store: SharedStore,
        provider: str,
        *,
        platforms: str = "",
        approvals: Literal["yolo", "ask"] = "yolo",
        lease_s: float = LEASE_S,
        drain_s: float = 20.0,
        keys: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.nodes: list[Node] = []
        self._started = 0
        self.lease_s = lease_s
        self._store = store
        self._config = partial(
            self._config_of,
            provider=provider,
            platforms=platforms,
            approvals=approvals,
            lease_s=lease_s,
            drain_s=drain_s,
            keys=keys,
        )
        self._environment = environment or {}
        self._stack = AsyncExitStack()

    @staticmethod
    def _config_of(store: SharedStore, **fields: object) -> str:
        return CONFIG.format(store=store.url, bus=store.bus, durability=store.durability, **fields)

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        self.client = await self._stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            await node.kill()
        await self._stack.aclose()
        if kind is not None:  # the report of a failed test shows them
            for node in self.nodes:
                sys.stderr.write("".join(f"{node.name}: {line}\n" for line in node.log))

    async def start(
        self, command: Literal["serve", "gateway"] = "serve", *, store: SharedStore | None = None, port: int = 0
    ) -> Node:
        """One node more; `store` where it reaches the same store by another address, `port` where it takes the place of
        one that has ended."""
        self._started += 1
        name = f"node{self._started}"
        home = self.directory / name
        home.mkdir()
        (home / "config.yaml").write_text(self._config(store or self._store, port=port), encoding="utf-8")
        environment = {**os.environ, "TAILRACE_HOME": str(home), **self._environment}
        child = await self._store.forker.start([command], home, environment)
        node = Node(name, home, child)
        self.nodes.append(node)
        await node.ready()
        return node

    async def start_many(self, count: int) -> list[Node]:
        return [*await asyncio.gather(*(self.start() for _ in range(count)))]

    # ── HTTP ──

    async def post(self, node: HttpServer, path: str, body: object) -> dict[str, Any]:
        async with self.client.post(node.url + path, json=body) as response:
            assert response.status < 300, f"{path}: {response.status} {await response.text()}"
            answer: dict[str, Any] = await response.json()
            return answer

    async def get(self, node: HttpServer, path: str) -> dict[str, Any]:
        async with self.client.get(node.url + path) as response:
            assert response.status < 300, f"{path}: {response.status} {await response.text()}"
            answer: dict[str, Any] = await response.json()
            return answer

    async def run(self, node: HttpServer, text: str, **fields: object) -> str:
        """A run of the agent that has begun on this node."""
        run_id: str = (await self.post(node, "/runs", {"input": text, **fields}))["id"]
        return run_id

    @asynccontextmanager
    async def journal(self) -> AsyncGenerator[Journal, None]:
        """The store itself, for what no node says over HTTP."""
        config = load({}, self.nodes[0].home)
        async with open_journal(config.store.url, config.database) as journal:
            yield journal


class SeenEvent(dict[str, Any]):
    """An event of a log, as a client got it."""

    at: float  # when it came, on the loop's clock

    @property
    def seq(self) -> int:
        return int(self["seq"])

    @property
    def type(self) -> str:
        return str(self["type"])


async def events(
    cluster: Cluster, node: HttpServer, path: str, *, headers: Mapping[str, str] | None = None
) -> AsyncGenerator[SeenEvent, None]:
    """The events of a stream as this node sends them, until it ends. Raises `aiohttp.ClientError` where it is cut."""
    async with cluster.client.get(node.url + path, headers=headers) as response:
        assert response.status == 200, f"{path}: {response.status} {await response.text()}"
        decoder = SseDecoder()
        async for data in response.content.iter_any():
            for event in decoder.feed(data):
                if event.data:
                    seen = SeenEvent(msgspec.json.decode(event.data))
                    seen.at = asyncio.get_running_loop().time()
                    yield seen


@asynccontextmanager
async def watching(
    cluster: Cluster, node: HttpServer, run_id: str
) -> AsyncGenerator[Callable[[Callable[[list[SeenEvent]], object]], Any], None]:
    """Watches a run from this node within the block. What it yields waits until what was seen meets a condition, and
    returns what was seen."""
    seen: list[SeenEvent] = []
    changed = asyncio.Condition()
    over = False

    async def watch() -> None:
        nonlocal over
        async for event in events(cluster, node, f"/runs/{run_id}/stream?after=0"):
            async with changed:
                seen.append(event)
                changed.notify_all()
        async with changed:
            over = True
            changed.notify_all()

    async def until(condition: Callable[[list[SeenEvent]], object]) -> list[SeenEvent]:
        async with asyncio.timeout(PATIENCE_S), changed:
            await changed.wait_for(lambda: over or task.done() or condition(seen))
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
        assert condition(seen), [event.type for event in seen]
        return seen

    task = asyncio.create_task(watch())
    try:
        yield until
    finally:
        task.cancel()
        await asyncio.wait([task])


def hung(nodes: Iterable[Node]) -> int:
    """How often a node had no processor for longer than its lease, on a machine under load: the others go on then, and
    that takes as long again."""
    said = ("taken for dead, or hung for too long", "was taken over by another process")
    return sum(any(text in line for text in said) for node in nodes for line in node.log)


def has_ended(seen: list[SeenEvent]) -> bool:
    return bool(seen) and seen[-1].type == "run_finished"


def text_of(seen: list[SeenEvent]) -> str:
    return "".join(event["text"] for event in seen if event.type == "message_chunk")
