"""The client's side of a dialect that our own server speaks: requests in, answers out, streamed and whole."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tailrace.messages import Completion, JsonObject
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.dialect import WireDialect
from tailrace.wire.relay import AnswerEncoder, AnswerHeader


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
