"""The three APIs behind one shape: how each says an answer, streamed and whole.

Owns what distinguishes their answers. Who answers, and whether anything is kept, is not known here.
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
    """What the dialects' `StreamEncoder`s have in common."""

    def start(self) -> bytes: ...

    def encode(self, deltas: Iterable[AnyDelta]) -> bytes: ...

    def close(self, stop: Stop | None = None) -> bytes: ...


class AnswerHeader(msgspec.Struct, frozen=True):
    """One answer, as its client knows it. `source` is the dialect that it comes in; `fields` are of the request and
    stand in the answer again, where the API does so."""

    id: str
    model: str
    created: int
    source: Dialect
    include_usage: bool = False
    fields: JsonObject = {}


class ApiFormat(msgspec.Struct, frozen=True):
    """One API. `read` raises `InvalidRequest`."""

    dialect: Dialect
    prefix: str  # of its ids
    read: Callable[[JsonObject], ClientRequest]
    encoder: Callable[[AnswerHeader], Encoder]
    body: Callable[[Completion, AnswerHeader], JsonObject]


def _chat_encoder(saying: AnswerHeader) -> Encoder:
    return chat.StreamEncoder(
        id=saying.id,
        model=saying.model,
        created=saying.created,
        include_usage=saying.include_usage,
        source=saying.source,
    )


def _chat_body(completion: Completion, saying: AnswerHeader) -> JsonObject:
    body = chat.encode_body(completion, id=saying.id, model=saying.model, created=saying.created)
    return {**body, "id": saying.id, "model": saying.model}


def _messages_encoder(saying: AnswerHeader) -> Encoder:
    return anthropic.StreamEncoder(id=saying.id, model=saying.model, source=saying.source)


def _messages_body(completion: Completion, saying: AnswerHeader) -> JsonObject:
    body = anthropic.encode_body(completion, id=saying.id, model=saying.model)
    return {**body, "id": saying.id, "model": saying.model}


def _responses_encoder(saying: AnswerHeader) -> Encoder:
    return responses_encoder(saying)


def responses_encoder(saying: AnswerHeader) -> responses.StreamEncoder:
    return responses.StreamEncoder(
        id=saying.id, model=saying.model, created_at=saying.created, source=saying.source, fields=saying.fields
    )


def _responses_body(completion: Completion, saying: AnswerHeader) -> JsonObject:
    body = responses.encode_body(
        completion, id=saying.id, model=saying.model, created_at=saying.created, fields=saying.fields
    )
    ours = {"id": saying.id, "model": saying.model, "created_at": saying.created, "object": "response"}
    return {**body, **saying.fields, **ours}


CHAT = ApiFormat("chat", "chatcmpl-", parse_chat, _chat_encoder, _chat_body)
MESSAGES = ApiFormat("anthropic", "msg_", parse_messages, _messages_encoder, _messages_body)
RESPONSES = ApiFormat("responses", "resp_", parse_responses, _responses_encoder, _responses_body)


def answer_id(voice: ApiFormat, run_id: str) -> str:
    """The id of an answer says which run it is."""
    return voice.prefix + run_id.removeprefix("run_")


def run_id_of(given: str) -> str:
    """The run that an answer's id names; a text that no run has where it names none."""
    bare = re.fullmatch(r"(?:resp_|chatcmpl-|msg_)([0-9a-z]+)", given)
    return f"run_{bare[1]}" if bare else given


def error_delta(error: ApiError) -> ErrorDelta:
    """An error in the middle of a stream, for the dialect's own frame."""
    return ErrorDelta("permanent" if error.status < 500 else "retryable", str(error), error.code, error.status)


def agent_completion(message: Message, usage: Usage, stop: Stop, *, source: Dialect, target: Dialect) -> Completion:
    """A completion of nobody's body: what an agent said. Its dialect is another than the target's, so that the target
    puts it into its own words, and tokens are counted as that dialect counts them: the cached ones included."""
    if source == "anthropic":
        beside = usage.cache_read_tokens + (0 if target == "anthropic" else usage.cache_write_tokens)
        usage = msgspec.structs.replace(usage, input_tokens=usage.input_tokens + beside)
    dialect: Dialect = "chat" if target != "chat" else "responses"
    return Completion(dialect, {}, message, stop=stop, usage=usage)
