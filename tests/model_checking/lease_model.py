"""Lease and fencing: processes that claim one run, write to it, stall, die, give it back, seal it.

The store is the real one (`run_store`). A process is what `StoredJournal`, `runs.lease.held` and `runs.recovery` make
of it, cut where another process can come in between: before and after each transaction. The run is a row of units of
work; a process appends the first one that its log does not have, and seals the run when none is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from proof.model_checking import Step

from model_checking.run_store import LEASE_TICKS, PARKED, RunStore, StoredRun
from tailrace.errors import CorruptLog, RunOwned, RunParked, RunSealed
from tailrace.events import (
    AnyEvent,
    Entry,
    GatewayNotice,
    MessageChunk,
    RunFinished,
    ToolOutputRecorded,
    from_json,
    to_json,
)
from tailrace.journal.stored.group_commit import StoredLog
from tailrace.ports import ENDED, Lease

Phase = Literal["idle", "claimed", "parking", "holding", "fenced"]
HOLDS: frozenset[Phase] = frozenset({"claimed", "parking", "holding"})


class Process(NamedTuple):
    """`known`: the events that its memory has, as JSON, appended ones included; `appended` of them wait for the next
    group. `answered`: the group before was committed ("ok") or refused, which the process has not heard yet."""

    name: str
    phase: Phase = "idle"
    epoch: int = 0
    known: tuple[bytes, ...] = ()
    appended: int = 0
    answered: Literal["", "ok", "refused"] = ""
    lease_left: int = 0  # as the process believes
    stalled: bool = False

    def left(self) -> Process:
        """It has nothing to do with the run any more."""
        return Process(self.name)


class Faults(NamedTuple):
    """How many of each are still to come."""

    crashes: int = 0
    stalls: int = 0
    releases: int = 0
    unparks: int = 0


ONE_OF_EACH = Faults(crashes=1, stalls=1)


class LeaseState(NamedTuple):
    stored: StoredRun
    processes: tuple[Process, ...]
    faults: Faults
    acknowledged: tuple[tuple[int, bytes], ...] = ()  # what a process was told to be durable, by seq, in that order
    suspected: frozenset[int] = frozenset()  # claims that were taken over, and whose owners have not come back
    late: bool = False  # an owner that was taken for dead has come back

    def __repr__(self) -> str:
        head = self.stored.head
        who = ", ".join(
            f"{one.name} {one.phase}{f' by claim {one.epoch}' if one.epoch else ''}" for one in self.processes
        )
        return f"<{head.state}, claim {head.epoch} of {head.owner or 'none'}, {head.lease_left:g} ticks left; {who}>"


@dataclass(frozen=True)
class Bounds:
    """`progress`: which units say that work was completed (`fold.is_progress`). `pipes`: a death is seen at once, as on
    one machine; otherwise only an expired lease shows it."""

    processes: int = 2
    work: int = 2
    progress: frozenset[int] = frozenset()
    max_kills: int = 2
    pipes: bool = True
    faults: Faults = ONE_OF_EACH


class LeaseModel:
    def __init__(self, store: RunStore, bounds: Bounds) -> None:
        self._store, self._bounds = store, bounds

    def begin(self) -> LeaseState:
        processes = tuple(Process("abc"[number]) for number in range(self._bounds.processes))
        return LeaseState(self._store.first, processes, self._bounds.faults)

    def is_end(self, state: LeaseState) -> bool:
        over = state.stored.head.state in ENDED or state.stored.head.state == "parked"
        return over and all(one.phase == "idle" for one in state.processes)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────

    def steps(self, state: LeaseState) -> Iterator[Step[LeaseState]]:
        for at, process in enumerate(state.processes):
            yield from self._fault_steps(state, at, process)
            if process.stalled:
                continue
            match process.phase:
                case "idle":
                    yield from self._claim(state, at, process)
                case "claimed":
                    yield self._read(state, at, process)
                case "parking":
                    yield self._park(state, at, process)
                case "holding":
                    yield from self._hold_steps(state, at, process)
                case "fenced":
                    yield self._leave(state, at, process)
        yield from self._world_steps(state)

    def _fault_steps(self, state: LeaseState, at: int, process: Process) -> Iterator[Step[LeaseState]]:
        faults, name = state.faults, process.name
        if process.stalled:
            yield Step(f"{name} comes back", _with(state, at, process._replace(stalled=False)))
        elif process.phase in HOLDS and faults.stalls:
            fewer = state._replace(faults=faults._replace(stalls=faults.stalls - 1))
            yield Step(f"{name} stalls", _with(fewer, at, process._replace(stalled=True)))
        if process.phase != "idle" and faults.crashes:
            fewer = state._replace(faults=faults._replace(crashes=faults.crashes - 1))
            yield Step(f"{name} dies", _with(fewer, at, Process(f"{name}'")))  # its successor has another name

    def _world_steps(self, state: LeaseState) -> Iterator[Step[LeaseState]]:
        in_time = all(
            one.lease_left > 1 for one in state.processes if one.phase in HOLDS and not one.stalled
        )  # a process that runs renews its lease before it expires
        if state.stored.head.lease_left and in_time:
            processes = tuple(one._replace(lease_left=max(0, one.lease_left - 1)) for one in state.processes)
            yield Step("a tick passes", state._replace(stored=state.stored.later(), processes=processes))
        if state.stored.head.state == "parked" and state.faults.unparks:
            stored = self._store.unpark(state.stored).stored
            faults = state.faults._replace(unparks=state.faults.unparks - 1)
            yield Step("a person unparks it", state._replace(stored=stored, faults=faults, suspected=frozenset()))

    def _alive(self, state: LeaseState) -> frozenset[str]:
        if self._bounds.pipes:
            return frozenset(one.name for one in state.processes)
        return frozenset({state.stored.head.owner})  # nobody sees that it is dead

    def _claim(self, state: LeaseState, at: int, process: Process) -> Iterator[Step[LeaseState]]:
        outcome = self._store.claim(state.stored, process.name, self._alive(state))
        if isinstance(outcome.refusal, RunOwned | RunSealed | RunParked):
            return
        (_, lease), head = outcome.results[0], state.stored.head
        broken = next(
            (
                f"{process.name} fences {one.name}, which lives and whose lease has not expired"
                for one in state.processes
                if one is not process and one.phase in HOLDS and one.epoch == head.epoch and one.lease_left > 0
            ),
            "",
        )
        suspected = state.suspected
        if head.state == "running":
            progress = any(isinstance(entry.event, ToolOutputRecorded) for entry in self._since_claim(state.stored))
            suspected = frozenset() if progress else suspected | {head.epoch}
        claimed = Process(process.name, "claimed", lease.epoch, lease_left=LEASE_TICKS)
        after = _with(state._replace(stored=outcome.stored, suspected=suspected), at, claimed)
        yield Step(f"{process.name} claims it ({lease.epoch})", after, broken)

    def _since_claim(self, stored: StoredRun) -> Sequence[Entry]:
        return [entry for entry in self._store.entries(stored) if entry.seq > stored.head.claimed_seq]

    def _read(self, state: LeaseState, at: int, process: Process) -> Step[LeaseState]:
        known = tuple(to_json(entry.event) for entry in self._store.entries(state.stored))
        parks = self._store.run(state.stored).kills >= self._bounds.max_kills
        phase: Phase = "parking" if parks else "holding"
        return Step(f"{process.name} reads the log", _with(state, at, process._replace(phase=phase, known=known)))

    def _park(self, state: LeaseState, at: int, process: Process) -> Step[LeaseState]:
        log = self._log(process)
        log.append([GatewayNotice("parked", PARKED.message)], 1)
        outcome = self._store.park(state.stored, self._lease(process), log, self._bounds.max_kills)
        after = process._replace(phase="fenced") if outcome.refusal else process.left()
        return Step(f"{process.name} parks it", _with(state._replace(stored=outcome.stored), at, after))

    def _hold_steps(self, state: LeaseState, at: int, process: Process) -> Iterator[Step[LeaseState]]:
        name, done = process.name, sum(_is_unit(_event(line)) for line in process.known)
        if process.answered:
            yield self._hear(state, at, process)
        if done < self._bounds.work and process.appended < 2:
            unit = to_json(self._unit(process, done))
            more = process._replace(known=(*process.known, unit), appended=process.appended + 1)
            yield Step(f"{name} appends unit {done}", _with(state, at, more))
        if process.lease_left < LEASE_TICKS:
            yield self._renew(state, at, process)
        if process.answered:
            return  # one group is in flight at a time
        if process.appended:
            yield self._write(state, at, process)
        if done == self._bounds.work:
            yield self._seal(state, at, process)
        if state.faults.releases:
            yield self._give_back(state, at, process)

    def _unit(self, process: Process, number: int) -> AnyEvent:
        text = f"{number}:{process.name}{process.epoch} "
        if number in self._bounds.progress:
            return ToolOutputRecorded(f"call{number}", "tool", text)
        return MessageChunk(text)

    def _log(self, process: Process) -> StoredLog:
        """The writing end as it is in the memory of the process."""
        old = process.known[: len(process.known) - process.appended]
        entries = [Entry(seq, _event(line)) for seq, line in enumerate(old, start=1)]
        log = self._store.open_log(self._lease(process), entries)
        log.append([_event(line) for line in process.known[len(old) :]], 1)
        return log

    def _lease(self, process: Process) -> Lease:
        return Lease(self._store.run_id, process.epoch, process.name)

    def _write(self, state: LeaseState, at: int, process: Process) -> Step[LeaseState]:
        outcome = self._store.append(state.stored, self._log(process))
        after = process._replace(answered="refused" if outcome.refusal else "ok", appended=0)
        fenced = not outcome.refusal and state.stored.head.epoch != process.epoch
        written = _with(state._replace(stored=outcome.stored), at, after)
        return Step(f"{process.name} writes a group", written, "an older claim writes to the log" if fenced else "")

    def _hear(self, state: LeaseState, at: int, process: Process) -> Step[LeaseState]:
        """The process learns what became of its group. What was appended since waits for the next one."""
        if process.answered == "refused":
            fenced = process._replace(phase="fenced", answered="", known=(), appended=0)
            return Step(f"{process.name} hears that it is fenced", _with(state, at, fenced))
        written = process.known[: len(process.known) - process.appended]
        lines = enumerate(written, start=1)
        new = tuple(line for line in lines if line not in state.acknowledged and _is_unit(_event(line[1])))
        heard = state._replace(acknowledged=state.acknowledged + new)
        return Step(f"{process.name} hears of the commit", _with(heard, at, process._replace(answered="")))

    def _renew(self, state: LeaseState, at: int, process: Process) -> Step[LeaseState]:
        outcome = self._store.renew(state.stored, self._lease(process))
        if outcome.refusal:
            fenced = process._replace(phase="fenced", known=(), appended=0, answered="")
            return Step(f"{process.name} cannot renew", _with(state, at, fenced))
        renewed = _with(state._replace(stored=outcome.stored), at, process._replace(lease_left=LEASE_TICKS))
        stranger = state.stored.head.epoch != process.epoch
        return Step(f"{process.name} renews", renewed, "a process renews a lease that is another's" if stranger else "")

    def _seal(self, state: LeaseState, at: int, process: Process) -> Step[LeaseState]:
        log = self._log(process)
        last = log.finish(RunFinished("completed", log.fold.output))
        outcome = self._store.seal(state.stored, self._lease(process), log, last)
        if outcome.refusal:
            fenced = process._replace(phase="fenced", known=(), appended=0)
            return Step(f"{process.name} cannot seal", _with(state._replace(stored=outcome.stored), at, fenced))
        sealed = state._replace(
            stored=outcome.stored, acknowledged=(*state.acknowledged, (last.seq, to_json(last.event)))
        )
        return Step(f"{process.name} seals", _with(sealed, at, process.left()))

    def _give_back(self, state: LeaseState, at: int, process: Process) -> Step[LeaseState]:
        faults = state.faults._replace(releases=state.faults.releases - 1)
        return self._release(state._replace(faults=faults), at, process, self._log(process), "gives it back")

    def _leave(self, state: LeaseState, at: int, process: Process) -> Step[LeaseState]:
        return self._release(state, at, process, None, "leaves")

    def _release(
        self, state: LeaseState, at: int, process: Process, log: StoredLog | None, does: str
    ) -> Step[LeaseState]:
        outcome = self._store.release(state.stored, self._lease(process), log)
        head = state.stored.head
        if head.epoch == process.epoch and head.state == "running":
            suspected: frozenset[int] = frozenset()
        else:
            suspected = state.suspected - {process.epoch}
        late = state.late or head.epoch != process.epoch
        after = state._replace(stored=outcome.stored, suspected=suspected, late=late)
        return Step(f"{process.name} {does}", _with(after, at, process.left()))

    # ── rules ────────────────────────────────────────────────────────────────────────────────────────────────

    def broken_rule(self, state: LeaseState) -> str:
        try:
            entries = self._store.entries(state.stored)
        except CorruptLog as exc:
            return f"the log has a gap: {exc}"
        return self._broken_log(state, entries) or self._broken_counts(state) or self._unclaimable(state)

    def _broken_log(self, state: LeaseState, entries: Sequence[Entry]) -> str:
        if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
            return "sequence numbers have a gap"
        by_seq = {entry.seq: entry.event for entry in entries}
        for seq, line in state.acknowledged:
            if by_seq.get(seq) != _event(line):
                return f"entry {seq} was acknowledged and is lost or another"
        units = [entry.event for entry in entries if _is_unit(entry.event)]
        numbers = [_number_of(unit) for unit in units]
        if numbers != list(range(len(units))):
            return f"units of work are doubled or out of order: {numbers}"
        writers = [_writer_of(unit) for unit in units]
        if writers != sorted(writers):
            return f"an older claim wrote after a newer one: {writers}"
        ends = [entry.seq for entry in entries if isinstance(entry.event, RunFinished)]
        ended = state.stored.head.state in ENDED
        if ends != ([len(entries)] if ended else []):
            return f"the run is {state.stored.head.state}, and its log ends at {ends} of {len(entries)}"
        return "" if not ended or len(units) == self._bounds.work else "it was sealed before its work was done"

    def _broken_counts(self, state: LeaseState) -> str:
        kills, deaths = state.stored.head.kills, len(state.suspected)
        if state.stored.head.state in ENDED:
            return ""
        if kills > deaths:
            return f"{kills} deaths are counted where {deaths} owners seem dead"
        if kills < deaths and not state.late:
            return f"{kills} deaths are counted where {deaths} owners are dead"
        if state.stored.head.state == "parked" and kills < self._bounds.max_kills:
            return f"it is parked after {kills} deaths"
        return ""

    def _unclaimable(self, state: LeaseState) -> str:
        """Whoever comes a lease later finds a run that nobody executes."""
        head = state.stored.head
        if head.state in ENDED or head.state == "parked":
            return ""
        newcomer = self._store.claim(state.stored, "newcomer", self._alive(state), after=LEASE_TICKS)
        return f"an abandoned run cannot be claimed: {newcomer.refusal}" if newcomer.refusal else ""


def _with(state: LeaseState, at: int, process: Process) -> LeaseState:
    return state._replace(processes=(*state.processes[:at], process, *state.processes[at + 1 :]))


@cache
def _event(line: bytes) -> AnyEvent:
    return from_json(line)


def _is_unit(event: AnyEvent) -> bool:
    return isinstance(event, MessageChunk | ToolOutputRecorded)


def _text_of(event: AnyEvent) -> str:
    match event:
        case MessageChunk(text=text) | ToolOutputRecorded(output=text):
            return text
        case _:
            raise TypeError(event)


def _number_of(event: AnyEvent) -> int:
    return int(_text_of(event).split(":")[0])


def _writer_of(event: AnyEvent) -> int:
    """The claim under which it was appended."""
    return int(_text_of(event).strip()[-1])
