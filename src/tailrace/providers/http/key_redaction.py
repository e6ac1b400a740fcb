"""An answer without the key that it was asked for with: a model, or a proxy before it, may repeat what it was sent.

Owns the redaction of one answer, streamed or whole, before anything stores or shows it (J114). A key that is split over
deltas is found: the end of a text that may be the beginning of a key waits for what follows, and so do the provider's
own events that the text came in. Everything else is passed on as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, TypeAlias

import msgspec

from tailrace.errors import ProviderError
from tailrace.messages import (
    AnyDelta,
    Completion,
    EventDelta,
    EventRunDelta,
    FinishDelta,
    JsonObject,
    NativeDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
)
from tailrace.ports import AnswerStream
from tailrace.values.redact import REDACTED, RedactingStream, TextRedactor
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.peer_json import decode_object, encode_object

_Growing: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta
_Channel: TypeAlias = tuple[type[_Growing], int, int]  # what the piece belongs to, its choice, the call's index
_REDACTED = REDACTED.encode()
_GROWING = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta)
_EVENTS = (EventDelta, EventRunDelta)


class RedactedAnswer(AnswerStream):
    """After an error of an answer that is resumable, what waits goes on waiting: the rest of a key may follow."""

    def __init__(
        self,
        inner: AnswerStream,
        redactor: TextRedactor,
        completion_from_body: Callable[[JsonObject], Completion],
    ) -> None:
        self.inner = inner
        self._redactor = redactor
        self._completion_from_body = completion_from_body
        self._escaped = tuple(_escaped(secret).encode() for secret in redactor.secrets)  # as JSON text has them
        self._held: dict[_Channel, RedactingStream] = {}
        self._waiting: list[AnyDelta] = []  # events and their deltas as they came, while a text is undecided
        self._decided: list[AnyDelta] = []  # the same deltas without secrets, as far as they are decided

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        try:
            await self.inner.pump(lambda deltas: take(self._without_secrets(deltas)))
        except ProviderError:
            if not self.resumable_id and (held := self.release_rest()):
                take(held)
            raise
        if held := self.release_rest():
            take(held)

    def _without_secrets(self, deltas: list[AnyDelta]) -> list[AnyDelta]:
        if not (self._held and self._holds()) and not self._may_hold_secret(deltas):
            return deltas  # nearly always
        deltas = _apart(deltas)
        if not self._waiting and not any(isinstance(delta, EventDelta) for delta in deltas):
            return self._redacted(deltas)
        return self._relayed(deltas)

    @property
    def resumable_id(self) -> str:
        return self.inner.resumable_id

    @property
    def is_queued(self) -> bool:
        return self.inner.is_queued

    def release_rest(self) -> list[AnyDelta]:
        """What waited, now that nothing follows."""
        held = self._release(None)
        if not self._waiting:
            return held
        self._decided += held
        return self._resolved()

    def _holds(self) -> bool:
        """A text is undecided."""
        return any(stream.holds for stream in self._held.values())

    def _may_hold_secret(self, deltas: list[AnyDelta]) -> bool:
        """Whether a secret, or the beginning of one at the end of a text, is in these deltas."""
        for delta in deltas:
            if isinstance(delta, _EVENTS):
                data = delta.data
                for escaped in self._escaped:
                    if escaped in data:
                        return True
            elif isinstance(delta, _GROWING):
                text = _text_of(delta)
                for secret in self._redactor.secrets:
                    if secret[0] in text and _begins_in(text, secret):
                        return True
            elif isinstance(delta, NativeDelta):
                return True
        return bool(self._redactor.words)

    def completion(self) -> Completion:
        completion = self.inner.completion()
        body = redacted_json(completion.body, self._redactor)
        return completion if body is completion.body else self._completion_from_body(body)

    def _relayed(self, deltas: list[AnyDelta]) -> list[AnyDelta]:
        """Deltas with the provider's own events, each before the deltas that it means. While a text is undecided, all
        of them wait."""
        out: list[AnyDelta] = []
        start = 0
        for end in range(1, len(deltas) + 1):
            if end < len(deltas) and not isinstance(deltas[end], EventDelta):
                continue
            group, start = deltas[start:end], end
            self._waiting += group
            self._decided += self._redacted([delta for delta in group if not isinstance(delta, EventDelta)])
            if not self._holds():
                out += self._resolved()
        return out

    def _resolved(self) -> list[AnyDelta]:
        """What waited: as it came where it held no secret, else with the text that is left of each channel in its first
        piece."""
        came, self._waiting = self._waiting, []
        decided, self._decided = self._decided, []
        left = _texts(decided)
        if left == _texts(came):
            return [self._event(delta) if isinstance(delta, EventDelta) else delta for delta in came]
        out: list[AnyDelta] = []
        for at, delta in enumerate(came):
            if isinstance(delta, EventDelta):
                following = takewhile(lambda each: not isinstance(each, EventDelta), came[at + 1 :])
                out.append(self._event(_rewritten(delta, list(following), dict(left))))
            elif isinstance(delta, _GROWING):
                out.append(_with_text(delta, left.pop(_channel_of(delta), "")))
            else:
                out.append(self._native(delta) if isinstance(delta, NativeDelta) else delta)
        return out

    def _event(self, event: EventDelta) -> EventDelta:
        data = event.data
        for secret in self._escaped:
            data = data.replace(secret, _REDACTED)
        return event if data is event.data else msgspec.structs.replace(event, data=data)

    def _redacted(self, deltas: list[AnyDelta]) -> list[AnyDelta]:
        out: list[AnyDelta] = []
        for delta in deltas:
            if isinstance(delta, _GROWING):
                out += self._release(delta.choice, but=type(delta))
                out += self._piece(delta, _channel_of(delta))
            else:
                if isinstance(delta, FinishDelta) or (
                    isinstance(delta, NativeDelta) and DIALECTS[delta.dialect].keeps_order
                ):
                    out += self._release(delta.choice)
                out.append(self._native(delta) if isinstance(delta, NativeDelta) else delta)
        return out

    def _native(self, delta: NativeDelta) -> NativeDelta:
        item = redacted_json(delta.item, self._redactor)
        return delta if item is delta.item else msgspec.structs.replace(delta, item=item)

    def _piece(self, delta: _Growing, channel: _Channel) -> list[AnyDelta]:
        """The delta with as much of its text as is certain; nothing where all of it waits."""
        text = _text_of(delta)
        stream = self._held.get(channel)
        if stream is None:
            stream = self._held[channel] = self._redactor.stream()
        shown = stream.feed(text)
        if shown == text:
            return [delta]
        named = isinstance(delta, ToolCallDelta) and bool(delta.id or delta.name)
        return [_with_text(delta, shown)] if shown or named else []

    def _release(self, choice: int | None, but: type[_Growing] | None = None) -> list[AnyDelta]:
        """What was held back of this choice, of every one for None, now that other pieces follow."""
        if not self._held:
            return []
        due = [channel for channel in self._held if choice in (None, channel[1]) and channel[0] is not but]
        return [_delta_of(channel, text) for channel in due if (text := self._held.pop(channel).close())]


def _apart(deltas: list[AnyDelta]) -> list[AnyDelta]:
    """The same deltas with each event by itself, before its own piece of the text: not all of them may have to wait."""
    out: list[AnyDelta] = []
    run: EventRunDelta | None = None
    for delta in deltas:
        if run is not None and isinstance(delta, _GROWING):
            for event, text in zip(run.events(), run.texts, strict=True):
                out += [event, _with_text(delta, text)] if text else [event]
            run = None
        elif isinstance(delta, EventRunDelta):
            run = delta
        else:
            out.append(delta)
    return out


def _channel_of(delta: _Growing) -> _Channel:
    return type(delta), delta.choice, delta.index if isinstance(delta, ToolCallDelta) else 0


def _text_of(delta: _Growing) -> str:
    return delta.arguments if isinstance(delta, ToolCallDelta) else delta.text


def _with_text(delta: _Growing, text: str) -> _Growing:
    if isinstance(delta, ToolCallDelta):
        return msgspec.structs.replace(delta, arguments=text)
    return msgspec.structs.replace(delta, text=text)


def _texts(deltas: Iterable[AnyDelta]) -> dict[_Channel, str]:
    """The text of each channel, joined."""
    pieces: dict[_Channel, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, _GROWING):
            pieces.setdefault(_channel_of(delta), []).append(_text_of(delta))
    return {channel: text for channel, joined in pieces.items() if (text := "".join(joined))}


def _rewritten(event: EventDelta, deltas: list[AnyDelta], left: dict[_Channel, str]) -> EventDelta:
    """The event with the pieces that its deltas brought replaced by what is left of their channels."""
    body = decode_object(event.data)
    for delta in deltas:
        if isinstance(delta, _GROWING) and (piece := _text_of(delta)):
            body = _replaced(body, piece, left.pop(_channel_of(delta), ""))
    return msgspec.structs.replace(event, data=encode_object(body))


def _replaced(value: Any, piece: str, text: str) -> Any:
    """The same JSON with each string that is this piece replaced."""
    if isinstance(value, dict):
        return {name: _replaced(inner, piece, text) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, piece, text) for inner in value]
    return text if value == piece else value


def _begins_in(text: str, secret: str) -> bool:
    """Whether the text holds the secret or ends in its beginning."""
    at = text.find(secret[0])
    while at >= 0:
        if secret.startswith(text[at : at + len(secret)]):
            return True
        at = text.find(secret[0], at + 1)
    return False


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
