"""An event loop without sockets, threads and waiting, on which several processes of a simulated world run side by side.

Owns the order of steps, the clock, and which process a step belongs to. The clock stands still while a step runs and
jumps to the next timer when none is left. A step belongs to the process in whose context it was scheduled: the steps of
a process that was killed are dropped, as `kill -9` drops them, and those of one that hangs wait until it goes on.

Knows nothing of what runs on it.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
EPOCH_S = 1000.0  # where the clock starts: not 0, so that a time of 0 shows up as a mistake
WALL_S = 1_800_000_000.0  # the wall clock where the clock of the loop is 0
_CLOSES = 100  # how often a coroutine is told to end that awaits something on its way out
PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class Stuck(RuntimeError):
    """Every task waits and no timer is set: nothing will ever happen again."""


class EndlessWorld(RuntimeError):
    """So many steps were made that something repeats itself for ever."""


class Process:
    """One process of the world: the steps that bear its context."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.hung = False
        self.steps = 0
        self.dies_at: int | None = None  # the step before which it is killed
        self.left_behind: list[str] | None = None  # tasks, where it has run to its end
        self.on_death: list[Callable[[], None]] = []
        self.tasks: list[SimulatedTask[Any]] = []
        self.deferred: list[Step] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def kill(self) -> None:
        if not self.dead:
            self.dead = True
            self.deferred.clear()
            for call in self.on_death:
                call()

    def start(self, loop: SimulatedLoop, work: Coroutine[Any, Any, T], name: str) -> SimulatedTask[T]:
        """A task of this process, whoever starts it."""
        return loop.create_task(work, name=name, context=self.context.copy())

    def unfinished(self) -> list[str]:
        return [task.get_name() for task in self.tasks if not task.done()]

    def bury(self) -> None:
        """Ends the coroutines that the process left behind; the world is over, so that nothing they do counts."""
        for task in list(self.tasks):
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(task.get_coro())
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.clear()


def _close(work: Any) -> None:
    """Ends the coroutine, however often it awaits something on its way out. A task group waits for its tasks whatever
    is raised in it, so that each kind of end is tried."""
    for number in range(_CLOSES):
        try:
            work.throw(GeneratorExit() if number % 2 else asyncio.CancelledError())
        except BaseException:  # noqa: BLE001 - the process is dead: no caller waits for what its end raises
            return


class SimulatedTask(asyncio.Task[T]):
    """Sets of tasks are walked through in the order of their numbers, not of their addresses in memory."""

    number: int

    def __hash__(self) -> int:
        return self.number


class SimulatedFuture(asyncio.Future[T]):
    number: int

    def __hash__(self) -> int:
        return self.number


class Step(asyncio.TimerHandle):
    """A call that is due: what a handle of asyncio is, without what helps to debug one."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, when: float) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._when = when

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class _Timer(float):
    """The time of a step. Timers are compared very often, as the numbers that they are."""

    __slots__ = ("step",)
    step: Step


class SimulatedLoop(asyncio.BaseEventLoop):
    """`max_steps` is how many steps a world may take."""

    def __init__(self, rng: random.Random, *, max_steps: int = 60_000) -> None:
        super().__init__()
        self._now = EPOCH_S
        self._rng = rng
        self._numbers = 0
        self._max_steps = max_steps
        self.steps = 0
        self.over = False  # nothing begins any more
        self._due: deque[Step] = deque()
        self._timers: list[_Timer] = []
        self._readers: dict[int, Step] = {}
        self.outside = Context()  # of what happens in no process: the peers, the people, the world itself
        self._clock_resolution = 1e-9

    # ── time and order ──

    def time(self) -> float:
        return self._now

    def wall_time(self) -> float:
        return WALL_S + self._now

    def _run_once(self) -> None:
        """Every step until the loop is told to stop."""
        due = self._due
        while not self._stopping:  # type: ignore[attr-defined]
            if not due:
                self._pass_time(due)
            step = due.popleft()
            if step._cancelled:
                continue
            self.steps += 1
            if self.steps > self._max_steps:
                raise EndlessWorld(f"more than {self._max_steps} steps, until {self._now - EPOCH_S:.0f} s")
            context = step._context
            process = context.get(PROCESS)
            if process is not None:
                if process.dead:
                    continue
                if process.hung:
                    process.deferred.append(step)
                    continue
                process.steps += 1
                if process.dies_at is not None and process.steps >= process.dies_at:
                    process.kill()
                    continue
            try:
                context.run(step._callback, *step._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as exc:  # noqa: BLE001 - as a handle of asyncio does
                self.call_exception_handler(
                    {"message": f"Exception in callback {step._callback!r}", "exception": exc, "handle": step}
                )

    def _pass_time(self, due: deque[Step]) -> None:
        timers, now = self._timers, 0.0
        while timers:
            timer = timers[0]
            step = timer.step
            if not step._cancelled:
                if not now:
                    self._now = now = max(self._now, step._when)
                elif timer > now:
                    return
                due.append(step)
            heapq.heappop(timers)
        if not due:
            raise Stuck("every task waits and no timer is set")

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Step:
        step = Step(callback, args, copy_context() if context is None else context, self._now)
        self._due.append(step)
        return step

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Step:
        when = self._now + delay
        timer = _Timer(when)
        timer.step = step = Step(callback, args, copy_context() if context is None else context, when)
        heapq.heappush(self._timers, timer)
        return step

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Step:
        timer = _Timer(when)
        timer.step = step = Step(callback, args, copy_context() if context is None else context, when)
        heapq.heappush(self._timers, timer)
        return step

    def resume(self, process: Process) -> None:
        """A process that hung goes on with all that came meanwhile."""
        process.hung = False
        self._due.extend(process.deferred)
        process.deferred.clear()

    # ── tasks ──

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> SimulatedTask[T]:
        self._numbers += 1
        if self.over:
            return self._never_begun(coro)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        SimulatedTask.number = self._numbers  # a task is hashed while it is made
        task = SimulatedTask(coro, loop=self, name=str(name or f"task-{self._numbers}"), context=context)
        task.number = self._numbers
        if process is not None:
            process.tasks.append(task)
        return task

    def _never_begun(self, coro: Any) -> SimulatedTask[Any]:
        coro.close()
        future: Any = self.create_future()
        future.cancel()
        return future  # type: ignore[no-any-return]

    def create_future(self) -> SimulatedFuture[Any]:
        self._numbers += 1
        future: SimulatedFuture[Any] = SimulatedFuture(loop=self)
        future.number = self._numbers
        return future

    # ── what would be threads, pipes and sockets ──

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Step:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, _executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        self.call_later(self._rng.random() * 0.002, self._work, future, func, args)
        return future

    def _work(self, future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        if future.cancelled():
            return
        try:
            result = func(*args)
        except Exception as exc:  # noqa: BLE001 - the caller's, as with a thread
            future.set_exception(exc)
        else:
            future.set_result(result)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._readers[fd] = Step(callback, args, copy_context(), self._now)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def wake(self, fd: int) -> None:
        """What is read from this descriptor has come."""
        if (step := self._readers.get(fd)) is not None:
            self._due.append(step)

    @property
    def open_readers(self) -> int:
        return len(self._readers)

    def _process_events(self, _event_list: list[Any]) -> None:
        raise AssertionError("there is no selector")

    def _write_to_self(self) -> None:
        """Nothing waits that would have to be woken."""


async def never() -> None:
    """Until the caller is cancelled."""
    with suppress(GeneratorExit):
        await asyncio.get_running_loop().create_future()
