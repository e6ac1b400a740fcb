"""The agent as a library: `Agent` for async code, `AIAgent` for code that wants a blocking call and a callback.

An entry point, like the command line: the one module of this package that may open an application.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import os
import queue
import secrets
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, get_args

import msgspec

from tailrace.agent.endings import not_executed_in
from tailrace.agent.service import TurnSpec
from tailrace.agent.session import history_of
from tailrace.app import App, open_app
from tailrace.callback_text import CallbackText
from tailrace.config.load import Config, load
from tailrace.errors import RunParked, RunSealed, RunUnsuccessful, TailraceError
from tailrace.events import (
    AnyEvent,
    ApprovalAsked,
    Commentary,
    Decision,
    MessageChunk,
    MessageStop,
    NotExecuted,
    RunFailure,
    RunFinished,
    RunStatus,
)
from tailrace.messages import JsonObject, Message, ModelRequest, Usage, user
from tailrace.ports import Tool
from tailrace.runs.recovery import follow
from tailrace.tools.toolbox import given_tools
from tailrace.wire import chat

log = logging.getLogger("tailrace.api")
T = TypeVar("T")
Answer: TypeAlias = Decision | bool  # True is "once", False is "deny"
OnApproval: TypeAlias = Callable[[ApprovalAsked], Answer | Awaitable[Answer]]
_DECISIONS: tuple[Decision, ...] = get_args(Decision)
_REQUESTER = "python"
_LAST_WORDS_S = 5.0  # how long an interrupted conversation waits for its turn to end


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
        apart = ""
        async for event in self:
            if isinstance(event, MessageChunk | Commentary) and event.text:
                yield apart + event.text
                apart = "\n" if isinstance(event, Commentary) else ""
            elif isinstance(event, MessageStop):
                apart = "\n"
            elif isinstance(event, RunFinished) and event.status == "failed":
                raise _unsuccessful(event.status, event.error)

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
    """

    def __init__(  # noqa: PLR0913 - one keyword per option
        self,
        *,
        model: str = "",
        tools: Sequence[Tool] = (),
        system: str = "",
        session: str = "",
        directory: Path | None = None,
        config: Config | None = None,
        yolo: bool = False,
        max_turns: int | None = None,
        on_approval: OnApproval | None = None,
    ) -> None:
        self._config = config
        self._tools = given_tools(tools)
        self._directory = directory
        self.session = session or f"ses_{secrets.token_hex(8)}"
        self.on_approval = on_approval
        self._spec = TurnSpec(
            user(""), model=model, system=system, requester=_REQUESTER, yolo=yolo, max_turns=max_turns
        )
        self._stack = AsyncExitStack()
        self._app: App | None = None

    async def __aenter__(self) -> Self:
        config = self._config or load(os.environ)
        self._app = await self._stack.enter_async_context(
            open_app(config, directory=self._directory, tools=self._tools)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._app = None

    @asynccontextmanager
    async def stream(self, text: str, *, on_approval: OnApproval | None = None) -> AsyncGenerator[RunStream, None]:
        """Starts a turn. Leaving the block before its end stops it (F76). `on_approval`: for this turn alone. Raises
        `TailraceError` where nothing is asked."""
        if not text.strip():
            raise TailraceError("nothing was asked: the text is empty")
        app, on_approval = self._opened(), on_approval or self.on_approval
        spec = msgspec.structs.replace(self._spec, message=user(text), reachable=on_approval is not None)
        run = await app.agents.submit(spec, session=self.session)
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
            if answering is not None:
                answering.cancel()
            if not is_parked:
                await asyncio.shield(app.agents.stop(run.id))
            if answering is not None:
                await asyncio.wait([answering])

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


# ── the blocking facade ──────────────────────────────────────────────────────────────────────────────────────

StreamCallback = Callable[[str | None], object]


class _Question(NamedTuple):
    """An approval that the loop asks the caller's thread for."""

    asked: ApprovalAsked
    answer: concurrent.futures.Future[Answer]


class AIAgent:
    """The blocking facade. `stream_callback(text)` is called for each piece of the answer as it comes and
    `stream_callback(None)` at the end of each response of the model; an `Exception` of it is ignored. Without one
    everything works the same. `on_approval` is as in `Agent`. Both may be set at any time.

    Both are called in the thread that called `run_conversation`: what ends that thread there (`sys.exit()`, Ctrl-C)
    stops the turn and is raised by `run_conversation`. Usable from any thread; close it, or use it in a `with` block,
    to let go of what it has open at once. One that is forgotten lets go of it when it is collected, also where its
    callbacks are methods of the object that owns it. A tool is held until then: one that is such a method keeps its
    owner, and the agent, until the agent is closed."""

    # A misspelt name raises.
    __slots__ = ("__weakref__", "_agent", "_forgotten", "_loop", "_open", "_opening", "_thread", "stream_callback")

    def __init__(self, *, stream_callback: StreamCallback | None = None, **options: Any) -> None:
        self.stream_callback = stream_callback
        self._agent = Agent(**options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_and_close, args=(self._loop,), name="tailrace-agent", daemon=True)
        self._open = False
        self._opening = threading.Lock()
        self._forgotten = weakref.finalize(self, _let_go, self._agent._stack, self._loop, self._thread)
        self._forgotten.atexit = False  # the thread ends with the process

    @property
    def on_approval(self) -> OnApproval | None:
        return self._agent.on_approval

    @on_approval.setter
    def on_approval(self, on_approval: OnApproval | None) -> None:
        self._agent.on_approval = on_approval

    def run_conversation(self, text: str) -> JsonObject:
        """One turn: `final_response`, `messages` (the conversation in OpenAI's form), `completed`, `usage`, `status`,
        `error` (why it did not complete, else None) and `not_executed` (a list of `{tool_name, command, reason, kind}`:
        what the model wanted to do and was denied or refused). Raises `TailraceError` where the agent cannot be
        opened, nothing was asked, or the run was set aside."""
        self._ensure_open()
        happened: queue.SimpleQueue[AnyEvent | _Question | None] = queue.SimpleQueue()  # None: nothing more comes
        future = asyncio.run_coroutine_threadsafe(self._converse(text, happened.put), self._loop)
        pieces = CallbackText()
        try:
            while (item := happened.get()) is not None:
                if isinstance(item, _Question):
                    self._ask(item)
                else:
                    for piece in pieces.of_event(item):
                        self._say(piece)
            return future.result()
        except BaseException:
            if future.cancel():
                with suppress(queue.Empty):  # the turn has ended when the coroutine has
                    while happened.get(timeout=2 * _LAST_WORDS_S) is not None:
                        pass
            raise

    def interrupt(self) -> None:
        """Stops the turn under way, from a callback or another thread; `run_conversation` returns what there is."""
        if self._open:
            self._wait(self._agent.stop())

    def close(self) -> None:
        self._forgotten.detach()
        if self._open:
            self._wait(self._agent.__aexit__(None, None, None))
            self._open = False
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── in the caller's thread ───────────────────────────────────────────────────────────────────────────────

    def _ensure_open(self) -> None:
        with self._opening:
            if self._loop.is_closed():
                raise TailraceError("the agent is closed")
            if not self._open:
                if not self._thread.is_alive():
                    self._thread.start()
                self._wait(_open(self._agent))
                self._open = True

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns, which runs in the loop. A wait that is interrupted, as by Ctrl-C, cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _say(self, piece: str | None) -> None:
        if self.stream_callback is not None:
            with suppress(Exception):  # a caller's callback must not break the turn
                self.stream_callback(piece)

    def _ask(self, question: _Question) -> None:
        """Answers the question, or passes on what the callback raised: the action is then denied."""
        if not question.answer.set_running_or_notify_cancel():
            return
        try:
            answer = self._answer_to(question.asked)
        except Exception as exc:  # noqa: BLE001 - the caller's code: logged, and the action is denied
            question.answer.set_exception(exc)
        else:
            question.answer.set_result(answer)

    def _answer_to(self, asked: ApprovalAsked) -> Answer:
        if self.on_approval is None:  # it was removed during the turn
            return "deny"
        given = self.on_approval(asked)
        if not inspect.isawaitable(given):
            return given
        outcome = self._wait(_outcome_of(given))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    # ── in the loop ──────────────────────────────────────────────────────────────────────────────────────────

    async def _converse(self, text: str, put: Callable[[AnyEvent | _Question | None], None]) -> JsonObject:
        async def ask(asked: ApprovalAsked) -> Answer:
            question = _Question(asked, concurrent.futures.Future())
            put(question)
            return await asyncio.wrap_future(question.answer)

        run: RunStream | None = None
        try:
            async with self._agent.stream(text, on_approval=ask if self.on_approval is not None else None) as run:
                async for event in run:
                    put(event)
                result = await run.result()
            return await self._as_dict(result)
        except asyncio.CancelledError:
            if run is not None:  # it was told to stop: let it say its last words
                with suppress(TimeoutError, TailraceError):
                    async with asyncio.timeout(_LAST_WORDS_S):
                        await run.result()
            raise
        finally:
            put(None)

    async def _as_dict(self, result: RunResult) -> JsonObject:
        body = chat.encode_request(ModelRequest("", await self._agent.messages()), stream=False)
        return {
            "final_response": result.text.rstrip(),
            "messages": body["messages"],
            "completed": result.completed,
            "usage": msgspec.to_builtins(result.usage),
            "status": result.status,
            "error": result.error.message if result.error else None,
            "not_executed": [msgspec.to_builtins(action) for action in result.not_executed],
        }


async def _open(agent: Agent) -> None:
    """Returns nothing: what is open knows the task that opened it, and by its result the agent and the callbacks of
    the agent, whose owner could then never be collected."""
    await agent.__aenter__()


def _run_and_close(loop: asyncio.AbstractEventLoop) -> None:
    with closing(loop):
        loop.run_forever()


def _let_go(stack: AsyncExitStack, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Closes what an agent that nobody closed has open. Waits for nothing: the collector may call it in any thread. It
    knows what is open and not the agent: a callback of the agent's may be a method of what owns it."""
    if thread.is_alive():
        closed = asyncio.run_coroutine_threadsafe(stack.aclose(), loop)
        closed.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    else:
        loop.close()


async def _outcome_of(given: Awaitable[Answer]) -> Answer | BaseException:
    """What an async callback returns or raises. What would end the loop's thread is returned for the caller's."""
    try:
        return await given
    except (SystemExit, KeyboardInterrupt) as exc:
        return exc
