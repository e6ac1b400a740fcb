"""How many tokens a request's input is: the provider's own count, or an estimate where it has none (K135)."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from tailrace.app import App
from tailrace.calls.raw_model import with_history
from tailrace.errors import TimedOut
from tailrace.messages import Message
from tailrace.ports import TokenCounter
from tailrace.providers.provenance import replayable_messages
from tailrace.server.v1.model_target import is_agent
from tailrace.wire.client_request import ClientRequest
from tailrace.wire.token_estimate import input_tokens

COUNT_S: Final = 20.0  # a client waits for it before it asks its question


async def count_input_tokens(app: App, client_request: ClientRequest, history: tuple[Message, ...] = ()) -> int:
    """The tokens of the input, with what was said before it. Raises `ProviderError` where the provider refuses the
    request, `UnsupportedParameter`, `ConfigError` for a model that is not there."""
    request = with_history(history, client_request.request)
    if is_agent(app, client_request):
        return input_tokens(request)
    route = app.raw_routes(client_request)[0]
    counted = None
    if isinstance(route.provider, TokenCounter):
        try:
            async with asyncio.timeout(COUNT_S):
                sent = replayable_messages(request.messages, provider=route.provider.name, model=route.model)
                asked = msgspec.structs.replace(request, model=route.model, messages=sent)
                counted = await route.provider.count_tokens(asked)
        except TimeoutError:
            raise TimedOut(f"no count within {COUNT_S:.0f} s", deadline="total", provider=route.provider.name) from None
    return input_tokens(request) if counted is None else counted
