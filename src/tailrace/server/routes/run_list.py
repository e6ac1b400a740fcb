"""Which runs `GET /runs` lists, and in which order.

The journal narrows by session, kind and status; everything else is looked for among its newest runs, page by page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tailrace.app.costs import Costs
from tailrace.app.timeline.question import question_of
from tailrace.app.timeline.run_summary import answering_models, duration_s
from tailrace.flows.definition.public_ids import public_id
from tailrace.ports import Journal, Run
from tailrace.ports import RunState as State
from tailrace.runs.charged_to import charged_to
from tailrace.server.routes.runs_schemas import before_of

MAX_SCANNED: Final = 5000  # runs that one request looks at; `page.next` goes on from there
_PAGE: Final = 200
Sort = Literal["newest", "slowest", "tokens", "cost"]


class RunsQuery(msgspec.Struct, frozen=True):
    """`kind`: one or several, with commas. `model` and `key`: a part of the name; `q`: a part of the question, the
    answer or the error. Times are seconds since the epoch. `sort`: any other order than the newest first is that of all
    runs that were looked at, up to 5,000."""

    session: str | None = None
    kind: str | None = None
    status: State | None = None
    model: str = ""
    key: str = ""
    q: str = ""
    since: float | None = None
    until: float | None = None
    min_usd: Annotated[float, Meta(ge=0)] | None = None
    sort: Sort = "newest"
    before: str | None = None  # `page.next` of the page before
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class FoundRuns(NamedTuple):
    runs: list[Run]
    next: str | None  # `before` of the next page


async def find_runs(journal: Journal, costs: Costs, query: RunsQuery) -> FoundRuns:
    """Raises `ApiError` 400 for a `before` that is no id."""
    before, kinds = before_of(query.before), (query.kind or "").split(",")
    found: list[Run] = []
    scanned, is_sorted = 0, query.sort != "newest"
    while scanned < MAX_SCANNED:
        page = await journal.runs(
            session=query.session,
            kind=query.kind if len(kinds) == 1 else None,
            states=[query.status] if query.status is not None else None,
            before=before,
            limit=min(_PAGE, query.limit + 1) if not _narrows(query) else _PAGE,
        )
        await costs.load(each for run in page if run.finished for each in run.finished.spent or ())
        models = await answering_models(journal, page) if query.model else {}
        scanned += len(page)
        for run in page:
            if query.since is not None and run.created_at < query.since:
                return _ordered(found, query, costs, None)
            if (len(kinds) == 1 or run.new.kind in kinds) and _matches(run, query, costs, models.get(run.id, "")):
                if len(found) == query.limit and not is_sorted:
                    return FoundRuns(found, public_id(found[-1]))
                found.append(run)
        if not page:
            return _ordered(found, query, costs, None)
        before = page[-1].id
    return _ordered(found, query, costs, None if is_sorted else before)


def _narrows(query: RunsQuery) -> bool:
    own = (query.model, query.key, query.q, query.since, query.until, query.min_usd)
    return any(own) or query.sort != "newest" or "," in (query.kind or "")


def _ordered(found: list[Run], query: RunsQuery, costs: Costs, following: str | None) -> FoundRuns:
    measures: Mapping[str, Callable[[Run], float]] = {
        "slowest": lambda run: duration_s(run) or 0.0,
        "tokens": _tokens,
        "cost": lambda run: _usd(run, costs) or 0.0,
    }
    if (measure := measures.get(query.sort)) is not None:
        found = sorted(found, key=measure, reverse=True)[: query.limit]
    return FoundRuns(found, following)


def _matches(run: Run, query: RunsQuery, costs: Costs, model: str) -> bool:
    if query.until is not None and run.created_at >= query.until:
        return False
    if query.model.lower() not in model.lower() or query.key.lower() not in charged_to(run).lower():
        return False
    if query.min_usd and (_usd(run, costs) or 0.0) < query.min_usd:
        return False
    return not query.q or any(query.q.lower() in text.lower() for text in _texts(run))


def _texts(run: Run) -> Iterable[str]:
    finished = run.finished
    yield question_of(run)
    if finished is not None:
        yield finished.output
    if (failure := finished.error if finished is not None else run.parked) is not None:
        yield failure.message


def _tokens(run: Run) -> int:
    return run.finished.usage.input_tokens + run.finished.usage.output_tokens if run.finished is not None else 0


def _usd(run: Run, costs: Costs) -> float | None:
    return costs.of(run.finished.spent or ()) if run.finished is not None else None
