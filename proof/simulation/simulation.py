"""Runs one world from its beginning to its end and says which rules it broke. Same world, same run, byte for byte.

Owns the order: the world begins, everything in it happens, what was asked for comes to its end, the nodes are told to
end, and the rules are checked on what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import os
import random
import secrets
import socket
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from proof.simulation.chat_service import ChatService, SimulatedBug
from proof.simulation.loop import EPOCH_S, PROCESS, EndlessWorld, SimulatedLoop, Stuck
from proof.simulation.model_server import SimulatedProvider, question_text
from proof.simulation.node import Node, config_of
from proof.simulation.people import People
from proof.simulation.postgres import PostgresStore
from proof.simulation.postgres_server import control
from proof.simulation.rules import broken_rules
from proof.simulation.store import SimulatedStore, Store
from proof.simulation.tools import ToolRun
from proof.simulation.world import Ask, Hang, Happening, Kill, Leave, Steer, Stop, StoreFault, Watch, World
from tailrace.errors import JournalError
from tailrace.flows.engine import runner as flow_runner
from tailrace.journal import live_tail
from tailrace.messages import JsonObject
from tailrace.providers import reattach

LONGEST_S = 400.0  # of the world's own time, until everything that was asked for has ended
LOOK_S = 0.5
SHUTDOWN_S = 120.0
ROUND = (2, 0.02, 0.2)  # viewers in a tick, the pause for each of them, and the longest one
COLLECT_EVERY = 40  # worlds: what a world leaves behind is full of cycles


class Outcome(msgspec.Struct, frozen=True):
    """What became of a world. `digest` is of everything that happened in it and all that it has stored."""

    world: World
    digest: str
    broken: tuple[str, ...]
    counts: dict[str, int]
    seconds: float  # of the world's own time
    steps: int
    trace: tuple[str, ...] = ()


def _store_of(world: World, loop: SimulatedLoop, rng: random.Random) -> Store:
    if world.store == "postgres":
        return PostgresStore(loop, rng)
    return SimulatedStore(loop, rng, writes_on_loop=world.writes_on_loop)


class Simulation:
    """One world under way. Satisfies `node.Surroundings`."""

    def __init__(self, world: World, loop: SimulatedLoop, *, keep_trace: bool) -> None:
        self.world = world
        self.loop = loop
        self.lines: list[str] = []
        self._keep_trace = keep_trace
        self._digest = hashlib.blake2b(digest_size=16)
        self.counts: Counter[str] = Counter()
        rng = random.Random(world.noise)
        self.store = _store_of(world, loop, random.Random(rng.random()))
        self.provider = SimulatedProvider(loop, world, random.Random(rng.random()), self.trace)
        self.chat = ChatService(loop, world, self.trace)
        self.config = config_of(world)
        self.runs_of_tools: list[ToolRun] = []
        self.broken: list[str] = []
        self._done = 0  # happenings
        chats = any(ask.surface == "chat" for ask in world.asks)
        self.nodes = [Node(self, number, serves_chat=chats) for number in range(world.nodes)]
        self.people = People(self.nodes, world)
        self._tasks: list[asyncio.Task[None]] = []

    # ── what nodes find around them ──

    def trace(self, line: str) -> None:
        stamped = f"{self.loop.time() - EPOCH_S:.6f} {line}"
        self._digest.update(stamped.encode())
        if self._keep_trace:
            self.lines.append(stamped)

    def act(self, name: str, args: JsonObject) -> None:
        process = PROCESS.get()
        self.trace(f"tool {name} {msgspec.json.encode(args).decode()}")
        self.runs_of_tools.append(ToolRun(name, args, process.name if process is not None else ""))

    def takes_s(self, args: JsonObject) -> float:
        try:
            return self.world.asks[int(args["question"]) - 1].said[int(args["step"])].tool_s
        except (IndexError, KeyError, TypeError):
            return 0.1

    # ── the course of the world ──

    async def run(self) -> None:
        for node in self.nodes:
            node.start()
        number = 0
        for happening in self.world.happenings:
            if isinstance(happening, Ask):
                number += 1
            self.loop.call_later(happening.at, self._happen, happening, number)
        await self._until_settled()
        await self._shut_down()

    def _happen(self, happening: Happening, number: int) -> None:
        self._done += 1
        name = f"store {happening.kind}" if isinstance(happening, StoreFault) else type(happening).__name__.lower()
        self.counts[name] += 1
        self.trace(f"{happening!r}")
        match happening:
            case Ask(surface="chat", session=session):
                self.chat.say(f"chat-{session}", number, question_text(number))
            case Ask():
                self._person(self.people.ask(number, happening))
            case Watch():
                for one in range(happening.crowd):
                    self._person(self.people.watch(happening, one))
            case Stop():
                self._person(self.people.stop(happening))
            case Steer():
                self._person(self.people.steer(self._done, happening))
            case Kill(node=node, steps=steps, back_s=back_s):
                self.nodes[node % len(self.nodes)].kill(steps, back_s)
            case Hang(node=node, for_s=for_s):
                self.nodes[node % len(self.nodes)].hang(for_s)
            case Leave(node=node, back_s=back_s):
                self.nodes[node % len(self.nodes)].leave(back_s)
            case StoreFault(kind="slow", for_s=for_s):
                self.store.slow_s = 0.5
                self.loop.call_later(for_s, self.store.mend)
            case StoreFault(kind=kind, for_s=for_s, after_statements=after):
                self.store.refuse(kind, after)
                self.loop.call_later(for_s, self.store.mend)
            case _:
                assert_never(happening)

    def _person(self, work: Any) -> None:
        self._tasks.append(self.loop.create_task(work))

    def _is_settled(self) -> bool:
        if self._done < len(self.world.happenings) or self.people.waiting or self.store.refuses:
            return False
        if any(update.update_id not in self.chat.acknowledged for update in self.chat.updates):
            return False
        hung = any(process.hung and not process.dead for node in self.nodes for process in node.processes)
        return not self.store.has_unfinished(may_be_unparked=hung)

    async def _until_settled(self) -> None:
        quiet = 0
        while quiet < 2:  # a delivery may be about to begin
            await asyncio.sleep(LOOK_S)
            quiet = quiet + 1 if self._is_settled() else 0
            if self.loop.time() > EPOCH_S + LONGEST_S:
                self.broken.append(f"not everything has ended after {LONGEST_S:.0f} s: {self._unsettled()}")
                return
        self.settled_at = self.loop.time()

    def _unsettled(self) -> str:
        runs = [f"{run.id} ({run.new.kind}) is {run.state}" for run in self.store.runs() if run.finished is None]
        open_updates = [one.update_id for one in self.chat.updates if one.update_id not in self.chat.acknowledged]
        return f"{runs} {open_updates} {self.people.waiting} people wait"

    async def _shut_down(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.broken.append(f"a client got {error!r}")
        living = [process for node in self.nodes if (process := node.stop_for_good()) is not None]
        for process in living:
            if process.hung:
                self.loop.resume(process)
        until = self.loop.time() + SHUTDOWN_S
        while any(not process.dead for process in living) and self.loop.time() < until:  # noqa: ASYNC110 - a world
            await asyncio.sleep(LOOK_S)
        for process in living:
            if not process.dead:
                self.broken.append(f"{process.name} does not end: {process.unfinished()}")

    def outcome(self) -> Outcome:
        for row in self.store.rows():
            self._digest.update(repr(row).encode())
        try:
            self.broken += broken_rules(self)
        except JournalError as exc:
            self.broken.append(f"what is stored cannot be read: {exc}")
        served = Counter(f"reply {request.fault.kind}" for request in self.provider.served)
        self.counts.update(served)
        self.counts.update(f"chat {fault}" for fault in self.chat.faults_met)
        self.counts["tool"] = len(self.runs_of_tools)
        self.counts.update(self.store.counts)
        self.counts[f"world on {self.world.store}"] = 1
        self.counts["entry handed to a viewer"] = sum(viewed.handed for viewed in self.people.viewed)
        self.counts["piece handed to a viewer"] = sum(viewed.pieces for viewed in self.people.viewed)
        self.counts["call in memory"] = sum(ask.in_memory for ask in self.world.asks)
        self.counts.update(f"sequence {ask.shape}" for ask in self.world.asks if ask.surface == "sequence")
        self.counts["budget"] = sum(bool(ask.budget or self.world.key_tokens) for ask in self.world.asks)
        self.counts["process"] = sum(len(node.processes) for node in self.nodes)
        return Outcome(
            self.world,
            self._digest.hexdigest(),
            tuple(dict.fromkeys(self.broken)),
            dict(self.counts),
            self.loop.time() - EPOCH_S,
            self.loop.steps,
            tuple(self.lines),
        )

    def bury(self) -> None:
        self.loop.over = True
        asyncio._set_running_loop(self.loop)
        try:
            for node in self.nodes:
                for process in node.processes:
                    process.bury()
        finally:
            asyncio._set_running_loop(None)


class _UnexpectedErrors(logging.Handler):
    """What the product logs with a traceback: an error that it did not expect."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and not isinstance(record.exc_info[1], SimulatedBug):
            self._found.append(f"unexpected: {record.getMessage()}: {record.exc_info[1]!r}")

    def take(self) -> list[str]:
        found, self._found = self._found, []
        return found


