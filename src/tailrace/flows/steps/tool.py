"""A tool as a step, and an agent as one: what a sequence needs of both. Neither is implemented here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from tailrace.errors import ConfigError
from tailrace.events import RunFailure
from tailrace.flows.definition.definition import PRINTED
from tailrace.flows.definition.spelling import no_such
from tailrace.flows.language.expressions import ExpressionError, Scope
from tailrace.flows.language.templates import has_template
from tailrace.flows.steps.base import AskedModel, Handler, Params, StepContext, StepError
from tailrace.flows.steps.shell_template import ALONE, fill_command, invalid_template
from tailrace.messages import JsonObject, SpentTokens, Usage
from tailrace.ports import Effect, Tool
from tailrace.runs.charged_to import platform_of
from tailrace.runs.failures import is_out_of_quota

SHELL_TOOL = "terminal"  # its argument `command` is a shell line
Gate = Callable[[str, Effect], Awaitable[str]]
"""The reason why a call is refused; empty where it is allowed. A step has no user to ask (J108)."""


class ToolParams(Params):
    name: str
    args: JsonObject = msgspec.field(default_factory=dict)


class _Context:
    """What the tool may know of its step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.roots: tuple[Path, ...] = ()

    async def ask(self, _question: str) -> bool:
        """A step has no user to ask (J108)."""
        return False

    def progress(self, text: str) -> None:
        """No-op: the progress of a step's tool has no viewers."""


class ToolStep(Handler[ToolParams]):
    """One call of one tool. A tool that is not safe to repeat is not, also after a crash in the middle of it."""

    Params = ToolParams

    def __init__(self, tools: Mapping[str, Tool], gate: Gate) -> None:
        self._tools = tools
        self._gate = gate

    def repeatable(self, params: ToolParams) -> bool:
        tool = self._tools.get(params.name)
        return tool is None or tool.repeatable

    def mistakes(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        name = params.get("name")
        if isinstance(name, str) and "{{" not in name and name not in self._tools:
            yield ".name", no_such("tool", name, self._tools)
        if name == SHELL_TOOL and _is_template(params.get("args")):
            yield ".args", ALONE
        command = _command_of(params)
        if command is not None and (problem := _template_problem(command)):
            yield ".args.command", problem
        yield from super().mistakes(params)

    def fill(self, params: JsonObject, scope: Scope, *, strict: bool) -> JsonObject:
        """Values in a command line are quoted for the shell."""
        filled = super().fill(params, scope, strict=strict)
        if filled.get("name") == SHELL_TOOL and _is_template(params.get("args")):
            raise ExpressionError(ALONE)
        command = _command_of({**params, "name": filled.get("name")})
        if command is None:
            return filled
        return {**filled, "args": {**filled["args"], "command": fill_command(command, scope, strict=strict)}}

    async def _checked(self, params: ToolParams) -> Tool:
        tool = self._tools.get(params.name)
        if tool is None:
            raise StepError(f"there is no tool {params.name!r}", code="tool")
        if problem := tool.invalid(params.args):
            raise StepError(problem, code="params")
        if refusal := await self._gate(params.name, tool.effect(params.args)):
            raise StepError(refusal, code="refused")
        return tool

    async def run(self, params: ToolParams, step: StepContext) -> Any:
        outcome = await (await self._checked(params)).run(params.args, _Context(step.directory))
        if not outcome.ok:
            raise StepError(outcome.output, kind="retryable", code="tool_failed")
        return {"output": outcome.output}

    async def dry_run(self, params: ToolParams, _step: StepContext) -> Any:
        await self._checked(params)
        return {"output": "", "dry_run": True}


def _is_template(args: object) -> bool:
    """Whether a value chooses all arguments, the command among them."""
    return isinstance(args, str) and has_template(args)


def _template_problem(command: str) -> str:
    try:
        return invalid_template(command)
    except ExpressionError:
        return ""  # the check of all templates says so


def _command_of(params: JsonObject) -> str | None:
    """The command line with templates that a step would run in a shell."""
    args = params.get("args")
    command = args.get("command") if isinstance(args, dict) and params.get("name") == SHELL_TOOL else None
    return command if isinstance(command, str) and has_template(command) else None


class AgentParams(Params):
    prompt: str
    model: str = ""  # "<provider>/<model>"; empty: the configured one
    system: str = ""
    tools: tuple[str, ...] | None = None
    max_turns: Annotated[int, msgspec.Meta(ge=1)] | None = None
    session: Annotated[str, msgspec.Meta(max_length=256, pattern=PRINTED)] = ""


class AgentOutcome(msgspec.Struct, frozen=True):
    run_id: str
    status: str
    text: str
    usage: Usage
    error: RunFailure | None = None
    spent: tuple[SpentTokens, ...] = ()  # the usage by model


class AgentRuns(Protocol):
    """Turns of the agent, each a durable run of its own."""

    async def turn(self, params: AgentParams, step: StepContext) -> AgentOutcome:
        """One turn of the step's owner, to its end. The turn of the same try that was begun before a crash goes on.
        Cancelling it stops the turn, unless its result `is_wanted` by another process, which goes on with the step."""


class AgentStep(Handler[AgentParams]):
    """A whole turn, tools and all. The turn is a run of its own, so after a crash it goes on where it was."""

    Params = AgentParams

    def __init__(self, runs: AgentRuns, tools: Mapping[str, Tool], find_model: Callable[[str], AskedModel]) -> None:
        """`find_model` raises `ConfigError` for a model of a provider that is not there."""
        self._runs = runs
        self._tools = tools
        self._find_model = find_model

    def mistakes(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        """A tool that there is not would be left out in silence."""
        named = params.get("tools")
        for number, name in enumerate(named if isinstance(named, list) else ()):
            if isinstance(name, str) and not has_template(name) and name not in self._tools:
                yield f".tools[{number}]", no_such("tool", name, self._tools)
        yield from super().mistakes(params)

    def unknown_models(self, params: JsonObject) -> Iterator[tuple[str, str]]:
        if isinstance(name := params.get("model"), str) and not has_template(name):
            try:
                self._find_model(name)
            except ConfigError as exc:
                yield ".model", str(exc)

    def asks(self, params: AgentParams) -> Sequence[AskedModel]:
        return [self._find_model(params.model)]

    def interruptible(self, _params: AgentParams) -> bool:
        """A turn that is stopped has ended: a pause waits for it."""
        return False

    async def run(self, params: AgentParams, step: StepContext) -> Any:
        if platform_of(params.session) and not step.is_admin:
            message = (
                "session: this is the name of a platform's chat; start the instance with a key of the scope 'admin'"
            )
            raise StepError(message, code="session_of_a_chat")
        outcome = await self._runs.turn(params, step)
        for each in outcome.spent:
            step.log.record_usage(each.usage, each.provider, each.model)
        if outcome.status == "failed":
            if outcome.error is not None and is_out_of_quota(outcome.error):
                raise StepError(outcome.error.message, code="insufficient_quota")
            message = outcome.error.message if outcome.error is not None else "the turn failed"
            raise StepError(message, kind="retryable", code="agent_failed")
        return {
            "run_id": outcome.run_id,
            "status": outcome.status,
            "message": {"role": "assistant", "content": outcome.text},
            "usage": msgspec.to_builtins(outcome.usage),
        }

    async def dry_run(self, params: AgentParams, _step: StepContext) -> Any:
        self._find_model(params.model)
        return {"status": "completed", "message": {"role": "assistant", "content": ""}, "dry_run": True}
