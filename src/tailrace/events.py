"""The log's vocabulary: seven stream events for whoever presents a run, and the run's own facts.

Frozen, no behaviour, no platform knowledge. Names and fields are a contract. In JSON an event is an object whose
`type` is the class name in snake case; an `Entry` adds `seq` and `attempt` to the same object.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias, dataclass_transform

import msgspec

from tailrace.messages import Message, Usage

RunStatus = Literal["completed", "incomplete", "failed", "stopped"]
Decision = Literal["once", "session", "always", "deny"]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@dataclass_transform(frozen_default=True)  # what mypy must know of the subclasses
class Event(msgspec.Struct, frozen=True, tag=_snake):
    """Base of everything that can stand in a run's log."""


# ── the seven stream events ──────────────────────────────────────────────────────────────────────────────────


class MessageChunk(Event):
    """The next piece of the visible answer. Never reasoning."""

    text: str


class MessageStop(Event):
    """Closes a bubble. `final=False` at a tool boundary; `final=True` exactly once, last of these seven."""

    final: bool = False


class Commentary(Event):
    """A whole text between tools that did not arrive in chunks."""

    text: str


class ToolCallChunk(Event):
    """A tool call begins. `index` grows by one per call within the run."""

    tool_name: str
    preview: str | None = None
    args: dict[str, Any] | None = None
    index: int = 0


class ToolCallFinished(Event):
    """A tool call ended. Carries no output."""

    tool_name: str
    duration: float = 0.0
    ok: bool = True
    index: int = 0


class LongToolHint(Event):
    """A tool is taking long; sent once per call."""

    tool_name: str = ""
    duration: float = 0.0


class GatewayNotice(Event):
    """Something the user should know that is not part of the answer: a stall, a reconnect, a flood limit."""

    kind: str
    text: str = ""
    extra: dict[str, Any] = {}


StreamEvent: TypeAlias = (
    MessageChunk | MessageStop | Commentary | ToolCallChunk | ToolCallFinished | LongToolHint | GatewayNotice
)

# ── the run's own facts ──────────────────────────────────────────────────────────────────────────────────────


class RunStarted(Event):
    """First of every log. `at` is the wall clock in seconds since the epoch."""

    kind: str
    model: str = ""
    session: str = ""
    at: float = 0.0


class RunFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a run did not complete, in words for a person and a kind for a program. `code` is closer than the kind;
    `status` is the HTTP status that a failed call stands for, 0 where none does."""

    kind: str
    message: str
    code: str = ""
    status: int = 0


class RunFinished(Event):
    """Last of every log. `output` is what a non-streaming call would have returned."""

    status: RunStatus
    output: str = ""
    usage: Usage = Usage()
    error: RunFailure | None = None
    at: float = 0.0


class AttemptStarted(Event, omit_defaults=True):
    """A try of a call at one provider begins. Which one: the entry's `attempt`, counted from 1 within the run, or
    within the block where it is a step's."""

    provider: str = ""
    model: str = ""
    block_id: str = ""


class AttemptDiscarded(Event, omit_defaults=True):
    """What the entry's `attempt` showed is withdrawn: viewers that can redraw do so."""

    reason: str = ""
    block_id: str = ""


class ReasoningChunk(Event):
    """Hidden unless asked for."""

    text: str


class MessageRecorded(Event):
    """A message joined the history: whole, so that a reader may skip every chunk before it. `stop` says how the
    model's answer ended: a neutral stop reason, "cut" where the stream broke for good, "stopped" by the user."""

    message: Message
    stop: str = ""


class ToolOutputRecorded(Event):
    """A tool's answer, recorded before anybody uses it."""

    call_id: str
    tool_name: str
    output: str
    ok: bool = True


class ApprovalAsked(Event):
    """`digest` binds the answer to exactly what will run; `requester` to who may give it."""

    approval_id: str
    tool_name: str
    command: str
    digest: str
    requester: str = ""
    call_id: str = ""
    reason: str = ""


class HistoryCompressed(Event):
    """The context was full: from here on these messages stand for everything that came before."""

    messages: tuple[Message, ...]


class ApprovalAnswered(Event):
    approval_id: str
    decision: Decision
    by: str = ""


class UsageRecorded(Event):
    """Tokens of one attempt, also of one that failed or was cancelled."""

    usage: Usage
    provider: str = ""
    model: str = ""


# ── a sequence's own facts ───────────────────────────────────────────────────────────────────────────────────
# `block_id` is the block's id; inside an iteration or a sub-sequence the ids on the way to it stand before it:
# `each[2].summarise`.

InstanceState = Literal["scheduled", "running", "waiting", "paused", "completed", "failed", "cancelled"]


class StateChanged(Event):
    """What the instance as a whole is doing from here on."""

    state: InstanceState


class StepStarted(Event):
    """A try of a step begins. `number` counts them from 1; the same number again is the same try, taken up again
    after an interruption. `at` is the wall clock."""

    block_id: str
    number: int = 1
    at: float = 0.0


class StepFailed(Event):
    """A try of a step failed. The next one is due at `retry_at` (the wall clock); None: there is none."""

    block_id: str
    error: RunFailure
    number: int = 1
    retry_at: float | None = None


class StepFinished(Event):
    """A step's output, recorded before anybody uses it. The step is never run again."""

    block_id: str
    output: Any = None


