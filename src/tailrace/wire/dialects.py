"""The three dialects behind one shape, for whoever has a dialect's name and needs its words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tailrace.messages import Completion, Dialect, JsonObject, ModelRequest
from tailrace.ports import StreamDecoder
from tailrace.wire import anthropic, chat, responses
from tailrace.wire.quirks import WireQuirks


class EncodeRequest(Protocol):
    def __call__(self, request: ModelRequest, *, stream: bool) -> JsonObject:
        """The request in the dialect's words."""


@dataclass(frozen=True)
class Wire:
    """What a dialect can do. `path` is relative to a base URL that ends in `/v1`."""

    dialect: Dialect
    path: str
    decoder: Callable[[WireQuirks], StreamDecoder]
    completion_from_body: Callable[[JsonObject], Completion]
    encode_request: EncodeRequest


DIALECTS: dict[Dialect, Wire] = {
    "chat": Wire("chat", "/chat/completions", chat.ChatDecoder, chat.completion_from_body, chat.encode_request),
    "responses": Wire(
        "responses", "/responses", responses.ResponsesDecoder, responses.completion_from_body, responses.encode_request
    ),
    "anthropic": Wire(
        "anthropic", "/messages", anthropic.AnthropicDecoder, anthropic.completion_from_body, anthropic.encode_request
    ),
}
