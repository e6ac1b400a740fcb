"""The agent as a library: `Agent` for async code, `AIAgent` for code that wants a blocking call and a callback.

An entry point, like the command line: the one module of this package that may open an application.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from tailrace.agent.service import TurnSpec
from tailrace.agent.session import history_of
from tailrace.app import App, open_app
from tailrace.config.load import Config, load
from tailrace.errors import TailraceError
from tailrace.events import AnyEvent, MessageChunk, MessageStop, RunFailure, RunFinished, RunStatus
from tailrace.messages import JsonObject, Message, ModelRequest, Usage, user
from tailrace.ports import Tool
from tailrace.wire import chat

T = TypeVar("T")


class RunResult(msgspec.Struct, frozen=True):
    """How a turn ended. `text` is exactly what was streamed since the last tool."""

    text: str
    status: RunStatus
    usage: Usage
    error: RunFailure | None = None
    run_id: str = ""

    @property
    def completed(self) -> bool:
        return self.status == "completed"


class RunStream:
    """A turn under way: iterate over its events. It goes on without being iterated over; leaving the block stops it."""

    def __init__(self, app: App, run_id: str) -> None:
        self._app = app
        self.id = run_id

    async def __aiter__(self) -> AsyncIterator[AnyEvent]:
        async for batch in self._app.journal.tail(self.id):
            for entry in batch:
                yield entry.event

    async def result(self) -> RunResult:
        """Waits for the end."""
        finished = await self._app.agents.finished(self.id)
        return RunResult(finished.output, finished.status, finished.usage, finished.error, self.id)

    async def stop(self) -> None:
        await self._app.agents.stop(self.id)


class Agent:
    """An agent in this process. One conversation per object, unless a session is named.

    ```python
    async with Agent(model="anthropic/claude-sonnet-4-5") as agent:
        async with agent.stream("What is in this directory?") as run:
            async for event in run:
                print(event)
    ```
    """

    def __init__(
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
    ) -> None:
        self._config = config
        self._tools = tools
        self._directory = directory
        self.session = session or f"ses_{secrets.token_hex(8)}"
        self._spec = TurnSpec(user(""), model=model, system=system, yolo=yolo, max_turns=max_turns)
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
    async def stream(self, text: str) -> AsyncGenerator[RunStream, None]:
        """Starts a turn. Leaving the block before its end stops it (F76)."""
        app = self._opened()
        spec = msgspec.structs.replace(self._spec, message=user(text))
        run = await app.agents.submit(spec, session=self.session)
        try:
            yield RunStream(app, run.id)
        finally:
            await asyncio.shield(app.agents.stop(run.id))

    async def run(self, text: str) -> RunResult:
        """One turn, from the question to its end. Cancelling it stops the turn."""
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


def _result(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Of a coroutine that runs in the loop of another thread. A wait that is interrupted, as by Ctrl-C, cancels it:
    nothing goes on acting behind the caller's back."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


StreamCallback = Callable[[str | None], object]


class AIAgent:
    """The blocking facade. `stream_callback(text)` is called for each piece of the answer as it comes and
    `stream_callback(None)` at the end of each streamed response; whatever it raises is ignored. Without one everything
    works the same. Usable from any thread; close it, or use it in a `with` block, to let go of what it has open."""

    def __init__(self, *, stream_callback: StreamCallback | None = None, **options: Any) -> None:
        self._callback = stream_callback
        self._agent = Agent(**options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tailrace-agent", daemon=True)
        self._open = False
        self._opening = threading.Lock()

    def run_conversation(self, text: str) -> JsonObject:
        """One turn. `final_response`, `messages` (the conversation in OpenAI's form), `completed`, `usage`."""
        return self._wait(self._converse(text))

    def interrupt(self) -> None:
        """Stops the turn under way, from another thread; `run_conversation` returns what there is."""
        if self._open:
            self._wait(self._agent.stop())

    def close(self) -> None:
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

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._opening:
            if not self._open:
                if not self._thread.is_alive():
                    self._thread.start()
                try:
                    _result(self._agent.__aenter__(), self._loop)
                except BaseException:
                    coroutine.close()
                    raise
                self._open = True
        return _result(coroutine, self._loop)

    async def _converse(self, text: str) -> JsonObject:
        finished: RunFinished | None = None
        async with self._agent.stream(text) as run:
            async for event in run:
                self._tell(event)
                if isinstance(event, RunFinished):
                    finished = event
        if finished is None:
            raise TailraceError("the run ended without a result")
        body = chat.encode_request(ModelRequest("", await self._agent.messages()), stream=False)
        return {
            "final_response": finished.output,
            "messages": body["messages"],
            "completed": finished.status == "completed",
            "usage": msgspec.to_builtins(finished.usage),
            "status": finished.status,
            "error": finished.error.message if finished.error else None,
        }

    def _tell(self, event: AnyEvent) -> None:
        if self._callback is None:
            return
        with contextlib.suppress(Exception):  # a caller's callback must not break the turn
            match event:
                case MessageChunk(text=text):
                    self._callback(text)
                case MessageStop():
                    self._callback(None)
                case _:
                    pass
