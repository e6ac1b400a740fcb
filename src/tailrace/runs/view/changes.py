"""What a run's log changes for a viewer: the closed union `Change`, frozen values without behaviour.

Every surface handles the texts, calls, questions and the end of a run, so it matches those exhaustively. All else is a
`Noticed`: a surface handles the kinds that it shows and passes over the others, so that a new kind touches no surface.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from tailrace.events import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptStarted,
    DeliveredState,
    InstanceState,
    RunFailure,
    RunFinished,
    RunStarted,
    Snapshot,
    SteerSoFar,
    ToolOutputRecorded,
)
from tailrace.messages import Dialect, JsonObject, Message, ToolCall, Usage


class _Changed(msgspec.Struct, frozen=True, gc=False, tag_field="change", tag=True, omit_defaults=True):
    """`seq` and `attempt` are those of the entry that made the change. In JSON `change` is the name of the class."""

    seq: int
    attempt: int


# ── texts ────────────────────────────────────────────────────────────────────────────────────────────────────


class TextGrew(_Changed, frozen=True, gc=False):
    """The message under way has more text, or has ended: `ends` without a `text`. `final`: no message follows it.
    `commentary`: the text came whole, before tools. `block_id`: the step of a sequence whose model wrote the text."""

    text: str
    ends: bool = False
    final: bool = False
    commentary: bool = False
    block_id: str = ""


class ThoughtGrew(_Changed, frozen=True, gc=False):
    """The model thinks on, or has stopped thinking: `ends` without a `text`. Hidden unless asked for."""

    text: str
    ends: bool = False


class WrittenCall(msgspec.Struct):
    """A call of the answer under way, as far as the model has written it."""

    index: int
    tool_name: str
    pieces: list[str]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class TextWithdrawn(_Changed, frozen=True):
    """What an attempt wrote is withdrawn. `discarded`: its text, of which `shown` says whether there was any, `kept`
    what other attempts wrote of the same message, as (attempt, text). `calls`: those that will never be whole."""

    discarded: bool = True
    reason: str = ""
    block_id: str = ""
    shown: bool = False
    kept: tuple[tuple[int, str], ...] = ()
    retry_at: float | None = None  # when the provider may be asked again, where it has said so
    calls: tuple[WrittenCall, ...] = ()


# ── tool calls ───────────────────────────────────────────────────────────────────────────────────────────────
# `index` counts the calls of a run from 0. It is None where an entry names a call that the log before it does not have.


class CallWritten(_Changed, frozen=True):
    """The model has written `text` of a call's arguments. `begins`: the call is new. `call` is the whole call, once its
    message is recorded; `text` is then what was missing."""

    index: int
    tool_name: str
    text: str
    begins: bool
    call: ToolCall | None = None


class CallRuns(_Changed, frozen=True):
    index: int
    tool_name: str
    preview: str | None
    args: JsonObject | None


class CallEnded(_Changed, frozen=True):
    """A call ends in two changes: the first has its `output`, the second its `duration_s`."""

    index: int | None
    tool_name: str
    ok: bool
    output: ToolOutputRecorded | None = None
    duration_s: float | None = None


class Asked(_Changed, frozen=True):
    question: ApprovalAsked
    index: int | None


class Answered(_Changed, frozen=True):
    """`question` is None where the log before it does not have the question."""

    answer: ApprovalAnswered
    question: ApprovalAsked | None


class Steered(_Changed, frozen=True):
    """A person's message for the run has this state now. `committed`: it stands here in the conversation."""

    steer: SteerSoFar


# ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────


class Ended(_Changed, frozen=True):
    """The run has ended. Its texts, thoughts and unfinished calls have ended with changes of their own before."""

    finished: RunFinished


class Noticed(_Changed, frozen=True):
    """Base of all that happens beside texts, calls and questions."""


class UserNotice(Noticed, frozen=True):
    """A notice for the user. `kind` is for programs."""

    kind: str
    text: str
    extra: JsonObject


class ToolRunsLong(Noticed, frozen=True):
    tool_name: str
    duration_s: float


class RunBegan(Noticed, frozen=True):
    started: RunStarted


class ForkBegan(Noticed, frozen=True):
    """All before this came from the run `run_id`, as it was after its entry `after`."""

    run_id: str
    after: int


class SubRunBegan(Noticed, frozen=True):
    """The call `index` is a run of its own: what it does is in the log of `run_id`. Each of its own calls is a
    `UserNotice` of the kind "tool_progress" with that id. The same again where the call is resumed."""

    run_id: str
    tool_name: str
    index: int


class AttemptBegan(Noticed, frozen=True):
    asked: AttemptStarted


class MessageJoined(Noticed, frozen=True):
    """A message is recorded. The changes of its texts and calls came before this one. `stop` and `stop_sequence` as
    `MessageRecorded` has them."""

    message: Message
    stop: str = ""
    stop_sequence: str = ""


class HistoryReplaced(Noticed, frozen=True):
    messages: tuple[Message, ...]


class Spent(Noticed, frozen=True):
    """Tokens of one attempt."""

    usage: Usage
    provider: str
    model: str


class Relayed(Noticed, frozen=True):
    """A raw model's own events, or the whole `body` of its answer."""

    dialect: Dialect
    events: tuple[JsonObject, ...] = ()
    body: JsonObject | None = None


class Delivery(Noticed, frozen=True):
    """What became of a message in a chat."""

    key: str
    state: DeliveredState
    message_id: str


class Restored(Noticed, frozen=True):
    """This state replaces all that a viewer has of the run."""

    state: Snapshot


# ── sequences ────────────────────────────────────────────────────────────────────────────────────────────────


class InstanceMoved(Noticed, frozen=True):
    """The state of the whole instance from here on."""

    state: InstanceState


class StepMoved(Noticed, frozen=True):
    """One step of a sequence. `number` counts its tries; `at` is the wall clock, 0 where the log has no time."""

    block_id: str
    state: Literal["started", "retrying", "failed", "finished", "cancelled"]
    number: int = 1
    at: float = 0.0
    output: Any = None
    error: RunFailure | None = None
    retry_at: float | None = None


class SignalTaken(Noticed, frozen=True):
    name: str
    payload: JsonObject
    by: str


Change: TypeAlias = (
    TextGrew
    | TextWithdrawn
    | ThoughtGrew
    | CallWritten
    | CallRuns
    | CallEnded
    | Asked
    | Answered
    | Steered
    | Noticed
    | Ended
)
