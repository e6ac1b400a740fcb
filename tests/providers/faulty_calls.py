"""What the tests of calls share: the misbehaving provider, a client for it, and a listener that writes all down."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tailrace.config.sections import CallPolicy, TransportSettings
from tailrace.errors import ProviderError
from tailrace.messages import AnyDelta, Dialect, ModelRequest, RefusalDelta, TextDelta, ToolSpec, user
from tailrace.providers.attempt import Route, StopCall
from tailrace.providers.call import Caller, CallResult
from tailrace.providers.call_listener import AttemptOutcome, CallListener, Verdict
from tailrace.providers.deadlines import Purpose
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.http.reattaching import http_provider
from tailrace.providers.no_streaming import NonStreamingRoutes
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.providers.transport.port import Transport
from tailrace.testing.provider import FaultyProvider, Reply, Scenario

DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
TOOLS = (ToolSpec("get_weather"), ToolSpec("get_time"))
ASK = ModelRequest("ok", (user("Where does the water go?"),), tools=TOOLS)
TRANSPORT = TransportSettings(proxy="none")


class Told(CallListener):
    """A listener that keeps what it is told, in order."""

    def __init__(self, on_cut: Verdict = "continue") -> None:
        self.on_cut = on_cut
        self.facts: list[tuple[Any, ...]] = []
        self.attempts: list[AttemptOutcome] = []
        self.seen: list[AnyDelta] = []
        self.heard = asyncio.Event()  # the first delta came

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self.facts.append(("started", number, provider))

    def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
        self.seen += deltas
        self.heard.set()
        if self.facts[-1] != ("deltas",):
            self.facts.append(("deltas",))
        return None

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        self.attempts.append(attempt)

    def verdict(self, error: ProviderError) -> Verdict:
        return self.on_cut

    def attempt_discarded(self, number: int, reason: str) -> None:
        self.facts.append(("discarded", number))

    def stalled(self, provider: str, silent_s: float) -> None:
        self.facts.append(("stalled", provider, silent_s))

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.seen if isinstance(delta, TextDelta | RefusalDelta))


@dataclass
class Bench:
    """A misbehaving provider and all that is needed to call it."""

    server: FaultyProvider
    transport: Transport
    refusals: NonStreamingRoutes = field(default_factory=NonStreamingRoutes)

    def provider(self, dialect: Dialect = "chat", name: str = "faulty", **fields: Any) -> HttpProvider:
        fields.setdefault("base_url", self.server.url)
        return http_provider(Endpoint(name=name, dialect=dialect, **fields), self.transport)

    def route(self, dialect: Dialect = "chat", name: str = "faulty", model: str = "ok", **policy: Any) -> Route:
        return Route(self.provider(dialect, name), model, CallPolicy(**policy))

    async def call(
        self,
        *routes: Route,
        request: ModelRequest = ASK,
        told: Told | None = None,
        purpose: Purpose = "turn",
        budget_s: float | None = None,
    ) -> CallResult:
        caller = Caller(rng=random.Random(7), non_streaming=self.refusals)
        return await caller.complete(request, routes, listener=told or Told(), purpose=purpose, budget_s=budget_s)


@asynccontextmanager
async def faulty(*script: str | Scenario | Reply) -> AsyncGenerator[Bench, None]:
    async with FaultyProvider(script=script) as server, open_transport(TRANSPORT) as transport:
        yield Bench(server, transport)
