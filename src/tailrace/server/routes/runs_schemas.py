"""The bodies and parameters of `/runs`, and how a turn is read from one. Values only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from tailrace import events
from tailrace.agent.safety.approval import MAX_REASON
from tailrace.agent.session import TURN_KIND
from tailrace.agent.turn_spec import Busy, TurnSpec
from tailrace.app.costs import Costs
from tailrace.app.timeline.question import question_of as question_of_run
from tailrace.app.timeline.question import speaker_of
from tailrace.app.timeline.run_summary import answering_model, duration_s, ended_at
from tailrace.events.steers import ReturnReason, SteerInput, SteerState
from tailrace.flows.definition.public_ids import RUN, public_id, run_id_of
from tailrace.flows.engine.instance_events import ENDINGS
from tailrace.flows.engine.instance_state import instance_state
from tailrace.journal.fold import SEQUENCE
from tailrace.messages import FileChange, Message, Usage, user
from tailrace.ports import Durability, Run
from tailrace.ports import RunState as State
from tailrace.runs.charged_to import charged_to
from tailrace.server.http.api_errors import ApiError
from tailrace.server.routes.streams.log_stream import CursorQuery
from tailrace.wire.chat.messages import ChatConversation

Name = Annotated[str, Meta(max_length=256)]
_RUN_ID: Final = re.compile(RUN + "[0-9a-z]+")

# ── what is asked ────────────────────────────────────────────────────────────────────────────────────────────


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageUrl(msgspec.Struct, frozen=True):
    url: str
    detail: str = ""


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class InputMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message as the Chat Completions API writes it."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart | ImagePart]


class NewRunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`input`: a text, or messages of which the last is the user's; those before it are then the whole history. `busy`:
    whether a run of the session that is under way is stopped, waited for, or given the message. `previous_run`: the run
    of the session that this one follows, "" where it is the first; else the session's newest."""

    input: str | Annotated[tuple[InputMessage, ...], Meta(min_length=1)]
    model: Name = ""
    session: Name = ""
    idempotency_key: Name = ""
    durability: Durability | None = None
    busy: Busy = "interrupt"
    previous_run: Name | None = None


class SteerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`input`: what the user says to the run that is under way, a text or parts."""

    input: str | Annotated[list[TextPart | ImagePart], Meta(min_length=1)]
    idempotency_key: Name = ""


class RetryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`input`: what is asked in place of the question, with the images and files of that where `keep_files` says so."""

    input: str | Annotated[tuple[InputMessage, ...], Meta(min_length=1, max_length=1)] | None = None
    keep_files: bool = False
    model: Name = ""
    idempotency_key: Name = ""


