"""What a step's model says, on its way into the log, and who is there to hear it.

Deltas are written only while somebody watches. Nobody there: they are kept as they came, unread, which costs a place in
a list, and written as one when somebody comes or when the step ends. So a viewer who comes late gets what was said,
and a step that nobody watches writes what one that does not stream writes, and one entry more.
"""

from __future__ import annotations

from tailrace.events import AnyEvent, AttemptDiscarded, AttemptStarted, LlmDelta, UsageRecorded
from tailrace.messages import AnyDelta, TextDelta, Usage
from tailrace.runs.record import EventFold, RecordedFold

MAX_REASON_CHARS = 500


class Audience:
    """Whether anybody watches an instance, in this process or another."""

    def __init__(self) -> None:
        self.there = False  # looked at for every delta: no more than an attribute
        self._viewers = 0
        self._elsewhere = False
        self._voices: set[StepStream] = set()

    def join(self) -> None:
        self._viewers += 1
        self._tell()

    def leave(self) -> None:
        self._viewers -= 1
        self.there = self._elsewhere or self._viewers > 0

    def join_elsewhere(self) -> None:
        """Somebody watches from another process. Nobody will say when they have left."""
        self._elsewhere = True
        self._tell()

    def _tell(self) -> None:
        self.there = True
        for voice in self._voices:
            voice.flush()

    def listen_to(self, voice: StepStream) -> None:
        self._voices.add(voice)

    def turn_from(self, voice: StepStream) -> None:
        self._voices.discard(voice)


class StepStream:
    """One step's voice. `attempts` is how many its model has had before."""

    def __init__(self, record: RecordedFold[EventFold], audience: Audience, block_id: str, attempts: int = 0) -> None:
        self._record = record
        self._audience = audience
        self._block_id = block_id
        self._attempt = attempts
        self._shown: list[str] = []  # pieces that are in the log
        self._unread: list[AnyDelta] = []  # what nobody was there to hear

    def begin(self, provider: str, model: str) -> None:
        self._attempt += 1
        self._shown, self._unread = [], []
        self._record.add(AttemptStarted(provider, model, self._block_id), attempt=self._attempt)

    def hear(self, deltas: list[AnyDelta]) -> None:
        if not self._audience.there:
            self._unread += deltas
        elif text := text_of(deltas):
            self._show(text)

    def said(self) -> str:
        return "".join(self._shown) + self._unread_text()

    def flush(self) -> None:
        """Somebody has come."""
        if text := self._take_unread():
            self._show(text)

    def discard(self, reason: str) -> None:
        self._unread = []
        if self._shown:
            self._shown = []
            event = AttemptDiscarded(reason[:MAX_REASON_CHARS], self._block_id)
            self._record.add(event, attempt=self._attempt)

    def cost(self, usage: Usage, provider: str, model: str) -> None:
        if usage != Usage():
            self._record.add(UsageRecorded(usage, provider, model), attempt=max(1, self._attempt))

    def finish(self, event: AnyEvent) -> None:
        """The step's last fact, and before it whatever nobody has heard yet."""
        text = self._take_unread()
        events = (LlmDelta(self._block_id, text), event) if text else (event,)
        self._record.add(*events, attempt=max(1, self._attempt))

    def _show(self, text: str) -> None:
        self._shown.append(text)
        self._record.add(LlmDelta(self._block_id, text), attempt=self._attempt)

    def _unread_text(self) -> str:
        if len(self._unread) > 1:
            self._unread = [TextDelta(text_of(self._unread))]
        return text_of(self._unread)

    def _take_unread(self) -> str:
        text = self._unread_text()
        self._unread = []
        return text


def text_of(deltas: list[AnyDelta]) -> str:
    """The visible text in these."""
    return "".join([delta.text for delta in deltas if type(delta) is TextDelta and delta.choice == 0])
