"""What the tools for hosts take and give: their arguments, and a run as a value that a model reads."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tailrace.agent.safety.approval import MAX_REASON
from tailrace.app.timeline.question import question_of
from tailrace.events import ApprovalAsked, Decision, NotExecuted, RunFailure
from tailrace.integrations.mcp_server.host_view import HostView
from tailrace.messages import JsonObject, Usage
from tailrace.ports import Run, RunState
from tailrace.server.http.auth import Identity
from tailrace.tools.typed import Arguments, preview_line, schema_of

State: TypeAlias = RunState | Literal["waiting_for_approval"]
RunId: TypeAlias = Annotated[str, Meta(description="A run's id, as start_run and list_runs give it.")]
WaitS: TypeAlias = Annotated[
    float | None,
    Meta(
        description="Return after so many seconds even if the run goes on; watch_run continues. 0: return at once. "
        "Left out: wait for its end."
    ),
]

# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────


class StartRun(Arguments):
    question: Annotated[str, Meta(description="The task or question, with all that the agent needs to know.")]
    model: Annotated[
        str, Meta(description="<provider>/<model> of Tailrace's config. Left out: the configured one.")
    ] = ""
    session: Annotated[
        str,
        Meta(
            description="The name of a conversation: runs with the same name share their history, one at a time; a new "
            "one interrupts the one before. Left out: the run knows nothing of others."
        ),
    ] = ""
    wait_s: WaitS = None


class WatchRun(Arguments):
    run_id: RunId
    after: Annotated[
        int, Meta(ge=0, description="The `seq` of the last report that you have: only what is new comes. 0: all of it.")
    ] = 0
    wait_s: WaitS = None


class StopRun(Arguments):
    run_id: RunId


class SteerRun(Arguments):
    run_id: RunId
    message: Annotated[str, Meta(description="What the agent is told before its next step.")]


class AnswerApproval(Arguments):
    run_id: RunId
    approval_id: Annotated[str, Meta(description="Of the report's `approvals`.")]
    decision: Annotated[
        Decision,
        Meta(
            description="What the user decided: once, session (this conversation), always, or deny. Ask the user first."
        ),
    ]
    reason: Annotated[str, Meta(description="Why the user denies it, for the agent.", max_length=MAX_REASON)] = ""


class ListRuns(Arguments):
    session: Annotated[str, Meta(description="Only the runs of this conversation.")] = ""
    unfinished: Annotated[bool, Meta(description="Only those that have not ended.")] = False
    before: Annotated[str, Meta(description="`next` of the page before.")] = ""
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


# ── results ──────────────────────────────────────────────────────────────────────────────────────────────────


class ToolLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a tool by the agent; `ok` is left out while it runs."""

    name: str
    preview: str = ""
    ok: bool | None = None
    duration_s: float = 0.0


class OpenApproval(msgspec.Struct, frozen=True, omit_defaults=True):
    """An action that waits for a person's decision."""

    approval_id: str
    tool: str
    command: str
    reason: str = ""
    directory: str = ""
    elsewhere: bool = False  # the run was started elsewhere, and this host may not answer for it


class RunReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as far as it has come. `answer` is there once it has ended; `text` is all that was said since `after`,
    where that is more than the answer."""

    run_id: str
    status: State
    seq: int
    session: str = ""
    answer: str | None = None
    text: str = ""
    replaces: bool = False  # `text` replaces all that was given before: an attempt was discarded
    tools: tuple[ToolLine, ...] = ()
    approvals: tuple[OpenApproval, ...] = ()
    not_executed: tuple[NotExecuted, ...] = ()
    error: RunFailure | None = None
    usage: Usage | None = None


class SteerReport(msgspec.Struct, frozen=True):
    """The run has the message; the agent reads it with its next model call, unless the run ends before."""

    run_id: str
    steer_id: str


class RunLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run in a list."""

    run_id: str
    status: RunState
    kind: str
    created_at: float  # seconds since the epoch
    question: str = ""
    answer: str = ""
    session: str = ""
    model: str = ""


class RunPage(msgspec.Struct, frozen=True, omit_defaults=True):
    runs: tuple[RunLine, ...]
    next: str = ""  # `before` of the next page; left out on the last


OUTPUT_SCHEMAS: dict[type[msgspec.Struct], JsonObject] = {
    kind: schema_of(kind) for kind in (RunReport, SteerReport, RunPage)
}


def report_of(run: Run, view: HostView, caller: Identity, not_executed: tuple[NotExecuted, ...] = ()) -> RunReport:
    state = view.state
    status: State = state.status
    if status == "running":
        status = "parked" if run.parked else "waiting_for_approval" if view.waiting else "running"
    text, replaces = view.text_since()
    answer = state.output if view.has_ended else None
    return RunReport(
        run_id=run.id,
        status=status,
        seq=view.seq,
        session=run.new.session,
        answer=answer,
        text="" if text == answer else text,
        replaces=replaces,
        tools=tuple(ToolLine(tool.tool_name, tool.preview or "", tool.ok, tool.duration) for tool in state.tools),
        approvals=tuple(_open_approval(asked, caller) for asked in view.waiting.values()),
        not_executed=not_executed,
        error=state.error or run.parked,
        usage=state.usage if view.has_ended else None,
    )


def _open_approval(asked: ApprovalAsked, caller: Identity) -> OpenApproval:
    return OpenApproval(
        asked.approval_id,
        asked.tool_name,
        asked.command,
        asked.reason,
        asked.directory,
        elsewhere=not caller.may_answer(asked.requester),
    )


def in_words(report: RunReport) -> str:
    """The report for a model that reads text: the answer itself where there is one, and what to do next where not."""
    parts = [report.answer or report.text if report.answer is not None else report.text]
    match report.status:
        case "completed":
            pass
        case "waiting_for_approval":
            parts += [_question(approval) for approval in report.approvals]
            ask = "Ask the user, then call answer_approval, then"
            if all(approval.elsewhere for approval in report.approvals):
                ask = "It was started elsewhere: the user answers there, not by answer_approval. Go on with"
            parts.append(f"Run {report.run_id} waits until the user decides. {ask} watch_run with after={report.seq}.")
        case "pending" | "running":
            parts.append(
                f"Run {report.run_id} has not ended yet. watch_run with after={report.seq} goes on; stop_run ends it."
            )
        case "parked" | "failed" | "incomplete" | "stopped":
            reason = f": {report.error.message}" if report.error else ""
            parts.append(f"Run {report.run_id} is {report.status}{reason}")
    parts += [
        f"Not executed: {action.command or action.tool_name or 'a call'} ({action.reason})"
        for action in report.not_executed
    ]
    return "\n\n".join(part for part in parts if part) or "(the answer is empty)"


def _question(approval: OpenApproval) -> str:
    where = f" in {approval.directory}" if approval.directory else ""
    reason = f" ({approval.reason})" if approval.reason else ""
    return f"Approval {approval.approval_id}: {approval.tool} wants to run{where}{reason}:\n{approval.command}"


def line_of(run: Run) -> RunLine:
    finished = run.finished
    return RunLine(
        run_id=run.id,
        status=run.state,
        kind=run.new.kind,
        created_at=run.created_at,
        question=preview_line(question_of(run), 200),
        answer=preview_line(finished.output, 200) if finished else "",
        session=run.new.session,
        model=run.new.model,
    )