class ForkBody(RetryBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`after`: the last event of the run that counts; 0 is where the run began, before its question. `input`: the text
    or the one message that the user says next; without it the fork goes on from there. `keep_files`: where the
    input replaces the question, the images and files of that are sent with it. `model`: another one than the run's."""

    after: Annotated[int, Meta(ge=0)]
    durability: Durability | None = None


class ApprovalAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`reason`: what the model is told about a denial."""

    approval_id: Name
    decision: events.Decision
    reason: Annotated[str, Meta(max_length=MAX_REASON)] = ""


class RunQuery(msgspec.Struct, frozen=True):
    """`reasoning`: what the model thought. `outputs`: what the tools gave."""

    reasoning: bool = False
    outputs: bool = False


class RunStreamQuery(CursorQuery, frozen=True):
    snapshot: bool = False
    reasoning: bool = False


# ── what is answered ─────────────────────────────────────────────────────────────────────────────────────────


class RunStatusBody(msgspec.Struct, frozen=True):
    id: str
    status: State


class SteerStatusBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message for a run. `accepted`: the log has it. `committed`: the model is given it. `returned`: it will not be,
    and `reason` says why."""

    id: str
    state: SteerState
    input: SteerInput
    by: str
    reason: ReturnReason | None = None


class NewRunStatusBody(RunStatusBody, frozen=True, omit_defaults=True):
    """`steer`: with `busy: steer` the run was under way, and has the input as this message."""

    steer: SteerStatusBody | None = None


class SteerList(msgspec.Struct, frozen=True):
    data: tuple[SteerStatusBody, ...]


class StopStatusBody(msgspec.Struct, frozen=True):
    """`stopping`: the process that executes the run has been told and ends it."""

    id: str
    status: State | Literal["stopping"]


class ForkedFrom(msgspec.Struct, frozen=True):
    """The run began from the facts of `run_id` up to its event `after`."""

    run_id: str
    after: int


class ForkStatusBody(RunStatusBody, frozen=True):
    session: str  # the fork's own: it has the history up to `forked_from`
    forked_from: ForkedFrom | None


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    status: State
    kind: str
    model: str
    answered_by: str = ""  # the model that was asked last, `<provider>/<model>`, once it has ended
    key: str  # whom its model calls are charged to: the name of a key, or of the surface where it was asked
    session: str
    input: str  # the text of the question; of a sequence its name
    speaker: str = ""  # who asked, where several people share the conversation: `input` begins with it, "Ben: …"
    images: int = 0  # beside that text
    created_at: float  # seconds since the epoch
    ended_at: float | None = None
    duration_s: float | None = None  # from the question to the end
    last_seq: int
    first_seq: int  # token-level entries before it are gone
    output: str | None = None  # once it has ended
    usage: Usage | None = None
    cost_usd: float | None = None  # an estimate by list prices; null where one of the models has none
    error: events.RunFailure | None = None
    forked_from: ForkedFrom | None = None
    previous_run: str | None = None  # the run of the session that it follows, "" for none; null: the one before it
    state: events.InstanceState | None = None  # of a sequence's instance: it may be paused while its run is `running`


class OutputFile(msgspec.Struct, frozen=True):
    """A file that a tool gave, without its content."""

    name: str
    media_type: str
    size: int  # bytes


class ToolOutput(msgspec.Struct, frozen=True):
    """What is recorded of a tool call that has ended; `index` is that of the call among `tools`."""

    index: int
    tool_name: str
    output: str
    ok: bool
    files: tuple[OutputFile, ...] = ()
    not_executed: events.NotExecuted | None = None  # where the action was denied or refused
    change: FileChange | None = None  # where a file was written


class RunState(RunSummary, frozen=True, kw_only=True):
    """The same, and the state that its log folds to at `seq`."""

    seq: int
    messages: tuple[events.TextSoFar, ...] = ()
    has_reasoning: bool = False  # whether there is something to ask for with `reasoning=true`
    reasoning: str | None = None
    reasoning_pieces: tuple[tuple[int, int], ...] | None = None  # (attempt, characters) of `reasoning`, in order
    tools: tuple[events.ToolSoFar, ...] = ()
    approvals: tuple[events.ApprovalSoFar, ...] = ()
    steers: tuple[events.SteerSoFar, ...] = ()
    outputs: tuple[ToolOutput, ...] | None = None
    tries: int = 0  # attempts at the last model call, where there is an `error`
    advice: str = ""  # what to do about it, where that is known


class Page(msgspec.Struct, frozen=True):
    more: bool
    next: str | None = None  # `before` of the next page


def page_of(ids: Sequence[str], *, more: bool) -> Page:
    """`ids` are those of the page; `more`: there are others after them."""
    return Page(more, ids[-1] if more else None)


def before_of(given: str | None) -> str | None:
    """The journal's id of the run before which a page begins; that run may have been deleted by now. Raises `ApiError`
    400 for what is no id: a page of nothing would say that there are no more."""
    if given is None:
        return None
    run_id = run_id_of(given)
    if _RUN_ID.fullmatch(run_id):
        return run_id
    raise ApiError(400, f"before: {given[:80]!r} is no id; give `page.next` of the page before", param="before")


class RunList(msgspec.Struct, frozen=True):
    data: tuple[RunSummary, ...]
    page: Page


def summary_of(run: Run, costs: Costs, state: events.InstanceState | None = None, answered_by: str = "") -> RunSummary:
    finished = run.finished
    return RunSummary(
        id=public_id(run),
        status=run.state,
        kind=run.new.kind,
        model=run.new.model,
        answered_by=(answered_by or answering_model(run)) if finished else "",
        key=charged_to(run),
        session=run.new.session,
        input=question_of_run(run),
        speaker=speaker_of(run),
        images=_images(run),
        created_at=run.created_at,
        ended_at=ended_at(run),
        duration_s=duration_s(run),
        last_seq=run.last_seq,
        first_seq=run.first_seq,
        output=finished.output if finished else None,
        usage=finished.usage if finished else None,
        cost_usd=costs.of(finished.spent or ()) if finished else None,
        error=finished.error if finished else run.parked,
        forked_from=forked_from(run),
        previous_run=run.new.input.get("previous_run"),
        state=state,
    )


def _images(run: Run) -> int:
    message = run.new.input.get("message")
    parts = message.get("parts") if isinstance(message, dict) else None
    return sum(isinstance(part, dict) and part.get("type") == "image" for part in parts or ())


def forked_from(run: Run) -> ForkedFrom | None:
    point = run.new.input.get("forked_from") if run.new.kind == TURN_KIND else None
    return msgspec.convert(point, ForkedFrom) if point is not None else None


def output_of(index: int, recorded: events.ToolOutputRecorded) -> ToolOutput:
    files = tuple(OutputFile(file.name, file.media_type, len(file.data)) for file in recorded.files)
    not_executed, change = recorded.not_executed, recorded.change
    return ToolOutput(index, recorded.tool_name, recorded.output, recorded.ok, files, not_executed, change)


def state_of(
    run: Run,
    seq: int,
    state: events.Snapshot,
    costs: Costs,
    *,
    reasoning: bool,
    outputs: tuple[ToolOutput, ...] | None = None,
) -> RunState:
    summary = msgspec.structs.asdict(summary_of(run, costs))
    if run.new.kind == SEQUENCE:
        ended = ENDINGS[state.status] if state.status != "running" else None
        summary.update(state=ended or instance_state(run, state.state))
    summary.update(output=state.output, usage=state.usage, error=state.error or run.parked)
    summary.update(cost_usd=costs.of(state.spent))
    if state.status != "running":  # it may have ended since `run` was read: status and error are of one moment (M154)
        summary.update(status=state.status, last_seq=seq)
    return RunState(
        **summary,
        seq=seq,
        messages=state.messages,
        has_reasoning=bool(state.reasoning.text.strip()),
        reasoning=state.reasoning.text if reasoning else None,
        reasoning_pieces=state.reasoning.pieces if reasoning else None,
        tools=state.tools,
        approvals=state.approvals,
        steers=state.steers,
        outputs=outputs,
    )


# ── from one to a turn ───────────────────────────────────────────────────────────────────────────────────────


def turn_of(body: NewRunBody, *, model: str, requester: str) -> TurnSpec:
    """Raises `ApiError` 400 where there is no question."""
    if isinstance(body.input, str):
        message = user(body.input)
        _check_asks(message)
        return TurnSpec(message, model=model, requester=requester, reachable=True, busy=body.busy)
    conversation = ChatConversation()
    for given in sorted(body.input, key=lambda message: message.role not in ("system", "developer")):
        conversation.add(msgspec.to_builtins(given), "input")
    messages = conversation.messages
    if not messages or messages[-1].role != "user":
        raise ApiError(400, "input: the last message must be the user's", param="input")
    _check_asks(messages[-1])
    history = tuple(messages[:-1])
    return TurnSpec(
        messages[-1],
        model=model,
        system="\n\n".join(conversation.system),
        history=history if history or not body.session else None,
        requester=requester,
        reachable=True,
        busy=body.busy,
    )


def _check_asks(message: Message) -> None:
    if message.is_blank:
        raise ApiError(400, "input: nothing was asked", param="input")


def steer_message(body: SteerBody) -> Message:
    """Raises `ApiError` 400 where it says nothing."""
    given = body.input if isinstance(body.input, str) else (InputMessage("user", body.input),)
    return turn_of(NewRunBody(given), model="", requester="").message


def steer_status(steer: events.SteerSoFar) -> SteerStatusBody:
    accepted = steer.accepted
    return SteerStatusBody(accepted.steer_id, steer.state, accepted.input, accepted.by, steer.reason)


def question_of(body: ForkBody | RetryBody) -> Message | None:
    """The user's next message, where there is one. Raises `ApiError` 400 for an empty one."""
    if body.input is None:
        return None
    return turn_of(NewRunBody(body.input), model="", requester="").message
