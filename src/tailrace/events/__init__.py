"""The events of a run's log: seven stream events that viewers present, and the run's own facts.

Frozen, no behaviour, no platform knowledge. Names and fields are a contract. In JSON an event is an object whose
`type` is the class name in snake case; an `Entry` adds `seq` and `attempt` to the same object.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from tailrace.events.attempts import AnswerKept as AnswerKept
from tailrace.events.attempts import AttemptDiscarded as AttemptDiscarded
from tailrace.events.attempts import AttemptStarted as AttemptStarted
from tailrace.events.attempts import Event as Event
from tailrace.events.attempts import ProviderAnswer as ProviderAnswer
from tailrace.events.attempts import ProviderEvents as ProviderEvents
from tailrace.events.attempts import ToolArgumentsChunk as ToolArgumentsChunk
from tailrace.events.attempts import UsageRecorded as UsageRecorded
from tailrace.events.steers import SteerAccepted as SteerAccepted
from tailrace.events.steers import SteerCommitted as SteerCommitted
from tailrace.events.steers import SteerReturned as SteerReturned
from tailrace.events.steers import SteerSoFar as SteerSoFar
from tailrace.messages import FileChange, Message, SpentTokens, ToolFile, Usage

RunStatus = Literal["completed", "incomplete", "failed", "stopped"]
Decision = Literal["once", "session", "always", "deny"]

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
    """A tool call begins, or its state changes: then `preview` is what the tool reports, without `args`. `index` says
    which call, and grows by one per call within the run."""

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
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


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


class RunForked(Event):
    """What stands before this came from the run `run_id`, as it was at its entry `after`; this run's own part follows.
    What that part costs is counted from here: usage, attempts and budgets."""

    run_id: str
    after: int


class RunFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a run did not complete: `message` for people, `kind` for programs. `code` is more precise than `kind`.
    `status` is the HTTP status of a failed call, 0 where there is none; `retry_after_s` the wait that it asked for.
    `by` is who has stopped the run, as its signal says."""

    kind: str
    message: str
    code: str = ""
    status: int = 0
    retry_after_s: float | None = None
    by: str = ""


class RunFinished(Event):
    """Last of every log. `output` is what a non-streaming call would have returned. `spent` is the usage by model; the
    journal adds it from the entries before. It is unset where nothing was used; `not_executed`, where no action of a
    turn was left out."""

    status: RunStatus
    output: str = ""
    usage: Usage = Usage()
    error: RunFailure | None = None
    at: float = 0.0
    spent: tuple[SpentTokens, ...] | msgspec.UnsetType = msgspec.UNSET
    not_executed: tuple[NotExecuted, ...] | msgspec.UnsetType = msgspec.UNSET


class SubRunStarted(Event):
    """A call of this run is a run of its own: `run_id` has its log. The same again where the call is resumed."""

    run_id: str
    tool_name: str
    index: int = 0


class ReasoningChunk(Event):
    """Hidden unless asked for."""

    text: str


class MessageRecorded(Event):
    """A message joined the history, whole: a reader may skip every chunk before it. `stop` is how the answer ended, a
    neutral stop reason, "cut" where it broke off, "stopped", or `REJECTED`; `stop_sequence` the stop string, where it
    is known; `not_executed` the calls that broke off with it."""

    message: Message
    stop: str = ""
    stop_sequence: str = ""
    not_executed: tuple[NotExecuted, ...] | msgspec.UnsetType = msgspec.UNSET


REJECTED = "rejected"  # the answer was not of the form that was asked for: its text is withdrawn, another one follows
NotExecutedKind = Literal["denied", "no_answer", "no_one_to_ask", "forbidden", "failed", "lost"]


class NotExecuted(msgspec.Struct, frozen=True):
    """An action that the model called for and that was not carried out. `command` is what would have run, `reason`
    says why it did not, in words; `kind` for programs: the user said no, gave no answer in time, could not be asked;
    the rules forbid it; what has to come before it failed; or the call broke off with the stream."""

    tool_name: str  # empty where the stream broke off before the name
    command: str
    reason: str
    kind: NotExecutedKind


class ToolOutputRecorded(Event):
    """The output of a tool, recorded before the model gets it. `files` are for the user: the model reads `output`."""

    call_id: str
    tool_name: str
    output: str
    ok: bool = True
    files: tuple[ToolFile, ...] = ()
    not_executed: NotExecuted | None = None  # where the action was denied or refused
    change: FileChange | None = None  # where a file was written


class ApprovalAsked(Event):
    """`digest` binds the answer to exactly what will run, to the directory and to the requester. The answer is for
    `requester` to give, and for who may answer in their place; `requester_name` is what people call them, where that is
    known. An answer for the session holds in `session`; without a name, in this run. `asked_at` and `expires_at` are
    the wall clock; 0 where it is not known, or where no surface can ask."""

    approval_id: str
    tool_name: str
    command: str
    digest: str
    requester: str = ""
    call_id: str = ""
    reason: str = ""
    directory: str = ""
    session: str = ""
    asked_at: float = 0.0
    expires_at: float = 0.0
    requester_name: str = ""

    @property
    def scope(self) -> str:
        """Where it would run, who asked for it, and in which session: what an approval is bound to, in one line."""
        where = f"in {self.directory}" if self.directory else ""
        requester = f"for {who}" if (who := self.requester_name or self.requester) else ""
        return ", ".join(filter(None, (where, requester, f"session {self.session}" if self.session else "")))


class HistoryCompressed(Event):
    """From here on these messages replace all earlier ones: the context was full, a fork begins with them, or the
    client has left some out."""

    messages: tuple[Message, ...]


