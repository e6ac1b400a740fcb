"""Those who use the runtime of a simulated world: they ask, watch, stop and approve, and come back after a failure.

They know what they were told and nothing else. What a node has acknowledged to them is what the rules hold it to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from proof.simulation.model_server import question_text, steer_text, step_text
from proof.simulation.node import REQUEST_TIMEOUT_S, REQUESTER, Node, NodeGone
from proof.simulation.world import Ask, Steer, Stop, Watch, World
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.app import App
from tailrace.calls.service import CallSpec
from tailrace.errors import JournalError, RunNotFound, RunParked, RunSealed, SteerRefused, TailraceError
from tailrace.events import ApprovalAsked, Entry, RunFinished, Snapshot, to_json
from tailrace.flows.definition.definition import parsed
from tailrace.flows.engine.plan import CANCEL
from tailrace.journal.fold import SEQUENCE
from tailrace.messages import JsonObject, Message, Text
from tailrace.ports import Batch, LogPage, Run
from tailrace.runs.recovery import finished, follow, follow_pages

PAUSE_S = 0.7  # before a client tries again, at the next node
TRIES = 60
DECIDES_AFTER_S = 0.6
LIVE_REFUSES = 4  # each so many-th batch that a live viewer is offered: it comes by the other way
APART_S = 0.07  # those of a crowd: some come while a round is under way


class Viewed(msgspec.Struct):
    """What one viewer was shown."""

    watch: Watch
    run_id: str = ""
    lines: list[tuple[int, bytes]] = []
    snapshots: list[Entry] = []
    ended: bool = False
    offered: int = 0  # how often; of a crowd, not all refuse the same
    handed: int = 0  # of the lines: in the tick of their commit, or in a round
    pieces: int = 0  # in which they were handed

    @property
    def cursor(self) -> int:
        return self.lines[-1][0] if self.lines else self.snapshots[-1].seq if self.snapshots else 0

    @property
    def entries(self) -> int:
        return len(self.lines) + len(self.snapshots)

    def refuses(self) -> bool:
        """Whether it does not take what it is offered now."""
        self.offered += 1
        takes = self.offered % LIVE_REFUSES != 0
        self.pieces += takes
        return not takes

    def note(self, batch: Batch) -> None:
        for entry in batch:
            if isinstance(entry.event, Snapshot):
                self.snapshots.append(entry)
            else:
                self.lines.append((entry.seq, to_json(entry.event)))
                self.ended = self.ended or isinstance(entry.event, RunFinished)

    def note_page(self, page: LogPage) -> None:
        self.lines += [(line.seq, line.json) for line in page]
        self.ended = self.ended or page[-1].type == b"run_finished"


class People:
    """All of them. `acknowledged` are the runs that clients were told of, by the number of their question."""

    def __init__(self, nodes: list[Node], world: World) -> None:
        self._world = world
        self._nodes = nodes
        self.acknowledged: dict[int, Run] = {}
        self.stopped: dict[int, bool] = {}  # questions that somebody has stopped; True: it was acknowledged
        self.steered: dict[int, tuple[str, str]] = {}  # accepted messages: the run and the message's id
        self.viewed: list[Viewed] = []
        self.waiting = 0  # who has not got what they came for
        self._known = asyncio.Event()

    async def ask(self, number: int, ask: Ask) -> None:
        self.waiting += 1
        make = {"raw": _raw, "sequence": _sequence}.get(ask.surface, _turn)
        work = make(number, ask)
        run: Run = await self._insist(ask.node, work, timeout_s=None if ask.in_memory else REQUEST_TIMEOUT_S)
        self.acknowledged[number] = run
        self._known.set()
        self.waiting -= 1
        if ask.surface == "agent" and any(said.tool == "launch" for said in ask.said):
            await self._decide(ask.node, run.id)

    async def stop(self, stop: Stop) -> None:
        number = stop.ask + 1
        self.stopped[number] = False
        run = await self._run_of(number)

        async def work(app: App) -> None:
            if run.new.kind == SEQUENCE:
                with contextlib.suppress(RunSealed):
                    await app.flows.signal(run.id, CANCEL, by=REQUESTER)
            else:
                await (app.calls if run.new.kind == "call" else app.agents).stop(run.id, by=REQUESTER)

        self.waiting += 1
        await self._insist(stop.node, work)
        self.stopped[number] = True
        self.waiting -= 1

    async def steer(self, number: int, steer: Steer) -> None:
        """The client tries again under its key, until it is told that the run takes the message or not."""
        run = await self._run_of(steer.ask + 1)

        async def work(app: App) -> str:
            try:
                given = await app.steering.steer(
                    run.id, steer_text(number), by=REQUESTER, idempotency_key=f"steer-{number}"
                )
            except SteerRefused as exc:
                if exc.code == "not_taken":
                    raise
                return ""
            return given.accepted.steer_id

        self.waiting += 1
        if steer_id := await self._insist(steer.node, work):
            self.steered[number] = run.id, steer_id
        self.waiting -= 1

    async def watch(self, watch: Watch, number: int = 0) -> None:
        """The `number`-th of its crowd."""
        if number:
            await asyncio.sleep(number * APART_S)
        run = await self._run_of(watch.ask + 1)
        viewed = Viewed(watch, run.id, [], [], offered=number)
        self.viewed.append(viewed)
        self.waiting += 1
        node, leaves_after = watch.node, watch.leaves_after and watch.leaves_after + number
        for _ in range(TRIES):
            work = _viewing(viewed, leaves_after)
            try:
                await self._nodes[node % len(self._nodes)].request(work, timeout_s=None)
            except RunParked:
                break  # it was set aside, and the viewer was told
            except (NodeGone, TailraceError):
                node += 1
                await asyncio.sleep(PAUSE_S)
                continue
            if viewed.ended:
                break
            node, leaves_after = node + 1, 0
            await asyncio.sleep(watch.away_s)
        self.waiting -= 1

    async def _run_of(self, number: int) -> Run:
        while number not in self.acknowledged:
            self._known.clear()
            await self._known.wait()
        return self.acknowledged[number]

    async def _insist(self, node: int, work: Any, *, timeout_s: float | None = REQUEST_TIMEOUT_S) -> Any:
        """The client tries again, at another node, until it is answered."""
        for number in range(node, node + TRIES):
            try:
                return await self._nodes[number % len(self._nodes)].request(work, timeout_s=timeout_s)
            except RunNotFound:
                raise
            except (NodeGone, TimeoutError, TailraceError):
                await asyncio.sleep(PAUSE_S)
        raise RuntimeError(f"no node has answered in {TRIES} tries")

    async def _decide(self, node: int, run_id: str) -> None:
        seen: set[str] = set()
        after = 0
        for _ in range(TRIES):
            try:
                asked, after = await self._nodes[node % len(self._nodes)].request(
                    _next_question(run_id, after, seen), timeout_s=None
                )
            except (NodeGone, TailraceError):
                node += 1
                await asyncio.sleep(PAUSE_S)
                continue
            if asked is None:
                return
            seen.add(asked.approval_id)
            decision = self._world.decision(asked.command)
            if decision != "never":
                await asyncio.sleep(DECIDES_AFTER_S)
                await self._insist(node, _answer(run_id, asked.approval_id, decision))


def _turn(number: int, ask: Ask) -> Any:
    spec = TurnSpec(
        Message("user", (Text(question_text(number)),)),
        requester=REQUESTER,
        reachable=True,
        busy="queue" if ask.queue else "interrupt",
    )
    session = f"session-{ask.session}" if ask.session else ""

    async def work(app: App) -> Run:
        durability: Any = "fsync" if ask.fsync else None
        return await app.agents.submit(spec, session=session, idempotency_key=f"ask-{number}", durability=durability)

    return work


def _raw(number: int, ask: Ask) -> Any:
    body = {"model": "sim/m", "input": question_text(number), "background": True, "stream": True}

    async def work(app: App) -> Run:
        durability: Any = "memory" if ask.in_memory else "fsync" if ask.fsync else "committed"
        run = await app.calls.submit(
            CallSpec(body, origin={"owner": REQUESTER}), model="sim/m", session="", durability=durability
        )
        if ask.in_memory:
            try:
                await finished(app.journal, run.id)
            except RunNotFound as exc:
                raise JournalError("the call has ended, and storage refused the record of it") from exc
        return run

    return work


def _sequence(number: int, ask: Ask) -> Any:
    given = {"budget": {"max_tokens": ask.budget}} if ask.budget else {}
    definition = parsed({"name": "mill", "blocks": _blocks(number, ask), **given})

    async def work(app: App) -> Run:
        return await app.flows.start(definition, idempotency_key=f"ask-{number}", requester=REQUESTER)

    return work


def _blocks(number: int, ask: Ask) -> list[JsonObject]:
    """The steps of a sequence in its shape. Only those of a line begin with the answer before."""

    def step(name: str, prompt: str) -> JsonObject:
        return {"type": "step", "id": name, "handler": "llm_call", "params": {"prompt": prompt}}

    places: list[Any] = list(range(len(ask.said)))
    if ask.shape == "line":
        return [step(f"s{place}", step_text(number, place)) for place in places]
    alone = [step(f"s{place}", question_text(f"{number}.{place}")) for place in places]
    block: JsonObject = {"type": ask.shape, "id": "b"}
    match ask.shape:
        case "parallel":
            return [{**block, "branches": [[one] for one in alone]}]
        case "router":
            wrong = {"condition": "1 == 2", "blocks": [step("wrong", question_text(f"{number}.0"))]}
            return [{**block, "routes": [wrong, {"condition": "1 == 1", "blocks": alone}]}]
        case "loop":
            body = [step("s", question_text(f"{number}.{{{{index}}}}"))]
            return [{**block, "body": body, "condition": f"index < {len(places)}"}]
        case _:
            return [{**block, "collection": places, "body": [step("s", question_text(f"{number}.{{{{item}}}}"))]}]


def _viewing(viewed: Viewed, leaves_after: int) -> Any:
    had = viewed.entries
    follows = _follow_live_pages if viewed.watch.pages and viewed.watch.live else _follow

    async def work(app: App) -> None:
        async with contextlib.aclosing(follows(app, viewed)) as arrivals:
            async for _ in arrivals:
                if leaves_after and viewed.entries - had >= leaves_after:
                    return

    return work


async def _follow(app: App, viewed: Viewed) -> AsyncGenerator[None, None]:
    """As clients of `/v1` do, and with pages those of the AI SDK. Yields after what came other than live."""
    watch, cursor = viewed.watch, viewed.cursor

    def take(batch: Batch) -> bool:
        if viewed.refuses() or isinstance(batch[-1].event, RunFinished):
            return False
        viewed.note(batch)
        viewed.handed += len(batch)
        return True

    if watch.pages:
        async with contextlib.aclosing(follow_pages(app.journal, viewed.run_id, after=cursor)) as pages:
            async for page in pages:
                viewed.note_page(page)
                yield
        return
    live = take if watch.live else None
    snapshot = watch.snapshot and not cursor
    following = follow(app.journal, viewed.run_id, after=cursor, snapshot=snapshot, take=live)
    async with contextlib.aclosing(following) as batches:
        async for batch in batches:
            viewed.note(batch)
            yield


async def _follow_live_pages(app: App, viewed: Viewed) -> AsyncGenerator[None, None]:
    """As the web page and the inspector do, but for a run that is set aside: of that the viewer is told here."""

    def take(page: LogPage) -> bool:
        if viewed.refuses() or page[-1].type == b"gateway_notice":
            return False
        viewed.note_page(page)
        viewed.handed += len(page)
        return True

    viewer = app.journal.tail_pages(viewed.run_id, after=viewed.cursor)
    while True:
        run = await app.journal.get(viewed.run_id)
        if run.parked is not None and viewed.cursor >= run.last_seq:
            raise RunParked(viewed.run_id)
        if (page := await anext(viewer, None)) is None:
            return
        viewed.note_page(page)
        yield
        await viewer.follow(take)


def _next_question(run_id: str, after: int, seen: set[str]) -> Any:
    async def work(app: App) -> tuple[ApprovalAsked | None, int]:
        async for batch in app.journal.tail(run_id, after=after):
            for entry in batch:
                if isinstance(entry.event, ApprovalAsked) and entry.event.approval_id not in seen:
                    return entry.event, entry.seq
                if isinstance(entry.event, RunFinished):
                    return None, entry.seq
        return None, after

    return work


def _answer(run_id: str, approval_id: str, decision: Any) -> Any:
    async def work(app: App) -> None:
        try:
            await app.agents.answer(run_id, approval_id, decision, by=REQUESTER)
        except TailraceError as exc:
            if type(exc).__name__ != "RunSealed":
                raise

    return work
