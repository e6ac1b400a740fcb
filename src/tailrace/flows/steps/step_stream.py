"""What a step's model says, on its way into the log, and who watches it.

Deltas are written only while a viewer watches. Without one they are buffered unread, and written as one entry when a
viewer comes or the step ends. So a viewer who comes late gets what was said, and a step without viewers writes one
entry more than a step that does not stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tailrace.events import AnyEvent, AttemptStarted, LlmDelta
from tailrace.messages import AnyDelta, Dialect, TextDelta
from tailrace.providers.call_listener import AttemptOutcome
from tailrace.providers.open_attempt import ResumableAnswer
from tailrace.runs.delta_log import DeltaLog


class Audience:
    """Whether an instance is watched, in this process or another."""

    def __init__(self) -> None:
        self.there = False  # looked at for every delta: no more than an attribute
        self._viewers = 0
        self._elsewhere = False
        self.streams: set[StepStream] = set()  # of the steps under way

    def join(self) -> None:
        self._viewers += 1
        self._begin()

    def leave(self) -> None:
        self._viewers -= 1
        self.there = self._elsewhere or self._viewers > 0

    def join_elsewhere(self) -> None:
        """A viewer watches from another process. No signal comes when it leaves."""
        self._elsewhere = True
        self._begin()

    def _begin(self) -> None:
        self.there = True
        for stream in self.streams:
            stream.flush()


class StepRecord(Protocol):
    """Where facts of an instance are written."""

    def add(self, *events: AnyEvent, attempt: int = 1) -> None: ...


class StepStream(DeltaLog):
    """One step's log of its model calls. `attempts` is how many its model has had before."""

    def __init__(
        self,
        record: StepRecord,
        audience: Audience,
        block_id: str,
        attempts: int = 0,
        resumed: ResumableAnswer | None = None,
    ) -> None:
        def write(attempt: int, events: Sequence[AnyEvent]) -> None:
            record.add(*events, attempt=attempt)

        shown = resumed.text if resumed is not None else ""
        super().__init__(write, attempts=attempts, block_id=block_id, shown=shown, resumed=resumed)
        self._audience = audience
        self.dialects: Mapping[str, Dialect] = {}  # of the providers that the step may ask, by name

    def started(self, provider: str, model: str) -> AttemptStarted:
        return AttemptStarted(provider, model, self._block_id, self.dialects.get(provider))

    def to_events(self, deltas: list[AnyDelta]) -> list[AnyEvent]:
        return [LlmDelta(self._block_id, text)] if (text := text_of(deltas)) else []

    def deltas(self, deltas: list[AnyDelta]) -> None:
        if self._audience.there or self._text_to_skip:
            self._add(self.to_events(deltas))
        else:
            self._pending += deltas

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        self._end_attempt(attempt)

    def attempt_discarded(self, number: int, reason: str) -> None:
        """What no viewer saw is dropped without a trace."""
        self._pending = []
        self._forget_resumable()
        if self._shown:
            super().attempt_discarded(number, reason)

    def start_over(self) -> None:
        self.discard("the answer under way cannot be read on")

    def resumable_answer(self) -> ResumableAnswer | None:
        """The answer under way with its text on record, where its provider keeps it."""
        return msgspec.structs.replace(self.resumable, text=self.text) if self.resumable is not None else None

    def discard(self, reason: str) -> None:
        """Withdraws what the attempt under way has said."""
        self.attempt_discarded(self._attempt - self._before_call, reason)

    def text_so_far(self) -> str:
        """The text of the attempt under way, written or not. Joins it: call it at the end."""
        return self.text + text_of(self._pending)

    def finish(self, event: AnyEvent) -> None:
        """The step's last fact, after the text that is still buffered, in one entry each."""
        pending, self._pending = self._pending, []
        self.add(*self.to_events(pending), event)


def text_of(deltas: list[AnyDelta]) -> str:
    """The visible text in these."""
    return "".join([delta.text for delta in deltas if type(delta) is TextDelta and delta.choice == 0])
