"""The application: opens what the config names, equips turns with it, and closes it all again."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import ChainMap
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from tailrace.agent.model_call import ModelSettings
from tailrace.agent.observer import UNOBSERVED, Observer
from tailrace.agent.runner import TurnSettings
from tailrace.agent.safety.approval import ApprovalPolicy, ApprovalScope, Asker, Mode
from tailrace.agent.service import AgentService
from tailrace.agent.think_filter import DEFAULT_TAGS
from tailrace.agent.tool_runner import Snapshots, ToolSettings
from tailrace.agent.turn import TurnLimits
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.approvals import JournalApprovals, WaitingApprovals, check_approvals
from tailrace.app.costs import Costs
from tailrace.app.flow_handlers import handlers_of, visible_environment
from tailrace.app.health import PlatformsDown
from tailrace.app.housekeeping import retention_loop, retention_of
from tailrace.app.model_catalogue import ModelCatalogue
from tailrace.app.models import LOCAL, Models, named
from tailrace.app.operations.node_reports import NodeReports
from tailrace.app.operations.own_report import OwnReport
from tailrace.app.operations.recent_calls import RecentCallsLog
from tailrace.app.programs.mcp_servers import connected_mcp_servers
from tailrace.app.programs.program import NO_PROGRAM, AgentProgram
from tailrace.app.programs.prompts import PLAN_PROMPT, system_prompt
from tailrace.app.programs.sub_agents import called_by
from tailrace.app.project_rules import ProjectRules, project_rules
from tailrace.app.secrets.config_secrets import redactor_of, secrets_of
from tailrace.app.steering import Steering
from tailrace.app.telemetry.tracer_provider import tracer_provider_of
from tailrace.app.usage.ledger import UsageLedger
from tailrace.app.usage.left_calls import LeftCalls
from tailrace.app.usage.limits import KeyLimits
from tailrace.app.usage.stored_keys import StoredKey, followed_keys
from tailrace.calls.raw_model import verbatim_routes
from tailrace.calls.service import CallService
from tailrace.config.load import Config
from tailrace.config.sections import AgentSettings, ModelChoice
from tailrace.errors import ConfigError, JournalError, Permanent, ProviderError
from tailrace.events import UsageRecorded
from tailrace.events.speakers import NOTE
from tailrace.flows.engine.service import FlowService
from tailrace.journal.bus import bus_of
from tailrace.journal.open_journal import open_journal
from tailrace.messages import Message, ModelRequest, SpentTokens
from tailrace.ports import Journal, Run, Tool
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller
from tailrace.providers.call_listener import AttemptObserver, CallMiddleware
from tailrace.providers.recovery_log import CURRENT_RUN
from tailrace.providers.transport.http1_transport import open_transport
from tailrace.runs.charged_to import platform_of
from tailrace.runs.host import OnEnd, keep_recovering
from tailrace.runs.processes import Processes
from tailrace.runs.signals import run_beside
from tailrace.system.private_files import tighten
from tailrace.system.working_directory import repository_of, working_directory
from tailrace.tools.toolbox import builtin_tools
from tailrace.tools.typed import preview_line
from tailrace.wire.client_request import ClientRequest

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from tailrace.tools.mcp.servers import McpServers

log = logging.getLogger("tailrace.app")


class SessionTools(msgspec.Struct, frozen=True):
    """Tools that one session has in this process: `instead` of offered ones of the same names, or `beside` them. A
    process that goes on with its runs has those of the config."""

    instead: Mapping[str, Tool] = {}
    beside: Mapping[str, Tool] = {}


class App:
    """What a process has of everything: one journal, one caller, a service per kind of run. `open_app` makes it."""

    def __init__(  # noqa: PLR0913 - one keyword per collaborator
        self,
        config: Config,
        journal: Journal,
        models: Models,
        *,
        directory: Path,
        tools: Sequence[Tool] = (),
        mcp: McpServers | None = None,
        middleware: Sequence[CallMiddleware] = (),
        observers: Sequence[AttemptObserver] = (),
        on_end: OnEnd | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        """`mcp` are the MCP servers of the config, where it has some; what they offer may change."""
        self.config = config
        self.mcp = mcp
        self.journal = journal
        self.bus = bus_of(journal)
        self.waiting = WaitingApprovals(journal)
        self.models = models
        self.catalogue = ModelCatalogue(config, models)
        self.owner = owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._observer: Observer = UNOBSERVED
        if tracer_provider is not None:
            from tailrace.app.telemetry.tracing import TurnSpans, trace_attempts, tracer_of

            tracer = tracer_of(tracer_provider)
            self._observer = TurnSpans(tracer, self._route_of)
            middleware = (trace_attempts(tracer), *middleware)
        self.costs = Costs(config)
        self.usage = UsageLedger(journal, self.costs)
        self.limits = KeyLimits(journal, self.usage)
        self.stored_keys: Mapping[str, StoredKey] = {}
        self.on_stored_keys: Callable[[], object] = lambda: None  # called when they have changed
        self._limit_usage()
        self.recent_calls = RecentCallsLog()
        watching = (*observers, self.usage.observe, self.recent_calls.note)
        self.caller = Caller(middleware=middleware, observers=watching, gate=self.limits.gate)
        self.secrets = secrets_of(config)
        self.redactor = redactor_of(config)
        self.steering = Steering(journal, self.redactor)
        check_approvals(config)
        self.can_ask = bool(config.approvals.notify)  # a person, about a run without viewers; a server always can
        self.directory = directory
        self._policies: WeakValueDictionary[str, ApprovalPolicy] = WeakValueDictionary()  # of the turns here, by run
        self._roots = tuple(config.path(root) for root in config.agent.roots)
        self.platforms_down = PlatformsDown()
        self._told_missing: set[tuple[str, str]] = set()  # servers without tools, and the sessions that were told
        self.session_tools: dict[str, SessionTools] = {}
        self.programs: dict[str, AgentProgram] = {}  # by `TurnSpec.program`
        self.person_names: dict[str, Callable[[str], Awaitable[str]]] = {}  # by platform: what it calls a user id
        remote = mcp.offered if mcp is not None else {}
        self._own_tools = ChainMap({tool.spec.name: tool for tool in tools}, remote)
        self._builtin = builtin_tools(config.agent.tools, environment=config.environment.without(self.secrets))
        self._tools = ChainMap(*self._own_tools.maps, self._builtin)
        self.processes = Processes(journal, owner, lease_s=config.store.lease_s)
        self.own_report = OwnReport(
            journal,
            self.bus,
            self.recent_calls,
            running=lambda: len(self.agents.running),
            degraded=lambda: self.degraded,
            redact=self.redactor.redact,
        )
        self.reports = NodeReports(journal, self.processes, self.own_report.make)
        self.agents = AgentService(
            journal,
            self.caller,
            self.equip,
            owner=owner,
            limits=TurnLimits(config.agent.max_turns, config.agent.max_tokens),
            durability=config.store.durability,
            lease_s=config.store.lease_s,
            on_end=on_end,
            observer=self._observer,
            redactor=self.redactor,
        )
        self.agents.has_tools_of = self._has_tools_of
        self.calls = CallService(
            journal, self.caller, self.raw_routes, owner=owner, lease_s=config.store.lease_s, on_end=on_end
        )
        self.flows = FlowService(
            journal,
            handlers_of(models, self.caller, self.agents, self._tools, self._step_policy, lambda: self.can_ask),
            owner=owner,
            directory=directory,
            environment=visible_environment(config),
            prices=self.costs,
            lease_s=config.store.lease_s,
            durability="fsync" if config.store.durability == "fsync" else "committed",
            on_end=on_end,
        )
        for service in self._services:
            service.left_calls = LeftCalls(self.caller, models)

    def take_config(self, config: Config) -> None:
        """From now on uses the models and keys of this config; nothing else in it may differ. Runs under way go on as
        they were equipped; no secret of the old config is shown or passed on either."""
        self.config = self.costs.config = config
        self.models.take_config(config)
        self.catalogue = ModelCatalogue(config, self.models)
        self._limit_usage()
        self.secrets |= secrets_of(config)
        self.redactor.add(self.secrets.values())
        environment = config.environment.without(self.secrets)
        self._builtin.update(builtin_tools(config.agent.tools, environment=environment))

    def take_stored_keys(self, stored: Mapping[str, StoredKey]) -> None:
        self.stored_keys = stored
        self._limit_usage()
        self.on_stored_keys()

    def _limit_usage(self) -> None:
        """A key of the config stands before one of the store with its name."""
        stored = {name: key.limits(name) for name, key in self.stored_keys.items()}
        keys = (stored | {key.name: key for key in self.config.server.keys}).values()
        self.limits.take_keys(keys)
        self.usage.limited = self.limits.names
        self.usage.priced = frozenset(key.name for key in keys if key.usd_per_day is not None)

    async def recover(self) -> list[str]:
        """Goes on with the unfinished runs of dead processes, of every kind, and says so in the log; returns them."""
        recovered = [run_id for service in self._services for run_id in await service.recover()]
        if recovered:
            log.info("resuming %d unfinished run%s", len(recovered), "" if len(recovered) == 1 else "s")
        return recovered

    async def keep_recovering(self) -> None:
        """Does so whenever another process dies, hangs or hands its runs over, and tells the others how this one is
        when they ask. Never returns: cancel it."""
        async with self.processes:
            await run_beside(keep_recovering(self._services, self.processes), self.reports.answer())

    async def hand_over(self) -> None:
        """Gives the runs that are executed here to the other processes at once, where there is one; for a process that
        is about to end. Without another one they have the time that the caller leaves them, but for those that only
        wait for a person, and those whose provider fails: where the store keeps them, the next process goes on with
        these."""
        self.hand_over_failing()
        await self.processes.look()
        if self.processes.successors():
            await self.processes.leave()
            await self._release(lasting=True)
        elif self.config.store_is_kept:
            self.agents.hand_over_questions()

    def hand_over_failing(self) -> None:
        """From here on a run whose provider fails is handed over to the next process, at once: this one ends soon,
        and the provider may end in the same moment."""
        if self.config.store_is_kept:
            self.caller.before_giving_up = self._hand_over_failed_run

    async def _hand_over_failed_run(self, error: ProviderError) -> None:
        """A machine that is switched off ends its model server with this process: what was cut goes on after the next
        start, instead of being ended by a server that is gone. Other tries and stand-ins come first, as ever."""
        run_id = CURRENT_RUN.get()
        if not isinstance(error, Permanent) and any(
            service.hand_over_run(run_id, f"was cut ({error})") for service in self._services
        ):
            await asyncio.Event().wait()  # until it is cancelled with the run

    async def release(self) -> None:
        """Releases every run: any process may go on with it."""
        await self._release(lasting=False)

    async def _release(self, *, lasting: bool) -> None:
        if any(await asyncio.gather(*(service.release(lasting=lasting) for service in self._services))):
            try:
                await self.processes.announce_hand_over()
            except JournalError as exc:
                log.warning("other processes go on with the runs of this one a little later: %s", exc)

    @property
    def degraded(self) -> Mapping[str, str]:
        """The parts that do not work now, by name, and why."""
        return self.platforms_down.reasons

    @property
    def _services(self) -> tuple[AgentService, CallService, FlowService]:
        return (self.agents, self.calls, self.flows)

    def _route_of(self, model: str) -> Route | None:
        try:
            return self.models.routes(named(self.config, model))[0]
        except ConfigError:
            return None  # the turn will say so

    def raw_routes(self, asked: ClientRequest) -> tuple[Route, ...]:
        """Where a client's request to a raw model can go; the configured model brings its stand-ins along. Raises
        `ConfigError` for a model that is not there, `UnsupportedParameter` for what it cannot be asked."""
        return verbatim_routes(self.models.routes_of(asked.request.model), asked, strict=self.config.server.strict)

    def equip(self, spec: TurnSpec, run: Run) -> TurnSettings:
        """What a turn has at its disposal. Raises `ConfigError` for a model that is not there."""
        if self.mcp is not None:
            self.mcp.retry()
        choice = named(self.config, spec.model)
        tools = self._tools_for(spec, choice, self.session_tools.get(run.new.session, _NO_TOOLS))
        tools = called_by(run, spec, tools, self.agents, self.journal)
        program, directory = self._program_of(spec), Path(spec.directory) if spec.directory else self.directory
        base = spec.request or ModelRequest(choice.name, ())
        note = NOTE if spec.spoken_by is not None and spec.spoken_by.id else ""
        own = (spec.system,) if spec.system else (system_prompt(directory, with_tools=bool(tools)), base.system)
        rules = self.rules_of(directory).text if tools and not spec.system and spec.program is None else ""
        system = "\n\n".join(filter(None, (*own, self.redactor.redact(rules), PLAN_PROMPT if spec.plan else "", note)))
        return TurnSettings(
            model=ModelSettings(
                routes=self.models.routes(choice),
                request=msgspec.structs.replace(base, system=system),
                tools=(*[tool.spec for tool in tools.values()], *spec.foreign),
                think_tags=(*DEFAULT_TAGS, *self.config.agent.think_tags),
                context_tokens=self.context_tokens(choice),
                check_answer=partial(program.problem_of, base.response_schema) if spec.typed else None,
            ),
            tools=tools,
            tool_settings=ToolSettings(directory, self._roots, observer=self._observer),
            policy=self._turn_policy(spec, run, directory),
            asker=Asker(
                spec.requester,
                name=spec.requester_name,
                find_name=self._find_name,
                reachable=spec.reachable,
                timeout_s=self.config.approvals.wait_s(in_chat=bool(platform_of(spec.requester))),
                board=self.waiting.of_run(run.id),
            ),
            redactor=self.redactor,
            snapshots=self._snapshots(spec, run, directory),
            price=self._price,
            deadline_at=run.new.deadline_at,
            missing_tools=self._missing_tools(run),
        )

    def rules_of(self, directory: Path) -> ProjectRules:
        """Read anew for each turn: a person may have changed them."""
        return project_rules(directory, self.config.agent.rules)

    def _price(self, spent: UsageRecorded) -> float:
        return self.costs.price(SpentTokens(spent.provider, spent.model, spent.usage)) or 0.0

    def _missing_tools(self, run: Run) -> str:
        """Said once in a session, until the server is there again (N161)."""
        if self.mcp is None:
            return ""
        missing = dict(self.mcp.missing)
        told = self._told_missing = {(server, where) for server, where in self._told_missing if server in missing}
        where = run.new.session or run.id
        news = [server for server in missing if (server, where) not in told]
        told |= {(server, where) for server in news}
        return "\n".join(f"⚠️ The tools of the MCP server {name} are missing: {missing[name]}" for name in news)

    def context_tokens(self, choice: ModelChoice) -> int:
        """How long a history may grow with this model. The embedded one has less room than the config allows."""
        most = self.config.agent.context_tokens
        return min(most, self.models.local.context_tokens) if choice.provider == LOCAL else most

    async def _find_name(self, requester: str) -> str:
        """What the platform of this process calls the requester; empty where none does."""
        platform, _, person = requester.partition(":")
        find = self.person_names.get(platform)
        return await find(person) if find is not None and person else ""

    def offered_tools(self, model: str = "") -> tuple[str, ...]:
        """The names of the tools that a turn of this model is offered; without one, of the configured model. Raises
        `ConfigError`."""
        choice = named(self.config, model)
        return tuple(sorted(self._tools_for(TurnSpec(Message("user", ())), choice, _NO_TOOLS)))

    def _tools_for(self, spec: TurnSpec, choice: ModelChoice, own: SessionTools) -> Mapping[str, Tool]:
        """The embedded model is too small to call tools: it is offered none unless the config names some. A tool of
        the client's own stands before one of ours with the same name."""
        foreign = {tool.name for tool in spec.foreign}
        asked_for = self.config.agent.tools != AgentSettings().tools
        few = spec.tools is None and choice.provider == LOCAL and not asked_for
        offered = self._own_tools if few else self._tools
        tools: dict[str, Tool] = {}
        for some in (*reversed(offered.maps), own.beside, self._program_of(spec).tools):
            tools |= some
        tools |= {name: tool for name, tool in own.instead.items() if name in tools} if own.instead else {}
        return {
            name: tool
            for name, tool in tools.items()
            if name not in foreign and (spec.tools is None or name in spec.tools)
        }

    def _program_of(self, spec: TurnSpec) -> AgentProgram:
        return self.programs.get(spec.program, NO_PROGRAM) if spec.program is not None else NO_PROGRAM

    def _has_tools_of(self, run: Run) -> bool:
        """A turn whose program has tools of its own is that program's to take over."""
        if run.new.input.get("program") is None:
            return True
        spec = msgspec.convert(run.new.input, TurnSpec)
        return set(spec.tools or ()) <= self._tools_for(spec, named(self.config, spec.model), _NO_TOOLS).keys()

    def _turn_policy(self, spec: TurnSpec, run: Run, directory: Path) -> ApprovalPolicy:
        policy = self._policies[run.id] = ApprovalPolicy(
            self._mode(yolo=spec.yolo),
            allow=self.config.approvals.allow,
            memory=JournalApprovals(self.journal, run),
            scope=ApprovalScope(spec.requester, str(directory), run.new.session, tuple(map(str, self._roots))),
            asks_edits=self.config.approvals.edits == "ask",
            plan=spec.plan,
        )
        return policy

    def approve_all(self, run_id: str, *, on: bool) -> None:
        """Whether this turn asks before a call of a tool, from its next call on."""
        if (policy := self._policies.get(run_id)) is not None:
            policy.mode = self._mode(yolo=on)

    def _mode(self, *, yolo: bool = False) -> Mode:
        return "yolo" if self.config.yolo or yolo else self.config.approvals.mode

    def _step_policy(self) -> ApprovalPolicy:
        """A step has no requester, so that no approval of a person holds for it; the mode and the patterns do."""
        return ApprovalPolicy(self._mode(), allow=self.config.approvals.allow)

    def _snapshots(self, spec: TurnSpec, run: Run, directory: Path) -> Snapshots | None:
        enabled = self.config.checkpoints.enabled
        required = spec.checkpoints is True or enabled is True
        if not required and (enabled is False or not spec.checkpoints):
            return None
        from tailrace.tools.checkpoint.checkpoint import QUICK, TurnSnapshots

        label = preview_line(spec.message.text)
        limits = None if required or repository_of(directory) else QUICK
        root = self.config.home / "checkpoints"
        return TurnSnapshots(root, directory, label=label, turn=run.id, limits=limits, required=required)