class ApprovalAnswered(Event):
    """`by` is who answered; "timeout" where no answer came in time, "no surface" where no person could be asked.
    `reason` is what the person says about a denial."""

    approval_id: str
    decision: Decision
    by: str = ""
    reason: str = ""


# ── a sequence's own facts ───────────────────────────────────────────────────────────────────────────────────
# `block_id` is the block's id, inside an iteration or a sub-sequence with the ids of the outer blocks before it:
# `each[2].summarise`.

InstanceState = Literal["scheduled", "running", "waiting", "paused", "completed", "failed", "cancelled"]


class StateChanged(Event):
    """The state of the whole instance from here on."""

    state: InstanceState


class StepStarted(Event):
    """A try of a step begins. `number` counts the tries from 1; the same number again is the same try, resumed after an
    interruption. `at` is the wall clock."""

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
    """A step's output, recorded before another step uses it. The step is never run again."""

    block_id: str
    output: Any = None


class StepCancelled(Event):
    """A step that had begun was cancelled because its result is no longer needed."""

    block_id: str


class SignalReceived(Event):
    """The executor of the run received a signal."""

    signal_id: int
    name: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    by: str = ""


class LlmDelta(Event):
    """The next piece of the answer of a step's model. The entry's `attempt` is the attempt within the block."""

    block_id: str
    delta: str


# ── a delivery's own facts ───────────────────────────────────────────────────────────────────────────────────

DeliveredState = Literal["unknown", "sent", "unsent", "confirmed", "failed", "gone"]


class Delivered(Event, omit_defaults=True):
    """What is known of one message of a reply in a chat; the last such fact of a `key` holds.

    `unknown` is on record before a message is sent, where the process may die; then `sent`, or `unsent` if refused.
    `confirmed`: it shows the final text. `failed`: given up. `gone`: the key's thread or chat no longer exists.
    """

    key: str
    state: DeliveredState
    message_id: str = ""
    number: int = 0  # counts the messages that have stood in this place
    final: bool = False  # its text is complete
    native: bool = False  # a native stream that is still open
    limit: int = 0  # of this message, where the platform refused a text of its documented limit
    end: int | None = None  # the offset in the text where this message ends; None: at the limit
    digest: str = ""  # of the text that it shows, once confirmed
    until_heard: bool = False  # given up, and the platform takes it once the person has written again


# ── the state of a run, for viewers that come later ──────────────────────────────────────────────────────────


class TextSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text so far. `pieces` has (attempt, characters) in order: the text of a discarded attempt can be withdrawn."""

    text: str = ""
    pieces: tuple[tuple[int, int], ...] = ()
    stopped: bool = False  # a `MessageStop` closed it, or it is a `Commentary`
    final: bool = False  # it was the last one
    commentary: bool = False


class ToolSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ok` is None while the tool runs. `run_id`: the call is a run of its own, `steps` the latest of what it did."""

    tool_name: str
    index: int = 0
    attempt: int = 1
    preview: str | None = None
    args: dict[str, Any] | None = None
    ok: bool | None = None
    duration: float = 0.0
    run_id: str = ""
    steps: tuple[str, ...] = ()


class CallSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that the model is writing."""

    tool_name: str
    index: int = 0
    attempt: int = 1
    arguments: str = ""  # as far as they have come


class ApprovalSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """`decision` is None while the question is open; `index` is that of the call that was asked about, None until it
    begins, which it does after the answer."""

    asked: ApprovalAsked
    decision: Decision | None = None
    by: str = ""
    reason: str = ""
    index: int | None = None


StepState = Literal["running", "finished", "failed", "cancelled"]


class StepSoFar(msgspec.Struct, frozen=True, omit_defaults=True):
    """`text` is the answer of the step's model without discarded attempts. A step that waits for its next try counts as
    running."""

    block_id: str
    state: StepState = "running"
    number: int = 1
    text: TextSoFar = TextSoFar()
    output: Any = None
    error: RunFailure | None = None


class Snapshot(Event):
    """The state of a run at the entry's `seq`: replaces every entry up to and including it.

    Never stored among the entries: made for a viewer that asks for it, or whose cursor points at entries that are no
    longer kept. Folding a snapshot and the entries after it gives the same state as folding all entries.
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
    calls: tuple[CallSoFar, ...] = ()  # being written: a whole one is among the tools once it begins
    spent: tuple[SpentTokens, ...] = ()  # `usage` by model
    steers: tuple[SteerSoFar, ...] = ()


# Kinds of facts, for readers of logs that ignore a whole kind. A `match` over events names every kind and ends in
# `assert_never`: a new event then fails the type check wherever it is forgotten.
RunFact: TypeAlias = RunStarted | RunForked | SubRunStarted | RunFinished
ShownFact: TypeAlias = ReasoningChunk | ToolArgumentsChunk | ProviderEvents | ProviderAnswer  # decide nothing
AttemptFact: TypeAlias = AttemptStarted | AnswerKept | AttemptDiscarded | UsageRecorded
HistoryFact: TypeAlias = MessageRecorded | ToolOutputRecorded | HistoryCompressed
ApprovalFact: TypeAlias = ApprovalAsked | ApprovalAnswered
SteerFact: TypeAlias = SteerAccepted | SteerCommitted | SteerReturned
SequenceFact: TypeAlias = (
    StateChanged | StepStarted | StepFailed | StepFinished | StepCancelled | SignalReceived | LlmDelta
)
Fact: TypeAlias = RunFact | AttemptFact | ShownFact | HistoryFact | ApprovalFact | SteerFact | SequenceFact | Delivered
AnyEvent: TypeAlias = StreamEvent | Fact | Snapshot
PIECES = (MessageChunk, ReasoningChunk, ToolArgumentsChunk)  # a later event has each of these texts whole

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


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
