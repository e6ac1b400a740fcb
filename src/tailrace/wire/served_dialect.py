"""The client's side of a dialect that our own server speaks. A provider's own events are relayed to a client of the
same dialect from the first event on or not at all; an attempt after content was sent is encoded from neutral deltas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from tailrace import messages
from tailrace.messages import AnyDelta, ErrorDelta, EventDelta, EventRunDelta, JsonObject, TextDelta, ToolCallDelta
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.dialect import WireDialect
from tailrace.wire.failure import contradiction, openai_error_body


class AnswerHeader(msgspec.Struct, frozen=True):
    """What frames one answer. `source`: the dialect of its deltas. `fields`: fields of the request that the API repeats
    in the answer. `state`: fields that are ours, not the provider's. `ended`: when the answer ended, where that is
    known."""

    id: str
    model: str
    created: int
    source: WireDialect
    include_usage: bool = False
    fields: JsonObject = {}
    state: JsonObject = {}
    ended: float | None = None
    provider: str = ""  # of the first attempt
    legacy_calls: bool = False  # chat: the client knows `function_call` alone
    hidden_thinking: bool = True  # messages: the client returns thinking that it cannot read


class AnswerEncoder(ABC):
    """Encodes one answer as a stream: deltas in, bytes of events out. Each dialect has a subclass."""

    __slots__ = ("_ended", "_provider", "_relays", "_source", "_tracks_text")

    dialect: ClassVar[messages.Dialect]

    def __init__(self, header: AnswerHeader) -> None:
        self._source = header.source  # the dialect that the deltas are decoded from
        self._provider = header.provider  # of the attempt under way
        self._relays: bool | None = None  # the provider's own events are sent; None: that is not known yet
        self._tracks_text = False  # `_track` needs the texts of relayed events too
        self._ended = False

    @abstractmethod
    def start(self) -> bytes:
        """The first bytes, as soon as the request is accepted; else they come with the first delta."""

    @abstractmethod
    def close(self, stop: messages.Stop | None = None, *, at: float | None = None) -> bytes:
        """The end of the answer, `at` this time; `stop` overrides the reason of the deltas. Empty after an error
        (H94)."""

    def encode(self, deltas: Iterable[AnyDelta]) -> bytes:
        """The events of these deltas."""
        out: list[bytes] = []
        for delta in deltas:
            if self._ended:
                break
            if delta.__class__ is EventDelta:
                if self._relays is not False and delta.dialect == self.dialect:
                    self._relays = True
                    self._relay(delta, out)
            elif delta.__class__ is EventRunDelta:
                if self._relays is not False and delta.dialect == self.dialect:
                    self._relay_run(delta, out)
            elif self._relays:
                if delta.__class__ is not TextDelta or self._tracks_text:
                    self._track(delta, out)
            else:
                self._relays = False
                self._encode_delta(delta, out)
        return b"".join(out)

    def encode_text(self, text: str) -> bytes:
        """As `encode` of one `TextDelta`: for the bulk of a stream."""
        return self.encode((TextDelta(text),))

    def new_attempt(self, provider: str = "", source: WireDialect | None = None) -> None:
        """An attempt at this provider follows. Once content was sent, the answer goes on in events of ours."""
        self._provider = provider
        self._source = source or self._source
        if self._relays:
            self._relays = False if self._leave_relay() else None

    @abstractmethod
    def _relay(self, delta: EventDelta, out: list[bytes]) -> None:
        """Sends an event of this dialect on."""

    def _relay_run(self, run: EventRunDelta, out: list[bytes]) -> None:
        """Sends events on that differ in one text alone."""
        self._relays = True
        for event in run.events():
            self._relay(event, out)

    def relayed_form(self, _form: messages.EventForm) -> messages.EventForm | None:
        """What events of this form, which were relayed until now, are for the client: a form around what varies. None
        where each has to be looked at."""
        return None

    def _track(self, delta: AnyDelta, out: list[bytes]) -> None:
        """Notes what a relayed event meant, for an answer that must go on without its provider."""
        if delta.__class__ is ErrorDelta:
            self._fail(delta, out)
        elif delta.__class__ is messages.UsageDelta:
            self._note_usage(delta)
        elif delta.__class__ is ToolCallDelta and delta.replaces:
            self._fail(contradiction(), out)

    def _reason_for(self, reason: str, words: Mapping[messages.Stop, str]) -> str:
        """The provider's finish reason in the client's words; one whose meaning is not known is kept."""
        stop = self._source.stop_of(reason)
        return reason if stop == "unknown" or self._source.name == self.dialect else words[stop]

    @abstractmethod
    def _leave_relay(self) -> bool:
        """The relayed attempt has broken. False where the client has nothing of it, so that another may be relayed."""

    @abstractmethod
    def _encode_delta(self, delta: AnyDelta, out: list[bytes]) -> None:
        """Encodes a neutral delta."""

    @abstractmethod
    def _note_usage(self, delta: messages.UsageDelta) -> None: ...

    @abstractmethod
    def _fail(self, error: ErrorDelta, out: list[bytes]) -> None:
        """Ends the stream with this error."""


class ServedDialect(WireDialect):
    """A dialect that our server offers to clients."""

    id_prefix: ClassVar[str]  # of the ids of its answers
    error_format: ClassVar[str] = "openai"  # the name of the shape of its errors
    error_event: ClassVar[str] = ""  # the name of the event that ends a failed stream
    ping: ClassVar[bytes] = b""  # its event for a silent stream, whose clients count events and not comments (N163)

    @abstractmethod
    def parse_client_request(self, body: JsonObject) -> ClientRequest:
        """Raises `InvalidRequest`."""

    @abstractmethod
    def new_encoder(self, header: AnswerHeader) -> AnswerEncoder: ...

    def question_delta(self, _approval_id: str, _tool_name: str, _arguments: JsonObject, line: str) -> AnyDelta:
        """How a client is told that the agent waits for an approval: by a line of text, where the API has no other
        word."""
        return TextDelta(line)

    @abstractmethod
    def encode_body(self, completion: messages.Completion, header: AnswerHeader) -> JsonObject:
        """The answer as a non-streaming body. A provider's body of this dialect is kept, mended as its events are."""

    def error_body(
        self, error: ErrorDelta, param: str | None, _details: JsonObject | None, _request_id: str, /
    ) -> JsonObject:
        """What a client is told about a request that failed. `param` names the field that is at fault, `_details` is
        for programs."""
        return openai_error_body(error, param)


def framed(event: EventDelta, data: bytes | None = None) -> bytes:
    """A provider's event for the client, with these `data` in place of its own."""
    return b"event: %b\ndata: %b\n\n" % (event.name.encode(), event.data if data is None else data)
