"""The client's side of a dialect that our own server speaks: requests in, answers out, streamed and whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Protocol

import msgspec

from tailrace.messages import AnyDelta, Completion, JsonObject, Stop
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.dialect import WireDialect


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
    legacy_calls: bool = False  # chat: the client knows `function_call` alone
    hidden_thinking: bool = True  # messages: the client returns thinking that it cannot read


class AnswerEncoder(Protocol):
    """Encodes one answer as a stream."""

    def start(self) -> bytes:
        """The first bytes, as soon as the request is accepted; else they come with the first delta."""

    def encode(self, deltas: Iterable[AnyDelta]) -> bytes: ...

    def encode_text(self, text: str) -> bytes:
        """As `encode` of one `TextDelta`: for the bulk of a stream."""

    def close(self, stop: Stop | None = None, *, at: float | None = None) -> bytes:
        """The end of the answer, `at` this time; `stop` overrides the reason of the deltas. Empty after an error."""

    def new_attempt(self, provider: str = "", source: WireDialect | None = None) -> None:
        """An attempt at this provider follows; `source` is its dialect."""


class ServedDialect(WireDialect):
    """A dialect that our server offers to clients."""

    id_prefix: ClassVar[str]  # of the ids of its answers

    @abstractmethod
    def parse_client_request(self, body: JsonObject) -> ClientRequest:
        """Raises `InvalidRequest`."""

    @abstractmethod
    def new_encoder(self, header: AnswerHeader) -> AnswerEncoder: ...

    @abstractmethod
    def encode_body(self, completion: Completion, header: AnswerHeader) -> JsonObject:
        """The answer as a non-streaming body. A provider's body of this dialect is kept, mended as its events are."""
