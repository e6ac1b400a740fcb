"""A client's request on its way to a raw model: where it can go, and in which words.

Owns that every parameter is honoured or refused. Knows no server: requests come read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from tailrace.messages import Completion, Dialect, Message, ModelRequest
from tailrace.ports import AnswerStream, Provider
from tailrace.providers.attempt import Route
from tailrace.wire.client_request import ClientRequest, UnsupportedParameter, extra_for, first_unsupported_param


class VerbatimProvider:
    """A provider that is sent the client's own body, where it speaks the client's dialect."""

    def __init__(self, provider: Provider, client_request: ClientRequest) -> None:
        self.name = provider.name
        self.dialect: Dialect = provider.dialect
        self._provider = provider
        self._client_request = client_request

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AnswerStream]:
        return self._provider.stream(self._with_client_fields(request))

    async def complete(self, request: ModelRequest) -> Completion:
        return await self._provider.complete(self._with_client_fields(request))

    def _with_client_fields(self, request: ModelRequest) -> ModelRequest:
        """The client's own messages are sent, unless there is more than it wrote: a history before its question, or
        the beginning of an answer that was cut. Its answer comes with the provider's own events, where the client
        understands them and the answer begins with them."""
        verbatim = not request.prefill and len(request.messages) == len(self._client_request.request.messages)
        extra = extra_for(self._client_request, self.dialect, conversation=verbatim)
        same_dialect = self.dialect == self._client_request.dialect
        return msgspec.structs.replace(request, extra=extra, keep_events=same_dialect and not request.prefill)


def verbatim_routes(routes: Sequence[Route], client_request: ClientRequest) -> tuple[Route, ...]:
    """These routes for this request. A stand-in that could not honour all of it is passed over. Raises
    `UnsupportedParameter` for what the first of them cannot be asked."""
    first, *others = routes
    if (param := first_unsupported_param(client_request, first.provider.dialect)) is not None:
        raise UnsupportedParameter(param, client_request.model, first.provider.dialect)
    able = [route for route in others if first_unsupported_param(client_request, route.provider.dialect) is None]
    return tuple(
        msgspec.structs.replace(route, provider=VerbatimProvider(route.provider, client_request))
        for route in (first, *able)
    )


def with_history(history: tuple[Message, ...], request: ModelRequest) -> ModelRequest:
    """The request, with what was said before it."""
    return msgspec.structs.replace(request, messages=(*history, *request.messages)) if history else request
