"""A log whose events have times, and the timeline of it."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.app.costs import Costs
from tailrace.app.timeline import AnyItem, Timeline, timeline_of
from tailrace.events import AnyEvent, Entry, MessageRecorded, RunFinished, RunStarted
from tailrace.messages import Usage, user
from tailrace.ports import NewRun, Run

BEGAN = 1000.0
Timed = tuple[float, int, AnyEvent]  # seconds after the beginning, the attempt, the event
ASKED: Timed = (0.0, 1, MessageRecorded(user("Why?")))
SPENT = Usage(10, 8)


def run_of(entries: Sequence[Entry], *, kind: str = "agent", claims: int = 1) -> Run:
    last = entries[-1].event
    finished = last if isinstance(last, RunFinished) else None
    return Run(
        "run_1",
        NewRun(kind),
        finished.status if finished else "running",
        entries[-1].seq,
        1,
        BEGAN,
        claims,
        finished=finished,
    )


def timeline(
    *timed: Timed, kind: str = "agent", claims: int = 1, reasoning: bool = False, costs: Costs | None = None
) -> Timeline:
    log: list[Timed] = [(0.0, 1, RunStarted(kind, at=BEGAN)), *timed]
    entries = [Entry(seq, event, attempt) for seq, (_, attempt, event) in enumerate(log, 1)]
    times = [(seq, BEGAN + at) for seq, (at, _, _) in enumerate(log, 1)]
    return timeline_of(run_of(entries, kind=kind, claims=claims), entries, times, reasoning=reasoning, costs=costs)


def only(shown: Timeline, *kinds: type[AnyItem]) -> list[AnyItem]:
    return [item for item in shown.items if isinstance(item, kinds)]


def finished(at: float, text: str) -> Timed:
    return at, 1, RunFinished("completed", text, SPENT, at=BEGAN + at)
