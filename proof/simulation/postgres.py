"""The store of a simulated world on PostgreSQL: the real journal, the real driver and a real server.

A process talks to the server through links, which stand for sockets. A request is on its way for a drawn time; then the
server gets it and the loop stands still, in real time, until it has answered or waits for a lock that another link
holds; the answer is on its way for a drawn time again. So one statement runs at a time, in an order that the seed
decides. What is written to a link arrives, even if its process dies meanwhile, as with a socket; the answer does not.
"""

from __future__ import annotations

import asyncio
import random
import select
import struct
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextvars import copy_context
from typing import Any

from proof.simulation.loop import PROCESS, SimulatedLoop
from proof.simulation.postgres_server import Wire, control, messages, requests_in
from proof.simulation.store import Store
from tailrace.events import Entry
from tailrace.integrations.postgres import queries
from tailrace.integrations.postgres.address import parse_address
from tailrace.integrations.postgres.schema import prepare
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.memory_first import MemoryFirst
from tailrace.ports import Run

ON_THE_WAY_S = 0.003
IDLE_IN_TRANSACTION_S = 10.0  # then the server ends the session, by the journal's own setting
LOOK_S = 0.002  # real: so long an answer is awaited before the server is asked what it waits for
STUCK_S = 30.0  # real
_CANCEL = struct.pack("!i", 80877102)
_EMPTY_QUERY = b"Q\0\0\0\5\0"
_TABLES = ("runs", "heads", "batches", "snapshots", "signals", "key_values", "counters")
# A disk that can be full: PostgreSQL's own error, from the statement that needs space.
_DISK = """
    CREATE TABLE disk (is_full boolean); INSERT INTO disk VALUES (false);
    CREATE FUNCTION take_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF (SELECT is_full FROM disk) THEN RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'simulated'; END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER take_space BEFORE INSERT ON batches EXECUTE FUNCTION take_space();
"""


