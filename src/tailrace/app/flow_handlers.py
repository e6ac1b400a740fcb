"""What sequences are given of everything else: models, tools, the agent, and what they may see of the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from tailrace.agent.safety.approval import ApprovalPolicy
from tailrace.agent.service import AgentService
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app.models import AGENT, LOCAL, Models, check_known, default_model, endpoint_of, named, unaliased
from tailrace.config.load import Config
from tailrace.config.presets import PRESETS, Preset
from tailrace.config.sections import ModelChoice, ProviderSettings
from tailrace.errors import ConfigError, RunParked
from tailrace.flows.definition import orch8
from tailrace.flows.steps.base import AskedModel, Handler, StepContext, StepError
from tailrace.flows.steps.http import HttpStep
from tailrace.flows.steps.llm_call import LlmCall
from tailrace.flows.steps.llm_params import ProviderParam
from tailrace.flows.steps.orch8 import Orch8LlmCall, Orch8ToolCall, Values
from tailrace.flows.steps.tool import AgentOutcome, AgentParams, AgentStep, ToolStep
from tailrace.flows.steps.waits import Sleep, WaitSignal
from tailrace.messages import user
from tailrace.ports import ENDED, Effect, Run, Tool
from tailrace.providers.attempt import Route
from tailrace.providers.call import Caller
from tailrace.providers.http.endpoint import Endpoint
from tailrace.wire.dialects import DIALECTS


def handlers_of(
    models: Models,
    caller: Caller,
    agents: AgentService,
    tools: Mapping[str, Tool],
    policy: Callable[[], ApprovalPolicy],
    can_ask: Callable[[], bool],
) -> dict[str, Handler[Any]]:
    """Every handler that a step may name. `can_ask`: a person can answer the questions of a step's turn."""
    routes = ConfiguredRoutes(models)
    return {
        "llm_call": LlmCall(caller, routes),
        "agent": AgentStep(AgentTurns(agents, can_ask), tools, lambda name: _find_model(models, name)),
        "tool": ToolStep(tools, lambda name, effect: refusal_of(policy(), name, effect)),
        "http": HttpStep(),
        "sleep": Sleep(),
        "wait_signal": WaitSignal(),
        orch8.LLM_CALL: Orch8LlmCall(caller, routes),
        orch8.TOOL_CALL: Orch8ToolCall(models.config.flows.allow_hosts),
        orch8.VALUES: Values(),
    }


def _find_model(models: Models, name: str) -> AskedModel:
    config = models.config
    if name and "/" not in (target := unaliased(config, name)) and target != AGENT:
        raise ConfigError(f"expected <provider>/<model> or one of server.aliases, found {name[:80]!r}", key="model")
    choice = named(config, name)
    check_known(config, choice.provider)
    models.check_embedded(choice)
    return AskedModel(choice.provider, choice.name)


def visible_environment(config: Config) -> dict[str, str | None]:
    """The variables of `flows.env_allow`; None where one is not set."""
    return {name: config.environment.get(name) for name in config.flows.env_allow}


async def refusal_of(policy: ApprovalPolicy, name: str, effect: Effect) -> str:
    """Why a step may not do this. A step has no user to ask, so what needs an approval is refused (J108)."""
    judgement = await policy.judge(name, effect)
    match judgement.verdict:
        case "allow":
            return ""
        case "refuse":
            return f"refused: {judgement.reason}"
        case _:
            return f"not approved: {judgement.reason}, and a step has no user to ask; see approvals.allow"