class StepCancelled(Event):
    """A step that had begun was given up because its result is no longer wanted."""

    block_id: str


class SignalReceived(Event):
    """Somebody spoke to the run, and whoever executes it has heard."""

    signal_id: int
    name: str
    payload: dict[str, Any] = {}
    by: str = ""


class LlmDelta(Event):
    """The next piece of what a step's model says; the entry's `attempt` says in which of the block's attempts."""

    block_id: str
    delta: str


# ── a delivery's own facts ───────────────────────────────────────────────────────────────────────────────────

DeliveredState = Literal["unknown", "sent", "unsent", "confirmed", "failed", "gone"]


class Delivered(Event, omit_defaults=True):
    """What is known of one message of a reply in a chat; the last such fact of a `key` holds.

    `unknown` is written before a message is sent, so that a process that dies in between leaves it on record; then
    `sent`, or `unsent` where the platform said no. `confirmed`: it shows the final text. `failed`: given up. `gone`:
    the thread or the chat that the key names is not there any more.
    """

    key: str
    state: DeliveredState
    message_id: str = ""
    number: int = 0  # counts the messages that have stood in this place
    final: bool = False  # what was sent would not have grown
    native: bool = False  # it is a native stream that has not been closed
    limit: int = 0  # of this message, where the platform's own turned out to be too large
    end: int | None = None  # where in the text this message ends, where it was not the limit that ended it
    digest: str = ""  # of what it shows, once that is confirmed


# ── the state of a run, for whoever was not there ────────────────────────────────────────────────────────────


class TextSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text as far as it has come. `pieces` says who wrote it: (attempt, characters) in order, so that what a
    discarded attempt showed can still be withdrawn."""

    text: str = ""
    pieces: tuple[tuple[int, int], ...] = ()
    stopped: bool = False  # a `MessageStop` closed it, or it came whole
    final: bool = False  # it was the last one
    commentary: bool = False


class ToolSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ok` is None while the tool runs."""

    tool_name: str
    index: int = 0
    attempt: int = 1
    preview: str | None = None
    args: dict[str, Any] | None = None
    ok: bool | None = None
    duration: float = 0.0


class ApprovalSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """`decision` is None while nobody has answered."""

    asked: ApprovalAsked
    decision: Decision | None = None
    by: str = ""


StepState = Literal["running", "finished", "failed", "cancelled"]


class StepSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """`text` is what the step's model has said and not taken back; a step that waits for its next try is running."""

    block_id: str
    state: StepState = "running"
    number: int = 1
    text: TextSoFar = TextSoFar()
    output: Any = None
    error: RunFailure | None = None


class Snapshot(Event):
    """The state of a run at the entry's `seq`: stands in for every entry up to and including it.

    Never stored among the entries: made for a viewer who asks for it, or whose cursor points at what is no longer
    kept. Folding a snapshot and what follows it gives the same as folding everything.
    """

    status: RunStatus | Literal["running"] = "running"
    started: RunStarted | None = None
    messages: tuple[TextSoFar, ...] = ()
    reasoning: TextSoFar = TextSoFar()  # hidden unless asked for, like its chunks
    tools: tuple[ToolSoFar, ...] = ()
    approvals: tuple[ApprovalSoFar, ...] = ()
    usage: Usage = Usage()
    output: str = ""  # the text of the last message; of a sequence: its steps' outputs by block id, as JSON
    error: RunFailure | None = None
    steps: tuple[StepSoFar, ...] = ()
    state: InstanceState | None = None  # of a sequence


Fact: TypeAlias = (
    RunStarted
    | RunFinished
    | AttemptStarted
    | AttemptDiscarded
    | ReasoningChunk
    | MessageRecorded
    | ToolOutputRecorded
    | HistoryCompressed
    | ApprovalAsked
    | ApprovalAnswered
    | UsageRecorded
    | StateChanged
    | StepStarted
    | StepFailed
    | StepFinished
    | StepCancelled
    | SignalReceived
    | LlmDelta
    | Delivered
)
AnyEvent: TypeAlias = StreamEvent | Fact | Snapshot

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class _Envelope(msgspec.Struct):
    seq: int
    attempt: int = 1


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event in its place: `seq` counts 1, 2, 3 … within the run and is never reused."""

    seq: int
    event: AnyEvent
    attempt: int = 1


def event_type(event: AnyEvent) -> str:
    """The event's name on the wire."""
    return str(event.__struct_config__.tag)


def to_json(event: AnyEvent) -> bytes:
    return _ENCODER.encode(event)


def from_json(data: bytes | str) -> AnyEvent:
    """Raises `msgspec.ValidationError` or `msgspec.DecodeError` on anything that `to_json` cannot have made."""
    return _DECODER.decode(data)


def entry_to_json(entry: Entry) -> bytes:
    """`{"seq":3,"attempt":1,"type":"message_chunk","text":"Hel"}`"""
    return b'{"seq":%d,"attempt":%d,%b' % (entry.seq, entry.attempt, _ENCODER.encode(entry.event)[1:])


def entry_from_json(data: bytes | str) -> Entry:
    envelope = _ENVELOPE.decode(data)
    return Entry(envelope.seq, _DECODER.decode(data), envelope.attempt)
