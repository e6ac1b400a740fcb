"""Steering: messages for one run, from any process, while its owners die, stall, are stopped and come to an end.

The store (`run_store`), the turn (`agent.turn`), the owner's facts (`agent.steering`), the returns at the end
(`OpenLog.finish`), the people's view (`runs.view`) and forks (`agent.fork`) are the real ones. An owner is
`agent.runner`, a person is `app.steering`, each cut where another process can come in. When a lease expires is
`lease_model`'s part: here a dead or stalled owner can be replaced at once, one that works cannot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, NamedTuple

from proof.model_checking import Step

from model_checking.run_store import LEASE_TICKS, Batch, RunStore
from model_checking.run_store import StoredRun as Stored
from tailrace.agent.fork import ForkedLog, ForkPoint, check_goes_on, inherited
from tailrace.agent.steering import facts_of, steer_signal, take_back_signal
from tailrace.agent.turn import CallModel, Finish, GiveUp, RunTool, SettleTool, Turn, TurnCommand, TurnLimits
from tailrace.errors import CorruptLog, ForkRefused
from tailrace.events import (
    AnyEvent,
    Entry,
    MessageChunk,
    MessageRecorded,
    MessageStop,
    RunFinished,
    RunStatus,
    SteerAccepted,
    SteerCommitted,
    SteerReturned,
    SteerSoFar,
    ToolOutputRecorded,
    from_json,
    to_json,
)
from tailrace.events.steers import Steers
from tailrace.journal.stored.group_commit import StoredLog
from tailrace.messages import Message, Text, ToolCall, user
from tailrace.ports import ENDED, Lease, Signal
from tailrace.runs.signals import STOP, stop_signal
from tailrace.runs.view import RunView

WORD: Final = "Well"
OwnerPhase = Literal["idle", "driving", "asking", "ending", "fenced"]
PersonPhase = Literal[
    "new", "has read", "waits", "accepted", "refused", "gave up", "regrets", "takes back", "returned", "too late"
]
_TOLD: frozenset[PersonPhase] = frozenset({"accepted", "regrets", "takes back", "returned", "too late"})
_DONE: frozenset[PersonPhase] = frozenset({"refused", "gave up", "returned", "too late"})


class Owner(NamedTuple):
    """A process. `known`: the events that its memory has, as JSON; the last `appended` of them wait for the next group.
    `seen`: the newest signal that it has read."""

    name: str
    phase: OwnerPhase = "idle"
    epoch: int = 0
    known: tuple[bytes, ...] = ()
    appended: int = 0
    seen: int = 0
    status: RunStatus = "completed"
    stalled: bool = False


class Person(NamedTuple):
    """Sends one message under one key, and may take it back."""

    steer_id: str
    phase: PersonPhase = "new"
    takes_back: bool = False


class Faults(NamedTuple):
    """How many of each are still to come. `retries`: a person hears nothing and sends the message again."""

    crashes: int = 0
    stalls: int = 0
    stops: int = 0
    retries: int = 0
    timeouts: int = 0


class SteeringState(NamedTuple):
    stored: Stored
    owners: tuple[Owner, ...]
    people: tuple[Person, ...]
    faults: Faults

    def __repr__(self) -> str:
        who = ", ".join(f"{one.name} {one.phase}" for one in self.owners)
        told = ", ".join(f"{one.steer_id} {one.phase}" for one in self.people)
        return f"<{self.stored.head.state}, claim {self.stored.head.epoch}; {who}; {told}>"


@dataclass(frozen=True)
class Bounds:
    """`tool`: the first answer calls a tool. `words`: an answer is shown in two pieces. `take_backs`: so many of the
    people take their message back."""

    people: int = 1
    take_backs: int = 0
    tool: bool = False
    words: bool = False
    max_calls: int = 50
    faults: Faults = field(default_factory=Faults)


class SteeringModel:
    def __init__(self, store: RunStore, bounds: Bounds) -> None:
        self._store, self._bounds = store, bounds
        self._turns: dict[tuple[bytes, ...], Turn] = {}
        self._logs: dict[tuple[Batch, ...], tuple[Steers, str]] = {}

    def begin(self) -> SteeringState:
        people = tuple(Person(f"m{at}", takes_back=at < self._bounds.take_backs) for at in range(self._bounds.people))
        return SteeringState(self._store.first, (Owner("a"), Owner("b")), people, self._bounds.faults)

    def is_end(self, state: SteeringState) -> bool:
        told = all(one.phase in _DONE or (one.phase == "accepted" and not one.takes_back) for one in state.people)
        return _ended(state) and told and all(one.phase == "idle" for one in state.owners)

    # ── what a planted mistake changes ───────────────────────────────────────────────────────────────────────

    def replay(self, turn: Turn, entries: Sequence[Entry]) -> None:
        turn.replay(entries)

    def facts(self, signal: Signal, steers: Steers) -> list[AnyEvent]:
        return facts_of(signal, steers)

    def due(self, turn: Turn) -> TurnCommand:
        return turn.due()[0]

    def finish(self, log: StoredLog, finished: RunFinished) -> Entry:
        return log.finish(finished)

    def seen_by_people(self, state: SteeringState) -> Steers:
        """Viewers are shown what is committed: of that, the messages with their states."""
        return self._log_of(state.stored)[0]

    def looked_at_again(self, known: SteerSoFar | None) -> SteerSoFar | None:
        """The log of a run that takes no signal any more: an earlier try may have come into it."""
        return known

    def forked(self, entries: tuple[Entry, ...]) -> list[Entry]:
        return inherited(ForkPoint("r", len(entries)), (), ForkedLog(entries))

    # ── people ───────────────────────────────────────────────────────────────────────────────────────────────

    def steps(self, state: SteeringState) -> Iterator[Step[SteeringState]]:
        for at, person in enumerate(state.people):
            yield from self._person_steps(state, at, person)
        if state.faults.stops and not _ended(state):
            fewer = state.faults._replace(stops=state.faults.stops - 1)
            stored = self._store.signal(state.stored, stop_signal()).stored
            yield Step("a person stops the run", state._replace(stored=stored, faults=fewer))
        for at, owner in enumerate(state.owners):
            yield from self._fault_steps(state, at, owner)
            if not owner.stalled:
                yield from self._owner_steps(state, at, owner)

    def _person_steps(self, state: SteeringState, at: int, person: Person) -> Iterator[Step[SteeringState]]:
        steer_id, faults = person.steer_id, state.faults
        known = self.seen_by_people(state).get(steer_id)

        def told(phase: PersonPhase, stored: Stored = state.stored, left: Faults = faults) -> Step[SteeringState]:
            people = (*state.people[:at], person._replace(phase=phase), *state.people[at + 1 :])
            after = state._replace(stored=stored, people=people, faults=left)
            return Step(f"the person of {steer_id}: {phase}", after)

        match person.phase:
            case "new":
                yield told("accepted" if known else "refused" if _ended(state) else "has read")
            case "has read":
                sent = self._store.signal(state.stored, steer_signal(steer_id, steer_id, ""))
                refused: PersonPhase = "accepted" if self.looked_at_again(known) else "refused"
                yield told(refused if sent.refusal else "waits", sent.stored)
            case "waits":
                if known or _ended(state):
                    yield told("accepted" if known else "refused")
                if faults.timeouts:
                    stored = self._store.signal(state.stored, take_back_signal(steer_id, "")).stored
                    yield told("gave up", stored, faults._replace(timeouts=faults.timeouts - 1))
                if faults.retries:
                    yield told("new", left=faults._replace(retries=faults.retries - 1))
            case "accepted" if person.takes_back and known:
                yield told(_fate(known.state) or "regrets")
            case "regrets":
                yield told("takes back", self._store.signal(state.stored, take_back_signal(steer_id, "")).stored)
            case "takes back" if known and (fate := _fate(known.state)):
                yield told(fate)
            case _:
                return

    # ── owners ───────────────────────────────────────────────────────────────────────────────────────────────

    def _fault_steps(self, state: SteeringState, at: int, owner: Owner) -> Iterator[Step[SteeringState]]:
        faults, name = state.faults, owner.name
        if owner.stalled:
            yield Step(f"{name} comes back", _with(state, at, owner._replace(stalled=False)))
        if owner.phase in ("idle", "fenced"):
            return
        if faults.stalls and not owner.stalled:
            fewer = state._replace(faults=faults._replace(stalls=faults.stalls - 1))
            yield Step(f"{name} stalls", _with(fewer, at, owner._replace(stalled=True)))
        if faults.crashes:
            fewer = state._replace(faults=faults._replace(crashes=faults.crashes - 1))
            yield Step(f"{name} dies", _with(fewer, at, Owner(name)))

    def _owner_steps(self, state: SteeringState, at: int, owner: Owner) -> Iterator[Step[SteeringState]]:
        if owner.phase == "idle":
            yield from self._claim(state, at, owner)
            return
        if owner.phase == "fenced":
            yield Step(f"{owner.name} leaves", _with(state, at, Owner(owner.name)))
            return
        if owner.appended:
            yield self._write(state, at, owner)
        if owner.phase == "ending":
            yield self._seal(state, at, owner)
            return
        if signals := self._store.signals(state.stored, owner.seen):
            yield self._read_signal(state, at, owner, signals[0])
        if owner.phase == "driving":
            yield self._drive(state, at, owner)
        else:
            yield from self._answer(state, at, owner)

    def _claim(self, state: SteeringState, at: int, owner: Owner) -> Iterator[Step[SteeringState]]:
        head = state.stored.head
        held = any(one.epoch == head.epoch and not one.stalled for one in state.owners if one.phase != "idle")
        first = next(one for one in state.owners if one.phase == "idle")  # idle ones are alike
        if _ended(state) or held or owner is not first:
            return
        outcome = self._store.claim(state.stored, owner.name, frozenset(), after=LEASE_TICKS)
        _, lease = outcome.results[0]
        stored = outcome.stored._replace(head=outcome.stored.head._replace(lease_left=LEASE_TICKS))
        known = tuple(to_json(entry.event) for entry in self._store.entries(stored))
        claimed = Owner(owner.name, "driving", lease.epoch, known)
        if not known:
            claimed = _appended(claimed, MessageRecorded(user("Question")))
        yield Step(f"{owner.name} claims the run", _with(state._replace(stored=stored), at, claimed))

    def _turn(self, owner: Owner) -> Turn:
        if owner.known not in self._turns:
            turn = self._turns[owner.known] = Turn(limits=TurnLimits(max_calls=self._bounds.max_calls))
            self.replay(turn, _entries(owner.known))
        return self._turns[owner.known]

    def _log(self, owner: Owner) -> StoredLog:
        """The writing end as it is in the memory of the process."""
        old = owner.known[: len(owner.known) - owner.appended]
        log = self._store.open_log(self._lease(owner), _entries(old))
        log.append([_event(line) for line in owner.known[len(old) :]], 1)
        return log

    def _lease(self, owner: Owner) -> Lease:
        return Lease(self._store.run_id, owner.epoch, owner.name)

    def _write(self, state: SteeringState, at: int, owner: Owner) -> Step[SteeringState]:
        outcome = self._store.append(state.stored, self._log(owner))
        after = owner._replace(phase="fenced", known=()) if outcome.refusal else owner
        written = _with(state._replace(stored=outcome.stored), at, after._replace(appended=0))
        return Step(f"{owner.name} {'is fenced' if outcome.refusal else 'writes a group'}", written)

    def _read_signal(self, state: SteeringState, at: int, owner: Owner, signal: Signal) -> Step[SteeringState]:
        turn, name = self._turn(owner), f"{owner.name} reads {signal.name}"
        read = owner._replace(seen=signal.id)
        if signal.name != STOP:
            return Step(name, _with(state, at, _appended(read, *self.facts(signal, turn.steers))))
        ending = read._replace(phase="ending", status="stopped")
        closing = [] if turn.stopped else [MessageStop(final=True)]
        return Step(name, _with(state, at, _appended(ending, *turn.last_words(), *closing)))

    def _drive(self, state: SteeringState, at: int, owner: Owner) -> Step[SteeringState]:
        turn = self._turn(owner)
        match self.due(turn):
            case CallModel(shown):
                committed = [] if shown else turn.commit_steers()
                asking = _appended(owner._replace(phase="asking"), *committed)
                return Step(f"{owner.name} asks the model", _with(state, at, asking))
            case GiveUp():
                gave_up = MessageRecorded(_said("at a limit"), "limit")
                limited = _appended(owner, MessageChunk("at a limit"), gave_up)
                return Step(f"{owner.name} is at a limit", _with(state, at, limited))
            case RunTool(call=call) | SettleTool(call=call):
                result = ToolOutputRecorded(call.id, call.name, "worked")
                return Step(f"{owner.name} runs the tool", _with(state, at, _appended(owner, result)))
            case Finish(status=status):
                closing = [] if turn.stopped else [MessageStop(final=True)]
                over = _appended(owner._replace(phase="ending", status=status), *closing)
                return Step(f"{owner.name} is done", _with(state, at, over))

    def _answer(self, state: SteeringState, at: int, owner: Owner) -> Iterator[Step[SteeringState]]:
        turn, answers = self._turn(owner), _answers(owner.known)
        if self._bounds.words and not turn.shown:
            shown = _appended(owner, MessageChunk(WORD))
            yield Step(f"{owner.name} shows a word", _with(state, at, shown))
            return
        text = f"{WORD} {answers}"
        calls = (ToolCall("c", "tool"),) if self._bounds.tool and not answers else ()
        answer = MessageRecorded(_said(text, *calls), "end")
        closed = [MessageStop(final=False)] if calls else []
        rest = MessageChunk(text.removeprefix(turn.shown))
        answered = _appended(owner._replace(phase="driving"), rest, answer, *closed)
        yield Step(f"{owner.name} has an answer", _with(state, at, answered))

    def _seal(self, state: SteeringState, at: int, owner: Owner) -> Step[SteeringState]:
        log = self._log(owner)
        last = self.finish(log, RunFinished(owner.status, self._turn(owner).output))
        outcome = self._store.seal(state.stored, self._lease(owner), log, last)
        if outcome.refusal:
            fenced = Owner(owner.name, "fenced", owner.epoch)
            return Step(f"{owner.name} cannot seal", _with(state._replace(stored=outcome.stored), at, fenced))
        sealed = state._replace(stored=outcome.stored)
        return Step(f"{owner.name} seals the run", _with(sealed, at, Owner(owner.name)))

    # ── rules ────────────────────────────────────────────────────────────────────────────────────────────────

    def broken_rule(self, state: SteeringState) -> str:
        try:
            steers, broken = self._log_of(state.stored)
        except CorruptLog as exc:
            return f"the log has a gap: {exc}"
        return broken or next(filter(None, (_broken_word(one, steers) for one in state.people)), "")

    def _log_of(self, stored: Stored) -> tuple[Steers, str]:
        if stored.batches not in self._logs:
            entries, view = self._store.entries(stored), RunView()
            for entry in entries:
                view.apply(entry)
            broken = self._broken_log(entries, view.steers) or self._broken_fork(entries)
            self._logs[stored.batches] = view.steers, broken
        return self._logs[stored.batches]

    def _broken_log(self, entries: Sequence[Entry], steers: Steers) -> str:
        accepted = _ids(entries, SteerAccepted)
        committed, returned = _ids(entries, SteerCommitted), _ids(entries, SteerReturned)
        if twice := [one for one, times in Counter(accepted).items() if times > 1]:
            return f"accepted twice: {twice}"
        if twice := [one for one, times in Counter(committed + returned).items() if times > 1]:
            return f"committed or returned twice, or both: {twice}"
        if set(committed + returned) - set(accepted):
            return "a message has an end and no beginning"
        turn = Turn()
        turn.replay(entries)
        said = [part.text for message in turn.messages for part in message.parts if isinstance(part, Text)]
        if [text for text in said if text in accepted] != committed:
            return f"the model is told {said}, and committed is {committed}"
        finished = entries[-1].event if entries else None
        if not isinstance(finished, RunFinished):
            return ""
        if steers.pending:
            return f"the run has ended, neither committed nor returned: {[one.steer_id for one in steers.pending]}"
        if finished.status != "completed" or self._bounds.faults.stops:  # a stop may come after a whole answer
            return ""
        return self._passed_over(entries)

    def _passed_over(self, entries: Sequence[Entry]) -> str:
        """A run that completes has answered what was accepted before its last answer (N165)."""
        last = max(entry.seq for entry in entries if _is_answer(entry.event))
        before = [entry for entry in entries if entry.seq < last]
        early = {*_ids(before, SteerAccepted)} - {*_ids(before, SteerCommitted)} - {*_ids(before, SteerReturned)}
        early -= {
            entry.event.steer_id
            for entry in entries
            if isinstance(entry.event, SteerReturned) and entry.event.reason == "taken_back"
        }
        at_limit = sum(_is_answer(entry.event) for entry in entries) >= self._bounds.max_calls
        if set(_ids(entries, SteerCommitted)) - set(_ids(before, SteerCommitted)):
            return "the model has not answered a committed message"
        return f"the last answer passes over {sorted(early)}" if early and not at_limit else ""

    def _broken_fork(self, entries: tuple[Entry, ...]) -> str:
        """A fork of the run at its newest entry has what was committed, once, and nothing that waits there."""
        try:
            check_goes_on(entries, "r")
        except ForkRefused:
            return ""
        if not entries:
            return ""
        copied = self.forked(entries)
        view = RunView()
        for entry in copied:
            view.apply(entry)
        if view.steers.pending:
            return "a message waits in the fork, too"
        committed, there = _ids(copied, SteerCommitted), _ids(entries, SteerCommitted)
        return "" if committed == there else f"committed are {there}, and in the fork {committed}"


def _broken_word(person: Person, steers: Steers) -> str:
    """What a person was told holds for ever."""
    known = steers.get(person.steer_id)
    if person.phase in _TOLD and known is None:
        return f"{person.steer_id} was acknowledged, and the log does not have it"
    if person.phase == "refused" and known is not None:
        return f"{person.steer_id} was refused, and the log has it"
    if person.phase in ("returned", "too late") and (known is None or _fate(known.state) != person.phase):
        return f"the person of {person.steer_id} was told: {person.phase}"
    return ""


def _fate(state: str) -> Literal["returned", "too late"] | None:
    return "returned" if state == "returned" else "too late" if state == "committed" else None


def _ended(state: SteeringState) -> bool:
    return state.stored.head.state in ENDED


def _with(state: SteeringState, at: int, owner: Owner) -> SteeringState:
    return state._replace(owners=(*state.owners[:at], owner, *state.owners[at + 1 :]))


def _appended(owner: Owner, *added: AnyEvent) -> Owner:
    known = (*owner.known, *map(to_json, added))
    return owner._replace(known=known, appended=owner.appended + len(added))


def _said(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", (Text(text), *calls))


def _is_answer(event: AnyEvent) -> bool:
    return isinstance(event, MessageRecorded) and event.message.role == "assistant"


def _answers(known: tuple[bytes, ...]) -> int:
    return sum(_is_answer(_event(line)) for line in known)


def _ids(entries: Sequence[Entry], kind: type[SteerAccepted | SteerCommitted | SteerReturned]) -> list[str]:
    return [entry.event.steer_id for entry in entries if isinstance(entry.event, kind)]


def _entries(known: Sequence[bytes]) -> list[Entry]:
    return [Entry(seq, _event(line), 1) for seq, line in enumerate(known, start=1)]


@cache
def _event(line: bytes) -> AnyEvent:
    return from_json(line)