class ConfiguredRoutes:
    """Models as definitions name them: by provider, or by an address of their own."""

    def __init__(self, models: Models) -> None:
        self._models = models

    @property
    def _config(self) -> Config:
        return self._models.config

    def may_use(self, variable: str) -> bool:
        return variable in self._config.flows.env_allow

    def route(self, ref: ProviderParam) -> Route:
        if ref.base_url or ref.api_key_env or ref.dialect is not None:
            endpoint = self.endpoint(ref)
            return self._models.route_to(endpoint, self._model(ref, endpoint.name))
        return self._models.routes(self._choice(ref))[0]

    def check(self, ref: ProviderParam) -> None:
        if not ref.base_url and not ref.api_key_env and ref.dialect is None:
            self._models.check_embedded(self._choice(ref))

    def _choice(self, ref: ProviderParam) -> ModelChoice:
        config = self._config
        provider, model = ref.provider, ref.model
        head, slash, rest = model.partition("/")
        if not provider and slash and (head in config.providers or head in PRESETS or head == LOCAL):
            provider, model = head, rest
        provider = provider or config.model.provider
        check_known(config, provider)
        return ModelChoice(provider=provider, name=model or self._model(ref, provider))

    def _model(self, ref: ProviderParam, provider: str) -> str:
        if model := ref.model or default_model(self._config, provider):
            return model
        raise ConfigError(f"which model of {provider}?", key="model")

    def endpoint(self, ref: ProviderParam) -> Endpoint:
        """An address from a definition. A key that the config binds to a host goes to that host and no other; any
        other key is named by the definition and allowed by the operator (J115)."""
        config, name = self._config, ref.provider or urlsplit(ref.base_url).hostname or "custom"
        settings = config.providers.get(name, ProviderSettings())
        preset = PRESETS.get(name, Preset(""))
        own_url = settings.base_url or preset.base_url
        base_url = ref.base_url or own_url
        if not base_url:
            raise ConfigError("no such provider; give it a base_url", key=f"providers.{name}")
        at_home = bool(own_url) and _place(base_url) == _place(own_url)
        key = ""
        if ref.api_key_env:
            if not self.may_use(ref.api_key_env):
                raise ConfigError(f"{ref.api_key_env} is not listed", key="flows.env_allow")
            key = config.require_secret(ref.api_key_env, "api_key_env")
        elif at_home:
            key = endpoint_of(config, name).key
        # What most servers speak that are compatible with a provider, whatever that provider itself prefers.
        common = DIALECTS[preset.dialect].common_dialect
        dialect = ref.dialect or settings.dialect or (preset.dialect if at_home or common is None else common)
        return Endpoint(
            name=name,
            dialect=dialect,
            base_url=base_url,
            key=key,
            headers=settings.headers if at_home else {},
            extra_body=settings.extra_body if at_home else {},
            quirks=preset.quirks,
            own_quirks=tuple(quirk.as_quirk() for quirk in config.quirks),
            connect_timeout_s=config.call_for(name).connect_timeout_s,
            reattach=at_home and settings.reattach and DIALECTS[dialect].keeps_answers,
        )


def _place(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or {"http": 80, "https": 443}.get(parts.scheme)


_STEP: Final = "step"  # before the idempotency key of a step's turn: a client's begins with its name and a colon


def step_of(turn: Run) -> tuple[str, str]:
    """The run of the instance, and the block, that began a turn; empty for any other."""
    kind, *names = turn.new.idempotency_key.split("/")
    return (names[0], names[1]) if kind == _STEP and len(names) == 3 else ("", "")


class AgentTurns:
    """Turns of the agent for steps: each is a run of its own, found again by its key."""

    def __init__(self, agents: AgentService, can_ask: Callable[[], bool]) -> None:
        self._agents = agents
        self._can_ask = can_ask

    async def turn(self, params: AgentParams, step: StepContext) -> AgentOutcome:
        spec = TurnSpec(
            user(params.prompt),
            model=params.model,
            system=params.system,
            tools=params.tools,
            max_turns=params.max_turns,
            directory=str(step.directory),
            requester=step.requester,
            reachable=self._can_ask(),
            busy="queue",
        )
        key = f"{_STEP}/{step.key}/{step.number}"
        run = await self._agents.submit(spec, session=params.session, idempotency_key=key)
        if run.state not in ENDED and run.id not in self._agents.running:
            await self._agents.recover()  # begun by a process that is no more
        try:
            finished = await self._agents.finished(run.id)
        except asyncio.CancelledError:
            if not step.is_wanted():
                await asyncio.shield(self._agents.stop(run.id))
            raise
        except RunParked as exc:
            raise StepError(str(exc), code="parked") from exc
        spent = finished.spent or ()
        return AgentOutcome(run.id, finished.status, finished.output, finished.usage, finished.error, spent)