class PostgresStore(Store):
    """The database of one world: its schema, who is connected, and what is wrong with it now."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random) -> None:
        super().__init__(loop, rng)
        self.links: list[Link] = []
        self._cancelled = 0  # the session whose request the last one cancels
        self._before_cut = 0  # requests
        self._frozen: list[Link] = []  # with a request that the server does not look at yet
        self._control = control()
        self._schema = f"world_{random.SystemRandom().getrandbits(64):x}"
        self._url = f"postgresql://proof@simulated/postgres?sslmode=disable&schema={self._schema}"
        self._control.execute(f'SET search_path = "{self._schema}"')
        self._control.ask(lambda: prepare(self._control.connection, parse_address(self._url)))
        self._control.execute(_DISK)
        loop.create_connection = self._connect  # type: ignore[method-assign, assignment]

    def close(self) -> None:
        for link in list(self.links):
            link.end()
        self._control.execute(f'DROP SCHEMA "{self._schema}" CASCADE')

    async def open_journal(self) -> MemoryFirst:
        """The journal of the current process."""
        clock = self.loop.wall_time
        return MemoryFirst(await PostgresJournal.open(self._url, clock=clock), clock=clock)

    async def _connect(self, make_protocol: Callable[[], Any], *_address: object) -> tuple[Link, Any]:
        await asyncio.sleep(self.delay_s())
        if self.refuses == "gone":
            self.counts["refusal"] += 1
            raise ConnectionRefusedError
        self.counts["connection to PostgreSQL"] += 1
        link = Link(self, make_protocol(), Wire(self._control.url), self.counts["connection to PostgreSQL"])
        self.links.append(link)
        link.protocol.connection_made(link)
        return link, link.protocol

    def delay_s(self) -> float:
        return self.slow_s + self.rng.random() * ON_THE_WAY_S

    # ── faults ──

    def refuse(self, kind: str, after_statements: int) -> None:
        """`gone`: no server answers. `io`: connections break, before or after a request was dealt with. `full`: there
        is no space. `locked` and `busy`: the server is there and does not answer."""
        self.refuses, self._before_cut = kind, after_statements
        if kind == "full":
            self._control.execute("UPDATE disk SET is_full = true")
        if kind == "gone":
            for link in list(self.links):
                link.end()

    def mend(self) -> None:
        self._control.execute("UPDATE disk SET is_full = false")
        self.refuses, self.slow_s = "", 0.0
        frozen, self._frozen = self._frozen, []
        for link in frozen:
            link.send_later()

    # ── requests ──

    def arrived(self, link: Link) -> None:
        """The server gets the first request of the link."""
        if self.refuses in ("locked", "busy"):
            self.counts["refusal"] += 1
            self._frozen.append(link)
            return
        request, kind = link.requests.popleft()
        cut = self._cuts()
        if cut == "before":
            link.end()
        else:
            self._cancelled = struct.unpack_from("!i", request, 8)[0] if request[4:8] == _CANCEL else 0
            self.counts["request to PostgreSQL"] += 1
            link.send(request, kind)
        self.settle(cut_answers=cut == "after")

    def _cuts(self) -> str:
        if self.refuses != "io":
            return ""
        self._before_cut -= 1
        if self._before_cut >= 0:
            return ""
        self.counts["refusal"] += 1
        return self.rng.choice(("before", "after"))

    def settle(self, *, cut_answers: bool = False) -> None:
        """Returns when every request that the server has is answered, or waits for a link that has to ask first."""
        answered: dict[int, tuple[Link, bytes, bool]] = {}
        until = time.perf_counter() + STUCK_S
        while waiting := [link for link in self.links if link.wire.asked]:
            ready = select.select([link.wire.socket for link in waiting], [], [], LOOK_S)[0]
            for link in waiting:
                if link.wire.socket in ready:
                    answer, over = link.wire.read()
                    if answer or over:
                        answered[link.number] = (link, answer, over)
            if not ready and self._are_blocked(waiting):
                break
            if time.perf_counter() > until:
                raise RuntimeError("the server does not answer")
        for _, (link, answer, over) in sorted(answered.items()):
            if over or cut_answers:
                link.end(b"" if cut_answers else answer)
            else:
                link.answered(answer)
        if answered:
            self._bring_notifications()
            self.settle()  # sessions that have ended held locks

    def _are_blocked(self, waiting: list[Link]) -> bool:
        """Whether each waits, in the end, for a session of this world that the server has nothing to do for."""
        blockers = self._control.blockers([link.wire.pid for link in waiting])
        still = {link.wire.pid for link in self.links if not link.wire.asked}
        while found := {pid for pid, others in blockers.items() if pid not in still and still.intersection(others)}:
            still |= found
        return all(link.wire.pid in still and link.wire.pid != self._cancelled for link in waiting)

    def _bring_notifications(self) -> None:
        """A session that listens sends what was committed before it answers the next request: an empty one."""
        for link in list(self.links):
            if link.listens and not link.wire.asked:
                link.wire.send(_EMPTY_QUERY, b"Q")
                answer, over = b"", False
                while not answer and not over:
                    answer, over = link.wire.read()
                link.notified(b"".join(answer[start:end] for kind, start, end in messages(answer) if kind == b"A"))

    # ── what is stored, for the rules ──

    def runs(self) -> list[Run]:
        return self._control.ask(lambda: queries.list_runs(self._control.connection, limit=10_000))

    def log(self, run_id: str) -> list[Entry]:
        async def read() -> list[Entry]:
            pages = queries._pages(self._control.connection, run_id)
            return [entry async for page in pages for entry in page]

        return self._control.ask(read)

    def states(self) -> set[str]:
        """Of the runs that have not ended."""
        return {row[0] for row in self._control.fetch("SELECT DISTINCT state FROM heads WHERE ended_at IS NULL")}

    def rows(self) -> Iterator[tuple[Any, ...]]:
        for table in _TABLES:
            for row in self._control.fetch(f"SELECT * FROM {table} ORDER BY 1, 2"):  # noqa: S608 - our own names
                yield (table, *row)

    def left_open(self, processes: Collection[int]) -> list[str]:
        """By these processes, which have run to their ends."""
        return [f"connection {link.number}" for link in self.links if id(link.process) in processes and not link.closed]


class Link(asyncio.Transport):
    """A connection of a process. The driver takes it for a socket."""

    def __init__(self, store: PostgresStore, protocol: Any, wire: Wire, number: int) -> None:
        super().__init__({"socket": wire.socket})
        self.number = number
        self.protocol = protocol
        self.wire = wire
        self.process = PROCESS.get()
        self.requests: deque[tuple[bytes, bytes]] = deque()  # on their way; the first arrives next
        self.listens = False
        self.closed = False  # by the process
        self._over = False  # for the server
        self._lost = False  # for the driver
        self._store = store
        self._context = copy_context()
        self._written = bytearray()
        self._sent = 0  # requests
        self._heard_at = 0.0  # what comes later is heard later
        if self.process is not None:
            self.process.on_death.append(self.abort)

    # ── what the driver calls ──

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += data
        is_free = not self.requests and not self.wire.asked
        self.requests += requests_in(self._written, begun=bool(self._sent or self.requests))
        if is_free and self.requests:
            self.send_later()

    def is_closing(self) -> bool:
        return self.closed or self._over

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        """What is on its way arrives nevertheless."""
        if self.closed:
            return
        self.closed = True
        if self.process is not None and self.process.dead:
            self._context.run(self._lose)  # its steps are dropped, and the driver complains of what is not closed
        else:
            self._store.loop.call_soon(self._lose, context=self._context)
        if self.wire.asked or not self.requests:
            self.end()
            self._store.settle()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self.protocol.connection_lost(None)

    # ── on the way ──

    def send_later(self) -> None:
        self._store.loop.call_later(self._store.delay_s(), self._arrive, context=self._store.loop.outside)

    def _arrive(self) -> None:
        if not self._over:
            self._store.arrived(self)

    def send(self, request: bytes, kind: bytes) -> None:
        self._sent += 1
        self.listens |= b"LISTEN " in request
        self.wire.send(request, kind)

    def answered(self, answer: bytes) -> None:
        self._hear(self.protocol.data_received, answer)
        if self.requests:
            self.send_later()
        elif self.closed:
            self.end()
        elif self.wire.in_transaction:
            loop = self._store.loop
            loop.call_later(IDLE_IN_TRANSACTION_S, self._end_idle, self._sent, context=loop.outside)

    def notified(self, notifications: bytes) -> None:
        if notifications:
            self._hear(self.protocol.data_received, notifications)

    def _hear(self, call: Callable[..., None], *args: object) -> None:
        loop = self._store.loop
        self._heard_at = max(self._heard_at + 1e-6, loop.time() + self._store.delay_s())
        loop.call_at(self._heard_at, self._tell, call, args, context=self._context)

    def _tell(self, call: Callable[..., None], args: tuple[object, ...]) -> None:
        if not self.closed:
            call(*args)

    def _end_idle(self, sent: int) -> None:
        if not self._over and self._sent == sent and not self.closed:
            self.end()
            self._store.settle()

    def end(self, last_words: bytes = b"") -> None:
        """The server's end of it is gone, with what was not committed."""
        if self._over:
            return
        self._over = True
        self._store.counts["connection cut"] += not self.closed
        self._store.counts["transaction cut off"] += self.wire.in_transaction
        self._store.links.remove(self)
        if self.wire.pid and (self.wire.asked or self.wire.in_transaction):
            control().end_session(self.wire.pid)
        self.wire.socket.close()
        if last_words:
            self._hear(self.protocol.data_received, last_words)
        self._hear(self._lose)
