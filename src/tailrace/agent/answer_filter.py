"""An answer on its way from the model to the log: deltas in, events out.

Owns what viewers see of it: thoughts and secrets are removed here, the same for streamed and whole answers, so the
joined chunks are the text of the recorded message to the character.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailrace.agent.safety.redact import ArgumentsStream, Redactor
from tailrace.agent.think_filter import DEFAULT_TAGS, unfed_filter
from tailrace.events import AnyEvent, MessageChunk, ProviderEvents, ReasoningChunk, ToolArgumentsChunk
from tailrace.messages import (
    AnyDelta,
    Completion,
    Message,
    NativeDelta,
    Part,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from tailrace.wire.reasoning_seal import named_field

MAX_ARGUMENT_CHARS = 1_000_000  # of one call: a longer one is not made, and no more of it is shown (O177)


class _CallPieces:
    """The arguments of one call while the model writes them."""

    def __init__(self, redactor: Redactor) -> None:
        self.name = ""
        self._stream = ArgumentsStream(redactor)
        self._pieces: list[str] = []
        self._left = MAX_ARGUMENT_CHARS
        self._contradicted = False

    def add(self, delta: ToolCallDelta) -> None:
        self.name = self.name or delta.name
        self._contradicted = self._contradicted or delta.replaces
        self._left -= len(delta.arguments)
        if self._left >= 0:
            self._pieces.append(delta.arguments)

    def take_text(self) -> str:
        """What may be shown by now. Once the provider has contradicted itself nothing more is: the recorded message
        says what holds."""
        text = "".join(self._pieces)
        self._pieces.clear()
        return "" if self._contradicted else self._stream.feed(text)


class AnswerFilter:
    """One answer, from its first delta to its recorded message. `shown` is text that viewers saw before a crash.
    `first_call` is the index of the answer's first tool call."""

    def __init__(
        self, redactor: Redactor, tags: Sequence[str] = DEFAULT_TAGS, *, shown: str = "", first_call: int = 0
    ) -> None:
        self._redactor = redactor
        self._first_call = first_call
        self._thoughts: list[str] = []
        self._think = unfed_filter(tuple(tags)).copy()
        self._visible = redactor.stream()
        self._hidden = redactor.stream()
        if shown:
            self._think.feed(shown)
        self._calls: dict[int, _CallPieces] = {}  # by their positions in the answer
        self._announced = 0  # calls before this position have begun for viewers: each after those before it

    def begin_attempt(self) -> None:
        """`discard_attempt` comes back to here."""
        filters = self._think.copy(), self._visible.copy(), self._hidden.copy()
        self._before = filters, len(self._thoughts)
        self._calls, self._announced = {}, 0

    def discard_attempt(self) -> None:
        (self._think, self._visible, self._hidden), thoughts = self._before
        del self._thoughts[thoughts:]
        self.begin_attempt()

    def events_of(self, deltas: Sequence[AnyDelta]) -> list[AnyEvent]:
        """The events of what arrived in one go: at most one chunk of text, one of reasoning and one of each call."""
        if len(deltas) == 1 and (only := deltas[0]).__class__ is TextDelta and not only.choice:  # the steady state
            if (shown := self._think.feed_plain(only.text)) is not None:
                if self._redactor.pattern is not None:
                    shown = self._visible.feed(shown)
                return [MessageChunk(shown)] if shown else []
            shown, hidden = self._think.feed(only.text)
            return self._events(self._visible.feed(shown), self._hidden.feed(hidden) if hidden else "")
        text: list[str] = []
        thought: list[str] = []
        fields: list[AnyEvent] = []
        calls: list[ToolCallDelta] = []
        for delta in deltas:
            match delta:
                case TextDelta(text=piece, choice=0) | RefusalDelta(text=piece, choice=0):
                    text.append(piece)
                case ReasoningDelta(text=piece, choice=0):
                    thought.append(piece)
                case NativeDelta(dialect, item, 0) if named_field(delta) is not None:
                    fields.append(ProviderEvents(dialect, (item,)))
                case ToolCallDelta(choice=0):
                    calls.append(delta)
                case _:
                    pass
        shown, hidden = self._think.feed("".join(text)) if text else ("", "")
        said = self._events(self._visible.feed(shown), self._hidden.feed("".join(thought) + hidden))
        return [*fields, *said, *self._argument_events(calls)] if calls else [*fields, *said]

    def _argument_events(self, deltas: Iterable[ToolCallDelta]) -> list[AnyEvent]:
        changed: set[int] = set()
        for delta in deltas:
            if delta.index not in self._calls:
                self._calls[delta.index] = _CallPieces(self._redactor)
            self._calls[delta.index].add(delta)
            changed.add(delta.index)
        before = self._announced
        while (call := self._calls.get(self._announced)) is not None and call.name:
            changed.add(self._announced)
            self._announced += 1
        events: list[AnyEvent] = []
        for position in sorted(changed):
            call = self._calls[position]
            if position < self._announced and ((text := call.take_text()) or position >= before):
                events.append(ToolArgumentsChunk(call.name, self._first_call + position, text))
        return events

    def close(self) -> list[AnyEvent]:
        """What was held back, now that nothing follows."""
        shown, hidden = self._think.close()
        return self._events(
            self._visible.feed(shown) + self._visible.close(), self._hidden.feed(hidden) + self._hidden.close()
        )

    def _events(self, shown: str, hidden: str) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        if hidden:
            self._thoughts.append(hidden)
            events.append(ReasoningChunk(hidden))
        if shown:
            events.append(MessageChunk(shown))
        return events

    def message(self, text: str, completion: Completion | None = None, calls: Sequence[ToolCall] = ()) -> Message:
        """The message for the history: the text as shown, the model's own reasoning items, the calls to make.

        Items that only the provider's dialect knows stay where they were in the order of parts; the text stands where
        its first piece stood."""
        native = completion.message.parts if completion is not None else ()
        parts: list[Part] = []
        placed = False
        for part in native:
            match part:
                case Text() | Refusal():
                    if not placed and text:
                        parts.append(Text(text))
                    placed = True
                case ToolCall():
                    pass
                case Reasoning() if part.native is None:
                    parts.append(Reasoning(self._redactor.redact(part.text)))
                case _:
                    parts.append(part)
        if not placed and text:
            parts.append(Text(text))
        if thoughts := self._loose_thoughts(native):
            parts.insert(0, Reasoning(thoughts))
        return self._redactor.redact_message(Message("assistant", (*parts, *calls)))

    def _loose_thoughts(self, native: Sequence[Part]) -> str:
        """Thoughts that the model wrote into its text: no item of the provider holds them."""
        is_held = not self._thoughts or any(isinstance(part, Reasoning) for part in native)
        return "" if is_held else "".join(self._thoughts)
