"""What a viewer of an instance is sent, from the entries of its log.

Stateless: each entry stands for one event or none, under its own number, so that a viewer resumes at any of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tailrace import events
from tailrace.messages import JsonObject
from tailrace.ports import StoredLine
from tailrace.runs.view import RunView, changes

ENDINGS: dict[events.RunStatus, events.InstanceState] = {
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


def instance_events(entries: Iterable[events.Entry]) -> list[InstanceEvent]:
    return [event for entry in entries if (event := _event(entry)) is not None]


def instance_frame(line: StoredLine) -> bytes:
    """A stored entry as a server-sent event; empty for one that viewers of an instance are not sent."""
    if line.type == _DELTA:  # nearly every entry: its event has the same fields
        data = b'%b,"attempt":%d}' % (line.json[:-1], line.attempt)
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (line.seq, _DELTA, data)
    event = _event(line.entry)
    return event.sse if event is not None else b""


_DELTA = events.event_type(events.LlmDelta("", "")).encode()


def _event(entry: events.Entry) -> InstanceEvent | None:
    """What an entry changes in an instance depends on no entry before it."""
    made = (_sent(change) for change in RunView().apply(entry))
    return next((event for event in made if event is not None), None)


def _sent(change: changes.Change) -> InstanceEvent | None:
    match change:
        case changes.RunBegan():
            return _made(change, "state", state="scheduled")
        case changes.InstanceMoved(state=state):
            return _made(change, "state", state=state)
        case changes.StepMoved():
            return _step(change)
        case changes.TextGrew(block_id=block_id, text=text) if block_id:
            return _made(change, "llm_delta", block_id=block_id, delta=text, attempt=change.attempt)
        case changes.TextWithdrawn(block_id=block_id, reason=reason) if block_id:
            return _made(change, "attempt_discarded", block_id=block_id, attempt=change.attempt, reason=reason)
        case changes.Ended(finished=finished):
            return _made(
                change,
                "done",
                state=ENDINGS[finished.status],
                error=_failure(finished.error),
                usage={"input_tokens": 0, "output_tokens": 0, **msgspec.to_builtins(finished.usage)},
            )
        case changes.Restored(state=state):  # what is no longer kept piece by piece
            return _made(change, "snapshot", **snapshot_data(state))
        case _:
            return None


def _step(change: changes.StepMoved) -> InstanceEvent | None:
    block_id, state = change.block_id, change.state
    match state:
        case "started":
            return _made(change, "step", block_id=block_id, state=state, number=change.number)
        case "failed" | "retrying":
            error = _failure(change.error)
            how: JsonObject = {"number": change.number, "error": error, "retry_at": change.retry_at}
            return _made(change, "step", block_id=block_id, state=state, **how)
        case "finished":
            return _made(change, "output", block_id=block_id, output=change.output)
        case "cancelled":
            return None


def snapshot_data(state: events.Snapshot) -> JsonObject:
    """The folded state: outputs by block, and what open steps have said so far."""
    return {
        "state": state.state or "scheduled",
        "outputs": {step.block_id: step.output for step in state.steps if step.state == "finished"},
        "texts": {step.block_id: step.text.text for step in state.steps if step.text.text},
    }


def _made(change: changes.Change, kind: str, **data: Any) -> InstanceEvent:
    return InstanceEvent(change.seq, kind, data)


def _failure(error: events.RunFailure | None) -> JsonObject | None:
    built: JsonObject | None = msgspec.to_builtins(error)
    return built
