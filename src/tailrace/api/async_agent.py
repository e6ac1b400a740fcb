"""The agent for async code, and for code without a loop: turns in an application that is open, or opened for one call.

An entry point, like the command line: the one module of this package that may open an application.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from copy import copy
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, NamedTuple, Self, TypedDict, Unpack, cast

import msgspec

from tailrace.agent.session import history_of, new_session
from tailrace.agent.turn_spec import Busy, TurnSpec
from tailrace.api.output_type import OutputType
from tailrace.api.own_loop import iterate_in_own_loop, run_in_own_loop
from tailrace.api.question import History, Question, message_of, messages_of
from tailrace.api.run_companion import OnApproval, OnChange, follow_run
from tailrace.api.run_stream import REQUESTER, OutputT, RunResult, RunStream
from tailrace.app import App, open_app
from tailrace.app.models import chosen
from tailrace.app.programs.program import AgentProgram, check_turn
from tailrace.app.programs.sub_agents import SubAgent
from tailrace.config.error_place import with_place
from tailrace.config.load import Config, load
from tailrace.config.sections import Count
from tailrace.errors import ConfigError, RunParked, TailraceError
from tailrace.messages import Message, ModelRequest, user
from tailrace.ports import Run, Tool
from tailrace.system.own_task import finish, opened_in_own_task
from tailrace.tools.context import given
from tailrace.tools.function import FunctionTool
from tailrace.tools.toolbox import check_name, given_tools

_LAST_WORDS_S = 5.0  # for a turn that was told to stop, and for one that is just being begun


class RunOptions(TypedDict, total=False):
    """Of one run. `history` is what was said before, in place of the agent's own conversation, which the run then does
    not join. `deps` is what tools find in their `Context`. A run with a `key` happens once: the same key again gives
    the recorded run, or goes on with it. `after`: the stream begins behind this entry. Limits are of this run."""

    history: History
    deps: object
    key: str
    after: int
    on_approval: OnApproval | Literal["wait"] | None
    max_turns: int
    max_tokens: int
    max_usd: float


class _Opened(NamedTuple):
    """The application of one open agent, or of one call."""

    app: App
    beginning: asyncio.Lock  # one turn after the other: questions that are asked at once keep their order


class Agent(Generic[OutputT]):
    """An agent in this process. One conversation per object, unless a session is named.

    ```python
    agent = Agent(model="anthropic/claude-sonnet-5", tools=[lookup], output=Report)
    result = agent.run_sync("Do I need an umbrella in Bergen?")  # await agent.run("…") where a loop runs
    print(result.output.title)
    ```

    Its tools are `tools`, tools or plain typed functions, and of ours those that `builtin` names (`("read_file",
    "terminal")`; None: those of the config). `output` is a msgspec struct, dataclass, TypedDict or pydantic model: the
    answer is an object of it, validated, and asked for again at most twice. In an `async with` block the journal stays
    open from call to call.

    `on_approval` is asked before an action that needs an approval, and returns a decision ("once", "session", "always",
    "deny") or a bool. It may be async; a plain function runs in a thread. What it raises denies the action and is
    logged; so does no answer within `approvals.timeout_s`. With "wait" the question waits for `run.approve`, or for a
    person at the page or in a chat. Without it such actions are denied. It may be set later.

    `on_change` is an async function that is told each change of each run, as `run.changes` gives them. `busy` is what a
    turn does to one that is under way in the same session: it stops it, or waits for it ("queue"). `max_turns` are
    model calls of a run. An option of another type raises `ConfigError`.
    """

    def __init__(  # noqa: PLR0913 - one keyword per option
        self,
        model: str = "",
        *,
        output: type[OutputT] | None = None,
        tools: Sequence[Tool | Callable[..., object]] = (),
        builtin: Sequence[str] | None = (),
        system: str = "",
        session: str = "",
        directory: Path | str | None = None,
        config: Config | None = None,
        yolo: bool = False,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        max_usd: float | None = None,
        busy: Busy = "interrupt",
        on_approval: OnApproval | Literal["wait"] | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        _check_options(
            {
                "model": (model, str),
                "system": (system, str),
                "session": (session, str),
                "directory": (str(directory) if isinstance(directory, Path) else directory, str | None),
                "config": (config, Config | None),
                "yolo": (yolo, bool),
                "max_turns": (max_turns, Count | None),
                "max_tokens": (max_tokens, Count | None),
                "max_usd": (max_usd, float | None),
                "busy": (busy, Busy),
                "on_approval": (None if on_approval == "wait" else on_approval, Callable | None),
                "on_change": (on_change, Callable | None),
            }
        )
        self._config = config
        self._builtin = builtin
        for name in builtin or ():
            check_name(name, "builtin")
        self._tools = given_tools(tools)
        self._output = OutputType(output) if output is not None else None
        self._directory = Path(directory) if directory is not None else None
        self.session = session or new_session()
        self.on_approval = on_approval
        self.on_change = on_change
        request = ModelRequest("", (), response_schema=self._output.schema) if self._output is not None else None
        self._spec = TurnSpec(
            user(""),
            model=model,
            request=request,
            typed=output is not None,
            system=system,
            requester=REQUESTER,
            yolo=yolo,
            max_turns=max_turns,
            max_tokens=max_tokens,
            max_usd=max_usd,
            busy=busy,
            program="agent",
            tools=None if builtin is None else (*(tool.spec.name for tool in self._tools), *builtin),
        )
        self._stack = AsyncExitStack()
        self._open: _Opened | None = None

    # ── its life ─────────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self._open is not None:
            raise TailraceError("the agent is open already: leave its block first, or make another Agent")
        config = self._config or load(os.environ)
        spec = self._turn_of(config)
        try:
            opening = open_app(self._with_builtin(config), directory=self._directory)
            app = await self._stack.enter_async_context(opened_in_own_task(opening))
        except ConfigError as exc:
            if self._config is not None:  # no file says what is in it
                raise
            raise with_place(exc, config) from exc
        self._bring_along(app, spec.program or "")
        self._spec, self._open = spec, _Opened(app, asyncio.Lock())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stack.aclose()
        finally:  # closed, also where that is passed on as cancelled
            self._open = None

    def _closed(self) -> Self:
        """The same, to be opened in another loop or for one call."""
        other = copy(self)
        other._stack, other._open = AsyncExitStack(), None
        return other

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[_Opened, None]:
        if self._open is not None:
            yield self._open
            return
        async with self._closed() as call:
            yield cast("_Opened", call._open)

    def _turn_of(self, config: Config) -> TurnSpec:
        """What each of its turns is made from. Raises `ConfigError` for a model that is not there."""
        if not self._spec.model:
            return self._spec
        choice = chosen(config, None, self._spec.model)
        return msgspec.structs.replace(self._spec, model=f"{choice.provider}/{choice.name}")

    def _with_helpers(self) -> list[Agent[Any]]:
        agents: list[Agent[Any]] = [self]
        for agent in agents:
            agents += [tool.agent for tool in agent._tools if isinstance(tool, AgentTool)]
        return agents

    def _with_builtin(self, config: Config) -> Config:
        """The config with those of our tools that this agent and the agents that it calls have."""
        agents = self._with_helpers()
        named = dict.fromkeys(name for agent in agents for name in agent._builtin or ())
        if any(agent._builtin is None for agent in agents):
            named = {**dict.fromkeys(config.agent.tools), **named}
        else:
            config = msgspec.structs.replace(config, mcp=msgspec.structs.replace(config.mcp, servers={}))
        return msgspec.structs.replace(config, agent=msgspec.structs.replace(config.agent, tools=tuple(named)))

    def _bring_along(self, app: App, program: str) -> None:
        tools: dict[str, Tool] = {tool.spec.name: tool for tool in self._tools}
        for name, tool in tools.items():
            if isinstance(tool, AgentTool):
                inner = f"{program}/{name}"
                tool.agent._bring_along(app, inner)
                turn = msgspec.structs.replace(tool.agent._turn_of(app.config), program=inner, busy="queue")
                tools[name] = SubAgent(name, tool.spec.description, turn)
        problem_in = self._output.problem_in if self._output is not None else lambda _: ""
        app.programs[program] = AgentProgram(tools, problem_in)

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(
        self, question: Question, *, raise_on_failure: bool = True, **options: Unpack[RunOptions]
    ) -> RunResult[OutputT]:
        """One run, from the question to its end: a text, a `Path` or bytes of an image or a document, or a list of
        these. Cancelling it stops the run. Raises `ConfigError` for a mistake of set-up, before anything is recorded;
        `RunFailed` unless `raise_on_failure` is False; `RunParked` for a run that was set aside."""
        async with self.stream(question, **options) as run:
            result = await run.result()
        return result.raise_for_status() if raise_on_failure else result

    def run_sync(
        self, question: Question, *, raise_on_failure: bool = True, **options: Unpack[RunOptions]
    ) -> RunResult[OutputT]:
        """As `run`, without an event loop, or beside one that runs in this thread, such as a notebook's."""
        agent = self._closed()
        return run_in_own_loop(lambda: agent.run(question, raise_on_failure=raise_on_failure, **options))

    def stream_sync(self, question: Question, **options: Unpack[RunOptions]) -> Generator[str, None, None]:
        """The text of a run piece by piece, without an event loop, or beside one that runs in this thread. The run
        begins with the first piece; leaving the `for` before its end stops it. Raises as `run` does."""
        agent = self._closed()

        async def pieces() -> AsyncGenerator[str, None]:
            async with agent.stream(question, **options) as run:
                async for text in run.text:
                    yield text

        return iterate_in_own_loop(pieces)

    @asynccontextmanager
    async def stream(
        self, question: Question, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[RunStream[OutputT], None]:
        """Starts a run. Leaving the block before its end stops it. Raises as `run` does, and `TypeError` for what is no
        question."""
        message = await asyncio.to_thread(message_of, question)
        on_approval = options.get("on_approval") or self.on_approval
        async with self._opened() as opened:
            app, spec = opened.app, self._spec_of(message, options, opened.app.config)
            session = "" if spec.history is not None else self.session
            with given(options.get("deps")):
                await self._check(app, spec)
                async with opened.beginning:
                    run = await _begin_turn(app, spec, session, options.get("key", ""))
            stopped, following = run.id, self._follow(app, run.id, on_approval)
            stream = RunStream(app, run.id, self._output, options.get("after", 0))
            try:
                yield stream
            except RunParked:
                stopped = ""  # a person is to look at it: it is not ended here
                raise
            finally:
                await finish(_end_turn(app, stopped, following))
            with suppress(TailraceError):
                await stream.result()  # which may be asked for behind the block too

    @asynccontextmanager
    async def resume(
        self, run_id: str, *, after: int = 0, deps: object = None
    ) -> AsyncGenerator[RunStream[OutputT], None]:
        """A run that was begun before, in this program or another: goes on with it where its process is gone, else
        watches it. Leaving the block does not stop it. Raises `RunNotFound`."""
        async with self._opened() as opened:
            app = opened.app
            await app.journal.get(run_id)
            with given(deps):
                await app.agents.take_over(run_id)
            following = self._follow(app, run_id, self.on_approval)
            try:
                yield RunStream(app, run_id, self._output, after)
            finally:
                await finish(_end_turn(app, "", following))

    def as_tool(self, name: str, description: str = "") -> Tool:
        """This agent as a tool of another one, which gives it a text and reads its answer. Each call is a run of its
        own, in the same journal: stopped with the run that calls it, and resumed with it."""
        return AgentTool(self, name, description or self._spec.system or f"Asks the agent {name}.")

    async def messages(self) -> tuple[Message, ...]:
        """What was said in this session so far."""
        async with self._opened() as opened:
            return await history_of(opened.app.journal, self.session)

    async def stop(self) -> None:
        """Stops what is under way in this session, in whichever process."""
        async with self._opened() as opened:
            for run in await opened.app.journal.runs(session=self.session, states=("pending", "running")):
                await opened.app.agents.stop(run.id)

    def _spec_of(self, message: Message, options: RunOptions, config: Config) -> TurnSpec:
        history = options.get("history")
        on_approval = options.get("on_approval") or self.on_approval
        _check_limits(options)
        return msgspec.structs.replace(
            self._turn_of(config),
            message=message,
            history=messages_of(history) if history is not None else None,
            reachable=on_approval is not None or bool(config.approvals.notify),
            max_turns=options.get("max_turns", self._spec.max_turns),
            max_tokens=options.get("max_tokens", self._spec.max_tokens),
            max_usd=options.get("max_usd", self._spec.max_usd),
        )

    async def _check(self, app: App, spec: TurnSpec) -> None:
        """Raises `ConfigError` for a run that could only fail."""
        await check_turn(spec, app.models, app.costs)
        for agent in self._with_helpers():
            turn = agent._turn_of(app.config)
            if turn.max_usd is None:  # what it uses counts for the run that is begun
                turn = msgspec.structs.replace(turn, max_usd=spec.max_usd)
            await check_turn(turn, app.models, app.costs)
            for tool in agent._tools:
                if isinstance(tool, FunctionTool):
                    tool.check_deps()

    def _follow(
        self, app: App, run_id: str, on_approval: OnApproval | Literal["wait"] | None
    ) -> asyncio.Task[None] | None:
        answer = None if on_approval == "wait" else on_approval
        if answer is None and self.on_change is None:
            return None
        return asyncio.get_running_loop().create_task(follow_run(app, run_id, answer, self.on_change))


class AgentTool(SubAgent):
    """An agent that another one is given as a tool; the open application has it as a `SubAgent`."""

    def __init__(self, agent: Agent[Any], name: str, description: str) -> None:
        super().__init__(name, description, agent._spec)
        self.agent = agent


def _check_options(options: Mapping[str, tuple[object, Any]]) -> None:
    """Each with its type. Raises `ConfigError`: no process could read a run that was recorded with another type."""
    for name, (value, expected) in options.items():
        try:
            msgspec.convert(value, expected)
        except msgspec.ValidationError as exc:
            raise ConfigError(f"Agent({name}={value!r}): {exc}") from exc


def _check_limits(options: RunOptions) -> None:
    """Raises `ConfigError`, and `TypeError` for an option that there is not."""
    if unknown := options.keys() - RunOptions.__annotations__.keys():
        raise TypeError(f"a run has no option {min(unknown)!r}; it has: {', '.join(RunOptions.__annotations__)}")
    limits = {"max_turns": Count | None, "max_tokens": Count | None, "max_usd": float | None, "key": str | None}
    _check_options({name: (options.get(name), expected) for name, expected in limits.items()})


async def _begin_turn(app: App, spec: TurnSpec, session: str, key: str) -> Run:
    """Cancelled meanwhile, it stops the turn: that may stand in the journal already. With a known key, the run that has
    it goes on here where its process is gone."""
    submitting = asyncio.get_running_loop().create_task(app.agents.submit(spec, session=session, idempotency_key=key))
    try:
        run = await asyncio.shield(submitting)
    except asyncio.CancelledError:
        await finish(_withdraw(app, submitting))
        raise
    if key:
        await app.agents.take_over(run.id)
    return run


async def _withdraw(app: App, submitting: asyncio.Task[Run]) -> None:
    with suppress(TimeoutError, TailraceError):
        async with asyncio.timeout(_LAST_WORDS_S):  # unavailable storage does not block the caller
            run = await submitting
        await _end_turn(app, run.id, None)


async def _end_turn(app: App, run_id: str, following: asyncio.Task[None] | None) -> None:
    """Stops the turn, where it has an id and has not ended, and then follows it no longer. Returns when the end is on
    record: a turn that is under way when the agent is closed is given back, and another process goes on with it."""
    if run_id:
        await app.agents.stop(run_id)
        with suppress(TimeoutError):  # what does not let itself be interrupted: it is stopped by its signal
            async with asyncio.timeout(_LAST_WORDS_S):
                await app.agents.left(run_id)
    if following is not None:
        if run_id:
            await asyncio.wait([following], timeout=_LAST_WORDS_S)
        following.cancel()
        await asyncio.wait([following])
