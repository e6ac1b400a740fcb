"""The attempts at model calls that were under way when a run's log ended. Pure. A process that takes the run over
reattaches to an answer that its provider keeps, and counts an estimate of what any other attempt has used."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tailrace import events
from tailrace.messages import Usage
from tailrace.wire.token_estimate import estimated_usage


class ResumableAnswer(msgspec.Struct, frozen=True):
    """An answer that its provider keeps, and that was not whole when the log ended. It is read again from its
    beginning."""

    provider: str
    model: str
    id: str
    attempt: int = 1  # whose answer it is
    text: str = ""  # as far as it is on record
    reasoning_chars: int = 0  # on record
    last_event: int = -1  # the number of the last of the provider's own events on record
    arguments: dict[int, int] = {}  # by the indices of calls: characters of their arguments on record
    input_tokens: int = 0  # of the request, estimated

    @property
    def usage(self) -> Usage:
        """An estimate, from what is on record."""
        chars = len(self.text) + self.reasoning_chars + sum(self.arguments.values())
        return estimated_usage(self.input_tokens, chars)


class OpenAttempt:
    """The newest attempt of a turn, of a call or of a step's call, until its end is on record."""

    def __init__(self, number: int, started: events.AttemptStarted) -> None:
        self.number = number
        self._started = started
        self._answer_id = ""
        self._has_answer = False
        self._is_counted = False
        self._pieces: list[str] = []
        self._reasoning_chars = 0
        self._arguments: dict[int, int] = {}
        self._last_event = -1

    @property
    def resumable(self) -> ResumableAnswer | None:
        """Its answer, where the provider keeps it."""
        return self._answer() if self._answer_id else None

    def _answer(self) -> ResumableAnswer:
        started = self._started
        return ResumableAnswer(
            started.provider,
            started.model,
            self._answer_id,
            self.number,
            "".join(self._pieces),
            self._reasoning_chars,
            self._last_event,
            self._arguments,
            started.input_tokens,
        )

    @property
    def lost_usage(self) -> events.UsageRecorded | None:
        """An estimate of what it has used; None where that is on record, or where no answer had begun."""
        if self._is_counted or not self._has_answer:
            return None
        started = self._started
        return events.UsageRecorded(self._answer().usage, started.provider, started.model, started.block_id)

    def apply(self, event: _OfAttempt) -> None:
        """Takes note of what the log says of this attempt."""
        match event:
            case events.AnswerKept(answer_id=answer_id):
                self._answer_id = answer_id
                return
            case events.AttemptDiscarded():
                self._answer_id = ""  # it is still to be counted
                return
            case events.UsageRecorded():
                self._is_counted = True
                return
            case events.MessageChunk(text) | events.LlmDelta(delta=text):
                self._pieces.append(text)
            case events.ReasoningChunk(text):
                self._reasoning_chars += len(text)
            case events.ToolArgumentsChunk(index=index, text=text):
                self._arguments[index] = self._arguments.get(index, 0) + len(text)
            case events.ProviderEvents(events=relayed):
                numbers = (each.get("sequence_number") for each in relayed)
                self._last_event = max(self._last_event, *(number for number in numbers if isinstance(number, int)), -1)
        self._has_answer = True


_Named = events.AnswerKept | events.AttemptDiscarded | events.UsageRecorded | events.LlmDelta
_OfAttempt = _Named | events.MessageChunk | events.ReasoningChunk | events.ToolArgumentsChunk | events.ProviderEvents


def open_attempts(entries: Iterable[events.Entry]) -> dict[str, OpenAttempt]:
    """By the ids of blocks: the attempt of a turn or of a call has none."""
    found: dict[str, OpenAttempt] = {}
    for entry in entries:
        event = entry.event
        match event:
            case events.AttemptStarted():
                found[event.block_id] = OpenAttempt(entry.attempt, event)
            case events.StepFinished(block_id) | events.StepFailed(block_id):
                found.pop(block_id, None)
            case events.MessageRecorded():
                found.pop("", None)
            case events.RunForked():
                found.clear()  # they are the other run's
            case _ if isinstance(event, _OfAttempt):
                attempt = found.get(event.block_id if isinstance(event, _Named) else "")
                if attempt is not None and attempt.number == entry.attempt:
                    attempt.apply(event)
            case _:
                pass
    return found
