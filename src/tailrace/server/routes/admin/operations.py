"""`GET /ops`: how the server is, over all its processes, as the operator's page shows it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from aiohttp import web

from tailrace.app import App
from tailrace.app.operations.node_reports import NodeReport
from tailrace.app.operations.recent_calls import RecentCalls, together
from tailrace.app.timeline.overviews import overviews_of
from tailrace.app.timeline.run_overview import OWN_RECORDS, RunOverview, ShownState
from tailrace.ports import Run, RunState
from tailrace.runs.charged_to import charged_to
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY
from tailrace.server.http.route import Route, json_response
from tailrace.server.routes.admin.keys import KeyBody, keys_today
from tailrace.server.routes.approvals import Listing, WaitingBody
from tailrace.values.urls import without_credentials

LIVE: Final[tuple[RunState, ...]] = ("pending", "running", "parked")
FAILED: Final[tuple[RunState, ...]] = ("failed", "incomplete")
MAX_LIVE: Final = 100
MAX_ERRORS: Final = 12


class NodeBody(msgspec.Struct, frozen=True, kw_only=True):
    """One process. `group` is shared by the workers of one server. Where it did not answer, `report` is null."""

    owner: str
    group: str
    leaving: bool
    platforms: tuple[str, ...]  # that it can poll
    report: NodeReport | None


class ProviderBody(msgspec.Struct, frozen=True):
    """Of the last 15 minutes. `first_token_s` is the median; `wait_until` is when the provider wants to be asked
    again, `problem` its newest failure; no answer has followed that while it `is_failing`."""

    name: str
    calls: int
    failed: int
    first_token_s: float | None
    is_failing: bool
    problem: str
    problem_at: float
    wait_until: float


class PlatformBody(msgspec.Struct, frozen=True):
    name: str
    state: Literal["connected", "down", "unserved"]
    reason: str = ""


class OpsRun(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    state: ShownState
    question: str
    model: str
    key: str
    owner: str  # the process that executes it
    session: str
    created_at: float
    duration_s: float | None
    tokens: int
    cost_usd: float | None
    problem: str


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """`problems`: what of store and bus does not work, by process where they disagree."""

    now: float
    store: str
    bus: str
    nodes: tuple[NodeBody, ...]
    providers: tuple[ProviderBody, ...]
    platforms: tuple[PlatformBody, ...]
    live: tuple[OpsRun, ...]
    more_live: bool
    approvals: tuple[WaitingBody, ...]
    keys: tuple[KeyBody, ...]
    errors: tuple[OpsRun, ...]


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    app = pipeline.app

    async def show(request: web.Request) -> web.Response:
        """Processes, providers, platforms, live runs, approvals, keys and the last errors, over all nodes.

        Every process is asked for its report now."""
        reports = await app.reports.collect()
        live = await app.journal.runs(states=LIVE, limit=MAX_LIVE + 1)
        failed = await app.journal.runs(states=FAILED, limit=MAX_ERRORS)
        body = Operations(
            now=round(time.time(), 3),
            store=without_credentials(app.config.store.url),
            bus="none" if app.bus is None else without_credentials(app.config.bus.url),
            nodes=_nodes(app, reports),
            providers=_providers(app, reports.values()),
            platforms=_platforms(app, reports),
            live=await _shown_runs(app, live[:MAX_LIVE]),
            more_live=len(live) > MAX_LIVE,
            approvals=Listing(None, await app.waiting.listed()).body(request[IDENTITY]).data,
            keys=await keys_today(app),
            errors=await _shown_runs(app, failed),
        )
        return json_response(body)

    return (Route("GET", "/ops", show, "admin", answer=Operations),)


def _nodes(app: App, reports: Mapping[str, NodeReport | None]) -> tuple[NodeBody, ...]:
    living = app.processes.living
    return tuple(
        NodeBody(
            owner=owner,
            group=living[owner].group,
            leaving=living[owner].leaving,
            platforms=_served(living[owner].serves),
            report=report,
        )
        for owner, report in sorted(reports.items())
        if owner in living
    )


def _served(accounts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({account.partition(":")[0] for account in accounts}))


def _providers(app: App, reports: Iterable[NodeReport | None]) -> tuple[ProviderBody, ...]:
    """Those that are configured or were called, by name."""
    seen: dict[str, list[RecentCalls]] = defaultdict(list)
    for name in (app.config.model.provider, *app.config.providers):
        seen[name] = []
    for report in reports:
        for name, recent in (report.providers if report is not None else {}).items():
            seen[name].append(recent)
    return tuple(_provider(name, together(parts)) for name, parts in sorted(seen.items()))


def _provider(name: str, recent: RecentCalls) -> ProviderBody:
    spent = recent.calls, recent.failed, recent.first_token_s, recent.is_failing
    return ProviderBody(name, *spent, recent.problem, recent.problem_at, recent.wait_until)


def _platforms(app: App, reports: Mapping[str, NodeReport | None]) -> tuple[PlatformBody, ...]:
    """The enabled ones. One that any process reports as down is down: it is that process which should poll it."""
    served = {name for beat in app.processes.living.values() for name in _served(beat.serves)}
    problems = {name: why for report in reports.values() if report is not None for name, why in report.problems.items()}
    return tuple(
        PlatformBody(name, "down", problems[name])
        if name in problems
        else PlatformBody(name, "connected" if name in served else "unserved")
        for name, settings in sorted(app.config.platforms.by_name.items())
        if settings.enabled
    )


async def _shown_runs(app: App, runs: Sequence[Run]) -> tuple[OpsRun, ...]:
    runs = [run for run in runs if run.new.kind not in OWN_RECORDS]
    overviews = await overviews_of(app.journal, runs, now=time.time())
    await app.costs.load(spent for overview in overviews for spent in overview.spent)
    return tuple(_shown_run(app, run, overview) for run, overview in zip(runs, overviews, strict=True))


def _shown_run(app: App, run: Run, overview: RunOverview) -> OpsRun:
    return OpsRun(
        id=overview.public_id,
        kind=overview.kind,
        state=overview.state,
        question=overview.question,
        model=overview.models[-1] if overview.models else "",
        key=charged_to(run),
        owner=run.owner,
        session=run.new.session,
        created_at=overview.created_at,
        duration_s=overview.duration_s,
        tokens=overview.usage.input_tokens + overview.usage.output_tokens,
        cost_usd=app.costs.of(overview.spent),
        problem=overview.problem,
    )
