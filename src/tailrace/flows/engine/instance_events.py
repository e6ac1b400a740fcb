"""What a viewer of an instance is sent, from the entries of its log.

Stateless: each entry stands for one event or none, under its own number, so that a viewer resumes at any of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, assert_never

import msgspec

from tailrace.events import (
    ApprovalFact,
    AttemptDiscarded,
    AttemptFact,
    Delivered,
    Entry,
    HistoryFact,
    InstanceState,
    LlmDelta,
    ReasoningChunk,
    RunFailure,
    RunFinished,
    RunForked,
    RunStarted,
    RunStatus,
    SignalReceived,
    Snapshot,
    StateChanged,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepStarted,
    StreamEvent,
    event_type,
    from_json,
)
from tailrace.messages import JsonObject
from tailrace.ports import StoredLine

_NotSent: TypeAlias = (
    RunForked
    | StepCancelled
    | SignalReceived
    | StreamEvent
    | ReasoningChunk
    | AttemptFact
    | HistoryFact
    | ApprovalFact
    | Delivered
)
ENDINGS: dict[RunStatus, InstanceState] = {
    "completed": "completed",
    "incomplete": "failed",
    "failed": "failed",
    "stopped": "cancelled",
}


class InstanceEvent(msgspec.Struct, frozen=True):
    """`type` is what it is called on the wire: state, step, llm_delta, attempt_discarded, output, snapshot or done."""

    seq: int
    type: str
    data: JsonObject

    @property
    def sse(self) -> bytes:
        data = msgspec.json.encode({"type": self.type, **self.data})
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.seq, self.type.encode(), data)


def instance_events(entries: Iterable[Entry]) -> list[InstanceEvent]:
    return [event for entry in entries if (event := _event(entry)) is not None]


def instance_frame(line: StoredLine) -> bytes:
    """A stored entry as a server-sent event; empty for one that viewers of an instance are not sent."""
    if line.type == _DELTA:  # nearly every entry: its event has the same fields
        data = b'%b,"attempt":%d}' % (line.json[:-1], line.attempt)
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (line.seq, _DELTA, data)
    event = _event(Entry(line.seq, from_json(line.json), line.attempt))
    return event.sse if event is not None else b""


_DELTA = event_type(LlmDelta("", "")).encode()


def _event(entry: Entry) -> InstanceEvent | None:
    match entry.event:
        case RunStarted():
            return _made(entry, "state", state="scheduled")
        case StateChanged(state):
            return _made(entry, "state", state=state)
        case StepStarted(block_id, number):
            return _made(entry, "step", block_id=block_id, state="started", number=number)
        case StepFailed(block_id, error, number, retry_at):
            how = "failed" if retry_at is None else "retrying"
            return _made(
                entry, "step", block_id=block_id, state=how, number=number, error=_failure(error), retry_at=retry_at
            )
        case LlmDelta(block_id, delta):
            return _made(entry, "llm_delta", block_id=block_id, delta=delta, attempt=entry.attempt)
        case AttemptDiscarded(reason, block_id) if block_id:
            return _made(entry, "attempt_discarded", block_id=block_id, attempt=entry.attempt, reason=reason)
        case StepFinished(block_id, output):
            return _made(entry, "output", block_id=block_id, output=output)
        case RunFinished(status, _, usage, error):
            return _made(
                entry,
                "done",
                state=ENDINGS[status],
                error=_failure(error),
                usage={"input_tokens": 0, "output_tokens": 0, **msgspec.to_builtins(usage)},
            )
        case Snapshot():  # what is no longer kept piece by piece
            return _made(entry, "snapshot", **snapshot_data(entry.event))
        case _ if isinstance(entry.event, _NotSent):
            return None
        case _:
            assert_never(entry.event)


def snapshot_data(state: Snapshot) -> JsonObject:
    """The folded state: outputs by block, and what open steps have said so far."""
    return {
        "state": state.state or "scheduled",
        "outputs": {step.block_id: step.output for step in state.steps if step.state == "finished"},
        "texts": {step.block_id: step.text.text for step in state.steps if step.text.text},
    }


def _made(entry: Entry, kind: str, **data: Any) -> InstanceEvent:
    return InstanceEvent(entry.seq, kind, data)


def _failure(error: RunFailure | None) -> JsonObject | None:
    built: JsonObject | None = msgspec.to_builtins(error)
    return built
