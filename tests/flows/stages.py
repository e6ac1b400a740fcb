"""What the tests of running sequences share: a service on a journal, and the misbehaving provider over real sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.config.sections import CallPolicy
from tailrace.errors import ConfigError, Rejected
from tailrace.events import AnyEvent
from tailrace.flows.definition.definition import Definition, parsed
from tailrace.flows.definition.public_ids import run_id_of
from tailrace.flows.engine.instance_events import InstanceEvent
from tailrace.flows.engine.service import FlowService, Instance
from tailrace.flows.steps.base import Handler, Params, StepContext
from tailrace.flows.steps.llm_call import LlmCall
from tailrace.flows.steps.llm_params import ProviderParam
from tailrace.flows.steps.waits import Sleep, WaitSignal
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import Completion, Dialect, JsonObject, ModelRequest
from tailrace.ports import AnswerStream, Journal
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.providers.transport.port import Transport
from tailrace.testing.provider import FaultyProvider, Reply, Scenario

QUICK = CallPolicy(backoff_s=0.001, backoff_max_s=0.002)
FAST_RETRY = {"max_attempts": 3, "initial_backoff": 0.001, "max_backoff": 0.002}
DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic")


def step(name: str, params: JsonObject | None = None, handler: str = "do", **fields: Any) -> JsonObject:
    return {"type": "step", "id": name, "handler": handler, "params": params or {}, **fields}


def ask(name: str = "say", **params: Any) -> JsonObject:
    """A step that asks a model. `retry` and `timeout_secs` are the step's, the rest its parameters."""
    own = {key: params.pop(key) for key in ("retry", "timeout_secs") if key in params}
    return step(name, {"prompt": "Where does the water go?", **params}, "llm_call", **own)


def sequence(*blocks: JsonObject, **fields: Any) -> Definition:
    return parsed({"name": "test", "blocks": list(blocks), **fields})


class Doing:
    """A handler that does what it is told by a function, and keeps what it was called with."""

    def __init__(self, function: Callable[[JsonObject], Any] | None = None) -> None:
        self.calls: list[JsonObject] = []
        self._function = function or (lambda params: params)

    async def __call__(self, params: JsonObject) -> Any:
        self.calls.append(params)
        outcome = self._function(params)
        return await outcome if isinstance(outcome, Awaitable) else outcome


@dataclass
class FaultyRoutes:
    """Every provider's name leads to the one server; `chat`, `responses` and `anthropic` speak themselves."""

    url: str
    transport: Transport
    policy: CallPolicy = QUICK
    local: bool = False

    def check(self, ref: ProviderParam) -> None:
        self.route(ref)

    def may_use(self, variable: str) -> bool:
        return variable.startswith("ALLOWED_")

    def route(self, ref: ProviderParam) -> Route:
        name = ref.provider or "chat"
        if name == "nobody":
            raise ConfigError("no such provider", key="providers.nobody")
        dialect: Dialect = "responses" if name == "responses" else "anthropic" if name == "anthropic" else "chat"
        provider = HttpProvider(Endpoint(name=name, dialect=dialect, base_url=self.url), self.transport)
        return Route(Wordy(provider) if name == "wordy" else provider, ref.model or "ok", self.policy)


class Wordy:
    """A provider that knows no structured output and says so."""

    def __init__(self, provider: HttpProvider) -> None:
        self._provider = provider
        self.name, self.dialect = provider.name, provider.dialect

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AnswerStream]:
        self._check(request)
        return self._provider.stream(request)

    async def complete(self, request: ModelRequest) -> Completion:
        self._check(request)
        return await self._provider.complete(request)

    def _check(self, request: ModelRequest) -> None:
        if request.response_schema is not None:
            raise Rejected("response_format is not supported by this model", status=400, provider=self.name)


@dataclass
class Stage:
    """A service with a model behind it."""

    flows: FlowService
    journal: Journal
    server: FaultyProvider
    doing: Doing = field(default_factory=Doing)

    async def run(self, *blocks: JsonObject, given: JsonObject | None = None, **fields: Any) -> Instance:
        run = await self.flows.start(sequence(*blocks, **fields), given)
        await self.flows.finished(run.id)
        return await self.flows.instance(run.id)

    async def watched(self, *blocks: JsonObject) -> tuple[Instance, list[InstanceEvent]]:
        run = await self.flows.start(sequence(*blocks))
        events = await self.watch(run.id)
        return await self.flows.instance(run.id), events

    async def watch(self, instance_id: str, after: int = 0) -> list[InstanceEvent]:
        """Everything after the cursor, to the end."""
        return [event async for batch in self.flows.watch(instance_id, after=after) for event in batch]

    async def log(self, instance_id: str) -> list[AnyEvent]:
        return [entry.event for entry in await self.journal.read(run_id_of(instance_id))]


def spoken(events: list[InstanceEvent], block_id: str = "say") -> str:
    """What a viewer who redraws has on the screen: the deltas of the last attempt."""
    text = ""
    for event in events:
        if event.data.get("block_id") == block_id:
            if event.type == "llm_delta":
                text += event.data["delta"]
            elif event.type == "attempt_discarded":
                text = ""
    return text


def types(events: list[InstanceEvent]) -> list[str]:
    """The events' types, runs of deltas as one, steps left out."""
    names = [event.type for event in events if event.type != "step"]
    return [name for at, name in enumerate(names) if at == 0 or name != names[at - 1] or name != "llm_delta"]


class AnyParams(Params):
    """For a handler that takes its parameters as they are."""

    given: JsonObject


class FunctionHandler(Handler[AnyParams]):
    """A handler from a function of the parameters."""

    Params = AnyParams

    def __init__(self, function: Callable[[JsonObject], Awaitable[Any]], *, repeatable: bool = True) -> None:
        self._function = function
        self._repeatable = repeatable

    def repeatable(self, _params: AnyParams) -> bool:
        return self._repeatable

    def convert(self, params: JsonObject) -> AnyParams:
        return AnyParams(params)

    def mistakes(self, _params: JsonObject) -> Iterator[tuple[str, str]]:
        return iter(())

    async def run(self, params: AnyParams, _step: StepContext) -> Any:
        return await self._function(params.given)


@asynccontextmanager
async def service(
    directory: Path, journal: Journal | None = None, doing: Doing | None = None, **handlers: Handler[Any]
) -> AsyncGenerator[FlowService, None]:
    """Without any model."""
    known: dict[str, Handler[Any]] = {
        "do": FunctionHandler(doing or Doing()),
        "sleep": Sleep(),
        "wait_signal": WaitSignal(),
        **handlers,
    }
    async with FlowService(
        journal or MemoryJournal(), known, owner="me", directory=directory, environment={"HOME": "/home/me", "NO": None}
    ) as flows:
        yield flows


@asynccontextmanager
async def stage(
    directory: Path, *script: str | Scenario | Reply, journal: Journal | None = None, policy: CallPolicy = QUICK
) -> AsyncGenerator[Stage, None]:
    journal = journal or MemoryJournal()
    doing = Doing()
    async with FaultyProvider(script=script) as server, open_transport() as transport:
        llm = LlmCall(Caller(), FaultyRoutes(server.url, transport, policy))
        async with service(directory, journal, doing, llm_call=llm) as flows:
            yield Stage(flows, journal, server, doing)
