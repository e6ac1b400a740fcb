"""An answer without the key that it was asked for with, streamed or whole: a model, or a proxy before it, may repeat
what it was sent (J114). The end of a text that may be the beginning of a key waits for what follows, and so does the
provider's own event that it came in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, Final, TypeAlias

import msgspec

from tailrace import messages
from tailrace.errors import ProviderError
from tailrace.messages import AnyDelta, Completion, EventDelta, JsonObject, NativeDelta, TextDelta, ToolCallDelta
from tailrace.ports import AnswerStream, RelayTo
from tailrace.providers.http.streamed_answer import StreamedAnswer
from tailrace.values.redact import REDACTED, RedactingStream, TextRedactor
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.peer_json import decode_object, encode_object

_Growing: TypeAlias = TextDelta | messages.ReasoningDelta | messages.RefusalDelta | ToolCallDelta
_Channel: TypeAlias = tuple[type[_Growing], int, int]  # what the piece belongs to, its choice, the call's index
_REDACTED = REDACTED.encode()
TELLING_BYTES: Final = 32
_GROWING = (TextDelta, messages.ReasoningDelta, messages.RefusalDelta, ToolCallDelta)
_EVENTS = (EventDelta, messages.EventRunDelta)


class RedactedAnswer(AnswerStream):
    """While the end of a text may be the beginning of a key, it waits with what follows. After an error of an answer
    that is resumable they go on waiting: the rest of a key may follow."""

    def __init__(
        self, inner: AnswerStream, redactor: TextRedactor, completion_from_body: Callable[[JsonObject], Completion]
    ) -> None:
        self.inner = inner
        self._redactor = redactor
        self._completion_from_body = completion_from_body
        self._escaped = tuple(_escaped(secret).encode() for secret in redactor.secrets)  # as JSON text has them
        self._streams: dict[_Channel, RedactingStream] = {}
        self.waiting: list[AnyDelta] = []  # as they came
        self._decided: dict[_Channel, list[str]] = {}  # their texts without secrets, as far as they are decided
        self.finds_key = finder_of(self._escaped)

    def relay_to(self, relay: RelayTo, relayed: Callable[[list[AnyDelta], list[float]], None], /) -> None:
        """A form that holds a secret is not relayed; of what varies in an event each is searched."""

        def relay_safely(form: messages.EventForm) -> Callable[[bytes], float] | None:
            return None if any(secret in form.turn for secret in self._escaped) else relay(form)

        if isinstance(self.inner, StreamedAnswer):
            self.inner.guard = self
        self.inner.relay_to(relay_safely, relayed)

    def relayed_at(self) -> float:
        return self.inner.relayed_at()

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        try:
            await self.inner.pump(lambda deltas: take(self._without_secrets(deltas)))
        except ProviderError:
            if not self.resumable_id and (held := self.release_rest()):
                take(held)
            raise
        if held := self.release_rest():
            take(held)

    @property
    def skipped(self) -> str:
        return self.inner.skipped

    @property
    def resumable_id(self) -> str:
        return self.inner.resumable_id

    @property
    def is_queued(self) -> bool:
        return self.inner.is_queued

    def completion(self) -> Completion:
        completion = self.inner.completion()
        body = redacted_json(completion.body, self._redactor)
        return completion if body is completion.body else self._completion_from_body(body)

    def release_rest(self) -> list[AnyDelta]:
        """What waited, now that nothing follows."""
        self._end_texts(None)
        return self._resolved()

    def _without_secrets(self, deltas: list[AnyDelta]) -> list[AnyDelta]:
        if not self.waiting and not self._may_hold_secret(deltas):
            return deltas  # nearly always
        out: list[AnyDelta] = []
        for delta in _apart(deltas):
            has_event = bool(self.waiting) and isinstance(self.waiting[0], EventDelta)
            if not self._is_undecided() and (isinstance(delta, EventDelta) or not has_event):
                out += self._resolved()  # an event waits with the deltas that it means, which follow it
            self.waiting.append(delta)
            self._feed(delta)
        return out + (self._decided_text() if self._is_undecided() else self._resolved())

    def _decided_text(self) -> list[AnyDelta]:
        """The text before what may be a key, where nothing but text waits."""
        choices = {each.choice if isinstance(each, TextDelta) else None for each in self.waiting}
        if len(choices) > 1 or (choice := choices.pop()) is None:
            return []
        channel = TextDelta, choice, 0
        text = "".join(self._decided.pop(channel, ()))
        self.waiting = [TextDelta(self._streams[channel].held, choice)]
        return [TextDelta(text, choice)] if text else []

    def _may_hold_secret(self, deltas: list[AnyDelta]) -> bool:
        """Whether a secret, or the beginning of one at the end of a text, is in these deltas."""
        for delta in deltas:
            if isinstance(delta, _EVENTS):
                if any(map(delta.data.__contains__, self._escaped)):
                    return True
            elif isinstance(delta, _GROWING):
                if self.finds_key(msgspec.json.encode(_text_of(delta))) is not None:
                    return True
            elif isinstance(delta, NativeDelta):
                return True
        return False

    def _is_undecided(self) -> bool:
        return any(stream.held for stream in self._streams.values())

    def _feed(self, delta: AnyDelta) -> None:
        if isinstance(delta, _GROWING):
            self._end_texts(delta.choice, but=type(delta))
            channel = _channel_of(delta)
            if channel not in self._streams:
                self._streams[channel] = self._redactor.stream()
            self._decided.setdefault(channel, []).append(self._streams[channel].feed(_text_of(delta)))
        elif isinstance(delta, messages.FinishDelta) or (
            isinstance(delta, NativeDelta) and DIALECTS[delta.dialect].keeps_order
        ):
            self._end_texts(delta.choice)

    def _end_texts(self, choice: int | None, but: type[_Growing] | None = None) -> None:
        """Pieces of another kind follow the texts of this choice (None: of all), so no key continues in them."""
        for channel in [each for each in self._streams if choice in (None, each[1]) and each[0] is not but]:
            self._decided.setdefault(channel, []).append(self._streams.pop(channel).close())

    def _resolved(self) -> list[AnyDelta]:
        """What waited: as it came, or with the text that is left of each channel in its first piece."""
        came, self.waiting = self.waiting, []
        left = {channel: text for channel, pieces in self._decided.items() if (text := "".join(pieces))}
        self._decided = {}
        is_changed = left != _texts(came)
        out: list[AnyDelta] = []
        for at, delta in enumerate(came):
            if isinstance(delta, EventDelta):
                out.append(self._event(_rewritten(delta, came[at + 1 :], dict(left)) if is_changed else delta))
            elif isinstance(delta, _GROWING) and is_changed:
                out.append(_with_text(delta, left.pop(_channel_of(delta), "")))
            else:
                out.append(self._native(delta) if isinstance(delta, NativeDelta) else delta)
        return out

    def _event(self, event: EventDelta) -> EventDelta:
        came = data = event.data
        for secret in self._escaped:
            data = data.replace(secret, _REDACTED)
        return event if data is came else msgspec.structs.replace(event, content=data)

    def _native(self, delta: NativeDelta) -> NativeDelta:
        item = redacted_json(delta.item, self._redactor)
        return delta if item is delta.item else msgspec.structs.replace(delta, item=item)


def finder_of(secrets: Iterable[bytes]) -> Callable[[bytes], object]:
    """Searches a text for a secret, and its end for the beginning of one. So many bytes tell a secret from a text."""
    patterns: list[bytes] = []
    for secret in secrets:
        *before, last = [re.escape(secret[at : at + 1]) for at in range(min(len(secret), TELLING_BYTES))]
        pattern = last
        for byte in reversed(before):
            pattern = rb"%b(?:\Z|\"|%b)" % (byte, pattern)  # a text ends where the bytes do, or at a bare quote
        patterns.append(pattern)
    return re.compile(b"|".join(patterns)).search


def _apart(deltas: list[AnyDelta]) -> list[AnyDelta]:
    """The same deltas with each event by itself, before its own piece of the text: not all of them may have to wait."""
    out: list[AnyDelta] = []
    run: messages.EventRunDelta | None = None
    for delta in deltas:
        if run is not None and isinstance(delta, _GROWING):
            for event, text in zip(run.events(), run.texts, strict=True):
                out += [event, _with_text(delta, text)] if text else [event]
            run = None
        elif isinstance(delta, messages.EventRunDelta):
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


def _rewritten(event: EventDelta, following: list[AnyDelta], left: dict[_Channel, str]) -> EventDelta:
    """The event with the pieces that its deltas brought replaced by what is left of their channels."""
    body = decode_object(event.data)
    for delta in takewhile(lambda each: not isinstance(each, EventDelta), following):
        if isinstance(delta, _GROWING) and (piece := _text_of(delta)):
            body = _replaced(body, piece, left.pop(_channel_of(delta), ""))
    return msgspec.structs.replace(event, content=encode_object(body))


def _replaced(value: Any, piece: str, text: str) -> Any:
    """The same JSON with each string that is this piece replaced."""
    if isinstance(value, dict):
        return {name: _replaced(inner, piece, text) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, piece, text) for inner in value]
    return text if value == piece else value


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
