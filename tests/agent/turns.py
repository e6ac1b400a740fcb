"""What the tests of turns share: a turn against the misbehaving provider over a real socket, its log written down."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.agent.model_call import ModelSettings
from tailrace.agent.runner import TurnRunner, TurnSettings
from tailrace.agent.safety.approval import ApprovalPolicy, Asker
from tailrace.agent.safety.redact import Redactor
from tailrace.agent.tool_runner import OnWaiting, ToolSettings
from tailrace.agent.turn import Turn, TurnLimits
from tailrace.config.sections import CallPolicy
from tailrace.events import AnyEvent, Commentary, MessageChunk, RunFinished
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import Dialect, JsonObject, Message, ModelRequest, user
from tailrace.ports import Effect, Journal, Lease, NewRun, ToolContext, ToolOutcome
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller
from tailrace.providers.http.endpoint import Endpoint
from tailrace.providers.http.provider import HttpProvider
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.providers.transport.port import Transport
from tailrace.testing.provider import FaultyProvider, Reply, Scenario
from tailrace.tools.typed import Arguments, TypedTool

QUICK = CallPolicy(backoff_s=0.001, backoff_max_s=0.002)


class NoteArgs(Arguments):
    text: str = ""


class Note(TypedTool[NoteArgs]):
    """Remembers what it was called with."""

    name = "note"
    description = "Write something down."
    Args = NoteArgs

    def __init__(self, *, effect: Effect | None = None, parallel: bool = False, repeatable: bool = False) -> None:
        super().__init__()
        self._effect = effect or Effect()
        self.parallel, self.repeatable = parallel, repeatable
        self.notes: list[str] = []

    def effect(self, _args: JsonObject) -> Effect:
        return self._effect

    async def execute(self, args: NoteArgs, context: ToolContext) -> ToolOutcome:
        self.notes.append(args.text)
        return ToolOutcome(f"noted {args.text}")


@dataclass
class Stage:
    """A provider that says what the script says, a journal, and a tool."""

    server: FaultyProvider
    transport: Transport
    directory: Path
    dialect: Dialect = "chat"
    journal: Journal = field(default_factory=MemoryJournal)
    note: Note = field(default_factory=Note)
    asker: Asker = field(default_factory=lambda: Asker(reachable=False))
    policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    call_policy: CallPolicy = QUICK
    secrets: Sequence[str] = ()
    tools: Mapping[str, Any] | None = None
    context_tokens: int = 128_000
    limits: TurnLimits = field(default_factory=TurnLimits)
    foreign: tuple[str, ...] = ()
    on_waiting: OnWaiting = lambda _: None
    request: ModelRequest = field(default_factory=lambda: ModelRequest("ok", (), system="Be brief."))

    def settings(self) -> TurnSettings:
        endpoint = Endpoint(name="faulty", dialect=self.dialect, base_url=self.server.url)
        route = Route(HttpProvider(endpoint, self.transport), "ok", self.call_policy)
        tools = self.tools if self.tools is not None else {"note": self.note}
        return TurnSettings(
            model=ModelSettings(
                routes=(route,),
                request=self.request,
                tools=tuple(tool.spec for tool in tools.values()),
                context_tokens=self.context_tokens,
            ),
            tools=tools,
            tool_settings=ToolSettings(self.directory),
            policy=self.policy,
            asker=self.asker,
            redactor=Redactor(self.secrets),
        )

    async def start(self, history: Sequence[Message] = ()) -> tuple[str, TurnRunner]:
        run, lease = await self.journal.start(NewRun("agent", session="s"), "me")
        assert lease is not None
        return run.id, self.runner(lease, Turn(history, limits=self.limits, foreign=self.foreign))

    def runner(self, lease: Lease, turn: Turn) -> TurnRunner:
        return TurnRunner(self.journal, lease, turn, Caller(rng=random.Random(7)), self.settings(), self.on_waiting)

    async def play(self, text: str = "Go.", history: Sequence[Message] = ()) -> Played:
        run_id, runner = await self.start(history)
        finished = await runner.run(user(text))
        return await self.played(run_id, finished)

    async def played(self, run_id: str, finished: RunFinished) -> Played:
        entries = await self.journal.read(run_id)
        return Played(finished, [entry.event for entry in entries])


@dataclass
class Played:
    """How a turn went."""

    finished: RunFinished
    events: list[AnyEvent]

    def of(self, *kinds: type) -> list[AnyEvent]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def names(self) -> list[str]:
        """The events' types in order, runs of chunks as one."""
        names = [type(event).__name__ for event in self.events]
        return [name for at, name in enumerate(names) if at == 0 or name != names[at - 1]]

    @property
    def shown(self) -> str:
        """Everything a viewer was shown as text."""
        return "".join(event.text for event in self.events if isinstance(event, MessageChunk | Commentary))


@asynccontextmanager
async def stage(directory: Path, *script: str | Scenario | Reply, **fields: Any) -> AsyncGenerator[Stage, None]:
    async with FaultyProvider(script=script) as server, open_transport() as transport:
        yield Stage(server, transport, directory, **fields)


LONG_TEXT = "Water leaves the mill by the tailrace and goes wherever it is needed, none of it lost."


async def event_of(s: Any, run_id: str, kind: type, count: int = 1) -> Any:
    """Waits until the log holds so many of a kind."""
    found = []
    async for batch in s.journal.tail(run_id):
        found += [entry.event for entry in batch if isinstance(entry.event, kind)]
        if len(found) >= count:
            return found[-1]
    raise AssertionError(f"the run ended without {kind.__name__}")
