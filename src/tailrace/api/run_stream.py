"""One run for its caller: what it says and does as it comes, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final, Generic, Self

import msgspec

from tailrace.agent.turn import Turn
from tailrace.api.output_type import OutputType
from tailrace.api.question import Question, message_of
from tailrace.app import App
from tailrace.errors import RunFailed
from tailrace.events import AnyEvent, ApprovalAsked, Decision, Entry, NotExecuted, RunFailure, RunStatus, SteerSoFar
from tailrace.flows.schema.incremental import PartialAnswer
from tailrace.messages import Message, Usage
from tailrace.runs.recovery import follow
from tailrace.runs.view import RunView
from tailrace.runs.view.changes import Change, Ended, TextGrew, TextWithdrawn

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=str)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")
REQUESTER: Final = "python"
_GROWTH: Final = 0.05  # of the text, from one draft to the next: all drafts of an answer cost a multiple of its length


class RunResult(msgspec.Struct, Generic[OutputT], frozen=True):
    """How a run ended. `output` is its object, where the agent has a type for it, else the text; it raises `RunFailed`
    for a run that did not complete. `text` is exactly what was streamed since the last tool, however the run ended.
    `error` says why it did not complete; `not_executed` what the model wanted to do and was denied, refused or lost,
    also in a run that completed. `messages` are the question and all that followed."""

    text: str
    status: RunStatus
    usage: Usage
    error: RunFailure | None = None
    run_id: str = ""
    not_executed: tuple[NotExecuted, ...] = ()
    messages: tuple[Message, ...] = ()
    value: OutputT | None = None

    def __repr__(self) -> str:
        outcome = f"output={self.value!r}" if self.completed else f"text={self.text!r}, error={self.error!r}"
        return f"RunResult({outcome}, status={self.status!r}, usage={self.usage!r}, run_id={self.run_id!r})"

    @property
    def output(self) -> OutputT:
        if self.value is None or not self.completed:
            raise self.failure()
        return self.value

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    def raise_for_status(self) -> Self:
        """Itself, unless the run failed, or was to bring an object and has not. Raises `RunFailed` with the reason."""
        if self.status == "failed" or self.value is None:
            raise self.failure()
        return self

    def failure(self) -> RunFailed:
        """What `output` and `raise_for_status` raise."""
        message = self.error.message if self.error is not None else f"the run is {self.status}"
        return RunFailed(message, status=self.status, kind=self.error.kind if self.error else "", run=self)


class RunStream(Generic[OutputT]):
    """A run under way: iterate over its events, its `text`, its `partial` objects or its `changes`. It goes on without
    being iterated over. Each begins after the entry `after`, and raises `RunParked` for a run that was set aside."""

    def __init__(self, app: App, run_id: str, output: OutputType[OutputT] | None = None, after: int = 0) -> None:
        self._app = app
        self._output = output
        self._after = after
        self._result: RunResult[OutputT] | None = None
        self.id = run_id

    def __aiter__(self) -> AsyncIterator[AnyEvent]:
        return (entry.event async for entry in self.entries)

    @property
    def events(self) -> AsyncIterator[AnyEvent]:
        """The events until the end."""
        return aiter(self)

    @property
    def entries(self) -> AsyncIterator[Entry]:
        """The events with their numbers: `seq` of the last one that was seen is the next `after`."""
        batches = follow(self._app.journal, self.id, after=self._after)
        return (entry async for batch in batches for entry in batch)

    @property
    def changes(self) -> AsyncIterator[Change]:
        """What a viewer is told: texts, calls, questions, the end."""
        view = RunView()
        return (change async for entry in self.entries for change in view.apply(entry))

    @property
    async def text(self) -> AsyncIterator[str]:
        """What the agent says, piece by piece as it comes; texts before and after a tool are lines apart. Raises
        `RunFailed` for a run that fails, after what it said."""
        apart = ""
        async for change in self.changes:
            if isinstance(change, TextGrew):
                if change.text:
                    yield apart + change.text
                apart = "\n" if change.ends else "" if change.text else apart
            elif isinstance(change, Ended) and change.finished.status == "failed":
                raise (await self.result()).failure()

    @property
    async def partial(self) -> AsyncIterator[OutputT]:
        """The object as far as it has come, each time that there is more: a field that has not come is None. The whole
        one, and it alone, is validated; an answer that is repaired begins anew. Raises as `text`, and `TypeError`
        without an `output` type."""
        if self._output is None:
            raise TypeError("an agent without output= has no object; read run.text")
        answer, size, due, shown = PartialAnswer(self._output.parsed_schema), 0, 0.0, None
        async for change in self.changes:
            if isinstance(change, TextWithdrawn) or (isinstance(change, TextGrew) and change.ends):
                answer, size, due, shown = PartialAnswer(self._output.parsed_schema), 0, 0.0, None
            elif isinstance(change, TextGrew):
                answer.feed(change.text)
                size += len(change.text)
                if size < due or answer.is_whole or (value := answer.value_so_far) == shown:
                    continue
                due, shown = size * (1 + _GROWTH), value
                if (draft := self._output.draft(value)) is not None:
                    yield draft
            elif isinstance(change, Ended):
                yield (await self.result()).output

    async def result(self) -> RunResult[OutputT]:
        """Waits for the end. Known behind the block of `stream` too."""
        if self._result is None:
            self._result = await self._result_at_end()
        return self._result

    async def _result_at_end(self) -> RunResult[OutputT]:
        end = await self._app.agents.finished(self.id)
        turn = Turn()
        turn.replay(await self._app.journal.facts(self.id))
        value: Any = end.output if self._output is None else None
        error = end.error
        if self._output is not None and end.status == "completed":
            try:
                value = self._output.parse(end.output)
            except (ValueError, msgspec.ValidationError) as exc:  # no process with the program has checked it
                error = RunFailure("permanent", f"the answer is not what was asked for: {exc}")
        return RunResult(end.output, end.status, end.usage, error, self.id, turn.not_executed, turn.messages, value)

    async def approve(self, question: ApprovalAsked, decision: Decision = "once", *, reason: str = "") -> None:
        """Answers a question of the run, where the agent's `on_approval` is "wait"."""
        app = self._app
        await app.agents.answer(self.id, question.approval_id, decision, by=question.requester, reason=reason)

    async def steer(self, message: Question) -> SteerSoFar:
        """A message for the run that is under way: its next model call has it. Raises `SteerRefused`."""
        read = await asyncio.to_thread(message_of, message)
        return await self._app.steering.steer(self.id, read, by=REQUESTER)

    async def stop(self) -> None:
        """Ends the run; its text stays."""
        await self._app.agents.stop(self.id)
