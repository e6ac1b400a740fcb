"""A reply as bytes, in any dialect: the body of a plain answer, and the frames of a streamed one."""

from __future__ import annotations

import msgspec

from tailrace.messages import Dialect, JsonObject
from tailrace.testing.scripted import anthropic, chat, responses
from tailrace.testing.scripted.reply import Reply
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse

_BODY = {"chat": chat.answer_body, "responses": responses.answer_body, "anthropic": anthropic.answer_body}
_EVENTS = {"chat": chat.answer_events, "responses": responses.answer_events, "anthropic": anthropic.answer_events}


def body_of(dialect: Dialect, reply: Reply, request: ScriptedRequest) -> JsonObject:
    """The response body of the call that did not ask for a stream."""
    return _BODY[dialect](reply, request)


def events_of(dialect: Dialect, reply: Reply, request: ScriptedRequest) -> list[Sse]:
    """The events of the call that did. They add up to `body_of` the same."""
    return _EVENTS[dialect](reply, request)


def frame(event: Sse) -> bytes:
    data = event.data if isinstance(event.data, str) else msgspec.json.encode(event.data).decode()
    name = f"event: {event.event}\n" if event.event else ""
    return f"{name}data: {data}\n\n".encode()
