"""Delivery's unknown sends: two gateways, one answer, a platform that floods, refuses and loses replies.

The planner, its states and its restart from the ledger are the real ones; a gateway is `delivery.consumer`'s loop, cut
where the process can die or another one can come in: before and after each ledger write and each request. The ledger is
a list with one writer at a time: `lease_model` shows that the journal is that. A gateway that may send and makes its
request does both at once: a request is not delayed for longer than a lease.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from proof.model_checking import Step

from tailrace.delivery import port
from tailrace.delivery.planning.pace import Pace
from tailrace.delivery.planning.planner import Planner
from tailrace.delivery.planning.presenter import Presenter
from tailrace.delivery.planning.state import Done, Showing, Wait
from tailrace.delivery.port import AnyAction, AnyReply, Capabilities, Place
from tailrace.events import Delivered, Entry, MessageChunk, MessageStop, RunFinished, RunStarted

Phase = Literal["idle", "planning", "writing ahead", "performing", "answered"]
BEGINNING, FINAL = "Water ", "Water leaves"
LOG: tuple[tuple[Entry, ...], ...] = (
    (Entry(1, RunStarted("agent", "m", "", 0.0)), Entry(2, MessageChunk(BEGINNING))),
    (
        Entry(3, MessageChunk(FINAL.removeprefix(BEGINNING))),
        Entry(4, MessageStop(final=True)),
        Entry(5, RunFinished("completed", FINAL)),
    ),
)
ANSWER = "t0.0"  # the key of the answer's only message
PATIENCE_S = 100.0  # a wait that ends later is for the run's next entry, which comes first
PLACE = Place("platform", "chat")


class Message(NamedTuple):
    """What the chat shows."""

    id: str
    key: str
    text: str


class Gateway(NamedTuple):
    """`unwritten`: facts that the next commit of the ledger makes durable."""

    name: str
    phase: Phase = "idle"
    planner: bytes = b""
    now: float = 0.0
    read: int = 0  # parts of the run's log that the planner knows
    unwritten: tuple[Delivered, ...] = ()
    reply: AnyReply | None = None
    stalled: bool = False


class Faults(NamedTuple):
    """How many of each are still to come."""

    unknowns: int = 1
    floods: int = 0
    failures: int = 0
    crashes: int = 1
    stalls: int = 0


class DeliveryState(NamedTuple):
    gateways: tuple[Gateway, ...]
    faults: Faults
    log: int = 0  # parts of the run's log that are written
    holder: str = ""  # the gateway that holds the delivery and the platform's lease
    ledger: tuple[Delivered, ...] = ()
    sealed: bool = False
    chat: tuple[Message, ...] = ()
    in_doubt: frozenset[str] = frozenset()  # keys of final texts that were sent, with no reply that a gateway has heard

    def __repr__(self) -> str:
        who = ", ".join(f"{one.name} {one.phase}" for one in self.gateways)
        known = ", ".join(f"{fact.key} {fact.state}" for fact in self.ledger)
        shown = ", ".join(repr(message.text) for message in self.chat)
        return f"<{who}; the ledger says {known or 'nothing'}; the chat shows {shown or 'nothing'}>"


class Planned(NamedTuple):
    """What a planner finds due, what must be in the ledger before, and the planner afterwards."""

    step: AnyAction | Wait | Done
    ahead: Delivered | None
    planner: bytes


@dataclass(frozen=True)
class Bounds:
    capabilities: Capabilities
    gateways: int = 2
    faults: Faults = field(default_factory=Faults)


class DeliveryModel:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._capabilities = bounds.capabilities
        self._plans: dict[tuple[bytes, float], Planned] = {}  # many states differ in the other gateway alone
        self._in_flight: dict[bytes, Planned] = {}
        self._heard: dict[tuple[bytes, AnyReply, float], tuple[tuple[Delivered, ...], bytes]] = {}

    def begin(self) -> DeliveryState:
        gateways = tuple(Gateway("ab"[number]) for number in range(self._bounds.gateways))
        return DeliveryState(gateways, self._bounds.faults)

    def is_end(self, state: DeliveryState) -> bool:
        return state.sealed and all(gateway.phase == "idle" for gateway in state.gateways)

    # ── what a planted mistake changes ───────────────────────────────────────────────────────────────────────

    def facts_after_restart(self, facts: tuple[Delivered, ...]) -> tuple[Delivered, ...]:
        return facts

    def write_ahead(self, planner: Planner) -> Delivered | None:
        return planner.write_ahead

    def must_commit(self, gateway: Gateway) -> bool:
        """Whether the ledger is committed before the next request, also where that request is none that it must know
        of."""
        return bool(gateway.unwritten)

    def may_send(self, state: DeliveryState, gateway: Gateway) -> bool:
        return state.holder == gateway.name

    def may_claim(self, state: DeliveryState) -> bool:
        """The holder is gone, or has not renewed its lease."""
        holder = next((one for one in state.gateways if one.name == state.holder), None)
        return holder is None or holder.stalled

    def replied(self, planner: Planner, reply: AnyReply, now: float) -> tuple[Delivered, ...]:
        return tuple(planner.replied(reply, now))

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────

    def steps(self, state: DeliveryState) -> Iterator[Step[DeliveryState]]:
        if state.log < len(LOG):
            yield Step("the run goes on", state._replace(log=state.log + 1))
        for at, gateway in enumerate(state.gateways):
            yield from self._fault_steps(state, at, gateway)
            if gateway.stalled:
                continue
            if gateway.phase == "idle":
                yield from self._claim(state, at, gateway)
                continue
            if state.holder != gateway.name:
                yield Step(f"{gateway.name} hears that it has lost the delivery", _left(state, at))
            if gateway.unwritten:
                yield self._commit(state, at, gateway)
            yield from self._drive(state, at, gateway)

    def _fault_steps(self, state: DeliveryState, at: int, gateway: Gateway) -> Iterator[Step[DeliveryState]]:
        faults, name = state.faults, gateway.name
        if gateway.stalled:
            yield Step(f"{name} comes back", _with(state, at, gateway._replace(stalled=False)))
        elif gateway.phase != "idle" and faults.stalls:
            fewer = state._replace(faults=faults._replace(stalls=faults.stalls - 1))
            yield Step(f"{name} stalls", _with(fewer, at, gateway._replace(stalled=True)))
        if gateway.phase != "idle" and faults.crashes:
            fewer = state._replace(faults=faults._replace(crashes=faults.crashes - 1))
            yield Step(f"{name} dies", _left(fewer, at))

    def _claim(self, state: DeliveryState, at: int, gateway: Gateway) -> Iterator[Step[DeliveryState]]:
        if state.sealed or not state.log or not self.may_claim(state):
            return
        planner = Planner(
            "d",
            PLACE,
            self._capabilities,
            Presenter("none"),
            showing=Showing(streaming=True, min_tokens=0),
            pace=Pace(self._capabilities.windows),
        )
        planner.restore(self.facts_after_restart(state.ledger))
        for part in LOG[: state.log]:
            for entry in part:
                planner.apply(entry)
        claimed = Gateway(gateway.name, "planning", pickle.dumps(planner), read=state.log)
        yield Step(f"{gateway.name} takes the delivery", _with(state._replace(holder=gateway.name), at, claimed))

    def _commit(self, state: DeliveryState, at: int, gateway: Gateway) -> Step[DeliveryState]:
        if state.holder != gateway.name:
            return Step(f"{gateway.name} is refused by the ledger", _left(state, at))
        written = state._replace(ledger=state.ledger + gateway.unwritten)
        return Step(f"{gateway.name}'s facts are durable", _with(written, at, gateway._replace(unwritten=())))

    def _drive(self, state: DeliveryState, at: int, gateway: Gateway) -> Iterator[Step[DeliveryState]]:
        match gateway.phase:
            case "planning":
                if gateway.read < state.log:
                    yield self._apply(state, at, gateway)
                yield from self._plan(state, at, gateway)
            case "writing ahead":
                yield self._write_ahead(state, at, gateway)
            case "performing":
                yield from self._perform(state, at, gateway)
            case "answered":
                yield self._hear(state, at, gateway)
            case "idle":
                return

    def _apply(self, state: DeliveryState, at: int, gateway: Gateway) -> Step[DeliveryState]:
        planner = _loaded(gateway.planner)
        for entry in LOG[gateway.read]:
            planner.apply(entry)
        told = gateway._replace(planner=pickle.dumps(planner), read=gateway.read + 1)
        return Step(f"{gateway.name} reads on", _with(state, at, told))

    def _planned(self, gateway: Gateway) -> Planned:
        key = (gateway.planner, gateway.now)
        if key not in self._plans:
            planner = _loaded(gateway.planner)
            step = planner.step(gateway.now)
            planned = Planned(step, self.write_ahead(planner), pickle.dumps(planner))
            self._plans[key] = self._in_flight[planned.planner] = planned
        return self._plans[key]

    def _plan(self, state: DeliveryState, at: int, gateway: Gateway) -> Iterator[Step[DeliveryState]]:
        name, planned = gateway.name, self._planned(gateway)
        match planned.step:
            case Done():
                if state.holder != name:
                    yield Step(f"{name} cannot seal", _left(state, at))
                    return
                sealed = state._replace(ledger=state.ledger + gateway.unwritten, sealed=True)
                yield Step(f"{name} seals the delivery", _left(sealed, at))
            case Wait(until=until):
                if until is not None and until < PATIENCE_S and gateway.read == state.log:
                    waited = gateway._replace(now=until, planner=planned.planner)
                    yield Step(f"{name} waits", _with(state, at, waited))
            case action:
                if not self.may_send(state, gateway):
                    yield Step(f"{name} may not send", _left(state, at))
                    return
                durable = planned.ahead is None and not self.must_commit(gateway)
                phase: Phase = "performing" if durable else "writing ahead"
                ready = gateway._replace(phase=phase, planner=planned.planner)
                yield Step(f"{name} plans {_described(action)}", _with(state, at, ready))

    def _write_ahead(self, state: DeliveryState, at: int, gateway: Gateway) -> Step[DeliveryState]:
        if state.holder != gateway.name:
            return Step(f"{gateway.name} is refused by the ledger", _left(state, at))
        ahead = self._in_flight[gateway.planner].ahead
        facts = gateway.unwritten if ahead is None else (*gateway.unwritten, ahead)
        written = state._replace(ledger=state.ledger + facts)
        ready = gateway._replace(phase="performing", unwritten=())
        does = "commits the ledger" if ahead is None else "writes ahead that it sends"
        return Step(f"{gateway.name} {does}", _with(written, at, ready))

    def _hear(self, state: DeliveryState, at: int, gateway: Gateway) -> Step[DeliveryState]:
        reply, action = gateway.reply, self._in_flight[gateway.planner].step
        if reply is None:
            raise TypeError(gateway)
        in_doubt = state.in_doubt
        if isinstance(action, port.Send | port.LookUp) and not isinstance(reply, port.Unknown):
            in_doubt -= {action.key}
        key = (gateway.planner, reply, gateway.now)
        if key not in self._heard:
            planner = _loaded(gateway.planner)
            self._heard[key] = self.replied(planner, reply, gateway.now), pickle.dumps(planner)
        facts, after = self._heard[key]
        heard = gateway._replace(phase="planning", planner=after, unwritten=gateway.unwritten + facts, reply=None)
        name = f"{gateway.name} hears {type(reply).__name__}"
        return Step(name, _with(state._replace(in_doubt=in_doubt), at, heard))

    # ── the platform ─────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, state: DeliveryState, at: int, gateway: Gateway) -> Iterator[Step[DeliveryState]]:
        if not self.may_send(state, gateway):
            yield Step(f"{gateway.name} may not send", _left(state, at))
            return
        action, faults = self._in_flight[gateway.planner].step, state.faults
        if isinstance(action, Wait | Done):
            raise TypeError(action)
        broken = self._sent_again(state, action)
        done, reply = self._done(state, action)
        if isinstance(action, port.Send) and action.final and action.text == FINAL:
            doubt = frozenset({action.key})
            state, done = (one._replace(in_doubt=one.in_doubt | doubt) for one in (state, done))
        outcomes: list[tuple[str, DeliveryState, AnyReply, Faults]] = [("is done", done, reply, faults)]
        if faults.unknowns:
            fewer = faults._replace(unknowns=faults.unknowns - 1)
            outcomes += [("is done, the reply is lost", done, port.Unknown(), fewer)]
            outcomes += [("is lost", state, port.Unknown(), fewer)]
        if faults.floods:
            fewer = faults._replace(floods=faults.floods - 1)
            outcomes.append(("is one too many", state, port.Flood(2.0), fewer))
        if faults.failures:
            fewer = faults._replace(failures=faults.failures - 1)
            outcomes.append(("fails", state, port.Failed(), fewer))
        for what, world, answer, left in outcomes:
            answered = gateway._replace(phase="answered", reply=answer)
            after = _with(world._replace(faults=left), at, answered)
            yield Step(f"{gateway.name}'s {_described(action)} {what}", after, broken)

    def _done(self, state: DeliveryState, action: AnyAction) -> tuple[DeliveryState, AnyReply]:
        """The chat after the action, and the platform's reply."""
        chat = state.chat
        match action:
            case port.Send(key=key, text=text):
                if self._capabilities.resend == "idempotent" and (known := _with_key(chat, key)):
                    return state, port.Sent(known.id)
                sent = Message(f"m{len(chat)}", key, text)
                return state._replace(chat=(*chat, sent)), port.Sent(sent.id)
            case port.LookUp(key=key):
                found = _with_key(chat, key)
                return state, port.Sent(found.id) if found else port.NotFound()
            case port.Edit(message_id=message_id, text=text):
                edited = tuple(one._replace(text=text) if one.id == message_id else one for one in chat)
                return state._replace(chat=edited), port.NotModified() if edited == chat else port.Accepted()
            case port.Delete(message_id=message_id):
                blank = tuple(one._replace(text="") if one.id == message_id else one for one in chat)
                return state._replace(chat=blank), port.Accepted()
            case _:
                raise TypeError(action)

    # ── rules ────────────────────────────────────────────────────────────────────────────────────────────────

    def _sent_again(self, state: DeliveryState, action: AnyAction) -> str:
        """Whether a text that may be in the chat is sent again whole."""
        if not isinstance(action, port.Send) or action.text != FINAL or not state.in_doubt:
            return ""
        if self._capabilities.resend == "idempotent" and state.in_doubt == {action.key}:
            return ""
        return "a final text that may be in the chat is sent again"

    def broken_rule(self, state: DeliveryState) -> str:
        finals = [message for message in state.chat if message.text == FINAL]
        if len(finals) > 1:
            return f"the chat shows the answer {len(finals)} times"
        known = {(fact.key, fact.number) for fact in state.ledger if fact.state == "unknown"}
        for message in state.chat:
            _, key, number = _parts(message.key)
            if (key, int(number)) not in known:
                return f"the ledger knows nothing of the message {message.text!r}"
        last = {fact.key: fact for fact in state.ledger}.get(ANSWER)
        if last is not None and last.state == "confirmed" and [one.id for one in finals] != [last.message_id]:
            return "the answer is confirmed, and the chat does not show it"
        return self._broken_end(state, last) if self.is_end(state) else ""

    def _broken_end(self, state: DeliveryState, last: Delivered | None) -> str:
        if last is None or last.state not in ("confirmed", "unknown", "failed"):
            return f"the delivery ends, and its answer is {last.state if last else 'not in the ledger'}"
        if last.state != "confirmed" and state.faults == self._bounds.faults:
            return "nothing went wrong, and the answer is not confirmed"
        if last.state != "confirmed" and self._capabilities.resend != "never":
            return "the platform can tell what was sent, and the answer is not confirmed"
        return ""


def _loaded(planner: bytes) -> Planner:
    loaded: Planner = pickle.loads(planner)  # noqa: S301 - made here
    return loaded


def _with(state: DeliveryState, at: int, gateway: Gateway) -> DeliveryState:
    return state._replace(gateways=(*state.gateways[:at], gateway, *state.gateways[at + 1 :]))


def _left(state: DeliveryState, at: int) -> DeliveryState:
    """The gateway has left the delivery, or died. Where it held the lease, another may take it at once."""
    name = state.gateways[at].name
    holder = "" if state.holder == name else state.holder
    return _with(state._replace(holder=holder), at, Gateway(name))


def _with_key(chat: tuple[Message, ...], key: str) -> Message | None:
    return next((message for message in chat if message.key == key), None)


def _parts(key: str) -> tuple[str, str, str]:
    """The delivery, the ledger's key and the number of a key as the platform gets it: `d.t0.0.1`."""
    delivery, slot, index, number = key.split(".")
    return delivery, f"{slot}.{index}", number


def _described(action: AnyAction) -> str:
    match action:
        case port.Send(text=text):
            return f"send of {text!r}"
        case port.Edit(text=text):
            return f"edit to {text!r}"
        case _:
            return type(action).__name__.lower()
