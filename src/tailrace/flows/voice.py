"""What a step's model says, on its way into the log, and who is there to hear it.

Deltas are written only while somebody watches. Nobody there: they are kept as the pieces they came in, which costs a
list entry, and written as one when somebody comes or when the step ends. So a viewer who comes late gets what was
said, and a step that nobody watches writes what one that does not stream writes, and one entry more.
"""

from __future__ import annotations

from tailrace.events import AnyEvent, AttemptDiscarded, AttemptStarted, LlmDelta, UsageRecorded
from tailrace.flows.record import Record
from tailrace.messages import Usage

MAX_REASON_CHARS = 500


class Audience:
    """Whether anybody watches an instance, in this process or another."""

    def __init__(self) -> None:
        self._viewers = 0
        self._elsewhere = False
        self._voices: set[StepVoice] = set()

    @property
    def there(self) -> bool:
        return self._elsewhere or self._viewers > 0

    def join(self) -> None:
        self._viewers += 1
        self._tell()

    def leave(self) -> None:
        self._viewers -= 1

    def join_elsewhere(self) -> None:
        """Somebody watches from another process. Nobody will say when they have left."""
        self._elsewhere = True
        self._tell()

    def _tell(self) -> None:
        for voice in self._voices:
            voice.flush()

    def listen_to(self, voice: StepVoice) -> None:
        self._voices.add(voice)

    def turn_from(self, voice: StepVoice) -> None:
        self._voices.discard(voice)


class StepVoice:
    """One step's voice. `attempts` is how many its model has had before."""

    def __init__(self, record: Record, audience: Audience, block_id: str, attempts: int = 0) -> None:
        self._record = record
        self._audience = audience
        self._block_id = block_id
        self._attempt = attempts
        self._pieces: list[str] = []
        self._shown = False

    def begin(self, provider: str, model: str) -> None:
        self._attempt += 1
        self._pieces, self._shown = [], False
        self._record.add(AttemptStarted(provider, model, self._block_id), attempt=self._attempt)

    def say(self, text: str) -> None:
        if self._audience.there:
            self._shown = True
            self._record.add(LlmDelta(self._block_id, text), attempt=self._attempt)
        else:
            self._pieces.append(text)

    def flush(self) -> None:
        if self._pieces:
            self._shown = True
            self._record.add(*self._pending(), attempt=self._attempt)

    def discard(self, reason: str) -> None:
        self._pieces.clear()
        if self._shown:
            self._shown = False
            event = AttemptDiscarded(reason[:MAX_REASON_CHARS], self._block_id)
            self._record.add(event, attempt=self._attempt)

    def cost(self, usage: Usage, provider: str, model: str) -> None:
        if usage != Usage():
            self._record.add(UsageRecorded(usage, provider, model), attempt=max(1, self._attempt))

    def finish(self, event: AnyEvent) -> None:
        """The step's last fact, and before it whatever nobody has heard yet."""
        self._record.add(*self._pending(), event, attempt=max(1, self._attempt))

    def _pending(self) -> list[AnyEvent]:
        pieces, self._pieces = self._pieces, []
        return [LlmDelta(self._block_id, "".join(pieces))] if pieces else []
