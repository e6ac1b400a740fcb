"""An answer that its provider keeps, as a run's log tells of it: its id, and how much of it the log has.

Pure. A process that goes on with the run reads the answer from its beginning, and passes over what the log has.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tailrace.events import (
    AnswerKept,
    AnyEvent,
    AttemptDiscarded,
    AttemptStarted,
    Entry,
    LlmDelta,
    MessageChunk,
    MessageRecorded,
    ProviderEvents,
    ReasoningChunk,
    RunFinished,
    StepFailed,
    StepFinished,
    ToolArgumentsChunk,
)

_OF_STEPS = (AnswerKept, LlmDelta, AttemptStarted, AttemptDiscarded, StepFinished, StepFailed)
_ENDS = (AttemptStarted, MessageRecorded, StepFinished, StepFailed, RunFinished)


class KeptAnswer(msgspec.Struct, frozen=True):
    """An answer that was not whole when the log ended."""

    provider: str
    model: str
    id: str
    attempt: int = 1  # whose answer it is
    text: str = ""  # as far as it is on record
    reasoning_chars: int = 0  # on record
    last_event: int = -1  # the number of the last of the provider's own events on record
    arguments: dict[int, int] = {}  # by the indices of calls: characters of their arguments on record


class KeptAnswerFold:
    """The answer that the newest attempt is giving, where its provider keeps it."""

    def __init__(self) -> None:
        self.answer: AnswerKept | None = None  # that is under way
        self.unwanted: KeptAnswer | None = None  # that was under way when somebody stopped it
        self._begin(0)

    def _begin(self, attempt: int) -> None:
        self._attempt = attempt
        self._pieces: list[str] = []
        self._reasoning_chars = 0
        self._arguments: dict[int, int] = {}
        self._last_event = -1

    @property
    def current(self) -> KeptAnswer | None:
        kept = self.answer
        if kept is None:
            return None
        return KeptAnswer(
            kept.provider,
            kept.model,
            kept.answer_id,
            self._attempt,
            "".join(self._pieces),
            self._reasoning_chars,
            self._last_event,
            dict(self._arguments),
        )

    def apply(self, event: AnyEvent, attempt: int) -> None:
        if event.__class__ is AnswerKept:  # by class: a miss of `isinstance` costs a struct much more
            self.answer, self.unwanted = event, None
            self._begin(attempt)
        elif self.answer is None:
            return  # nearly always
        elif isinstance(event, _ENDS) or (isinstance(event, AttemptDiscarded) and attempt == self._attempt):
            if isinstance(event, MessageRecorded) and event.stop == "stopped":
                self.unwanted = self.current
            self.answer = None
        elif attempt != self._attempt:
            return
        elif isinstance(event, MessageChunk):
            self._pieces.append(event.text)
        elif isinstance(event, LlmDelta):
            self._pieces.append(event.delta)
        elif isinstance(event, ReasoningChunk):
            self._reasoning_chars += len(event.text)
        elif isinstance(event, ToolArgumentsChunk):
            self._arguments[event.index] = self._arguments.get(event.index, 0) + len(event.text)
        elif isinstance(event, ProviderEvents):
            numbers = (each.get("sequence_number") for each in event.events)
            self._last_event = max(self._last_event, *(number for number in numbers if isinstance(number, int)), -1)


def kept_in(entries: Iterable[Entry]) -> KeptAnswer | None:
    """The answer that was under way when this log ended, where its provider keeps it."""
    state = KeptAnswerFold()
    for entry in entries:
        state.apply(entry.event, entry.attempt)
    return state.current


def unwanted_in(entries: Iterable[Entry]) -> KeptAnswer | None:
    """The answer that nobody reads any more once the run of this log is stopped: the one under way, or the one that a
    process had stopped which died before it could tell the provider."""
    state = KeptAnswerFold()
    for entry in entries:
        state.apply(entry.event, entry.attempt)
    return state.current or state.unwanted


def kept_by_steps(entries: Iterable[Entry]) -> list[KeptAnswer]:
    """The same for a sequence, whose steps may each have an answer under way."""
    steps: dict[str, KeptAnswerFold] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, _OF_STEPS):
            steps.setdefault(event.block_id, KeptAnswerFold()).apply(event, entry.attempt)
    return [kept for step in steps.values() if (kept := step.current) is not None]
