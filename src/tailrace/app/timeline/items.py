"""The values of a timeline. Frozen, no behaviour; in JSON an item is an object whose `kind` is its class in snake case.

`start` and `end` are seconds since the run began, None where the log does not say; `end` is None too while the item
goes on. `seq` is the item's first entry in the log, `end_seq` its last.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias, dataclass_transform

import msgspec

from tailrace.events import Decision, DeliveredState, InstanceState, NotExecuted, RunFailure, RunStatus
from tailrace.messages import JsonObject, Usage, Value
from tailrace.ports import RunState


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removesuffix("Item")).lower()


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=_snake):
    """Base of what can stand in a timeline."""

    seq: int
    end_seq: int
    start: float | None = None
    end: float | None = None


class QuestionItem(Item):
    """What the user said. `files` are the images and files beside it, each in a few words."""

    text: str
    files: tuple[str, ...] = ()


AttemptOutcome = Literal["running", "answered", "called_tools", "failed", "discarded", "interrupted", "stopped"]


class AttemptItem(Item):
    """One try of a model call at one provider.

    `outcome`: it gave the answer, or called for tools; it failed; it failed and what it said was withdrawn
    (`discarded`); its process died or lost the run (`interrupted`); the user stopped it. `reason` says why in words.
    `goes_on`: it continues the text of the attempt before it, which stays; `restarts`: it begins anew. `number`
    counts the attempts of the run (of the step, in a sequence), `call` its model calls, `try_number` the attempts of
    that call."""

    number: int
    call: int = 1
    try_number: int = 1
    provider: str = ""
    model: str = ""
    block_id: str = ""  # of the step that asks, in a sequence
    outcome: AttemptOutcome = "running"
    reason: str = ""
    goes_on: bool = False
    restarts: bool = False
    first_token_s: float | None = None  # from its start
    usage: Usage | None = None
    cost_usd: float | None = None
    ignored: tuple[str, ...] = ()  # the client's parameters that this provider is not told


class Span(Item):
    """A stretch of text that came without a break. `tokens` is estimated from the provider's count for the attempt, or
    from the length."""

    attempt: int = 1
    call: int = 1  # as its attempt has them
    try_number: int = 1
    block_id: str = ""
    text: str = ""
    chars: int = 0
    chunks: int = 0
    tokens: int = 0
    tokens_per_s: float | None = None
    withdrawn: bool = False


class TextItem(Span):
    """A stretch of the answer, as viewers saw it."""


class ReasoningItem(Span):
    """A stretch of thought. `text` is empty unless it was asked for."""


class StallItem(Item):
    """Nothing came for `silent_s`. `gave_up`: the attempt ended for it; otherwise the stream went on by itself."""

    silent_s: float
    gave_up: bool = False
    provider: str = ""
    text: str = ""


class NoticeItem(Item):
    """What the user was told beside the answer. `about` is its kind, for programs."""

    about: str
    text: str = ""
    extra: JsonObject = {}


class FailoverItem(Item):
    """Another provider or model is asked."""

    from_provider: str
    from_model: str
    to_provider: str
    to_model: str
    reason: str = ""
    block_id: str = ""


ToolState = Literal["writing", "waiting", "running", "done", "failed", "not_executed", "broken_off", "returned"]


class ToolCallItem(Item):
    """A tool call. `start` is when it began to run, or was asked for where it never ran.

    `state`: the model writes it; it waits (for an approval, for other tools); it runs; it is done or failed; it was not
    executed; it broke off with its attempt before it was whole; it was returned to the client, who runs it."""

    tool_name: str
    index: int = 0
    call_id: str = ""
    attempt: int = 1
    state: ToolState = "waiting"
    preview: str = ""
    arguments: JsonObject | None = None
    arguments_text: str = ""  # where they are not an object, or not whole
    writing_start: float | None = None  # when the model wrote the call; one that came whole, when it came
    output: str | None = None
    ok: bool | None = None
    exit_code: int | None = None
    duration_s: float | None = None
    diff: str = ""  # what a write changed
    added: int = 0  # lines
    removed: int = 0
    files: tuple[str, ...] = ()
    not_executed: NotExecuted | None = None
    run_id: str = ""  # of the run that the call is, where an agent was called
    steps: tuple[str, ...] = ()  # what that run did


class ApprovalItem(Item):
    """A question to the user. `decision` is None while it waits. `by` is who answered, or "timeout" or
    "no surface". `reason` says why it was asked, `answer_reason` what the user said of a denial."""

    approval_id: str
    tool_name: str
    command: str
    directory: str = ""
    reason: str = ""
    requester: str = ""
    call_id: str = ""
    decision: Decision | None = None
    by: str = ""
    answer_reason: str = ""
    waited_s: float | None = None
    requester_name: str = ""  # what people call the requester, where that is another name


class TakeoverItem(Item):
    """The process that executed the run died or lost it, and a process went on. `claims` is how often the run was
    claimed in all. Told from what was left open: the log has no entry of its own for it."""

    claims: int
    block_id: str = ""


class CompressionItem(Item):
    """The earlier conversation was replaced by a summary, or by what the client sent; `messages` are left."""

    messages: int


class ForkItem(Item):
    """The items before this one were copied from the run `run_id`, as it was after its entry `after`."""

    run_id: str
    after: int


StepItemState = Literal["running", "finished", "failed", "retrying", "cancelled", "interrupted", "paused"]


class StepItem(Item):
    """One try of a step. `retrying`: it failed and is tried again at `retry_at` (seconds since the run began)."""

    block_id: str
    number: int = 1
    state: StepItemState = "running"
    output: Any = None
    error: RunFailure | None = None
    retry_at: float | None = None


class StateItem(Item):
    """The state of the whole instance from here on."""

    state: InstanceState


class SignalItem(Item):
    name: str
    payload: JsonObject = {}
    by: str = ""


class DeliveryItem(Item):
    """What became of a message in a chat."""

    key: str
    state: DeliveredState
    message_id: str = ""


class FinishItem(Item):
    status: RunStatus
    error: RunFailure | None = None


AnyItem: TypeAlias = (
    QuestionItem
    | AttemptItem
    | TextItem
    | ReasoningItem
    | StallItem
    | NoticeItem
    | FailoverItem
    | ToolCallItem
    | ApprovalItem
    | TakeoverItem
    | CompressionItem
    | ForkItem
    | StepItem
    | StateItem
    | SignalItem
    | DeliveryItem
    | FinishItem
)


class Timeline(Value):
    """One run: its summary and its items in the order of the log. `times` says when entries were committed: (first seq,
    seconds since the run began), as `Journal.times` has them; empty for a log without times."""

    id: str
    kind: str
    question: str
    status: RunState
    items: tuple[AnyItem, ...]
    model: str = ""
    session: str = ""
    started_at: float = 0.0  # wall clock, seconds since the epoch
    duration_s: float | None = None  # so far, while it runs
    first_token_s: float | None = None
    usage: Usage = Usage()
    cost_usd: float | None = None
    output: str = ""
    last_seq: int = 0
    compacted: bool = False  # token-level entries are gone: texts are whole and have no times of their own
    error: RunFailure | None = None
    forked_from: ForkItem | None = None
    times: tuple[tuple[int, float], ...] = ()
