"""The agent for code that wants a blocking call and a callback: its loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, closing, suppress
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from tailrace.api.async_agent import Agent, Answer, OnApproval, RunResult, RunStream
from tailrace.api.callback_text import CallbackText
from tailrace.errors import TailraceError
from tailrace.events import (
    AnyEvent,
    ApprovalAsked,
)
from tailrace.messages import JsonObject, ModelRequest
from tailrace.wire.dialects import CHAT

T = TypeVar("T")
_LAST_WORDS_S = 5.0  # how long an interrupted conversation waits for its turn to end
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
        body = CHAT.encode_request(ModelRequest("", await self._agent.messages()), stream=False)
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
    """Closes what a forgotten agent has open. Waits for nothing: the collector may call it in any thread. It
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