_NO_TOOLS = SessionTools()


@asynccontextmanager
async def open_app(  # noqa: PLR0913 - as `App` has them
    config: Config,
    *,
    directory: Path | None = None,
    tools: Sequence[Tool] = (),
    warm_up: bool = False,
    middleware: Sequence[CallMiddleware] = (),
    observers: Sequence[AttemptObserver] = (),
    on_end: OnEnd | None = None,
    on_lag: Callable[[float], None] | None = None,
    tracer_provider: TracerProvider | None = None,
) -> AsyncGenerator[App, None]:
    """Everything open, turns able to run. `warm_up` loads the embedded model first, where it is the one in use.
    `middleware`, `observers`, `on_end` and `on_lag` count calls, runs and how long the journal takes (`open_journal`);
    `tracer_provider` traces them: without it, the one that is set for the process, if any.

    Leaving cancels what runs; runs that have not ended are released: another process may go on with them."""
    await asyncio.to_thread(tighten, config.home)
    directory = await asyncio.to_thread((directory or working_directory()).resolve)
    async with (
        open_transport(config.transport) as transport,
        open_journal(
            config.store.url, config.database, password=config.store_password, on_lag=on_lag, bus_url=config.bus.url
        ) as journal,
    ):
        models = Models(config, transport)
        try:
            if warm_up and config.model.provider == LOCAL:
                await models.local.start()
            async with connected_mcp_servers(config) as mcp:
                app = App(
                    config,
                    journal,
                    models,
                    directory=directory,
                    tools=tools,
                    mcp=mcp,
                    middleware=middleware,
                    observers=observers,
                    on_end=on_end,
                    tracer_provider=tracer_provider or tracer_provider_of(config),
                )
                keeping = retention_loop(journal, retention_of(config))
                following = followed_keys(journal, app.take_stored_keys)
                async with app.usage.running(), app.agents, app.calls, app.flows, keeping, following:
                    try:
                        yield app
                    finally:
                        await asyncio.sleep(0)  # a run that was sealed in this tick is about to report it
                        await app.release()
        finally:
            await models.local.aclose()
