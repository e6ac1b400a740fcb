"""A run in one line, for people: what was asked, which model answers, how it stands, what it cost.

Pure: made of the run and its facts. Every list of runs is made of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from tailrace import events
from tailrace.app.timeline.question import question_of
from tailrace.flows.definition.public_ids import public_id
from tailrace.journal.fold import SEQUENCE
from tailrace.messages import SpentTokens, Usage
from tailrace.ports import Run, RunState

OWN_RECORDS = frozenset({"delivery", "definition"})  # kinds of runs that the program keeps for itself
ShownState = RunState | events.InstanceState | Literal["orphaned", "asking"]


class RunOverview(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is that of the instance where the run is a sequence; "orphaned" where no living process executes it,
    "asking" while it waits for an approval, with a process that executes it or without."""

    id: str  # the journal's
    public_id: str
    kind: str
    state: ShownState
    question: str  # of a sequence: its name, and whether nothing is called
    models: tuple[str, ...]  # that were asked, as `provider/model`; the run's own where none was
    created_at: float
    duration_s: float | None  # until its end, or until now; None where its end has no time
    usage: Usage
    spent: tuple[SpentTokens, ...]
    approvals: tuple[events.ApprovalAsked, ...] = ()  # that it waits for
    problem: str = ""  # why it failed, or is set aside


def overview_of(run: Run, facts: Iterable[events.Entry], *, now: float, orphaned: bool = False) -> RunOverview:
    """`now` is the wall clock. `orphaned`: the journal lists the run among its orphans."""
    open_approvals: dict[str, events.ApprovalAsked] = {}
    models: dict[str, None] = {}
    spent: dict[tuple[str, str], Usage] = {}
    instance: events.InstanceState | None = None
    for entry in facts:
        event = entry.event
        if isinstance(event, events.AttemptStarted):
            models[_full_name(event.provider, event.model)] = None
        elif isinstance(event, events.UsageRecorded):
            who = event.provider, event.model
            spent[who] = spent.get(who, Usage()) + event.usage
        elif isinstance(event, events.RunForked):  # what stands before it is another run's
            models.clear()
            spent.clear()
        elif isinstance(event, events.ApprovalAsked):
            open_approvals[event.approval_id] = event
        elif isinstance(event, events.ApprovalAnswered):
            open_approvals.pop(event.approval_id, None)
        elif isinstance(event, events.StateChanged):
            instance = event.state
    finished = run.finished
    if finished is not None and not spent and finished.usage != Usage():
        name = next(reversed(models), run.new.model)
        spent[_provider_and_model(name)] = finished.usage
    if finished is not None or run.parked is not None:
        open_approvals.clear()
    failure = finished.error if finished is not None else run.parked
    return RunOverview(
        id=run.id,
        public_id=public_id(run),
        kind=run.new.kind,
        state=_shown_state(run, instance, orphaned=orphaned, asking=bool(open_approvals)),
        question=question_of(run) + (" (dry run)" if run.new.input.get("dry_run") else ""),
        models=tuple(filter(None, models)) or tuple(filter(None, [run.new.model])),
        created_at=run.created_at,
        duration_s=_duration_s(run, now),
        usage=finished.usage if finished is not None else sum(spent.values(), Usage()),
        spent=tuple(SpentTokens(*who, usage) for who, usage in spent.items()),
        approvals=tuple(open_approvals.values()),
        problem=failure.message if failure is not None else "",
    )


def tries_of_last_call(facts: Iterable[events.Entry]) -> int:
    """How many attempts the last model call of the run took, whether or not it was answered."""
    tries, answered = 0, False
    for entry in facts:
        match entry.event:
            case events.AttemptStarted(previous_failure=failure):
                tries, answered = (1 if answered and not failure else tries + 1), False
            case events.MessageRecorded(message):
                answered = answered or message.role == "assistant"
            case _:
                pass
    return tries


def _full_name(provider: str, model: str) -> str:
    return f"{provider}/{model}" if provider and model else provider or model


def _provider_and_model(name: str) -> tuple[str, str]:
    provider, slash, model = name.partition("/")
    return (provider, model) if slash else ("", name)


def _duration_s(run: Run, now: float) -> float | None:
    if run.finished is None:
        return max(0.0, now - run.created_at)
    return max(0.0, run.finished.at - run.created_at) if run.finished.at else None


def _shown_state(run: Run, instance: events.InstanceState | None, *, orphaned: bool, asking: bool) -> ShownState:
    if run.new.kind == SEQUENCE:
        if run.state == "stopped":
            return "cancelled"
        if run.state in ("pending", "running") and instance in ("paused", "waiting"):
            return instance
        if run.state == "pending" and not asking:
            return "scheduled"
    if run.state == "running" and orphaned:
        return "orphaned"
    if run.state in ("pending", "running") and asking:  # a process that ends gives back what waits for a person
        return "asking"
    return run.state
