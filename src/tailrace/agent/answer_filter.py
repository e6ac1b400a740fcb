"""An answer on its way from the model to the log: deltas in, events out.

Owns what viewers see of it: thoughts and secrets are removed here, the same for streamed and whole answers, so the
joined chunks are the text of the recorded message to the character.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from tailrace.agent.safety.redact import Redactor
from tailrace.agent.think_filter import DEFAULT_TAGS, ThinkFilter
from tailrace.events import AnyEvent, MessageChunk, ProviderEvents, ReasoningChunk
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
)
from tailrace.wire.reasoning_seal import named_field


class AnswerFilter:
    """One answer, from its first delta to its recorded message. `shown` is text that viewers saw before a crash."""

    def __init__(self, redactor: Redactor, tags: Sequence[str] = DEFAULT_TAGS, *, shown: str = "") -> None:
        self._redactor = redactor
        self._thoughts: list[str] = []
        self._think = ThinkFilter(tags)
        self._visible = redactor.stream()
        self._hidden = redactor.stream()
        if shown:
            self._think.feed(shown)
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """`discard_attempt` comes back to here."""
        filters = copy.copy(self._think), copy.copy(self._visible), copy.copy(self._hidden)
        self._before = filters, len(self._thoughts)

    def discard_attempt(self) -> None:
        (self._think, self._visible, self._hidden), thoughts = self._before
        del self._thoughts[thoughts:]
        self.begin_attempt()

    def events_of(self, deltas: Iterable[AnyDelta]) -> list[AnyEvent]:
        """The events of what arrived in one go: at most one chunk of text and one of reasoning."""
        text: list[str] = []
        thought: list[str] = []
        fields: list[AnyEvent] = []
        for delta in deltas:
            match delta:
                case TextDelta(text=piece, choice=0) | RefusalDelta(text=piece, choice=0):
                    text.append(piece)
                case ReasoningDelta(text=piece, choice=0):
                    thought.append(piece)
                case NativeDelta(item=item, choice=0) if named_field(delta) is not None:
                    fields.append(ProviderEvents("chat", (item,)))
                case _:
                    pass
        shown, hidden = self._think.feed("".join(text)) if text else ("", "")
        return [*fields, *self._events(self._visible.feed(shown), self._hidden.feed("".join(thought) + hidden))]

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
        if any(isinstance(part, Reasoning) for part in native):
            return ""
        return "".join(self._thoughts)
