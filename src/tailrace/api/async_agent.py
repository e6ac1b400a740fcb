"""The agent for async code: an application that is opened, and turns in it.

An entry point, like the command line: the one module of this package that may open an application.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, get_args

import msgspec

from tailrace.agent.endings import not_executed_in
from tailrace.agent.service import Busy, TurnSpec
from tailrace.agent.session import history_of
from tailrace.app import App, open_app
from tailrace.config.error_place import with_place
from tailrace.config.load import Config, load
from tailrace.errors import ConfigError, RunParked, RunSealed, RunUnsuccessful, TailraceError
from tailrace.events import AnyEvent, ApprovalAsked, Decision, NotExecuted, RunFailure, RunStatus
from tailrace.messages import Message, Usage, user
from tailrace.ports import Run, Tool
from tailrace.runs.recovery import follow
from tailrace.runs.view import RunView
from tailrace.runs.view.changes import Ended, TextGrew
from tailrace.system.own_task import finish, opened_in_own_task
from tailrace.tools.toolbox import given_tools

log = logging.getLogger("tailrace.api")
Answer: TypeAlias = Decision | bool  # True is "once", False is "deny"
OnApproval: TypeAlias = Callable[[ApprovalAsked], Answer | Awaitable[Answer]]
_DECISIONS: tuple[Decision, ...] = get_args(Decision)
_REQUESTER = "python"
_LAST_WORDS_S = 5.0  # for a turn that was told to stop, and for one that is just being begun


class RunResult(msgspec.Struct, frozen=True):
    """How a turn ended. `text` is exactly what was streamed since the last tool. `error` says why it did not complete;
    `not_executed` what the model wanted to do and was denied or refused, also in a turn that completed."""

    text: str
    status: RunStatus
    usage: Usage
    error: RunFailure | None = None
    run_id: str = ""
    not_executed: tuple[NotExecuted, ...] = ()

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    def raise_for_status(self) -> Self:
        """Itself, unless the turn failed. Raises `RunUnsuccessful` with the reason."""
        if self.status == "failed":
            raise _unsuccessful(self.status, self.error)
        return self


def _unsuccessful(status: RunStatus, error: RunFailure | None) -> RunUnsuccessful:
    message = error.message if error else "the turn failed"
    return RunUnsuccessful(message, status=status, kind=error.kind if error else "")


class RunStream:
    """A turn under way: iterate over its events. It goes on without being iterated over; leaving the block stops it."""

    def __init__(self, app: App, run_id: str) -> None:
        self._app = app
        self.id = run_id

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        """The events until the end. Raises `RunParked` for a run that was set aside."""
        async for batch in follow(self._app.journal, self.id):
            for entry in batch:
                yield entry.event

    @property
    async def text(self) -> AsyncIterator[str]:
        """What the agent says, piece by piece as it comes; texts before and after a tool are lines apart. Raises
        `RunUnsuccessful` for a turn that fails, after what it said, and `RunParked`."""
        view, apart = RunView(), ""
        async for batch in follow(self._app.journal, self.id):
            for change in chain.from_iterable(map(view.apply, batch)):
                if isinstance(change, TextGrew):
                    if change.text:
                        yield apart + change.text
                    apart = "\n" if change.ends else "" if change.text else apart
                elif isinstance(change, Ended) and change.finished.status == "failed":
                    raise _unsuccessful(change.finished.status, change.finished.error)

    async def result(self) -> RunResult:
        """Waits for the end. Raises `RunParked` for a run that was set aside."""
        end = await self._app.agents.finished(self.id)
        facts = await self._app.journal.facts(self.id)
        return RunResult(end.output, end.status, end.usage, end.error, self.id, not_executed_in(facts))

    async def stop(self) -> None:
        await self._app.agents.stop(self.id)


class Agent:
    """An agent in this process. One conversation per object, unless a session is named.

    ```python
    async with Agent(model="anthropic/claude-sonnet-5") as agent:
        async with agent.stream("What is in this directory?") as run:
            async for text in run.text:
                print(text, end="", flush=True)
    ```

    `on_approval` is asked before an action that needs an approval, and returns a decision ("once", "session", "always",
    "deny") or a bool. It may be async; a plain function runs in a thread. What it raises denies the action and is
    logged; so does no answer within `approvals.timeout_s`. Without it such actions are denied. It may be set later.

    `busy` is what a turn does to one that is under way in the same session: it stops it, or waits for it ("queue").
    An option of another type raises `ConfigError`.
    """

    def __init__(  # noqa: PLR0913 - one keyword per option
        self,
        *,
        model: str = "",
        tools: Sequence[Tool] = (),
        system: str = "",
        session: str = "",
        directory: Path | str | None = None,
        config: Config | None = None,
        yolo: bool = False,
        max_turns: int | None = None,
        busy: Busy = "interrupt",
        on_approval: OnApproval | None = None,
    ) -> None:
        _check_options(
            {
                "model": (model, str),
                "system": (system, str),
                "session": (session, str),
                "directory": (str(directory) if isinstance(directory, Path) else directory, str | None),
                "config": (config, Config | None),
                "yolo": (yolo, bool),
                "max_turns": (max_turns, int | None),
                "busy": (busy, Busy),
                "on_approval": (on_approval, Callable | None),
            }
        )
        self._config = config
        self._tools = given_tools(tools)
        self._directory = Path(directory) if directory is not None else None
        self.session = session or f"ses_{secrets.token_hex(8)}"
        self.on_approval = on_approval
        self._spec = TurnSpec(
            user(""), model=model, system=system, requester=_REQUESTER, yolo=yolo, max_turns=max_turns, busy=busy
        )
        self._stack = AsyncExitStack()
        self._app: App | None = None
        self._beginning = asyncio.Lock()  # one turn after the other: questions that are asked at once keep their order

    async def __aenter__(self) -> Self:
        if self._app is not None:
            raise TailraceError("the agent is open already: leave its block first, or make another Agent")
        config = self._config or load(os.environ)
        self._beginning = asyncio.Lock()  # of this loop
        opening = open_app(config, directory=self._directory, tools=self._tools)
        try:
            self._app = await self._stack.enter_async_context(opened_in_own_task(opening))
        except ConfigError as exc:
            if self._config is not None:  # no file says what is in it
                raise
            raise with_place(exc, config) from exc
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stack.aclose()
        finally:  # closed, also where that is passed on as cancelled
            self._app = None

    @asynccontextmanager
    async def stream(self, text: str, *, on_approval: OnApproval | None = None) -> AsyncGenerator[RunStream, None]:
        """Starts a turn. Leaving the block before its end stops it (F76). `on_approval`: for this turn alone. Raises
        `TypeError` for what is no text, and `TailraceError` where nothing is asked."""
        _check_question(text)
        app, on_approval = self._opened(), on_approval or self.on_approval
        spec = msgspec.structs.replace(self._spec, message=user(text), reachable=on_approval is not None)
        async with self._beginning:
            run = await _begin_turn(app, spec, self.session)
        answering: asyncio.Task[None] | None = None
        if on_approval is not None:
            answering = asyncio.get_running_loop().create_task(_answer_questions(app, run.id, on_approval))
        is_parked = False
        try:
            yield RunStream(app, run.id)
        except RunParked:
            is_parked = True  # a person is to look at it: it is not ended here
            raise
        finally:
            await finish(_end_turn(app, "" if is_parked else run.id, answering))

    async def run(self, text: str) -> RunResult:
        """One turn, from the question to its end. Cancelling it stops the turn. Raises `RunParked` for a run that was
        set aside."""
        async with self.stream(text) as run:
            return await run.result()

    async def messages(self) -> tuple[Message, ...]:
        """What was said in this session so far."""
        return await history_of(self._opened().journal, self.session)

    async def stop(self) -> None:
        """Stops the turn under way, if there is one."""
        if current := self._opened().agents.current(self.session):
            await self._opened().agents.stop(current)

    def _opened(self) -> App:
        if self._app is None:
            raise TailraceError("the agent is not open: use it in an `async with` block")
        return self._app


def _check_options(options: Mapping[str, tuple[object, Any]]) -> None:
    """Each with its type. Raises `ConfigError`: no process could read a run that was recorded with another type."""
    for name, (value, expected) in options.items():
        try:
            msgspec.convert(value, expected)
        except msgspec.ValidationError as exc:
            raise ConfigError(f"Agent({name}={value!r}): {exc}") from exc


def _check_question(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"a question is a str, not {type(text).__name__}")
    if not text.strip():
        raise TailraceError("nothing was asked: the text is empty")


async def _begin_turn(app: App, spec: TurnSpec, session: str) -> Run:
    """Cancelled meanwhile, it stops the turn: that may stand in the journal already."""
    submitting = asyncio.get_running_loop().create_task(app.agents.submit(spec, session=session))
    try:
        return await asyncio.shield(submitting)
    except asyncio.CancelledError:
        await finish(_withdraw(app, submitting))
        raise


async def _withdraw(app: App, submitting: asyncio.Task[Run]) -> None:
    with suppress(TimeoutError, TailraceError):
        async with asyncio.timeout(_LAST_WORDS_S):  # unavailable storage does not block the caller
            run = await submitting
        await _end_turn(app, run.id, None)


async def _end_turn(app: App, run_id: str, answering: asyncio.Task[None] | None) -> None:
    """Stops the turn, where it has an id and has not ended, and answers no more of its questions. Returns when the end
    is on record: a turn that is under way when the agent is closed is given back, and another process goes on with it.
    """
    if answering is not None:
        answering.cancel()
    if run_id:
        await app.agents.stop(run_id)
        with suppress(TimeoutError):  # what does not let itself be interrupted: it is stopped by its signal
            async with asyncio.timeout(_LAST_WORDS_S):
                await app.agents.left(run_id)
    if answering is not None:
        await asyncio.wait([answering])


# ── approvals ────────────────────────────────────────────────────────────────────────────────────────────────


async def _answer_questions(app: App, run_id: str, on_approval: OnApproval) -> None:
    """Answers the approvals of one run until it ends. Questions of tools that run side by side do not wait for each
    other."""

    async def answer(asked: ApprovalAsked) -> None:
        decision = await _decision_of(on_approval, asked)
        with suppress(RunSealed):
            await app.agents.answer(run_id, asked.approval_id, decision, by=asked.requester)

    async with asyncio.TaskGroup() as group:
        async for batch in app.journal.tail(run_id):
            for entry in batch:
                if isinstance(entry.event, ApprovalAsked):
                    group.create_task(answer(entry.event))


async def _decision_of(on_approval: OnApproval, asked: ApprovalAsked) -> Decision:
    """What the callback says; "deny" where it raises or says something else."""
    try:
        if inspect.iscoroutinefunction(on_approval):
            answer = await on_approval(asked)
        else:
            answer = await asyncio.to_thread(on_approval, asked)
            if inspect.isawaitable(answer):
                answer = await answer
    except Exception:
        log.exception("on_approval raised, so the action is denied: %s", asked.command)
        return "deny"
    if isinstance(answer, bool):
        return "once" if answer else "deny"
    for decision in _DECISIONS:
        if decision == answer:
            return decision
    log.error("on_approval returned %r, which is no decision, so the action is denied: %s", answer, asked.command)
    return "deny"
