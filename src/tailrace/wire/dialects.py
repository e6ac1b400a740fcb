"""The three dialects by name, behind one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tailrace.messages import Completion, Dialect, JsonObject, ModelRequest
from tailrace.ports import StreamDecoder
from tailrace.wire import anthropic, chat, responses
from tailrace.wire.quirks import WireQuirks


class NewDecoder(Protocol):
    def __call__(self, quirks: WireQuirks = ..., *, keep_events: bool = False) -> StreamDecoder:
        """A decoder for one answer. `keep_events`: it gives the provider's own events too, as `EventDelta`s."""


class EncodeRequest(Protocol):
    def __call__(self, request: ModelRequest, *, stream: bool) -> JsonObject:
        """The body of the request in this dialect."""


@dataclass(frozen=True)
class Wire:
    """What a dialect's package offers."""

    dialect: Dialect
    decoder: NewDecoder
    completion_from_body: Callable[[JsonObject], Completion]
    encode_request: EncodeRequest


DIALECTS: dict[Dialect, Wire] = {
    "chat": Wire("chat", chat.ChatDecoder, chat.completion_from_body, chat.encode_request),
    "responses": Wire(
        "responses", responses.ResponsesDecoder, responses.completion_from_body, responses.encode_request
    ),
    "anthropic": Wire(
        "anthropic", anthropic.AnthropicDecoder, anthropic.completion_from_body, anthropic.encode_request
    ),
}
