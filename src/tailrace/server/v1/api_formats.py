"""The three APIs behind one interface: how each encodes an answer, streamed and whole.

Owns what distinguishes their answers. Knows neither who answers nor whether the answer is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from tailrace.messages import AnyDelta, Completion, Dialect, ErrorDelta, JsonObject, Message, Stop, Usage
from tailrace.server.http.api_errors import ApiError
from tailrace.wire import anthropic, chat, responses
from tailrace.wire.anthropic.client_request import parse_client_request as parse_messages
from tailrace.wire.chat.client_request import parse_client_request as parse_chat
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.responses.client_request import parse_client_request as parse_responses


class Encoder(Protocol):
    """The common interface of the dialects' `StreamEncoder`s."""

    def start(self) -> bytes: ...

    def encode(self, deltas: Iterable[AnyDelta]) -> bytes: ...

    def encode_text(self, text: str) -> bytes:
        """As `encode` of one `TextDelta`: for the bulk of a stream."""

    def close(self, stop: Stop | None = None, *, at: float | None = None) -> bytes: ...

    def new_attempt(self, provider: str = "", source: Dialect | None = None) -> None: ...


class AnswerHeader(msgspec.Struct, frozen=True):
    """What frames one answer. `source`: the dialect of its deltas. `fields`: fields of the request that the API repeats
    in the answer. `state`: fields that are ours, not the provider's. `ended`: when the answer ended, where that is
    known."""

    id: str
    model: str
    created: int
    source: Dialect
    include_usage: bool = False
    fields: JsonObject = {}
    state: JsonObject = {}
    ended: float | None = None
    legacy_calls: bool = False  # chat: the client knows `function_call` alone
    hidden_thinking: bool = True  # messages: the client returns thinking that it cannot read


class ApiFormat(msgspec.Struct, frozen=True):
    """One API. `parse_request` raises `InvalidRequest`."""

    dialect: Dialect
    prefix: str  # of its ids
    parse_request: Callable[[JsonObject], ClientRequest]
    new_encoder: Callable[[AnswerHeader], Encoder]
    encode_body: Callable[[Completion, AnswerHeader], JsonObject]


def _chat_encoder(header: AnswerHeader) -> Encoder:
    return chat.StreamEncoder(
        id=header.id,
        model=header.model,
        created=header.created,
        include_usage=header.include_usage,
        source=header.source,
        legacy_calls=header.legacy_calls,
    )


def _chat_body(completion: Completion, header: AnswerHeader) -> JsonObject:
    body = chat.encode_body(
        completion, id=header.id, model=header.model, created=header.created, legacy_calls=header.legacy_calls
    )
    return {**body, "id": header.id, "model": header.model}


def _messages_encoder(header: AnswerHeader) -> Encoder:
    return anthropic.StreamEncoder(
        id=header.id, model=header.model, source=header.source, hidden_thinking=header.hidden_thinking
    )


def _messages_body(completion: Completion, header: AnswerHeader) -> JsonObject:
    body = anthropic.encode_body(completion, id=header.id, model=header.model, hidden_thinking=header.hidden_thinking)
    return {**body, "id": header.id, "model": header.model}


def responses_encoder(header: AnswerHeader) -> responses.StreamEncoder:
    return responses.StreamEncoder(
        id=header.id,
        model=header.model,
        created_at=header.created,
        source=header.source,
        fields=header.fields,
        state=header.state,
    )


def _responses_body(completion: Completion, header: AnswerHeader) -> JsonObject:
    return responses.encode_body(
        completion,
        id=header.id,
        model=header.model,
        created_at=header.created,
        fields=header.fields,
        state=header.state,
        at=header.ended,
    )


CHAT = ApiFormat("chat", "chatcmpl-", parse_chat, _chat_encoder, _chat_body)
MESSAGES = ApiFormat("anthropic", "msg_", parse_messages, _messages_encoder, _messages_body)
RESPONSES = ApiFormat("responses", "resp_", parse_responses, responses_encoder, _responses_body)


def answer_id(api_format: ApiFormat, run_id: str) -> str:
    """The id of a run's answer in this API."""
    return api_format.prefix + run_id.removeprefix("run_")


def run_id_of(given: str) -> str:
    """The run behind an answer's id; the text unchanged where it is no such id (no run has it)."""
    bare = re.fullmatch(r"(?:resp_|chatcmpl-|msg_)([0-9a-z]+)", given)
    return f"run_{bare[1]}" if bare else given


def error_delta(error: ApiError) -> ErrorDelta:
    """An error in the middle of a stream, for the dialect's encoder."""
    return ErrorDelta("permanent" if error.status < 500 else "retryable", str(error), error.code, error.status)


def agent_completion(
    message: Message, usage: Usage, stop: Stop, *, stop_sequence: str = "", source: Dialect, target: Dialect
) -> Completion:
    """A `Completion` for an agent's answer. It has no provider body, so its dialect differs from the target's: the
    target then encodes it from `message`. Input tokens include the cached ones, as that dialect counts them."""
    if source == "anthropic":
        beside = usage.cache_read_tokens + (0 if target == "anthropic" else usage.cache_write_tokens)
        usage = msgspec.structs.replace(usage, input_tokens=usage.input_tokens + beside)
    dialect: Dialect = "chat" if target != "chat" else "responses"
    return Completion(dialect, {}, message, stop=stop, usage=usage, stop_sequence=stop_sequence)
