"""A client's request on its way to a raw model: where it can go, and in which words.

Owns that every parameter is honoured, left out by name or refused. Knows no server: requests come read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from tailrace.messages import Completion, Dialect, Message, ModelRequest
from tailrace.ports import AnswerStream, FieldRefuser, Provider, ReattachingProvider, TokenCounter
from tailrace.providers.attempt import Route
from tailrace.wire.client_request import ClientRequest, UnsupportedParameter
from tailrace.wire.dialects import DIALECTS


class VerbatimProvider(FieldRefuser):
    """A provider that is sent the client's own body, where it speaks the client's dialect."""

    __slots__ = ("_client_request", "_provider", "dialect", "name")

    def __init__(self, provider: Provider, client_request: ClientRequest) -> None:
        self.name = provider.name
        self.dialect: Dialect = provider.dialect
        self._provider = provider
        self._client_request = client_request

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AnswerStream]:
        return self._provider.stream(self._with_client_fields(request))

    async def complete(self, request: ModelRequest) -> Completion:
        return await self._provider.complete(self._with_client_fields(request))

    async def count_tokens(self, request: ModelRequest) -> int | None:
        if not isinstance(self._provider, TokenCounter):
            return None
        return await self._provider.count_tokens(self._with_client_fields(request))

    def left_out(self, request: ModelRequest) -> tuple[str, ...]:
        return self._provider.left_out(request) if isinstance(self._provider, FieldRefuser) else ()

    def _with_client_fields(self, request: ModelRequest) -> ModelRequest:
        """The client's own messages are sent, unless there is more than it wrote: a history before its question, or
        the beginning of an answer that was cut. Its answer comes with the provider's own events, where the client
        understands them and the answer begins with them."""
        verbatim = not request.prefill and len(request.messages) == len(self._client_request.request.messages)
        extra = DIALECTS[self.dialect].extra_for(self._client_request, conversation=verbatim)
        if self.dialect != self._client_request.dialect:
            return msgspec.structs.replace(request, extra=extra)
        return msgspec.structs.replace(
            request, extra=extra, verbatim=True, headers=self._client_request.headers, keep_events=not request.prefill
        )


class _ReattachingVerbatimProvider(VerbatimProvider, ReattachingProvider):
    """The same for a provider that keeps its answers."""

    __slots__ = ("_reattaching",)

    def __init__(self, provider: Provider, reattaching: ReattachingProvider, client_request: ClientRequest) -> None:
        super().__init__(provider, client_request)
        self._reattaching = reattaching

    def reattach(
        self, request: ModelRequest, answer_id: str, answer: AnswerStream | None = None
    ) -> AbstractAsyncContextManager[AnswerStream]:
        return self._reattaching.reattach(self._with_client_fields(request), answer_id, answer)

    async def cancel_answer(self, answer_id: str) -> None:
        await self._reattaching.cancel_answer(answer_id)


def verbatim_routes(
    routes: Sequence[Route], client_request: ClientRequest, *, strict: bool = False
) -> tuple[Route, ...]:
    """These routes for this request. A stand-in that could not honour all of it is passed over. Raises
    `UnsupportedParameter` for what the first of them does not support; `strict`: also for what would be left out."""

    first = routes[0]
    if len(routes) == 1 and not strict and first.provider.dialect == client_request.dialect:  # supports all of it
        return (_verbatim(first, client_request),)

    def refused_by(route: Route) -> str | None:
        dialect = DIALECTS[route.provider.dialect]
        ignored = dialect.ignored_params(client_request) if strict else ()
        return dialect.first_unsupported_param(client_request) or (ignored[0] if ignored else None)

    if (param := refused_by(first)) is not None:
        raise UnsupportedParameter(param, client_request.model, first.provider.dialect)
    able = [first, *(route for route in routes[1:] if refused_by(route) is None)]
    return tuple([_verbatim(route, client_request) for route in able])


def _verbatim(route: Route, client_request: ClientRequest) -> Route:
    provider: Provider = route.provider
    if isinstance(provider, ReattachingProvider):
        provider = _ReattachingVerbatimProvider(provider, provider, client_request)
    else:
        provider = VerbatimProvider(provider, client_request)
    return Route(provider, route.model, route.policy, local=route.local, streams=route.streams, raw=True)


def params_left_out(route: Route, client_request: ClientRequest) -> tuple[str, ...]:
    """The parameters of the client that this route's provider does not get: its API does not support them, or it was
    found to refuse them."""
    provider = route.provider
    if provider.dialect == client_request.dialect:
        return client_request.withheld_fields
    ignored = DIALECTS[provider.dialect].ignored_params(client_request)
    if not isinstance(provider, FieldRefuser):
        return ignored
    refused = provider.left_out(msgspec.structs.replace(client_request.request, model=route.model))
    return tuple(dict.fromkeys((*ignored, *map(client_request.word, refused)))) if ignored or refused else ()


def with_history(history: tuple[Message, ...], request: ModelRequest) -> ModelRequest:
    """The request, with what was said before it."""
    return msgspec.structs.replace(request, messages=(*history, *request.messages)) if history else request