_log = _UnexpectedErrors()


def _complaint(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"


@contextlib.contextmanager
def _seeded(world: World, loop: SimulatedLoop) -> Iterator[None]:
    """Ids, times and delays of the product come from the world while it runs."""
    rng = random.Random(~world.noise)
    before = (secrets.token_hex, time.time, os.getpid, socket.gethostname, os.urandom, time.monotonic)
    collecting = gc.isenabled()
    os.urandom = rng.randbytes
    secrets.token_hex = lambda nbytes=None: rng.randbytes(nbytes or 32).hex()
    time.time, time.monotonic = loop.wall_time, loop.time
    os.getpid = lambda: 1
    socket.gethostname = lambda: "simulated"
    random.seed(world.noise)
    for module_rng in (reattach._RNG, flow_runner._RNG):
        module_rng.seed(world.noise)
    gc.disable()
    _log.take()
    logger, others = logging.getLogger("tailrace"), logging.root.manager.disable
    logged = (logger.level, logger.propagate, logger.handlers)
    logging.disable(logging.WARNING)
    logger.level, logger.propagate, logger.handlers = logging.ERROR, False, [_log]
    try:
        yield
    finally:
        logging.disable(others)
        logger.level, logger.propagate, logger.handlers = logged
        secrets.token_hex, time.time, os.getpid, socket.gethostname, os.urandom, time.monotonic = before
        if collecting:
            gc.enable()


@contextlib.contextmanager
def _silent_ends() -> Iterator[None]:
    """What dead processes complain about while they are taken apart is no matter of the world's."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook


@contextlib.contextmanager
def _in_rounds(world: World) -> Iterator[None]:
    """A hundred viewers are many; in a world of rounds three are, and pauses are as long as a few tokens take."""
    before = (live_tail.AT_ONCE, live_tail.PAUSE_S, live_tail.MAX_PAUSE_S)
    if world.rounds:
        live_tail.AT_ONCE, live_tail.PAUSE_S, live_tail.MAX_PAUSE_S = ROUND
    try:
        yield
    finally:
        live_tail.AT_ONCE, live_tail.PAUSE_S, live_tail.MAX_PAUSE_S = before


_worlds_run = 0
_begun: set[str] = set()  # stores that a world has run on
# What the product does once in a process, in a thread, it has done in here: no later world depends on which came first.
FIRST = World(happenings=tuple(Ask(surface=surface) for surface in ("sequence", "agent", "raw", "chat")))


def simulate(world: World, *, keep_trace: bool = False) -> Outcome:
    """Runs the world to its end. Nothing of it stays: no thread, no file, no timer."""
    global _worlds_run  # noqa: PLW0603 - how much there is to collect is a matter of the process
    if world.store not in _begun:
        _begun.add(world.store)
        if world.store == "postgres":
            control()  # of a server, which takes real time to start
        simulate(replace(FIRST, store=world.store))
    loop = SimulatedLoop(random.Random(world.noise + 1))
    with _seeded(world, loop), _in_rounds(world):
        simulation: Simulation | None = None
        complaints: list[str] = []
        loop.set_exception_handler(lambda _, context: complaints.append(_complaint(context)))

        async def main() -> None:
            nonlocal simulation
            simulation = Simulation(world, loop, keep_trace=keep_trace)
            await simulation.run()

        task = loop.create_task(main())
        stuck = ""
        try:
            loop.run_until_complete(task)
        except (Stuck, EndlessWorld) as exc:
            stuck = str(exc)
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        assert simulation is not None
        simulation.broken += [*([stuck] if stuck else []), *complaints, *_log.take()]
        outcome = simulation.outcome()
        with _silent_ends():
            simulation.bury()
        simulation.store.close()
        loop.close()
    _worlds_run += 1
    if _worlds_run % COLLECT_EVERY == 0:
        gc.collect()
    return outcome
