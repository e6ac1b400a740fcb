"""One request to a route that no dialect here covers, passed on as it is: completions and embeddings.

Owns its deadlines and what it used. There are no stand-ins: another model's vectors cannot be compared with this one's.
Ends in one answer or one typed error, and reports itself to a listener as any call does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from tailrace.errors import ProviderError
from tailrace.messages import JsonObject, Usage
from tailrace.providers.attempt import Route
from tailrace.providers.call_listener import AttemptOutcome, CallListener
from tailrace.providers.deadlines import DeadlineWatch, deadlines_of
from tailrace.providers.http.relayed_reply import RelayedReply
from tailrace.wire.chat.completion import usage_of
from tailrace.wire.peer_json import object_of, objects_of, text_of
from tailrace.wire.token_estimate import estimated_usage, prompt_tokens

_BYTES_PER_TOKEN = 4
_COUNTED = ("choices", "usage")


@runtime_checkable
class Relay(Protocol):
    """A provider with other routes than its dialect's."""

    def relay(
        self, route: str, body: JsonObject, headers: Mapping[str, str] = ..., ours: Mapping[str, Any] = ...
    ) -> AbstractAsyncContextManager[RelayedReply]:
        """As `HttpProvider.relay`."""


class RelayedCall:
    """`send` is given the events of a stream, those of one read together. Asks once: clients retry by themselves.

    A stream is asked to tell its usage at the end, which only a client gets that asked for it. What a provider has not
    counted is estimated, once it has begun to answer."""

    def __init__(
        self,
        route: Route,
        provider: Relay,
        body: JsonObject,
        listener: CallListener,
        send: Callable[[list[JsonObject]], None],
    ) -> None:
        self._route = route
        self._provider = provider
        self._body = body
        self._listener = listener
        self._send = send
        options = object_of(body.get("stream_options"))
        self._told_usage = options.get("include_usage") is True
        adds_usage = bool(body.get("stream")) and not self._told_usage
        self._ours = {"stream_options": {**options, "include_usage": True}} if adds_usage else {}
        self._usage: Usage | None = None  # as the provider has counted it
        self._answered_chars = 0
        self._has_answer = False

    async def run(self, path: str, headers: Mapping[str, str]) -> dict[str, msgspec.Raw] | None:
        """The fields of a whole answer; None where it was streamed. Raises `ProviderError`."""
        outcome = AttemptOutcome(1, self._route.provider.name, self._route.model)
        self._listener.attempt_started(1, outcome.provider, outcome.model)
        try:
            answer = await self._answer(path, headers)
        except ProviderError as exc:
            exc.__traceback__ = None  # the outcome holds it, and its frames hold the outcome
            self._end(outcome, error=exc)
            raise
        except asyncio.CancelledError:
            self._end(outcome, interrupted=True)
            raise
        self._end(outcome)
        return answer

    async def _answer(self, path: str, headers: Mapping[str, str]) -> dict[str, msgspec.Raw] | None:
        route = self._route
        tokens = len(msgspec.json.encode(self._body)) // _BYTES_PER_TOKEN
        deadlines = deadlines_of(route.policy, purpose="turn", context_tokens=tokens, local=route.local)
        with DeadlineWatch(deadlines, provider=route.provider.name) as watch:
            async with self._provider.relay(path, self._body, headers, self._ours) as reply:
                reply.on_bytes = lambda: watch.note_bytes(advanced=True)
                if not reply.is_stream:
                    fields = await reply.fields()
                    self._count({name: msgspec.json.decode(fields[name]) for name in _COUNTED if name in fields})
                    return fields
                async for events in reply.events():
                    if shown := [event for event in events if self._count(event)]:
                        self._send(shown)
                return None

    def _count(self, event: JsonObject) -> bool:
        """Whether the client gets this event: one without choices would break a client that has not asked for it."""
        self._has_answer = True
        for choice in objects_of(event.get("choices")):
            self._answered_chars += len(text_of(choice.get("text")))
        if isinstance(usage := event.get("usage"), dict):
            self._usage = usage_of(usage)
            return self._told_usage or bool(event.get("choices"))
        if not self._told_usage:
            event.pop("usage", None)
        return True

    def _spent(self) -> Usage:
        usage = self._usage or Usage()
        if usage.input_tokens or usage.output_tokens or not self._has_answer:
            return usage
        asked = sum(prompt_tokens(self._body.get(name)) for name in ("prompt", "suffix", "input"))
        return estimated_usage(asked, self._answered_chars)

    def _end(self, outcome: AttemptOutcome, *, error: ProviderError | None = None, interrupted: bool = False) -> None:
        ended = msgspec.structs.replace(outcome, usage=self._spent(), error=error, interrupted=interrupted)
        self._listener.attempt_ended(ended)
