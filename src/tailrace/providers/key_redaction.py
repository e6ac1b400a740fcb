"""An answer without the key that it was asked for with: a model, or a proxy before it, may repeat what it was sent.

Owns the redaction of one answer, streamed or whole, before anything stores or shows it (J114). A key that is split over
deltas is found: the end of a text that may be the beginning of a key waits for what follows. Everything else is passed
on as it came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import msgspec

from tailrace.errors import ProviderError
from tailrace.messages import (
    AnyDelta,
    Completion,
    FinishDelta,
    JsonObject,
    NativeDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from tailrace.ports import AnswerStream
from tailrace.redact import RedactingStream, TextRedactor

_Growing: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta
_Channel: TypeAlias = tuple[type[_Growing], int, int]  # what the piece belongs to, its choice, the call's index
_GROWING = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta)


class RedactedAnswer:
    """Satisfies `ports.AnswerStream`."""

    def __init__(
        self, inner: AnswerStream, redactor: TextRedactor, completion_from_body: Callable[[JsonObject], Completion]
    ) -> None:
        self._inner = inner
        self._deltas = aiter(inner)
        self._redactor = redactor
        self._completion_from_body = completion_from_body
        self._first_chars = frozenset(secret[0] for secret in redactor.secrets)
        self._held: dict[_Channel, RedactingStream] = {}
        self._ending: ProviderError | StopAsyncIteration | None = None

    def __aiter__(self) -> AsyncIterator[list[AnyDelta]]:
        return self

    async def __anext__(self) -> list[AnyDelta]:
        if self._ending is not None:
            raise self._ending
        try:
            deltas = await anext(self._deltas)
        except (ProviderError, StopAsyncIteration) as exc:
            if not (held := self._release(None)):
                raise
            self._ending = exc
            return held
        return self._redacted(deltas)

    def completion(self) -> Completion:
        completion = self._inner.completion()
        body = redacted_json(completion.body, self._redactor)
        return completion if body is completion.body else self._completion_from_body(body)

    def _redacted(self, deltas: list[AnyDelta]) -> list[AnyDelta]:
        out: list[AnyDelta] = []
        for delta in deltas:
            if isinstance(delta, _GROWING):
                channel = (type(delta), delta.choice, delta.index if isinstance(delta, ToolCallDelta) else 0)
                out += self._release(delta.choice, but=type(delta))
                out += self._piece(delta, channel)
            else:
                if isinstance(delta, FinishDelta) or (isinstance(delta, NativeDelta) and delta.dialect != "chat"):
                    out += self._release(delta.choice)
                out.append(self._native(delta) if isinstance(delta, NativeDelta) else delta)
        return out

    def _native(self, delta: NativeDelta) -> NativeDelta:
        item = redacted_json(delta.item, self._redactor)
        return delta if item is delta.item else msgspec.structs.replace(delta, item=item)

    def _piece(self, delta: _Growing, channel: _Channel) -> list[AnyDelta]:
        """The delta with as much of its text as is certain; nothing where all of it waits."""
        text = delta.arguments if isinstance(delta, ToolCallDelta) else delta.text
        stream = self._held.get(channel)
        if stream is None:
            if self._first_chars.isdisjoint(text):
                return [delta]
            stream = self._held[channel] = self._redactor.stream()
        shown = stream.feed(text)
        if shown == text:
            return [delta]
        if isinstance(delta, ToolCallDelta):
            named = delta.id or delta.name
            return [msgspec.structs.replace(delta, arguments=shown)] if shown or named else []
        return [msgspec.structs.replace(delta, text=shown)] if shown else []

    def _release(self, choice: int | None, but: type[_Growing] | None = None) -> list[AnyDelta]:
        """What was held back of this choice, of every one for None, now that other pieces follow."""
        if not self._held:
            return []
        due = [channel for channel in self._held if choice in (None, channel[1]) and channel[0] is not but]
        return [_delta_of(channel, text) for channel in due if (text := self._held.pop(channel).close())]


def _delta_of(channel: _Channel, text: str) -> AnyDelta:
    kind, choice, index = channel
    if issubclass(kind, ToolCallDelta):
        return ToolCallDelta(index, arguments=text, choice=choice)
    if issubclass(kind, TextDelta):
        return TextDelta(text, choice)
    return ReasoningDelta(text, choice) if issubclass(kind, ReasoningDelta) else RefusalDelta(text, choice)


def redacted_json(body: JsonObject, redactor: TextRedactor) -> JsonObject:
    """The same object where it holds no secret."""
    text = msgspec.json.encode(body).decode()
    if not any(_escaped(secret) in text for secret in redactor.secrets):
        return body
    for secret in redactor.secrets:
        text = text.replace(_escaped(secret), redactor.redact(secret))
    redacted: JsonObject = msgspec.json.decode(text)
    return redacted


def _escaped(secret: str) -> str:
    return msgspec.json.encode(secret).decode()[1:-1]
