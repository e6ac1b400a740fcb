"""Does what is due in an instance, records it, applies it; and again, until nothing is due.

Owns the instance's I/O and its interruption. What comes next is `Plan`'s decision alone, so an instance that was
interrupted by a crash goes on here with no code of its own: its facts are replayed and what is due is done.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tailrace import events
from tailrace.errors import JournalError
from tailrace.flows.definition.definition import Budget, Retry, Step, seconds_of
from tailrace.flows.engine.budget import check_budget
from tailrace.flows.engine.instance_events import ENDINGS
from tailrace.flows.engine.plan import CANCEL, PAUSE, Plan, RunStep
from tailrace.flows.language.expressions import ExpressionError, Scope, evaluate, is_true, parse_condition
from tailrace.flows.language.scope import WithNames, check_inputs
from tailrace.flows.steps.base import Handler, Handlers, StepContext, StepError, as_step_error
from tailrace.flows.steps.step_stream import Audience, StepStream
from tailrace.journal.fold import outputs_text
from tailrace.ports import Journal, Lease, Signal
from tailrace.providers.open_attempt import OpenAttempt
from tailrace.providers.prices import ListPrices, Prices
from tailrace.runs.record import RecordedFold
from tailrace.runs.signals import STOP, FlatTaskGroup, run_signalled
from tailrace.values.redact import without_secrets
from tailrace.values.validation_words import decoding_problem

log = logging.getLogger("tailrace.flows")
WATCH = "tailrace.watch"  # the signal of a viewer in another process; not part of the record
_RNG = random.Random()  # noqa: S311 - spreads retries, guards nothing
INTERRUPTED = "it was interrupted before it finished; it may or may not have taken effect, so it was not run again"

SPREAD = 0.2  # a delay is shortened by up to this share, so that a thousand instances do not come back as one


def retry_delay_s(retry: Retry | None, error: StepError, number: int, scope: Scope, rng: random.Random) -> float | None:
    """Seconds until the next try after this one, the `number`th, has failed; None where there is none."""
    if retry is None or number >= retry.max_attempts or not _wanted(retry, error, number, scope):
        return None
    limit_s = seconds_of(retry.max_backoff)
    delay_s = min(seconds_of(retry.initial_backoff) * retry.backoff_multiplier ** min(number - 1, 1000), limit_s)
    delay_s *= 1.0 - SPREAD * rng.random()
    if error.retry_after_s is not None:
        delay_s = max(delay_s, min(error.retry_after_s, limit_s))
    return delay_s


def _wanted(retry: Retry, error: StepError, number: int, scope: Scope) -> bool:
    match retry.retry_if:
        case None:
            return error.kind == "retryable"
        case str(condition):
            names = {"error": {"kind": error.kind, "code": error.code, "message": str(error)}, "attempt": number}
            return is_true(evaluate(parse_condition(condition), WithNames(scope, names), strict=False))
        case kinds:
            return error.kind in kinds or error.code in kinds


class Surroundings(msgspec.Struct, frozen=True):
    """What the instances of a process have in common, and what is one instance's own."""

    handlers: Handlers
    directory: Path
    environment: Mapping[str, str]  # what `env` may show
    budget: Budget | None = None
    prices: Prices = ListPrices()
    dry_run: bool = False
    requester: str = ""
    is_admin: bool = False
    clock: Callable[[], float] = time.time


class SignalMailbox:
    """The signals of one instance that no step has taken."""

    def __init__(self, plan: Plan) -> None:
        self._waiting = list(plan.signals)
        self._arrived = asyncio.Event()

    def put(self, signal: events.SignalReceived) -> None:
        self._waiting.append(signal)
        self._arrived.set()

    async def take_signal(self, name: str) -> events.SignalReceived:
        while True:
            for signal in self._waiting:
                if signal.name == name:
                    self._waiting.remove(signal)
                    return signal
            self._arrived.clear()
            await self._arrived.wait()


