"""One node of a simulated world: a process with the whole runtime in it, as `tailrace serve` puts it together, but for
the socket that it listens on. It is killed, hangs, is told to end, and is started again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from proof.simulation.chat_service import ChatService, SimulatedPlatform
from proof.simulation.loop import Process, SimulatedLoop
from proof.simulation.model_server import SimulatedProvider
from proof.simulation.store import Store as WorldStore
from proof.simulation.tools import CountedTool
from proof.simulation.world import World
from tailrace.app.app import App
from tailrace.app.models import Models
from tailrace.config.load import Config, Environment
from tailrace.config.sections import (
    AgentSettings,
    Approvals,
    CallPolicy,
    ModelChoice,
    ModelRef,
    Platforms,
    ProviderSettings,
    ServerKey,
    Store,
    Streaming,
)
from tailrace.errors import TailraceError
from tailrace.gateway.gateway import Gateway
from tailrace.integrations.telegram import TelegramSettings
from tailrace.messages import JsonObject
from tailrace.runs.charged_to import CHARGED_TO

T = TypeVar("T")
HOME = Path("/simulated")
MAX_ATTEMPTS = 3
REQUESTER = "ann"  # the key of every client
RESTART_S = 1.5  # after a process has ended: at the latest then it is started again
REQUEST_TIMEOUT_S = 20.0
REQUEST = "request"  # the name of its task
LAST_REQUESTS_S = 1.0  # for those that came as the process ended to have their answer, as a server lets them


class NodeGone(Exception):
    """The node does not answer: it is dead, not up yet, or died meanwhile."""


def config_of(world: World) -> Config:
    providers = {"sim": ProviderSettings(dialect=world.dialect, base_url="https://sim.invalid/v1")}
    fallbacks: tuple[ModelRef, ...] = ()
    if world.fallback is not None:
        providers["other"] = ProviderSettings(dialect=world.fallback, base_url="https://other.invalid/v1")
        fallbacks = (ModelRef("other", "m"),)
    return Config(
        home=HOME,
        environment=Environment({}),
        model=ModelChoice("sim", "m", fallbacks),
        providers=providers,
        call=CallPolicy(
            first_token_timeout_s=4.0,
            idle_timeout_s=3.0,
            progress_timeout_s=6.0,
            total_timeout_s=25.0,
            max_attempts=MAX_ATTEMPTS,
        ),
        agent=AgentSettings(tools=(), max_turns=world.max_turns, max_tokens=world.max_tokens or None),
        approvals=Approvals(timeout_s=world.approval_s),
        store=Store(lease_s=world.lease_s),
        streaming=Streaming(platforms={"telegram": world.streaming}, min_tokens=3),
        platforms=Platforms({"telegram": TelegramSettings(enabled=True, allow=("*",))}),
    )


class Surroundings(Protocol):
    """What a node finds around it."""

    loop: SimulatedLoop
    world: World
    store: WorldStore
    provider: SimulatedProvider
    chat: ChatService
    config: Config

    def trace(self, line: str) -> None: ...

    def act(self, name: str, args: JsonObject) -> None: ...

    def takes_s(self, args: JsonObject) -> float: ...


class Node:
    """One place where a process of the runtime is kept running."""

    def __init__(self, around: Surroundings, number: int, *, serves_chat: bool) -> None:
        self._around = around
        self._number = number
        self._serves_chat = serves_chat
        self._generation = 0
        self._leaving = False
        self._over = False
        self._end = asyncio.Event()
        self.process: Process | None = None
        self.app: App | None = None  # while it serves
        self.processes: list[Process] = []

    # ── its processes ──

    def start(self) -> None:
        if self._over or (self.process is not None and not self.process.dead):
            return
        self._generation += 1
        self.process = process = Process(f"n{self._number}.{self._generation}")
        self.processes.append(process)
        self._end = asyncio.Event()
        self._leaving = False
        process.on_death.append(lambda: self._died(process))
        process.start(self._around.loop, self._main(process), "main")
        self._around.trace(f"start {process.name}")

    def _died(self, process: Process) -> None:
        self._around.trace(f"dead {process.name}")
        if self.process is process:
            self.app = None

    def kill(self, steps: int, back_s: float) -> None:
        if self.process is None or self.process.dead:
            return
        if steps:
            self.process.dies_at = self.process.steps + steps
        else:
            self.process.kill()
        self._around.loop.call_later(back_s, self.start_again, self.process)

    def start_again(self, before: Process) -> None:
        """A process that has not died by now does so: it was idle, and made no more steps."""
        before.kill()
        self.start()

    def hang(self, for_s: float) -> None:
        process = self.process
        if process is not None and not process.dead and not process.hung:
            process.hung = True
            self._around.trace(f"hang {process.name} for {for_s:g} s")
            self._around.loop.call_later(for_s, self._around.loop.resume, process)

    def leave(self, back_s: float) -> None:
        """SIGTERM: it hands over and ends."""
        if self.app is not None and self.process is not None and not self.process.dead:
            self._leaving = True
            self._around.trace(f"leave {self.process.name}")
            self._end.set()
            self._around.loop.call_later(back_s, self.start)

    def stop_for_good(self) -> Process | None:
        """The world is about to end: the process ends as after SIGTERM."""
        self._over = True
        self._end.set()
        return self.process if self.process is not None and not self.process.dead else None

    async def _main(self, process: Process) -> None:
        around = self._around
        try:
            async with AsyncExitStack() as stack:
                await self._serve(stack)
        except TailraceError as exc:
            around.trace(f"{process.name} ends: {type(exc).__name__}")
        except BaseExceptionGroup as group:
            if group.split(TailraceError)[1] is not None:
                raise
            around.trace(f"{process.name} ends: {type(group.exceptions[0]).__name__}")
        if requests := [task for task in process.tasks if task.get_name() == REQUEST and not task.done()]:
            await asyncio.wait(requests, timeout=LAST_REQUESTS_S)
        if not process.dead:
            around.trace(f"end {process.name}")
        self._exit(process)

    def _exit(self, process: Process) -> None:
        """The process has run to its end: what it left undone is checked, and then it is dead to the others."""
        if self.process is process:
            self.app = None
        me = asyncio.current_task()
        process.left_behind = [task.get_name() for task in process.tasks if not task.done() and task is not me]
        loop = self._around.loop
        loop.call_soon(process.kill, context=loop.outside)
        loop.call_later(RESTART_S, self.start, context=loop.outside)

    async def _serve(self, stack: AsyncExitStack) -> None:
        around = self._around
        journal = await around.store.open_journal()
        stack.push_async_callback(journal.close)
        tools = [CountedTool(name, around.act, around.takes_s) for name in ("look", "push", "launch")]
        app = App(around.config, journal, Models(around.config, around.provider), directory=Path("/"), tools=tools)
        if around.world.key_tokens:
            key = ServerKey(name=REQUESTER, key_env="KEY", tokens_per_day=around.world.key_tokens)
            app.limits.take_keys([key])
            app.usage.limited = app.limits.names
        app.limits._clock = app.usage._clock = around.loop.wall_time
        app.caller.rng = random.Random(self._number * 1000 + self._generation)
        for service in (app.agents, app.calls, app.flows):
            service._clock = around.loop.wall_time
            await stack.enter_async_context(service)
        stack.push_async_callback(app.release)
        gateway: Gateway | None = None
        if self._serves_chat:
            gateway = Gateway(app, [SimulatedPlatform(around.chat, around.loop, around.world)])
            await stack.enter_async_context(gateway)
            for runner in gateway._runners:
                runner.deliveries._clock = around.loop.wall_time
        await app.recover()
        self.app = app
        async with asyncio.TaskGroup() as group:
            recovering = group.create_task(app.keep_recovering())
            await self._end.wait()
            self.app = None
            recovering.cancel()
        if self._leaving:
            if gateway is not None:
                await gateway.hand_over()
            await app.hand_over()
        await asyncio.sleep(0)

    # ── requests from outside ──

    async def request(
        self, work: Callable[[App], Coroutine[Any, Any, T]], *, timeout_s: float | None = REQUEST_TIMEOUT_S
    ) -> T:
        """What a client gets for its request. Raises `NodeGone`, `TimeoutError` and what the request raises. A client
        that leaves cancels its request."""
        loop, process, app = self._around.loop, self.process, self.app
        if app is None or process is None or process.dead:
            raise NodeGone
        answer: asyncio.Future[T] = loop.create_future()
        CHARGED_TO.set(REQUESTER)
        task = process.start(loop, work(app), REQUEST)

        def settle(_task: asyncio.Task[T]) -> None:
            if task.cancelled():
                _fail(answer, NodeGone())
            elif (error := task.exception()) is not None:
                _fail(answer, error)
            elif not answer.done():
                answer.set_result(task.result())

        task.add_done_callback(settle, context=loop.outside)
        process.on_death.append(lambda: _fail(answer, NodeGone()))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        finally:
            if not task.done():
                loop.call_soon(task.cancel, context=process.context)


def _fail(answer: asyncio.Future[Any], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # whoever waited may have left
