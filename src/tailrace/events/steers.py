"""Messages for a run that is under way, as facts of its log, and the fold that says what became of each.

Pure. Part of `events`, which has the facts: import them from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from tailrace.events.attempts import Event
from tailrace.messages import File, Image, Message, Text, Value

MAX_PENDING_STEERS = 32  # of one run
MAX_PENDING_CHARS = 32_000_000  # of all that wait, but for a single one
SteerInput: TypeAlias = str | tuple[Text | Image | File, ...]
SteerState = Literal["accepted", "committed", "returned"]
ReturnReason = Literal["taken_back", "too_many", "run_stopped", "run_ended"]


class SteerAccepted(Event):
    """A message for the run, and who sent it. Exactly one of the next two facts follows."""

    steer_id: str
    input: SteerInput
    by: str = ""

    @property
    def message(self) -> Message:
        return Message("user", (Text(self.input),) if isinstance(self.input, str) else self.input)


class SteerCommitted(Event):
    """The message joins the history here: the turn's next model call has it."""

    steer_id: str


class SteerReturned(Event):
    """No model call will have the message: it was taken back, or the run ended first."""

    steer_id: str
    reason: ReturnReason


SteerFact: TypeAlias = SteerAccepted | SteerCommitted | SteerReturned


class SteerSoFar(Value):
    """`reason` is that of a message which was returned; `after`: so many texts of the answer stand before it."""

    accepted: SteerAccepted
    state: SteerState = "accepted"
    reason: ReturnReason | None = None
    after: int = 0


class Steers:
    """The messages for one run and their states, in the order of acceptance. A second fate of a message changes
    nothing."""

    __slots__ = ("_known",)

    def __init__(self, known: Iterable[SteerSoFar] = ()) -> None:
        self._known = {each.accepted.steer_id: each for each in known} if known else {}

    def apply(self, fact: SteerFact, texts: int = 0) -> None:
        """`texts`: how many the answer has by now."""
        known = self._known.get(fact.steer_id)
        if isinstance(fact, SteerAccepted):
            self._known.setdefault(fact.steer_id, SteerSoFar(fact))
        elif known is not None and known.state == "accepted":
            reason = fact.reason if isinstance(fact, SteerReturned) else None
            state: SteerState = "returned" if reason else "committed"
            self._known[fact.steer_id] = SteerSoFar(known.accepted, state, reason, texts)

    def get(self, steer_id: str) -> SteerSoFar | None:
        return self._known.get(steer_id)

    @property
    def all(self) -> tuple[SteerSoFar, ...]:
        return tuple(self._known.values())

    @property
    def pending(self) -> list[SteerAccepted]:
        """Those that wait for the next model call."""
        return [each.accepted for each in self._known.values() if each.state == "accepted"] if self._known else []

    def is_full(self, given: SteerInput) -> bool:
        """Whether no further message is taken, or not this one."""
        waiting = self.pending
        chars = sum(_chars(each.input) for each in waiting) + _chars(given)
        return len(waiting) >= MAX_PENDING_STEERS or bool(waiting and chars > MAX_PENDING_CHARS)


def _chars(given: SteerInput) -> int:
    if isinstance(given, str):
        return len(given)
    return sum([len(part.text if isinstance(part, Text) else part.data + part.url) for part in given])


def input_of(message: Message) -> SteerInput:
    """What a user's message says, as a steer has it."""
    parts = tuple(part for part in message.parts if isinstance(part, Text | Image | File))
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Text) else parts