class InstanceRunner:
    """One instance, from its facts so far to its sealed end."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        plan: Plan,
        surroundings: Surroundings,
        *,
        rng: random.Random | None = None,
        left: Mapping[str, OpenAttempt] | None = None,
    ) -> None:
        """`left`: the attempts of steps that were under way when an earlier process ended, by block."""
        self._journal = journal
        self._lease = lease
        self.plan = plan
        self._with = surroundings
        self._rng = rng if rng is not None else _RNG
        # By block: answers to reattach to, of an earlier process or from before a pause.
        self._resumable = {
            block_id: answer for block_id, attempt in (left or {}).items() if (answer := attempt.resumable) is not None
        }
        self._record = RecordedFold(journal, lease, plan, due=self._due, log=log)
        self._signals = SignalMailbox(plan)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()
        self.audience = Audience()
        self.ending = False  # its end is being stored: `plan` is ahead of what the journal has

    async def run(self) -> events.RunFinished:
        """Runs the instance to its end and seals it. Cancelled from outside it leaves the run as it is, unfinished and
        with all that happened on record. Raises `StaleEpoch` where the lease is lost, `JournalError` where storage
        fails."""
        self.plan.interrupt()
        work, after = self._run_steps(), self.plan.last_signal
        await run_signalled(work, self._journal, self._lease, self._on_signal, after=after)
        return await self._seal()

    async def _run_steps(self) -> None:
        async with FlatTaskGroup() as group:
            try:
                await self._drive(group)
            finally:
                for task in self._tasks.values():
                    task.cancel()

    # ── what is due ──────────────────────────────────────────────────────────────────────────────────────────

    async def _drive(self, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for block_id in self.plan.withdrawn():
                self._withdraw(block_id)
            if self.plan.settled or self.plan.stopped:
                return
            self._note_state()
            for command in self._due():
                self._start(group, command)
            self._note_state()
            self._woken.clear()
            timer = None
            if (at := self.plan.next_at()) is not None:
                timer = loop.call_later(max(0.0, at - self._with.clock()), self._woken.set)
            elif not self._tasks and not self.plan.paused:
                raise RuntimeError(f"instance {self._lease.run_id}: nothing is due and nothing runs")
            await self._woken.wait()
            if timer is not None:
                timer.cancel()

    def _due(self) -> list[RunStep]:
        return self.plan.due(self._with.clock())

    def _note_state(self) -> None:
        if (state := self.plan.state()) != self.plan.known_state:
            self._record.add(events.StateChanged(state))

    def _start(self, group: asyncio.TaskGroup, command: RunStep) -> None:
        if command.open_attempt and command.block_id not in self._resumable:
            discarded = events.AttemptDiscarded("interrupted", command.block_id)
            self._record.add(discarded, attempt=command.open_attempt)
        self._record.add(events.StepStarted(command.block_id, command.number, self._with.clock()))
        task = group.create_task(self._run_step(command))
        self._tasks[command.block_id] = task
        task.add_done_callback(lambda done: self._ended(command.block_id, done))

    def _ended(self, block_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(block_id) is task:
            del self._tasks[block_id]
        if task.cancelled():
            self.plan.interrupt(block_id)  # a pause: it is due again afterwards
        self._woken.set()

    def _withdraw(self, block_id: str) -> None:
        self._record.add(events.StepCancelled(block_id))
        if (task := self._tasks.pop(block_id, None)) is not None:
            task.cancel()

    # ── one try of one step ──────────────────────────────────────────────────────────────────────────────────

    async def _run_step(self, command: RunStep) -> None:
        resumed = self._resumable.pop(command.block_id, None)
        stream = StepStream(self._record, self.audience, command.block_id, command.attempts, resumed)
        self.audience.streams.add(stream)
        try:
            output = _as_json(await self._try(command, stream))
            if self.plan.is_open(command.block_id):
                stream.finish(events.StepFinished(command.block_id, output))
        except asyncio.CancelledError:
            answer = stream.resumable_answer()
            if answer is not None and self._is_wanted(command.block_id):
                self._resumable[command.block_id] = answer
            else:
                stream.discard("interrupted")
            raise
        except JournalError:
            raise  # the run is no longer ours to write, or cannot be written
        except Exception as exc:  # noqa: BLE001 - the top of the step: whatever it is becomes its failure
            self._fail(command, as_step_error(exc), stream)
        finally:
            self.audience.streams.discard(stream)

    async def _try(self, command: RunStep, stream: StepStream) -> Any:
        step = command.step
        if (handler := self._with.handlers.get(step.handler)) is None:
            raise StepError(f"there is no handler {step.handler!r} here", code="handler")
        started_at = command.started_at if command.started_at is not None else self._with.clock()
        params = self._params(handler, step, command.block_id)
        await self._check_budget(command, handler, params)
        if not handler.repeatable(params) and not self._with.dry_run:
            if command.interrupted:
                raise StepError(INTERRUPTED, code="interrupted")
            await self._record.commit()  # durable before it happens: after a crash it counts as begun (I106)
        timeout_s = step.timeout_secs
        if timeout_s is not None and handler.waits:
            timeout_s = max(0.0, started_at + timeout_s - self._with.clock())
        limit = asyncio.timeout(timeout_s)

        def is_wanted() -> bool:
            return not limit.expired() and self._is_wanted(command.block_id)

        stream.goes_on_later = is_wanted
        context = StepContext(
            instance_id=self._lease.run_id,
            block_id=command.block_id,
            number=command.number,
            started_at=started_at,
            directory=self._with.directory,
            log=stream,
            signals=self._signals,
            now=self._with.clock,
            has_retry=step.retry is not None,
            prices=self._with.prices,
            requester=self._with.requester,
            is_admin=self._with.is_admin,
            is_wanted=is_wanted,
            commit=self._record.commit,
        )
        try:
            async with limit:
                return await (handler.dry_run if self._with.dry_run else handler.run)(params, context)
        except TimeoutError as exc:
            if limit.expired():
                message = f"no result within {step.timeout_secs:g} s"
                raise StepError(message, kind="retryable", code="timeout") from exc
            raise

    async def _check_budget(self, command: RunStep, handler: Handler[Any], params: Any) -> None:
        budget, is_under_way = self._with.budget, command.interrupted and not handler.interruptible(params)
        if budget is not None and not (self._with.dry_run or is_under_way) and (asked := handler.asks(params)):
            await check_budget(budget, self.plan, self._with.prices, asked)

    def _is_wanted(self, block_id: str) -> bool:
        """Whether the step goes on later, here or in another process."""
        return self.plan.is_open(block_id) and not self.plan.stopped

    def _params(self, handler: Handler[Any], step: Step, block_id: str) -> Any:
        frame = self.plan.scope(block_id)
        scope = WithNames(frame, {"env": self._with.environment})
        try:
            if self._with.dry_run:
                check_inputs(step.params, frame)
            return handler.convert(handler.fill(step.params, scope, strict=not self._with.dry_run))
        except ExpressionError as exc:
            raise StepError(str(exc), code="template") from exc

    def _fail(self, command: RunStep, error: StepError, stream: StepStream) -> None:
        stream.discard(str(error))
        if not self.plan.is_open(command.block_id):
            return
        scope = self.plan.scope(command.block_id)
        delay_s = retry_delay_s(command.step.retry, error, command.number, scope, self._rng)
        retry_at = self._with.clock() + delay_s if delay_s is not None else None
        # Without what came from the environment: an error may quote the parameters it failed with (J114).
        message = without_secrets(str(error), self._with.environment.values())
        failure = events.RunFailure(error.kind, message, error.code)
        self._record.add(events.StepFailed(command.block_id, failure, command.number, retry_at))

    # ── signals ──────────────────────────────────────────────────────────────────────────────────────────────

    def _on_signal(self, signal: Signal) -> None:
        if signal.name == WATCH:
            self.audience.join_elsewhere()
            return
        name = CANCEL if signal.name == STOP else signal.name
        received = events.SignalReceived(signal.id, name, signal.payload, signal.by)
        self._record.add(received)
        if name == PAUSE:
            self._interrupt_all()
        elif received in self.plan.signals:
            self._signals.put(received)
        self._woken.set()

    def _interrupt_all(self) -> None:
        """Whatever can be done again stops now; what cannot comes to its end first."""
        for block_id, task in self._tasks.items():
            if self._can_stop(block_id):
                task.cancel()

    def _can_stop(self, block_id: str) -> bool:
        if not self.plan.is_open(block_id):
            return False
        step = self.plan.step(block_id)
        handler = self._with.handlers[step.handler]
        try:
            return handler.interruptible(self._params(handler, step, block_id))
        except StepError:
            return True  # it is about to fail by itself

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _seal(self) -> events.RunFinished:
        status: events.RunStatus = "completed"
        error: events.RunFailure | None = None
        if self.plan.stopped:
            status, error = "stopped", events.RunFailure("cancelled", "cancelled")
        elif (failed := self.plan.failure) is not None:
            message = f"{failed.block_id}: {failed.error.message}"
            status, error = "failed", events.RunFailure(failed.error.kind, message, failed.error.code)
        self.ending = True
        self._record.add(events.StateChanged(ENDINGS[status]))
        output = outputs_text(self.plan.step_outputs)
        finished = events.RunFinished(status, output, self.plan.usage, error, self._with.clock())
        await self._journal.seal(self._lease, finished)
        return finished


def _as_json(output: Any) -> Any:
    """As it will be read from the log: what a replay sees is what the first run saw."""
    try:
        return msgspec.json.decode(msgspec.json.encode(output))
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        raise StepError(f"the output is no JSON: {decoding_problem(exc)}", code="output") from exc
