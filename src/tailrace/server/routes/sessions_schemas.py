"""The bodies and parameters of `/sessions`. Values only."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tailrace.app.costs import Costs
from tailrace.app.timeline.run_summary import answering_model, ended_at, title_of
from tailrace.messages import Usage
from tailrace.plugins.installed import is_platform
from tailrace.ports import RunState as State
from tailrace.ports import SessionRuns
from tailrace.server.frontends.client_thread import requester
from tailrace.server.routes.runs_schemas import Page, RunState

_PLACES = {"cli": "terminal", "editor": "editor", "mcp": "mcp", "python": "python"}  # by who asks


class SessionsQuery(msgspec.Struct, frozen=True):
    """`q`: only sessions in which a question or an answer has this text."""

    q: Annotated[str, Meta(max_length=256)] = ""
    before: str | None = None  # `page.next` of the page before
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class SessionQuery(msgspec.Struct, frozen=True):
    before: str | None = None  # `page.next` of the page before: the runs before that one
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    reasoning: bool = False


class SessionStreamQuery(msgspec.Struct, frozen=True):
    """`after`: the stream begins with the event that follows this id; `now`, or none: with what is under way."""

    after: str = ""
    reasoning: bool = False


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str  # the first question, in one line
    created_at: float  # seconds since the epoch
    updated_at: float
    runs: int
    status: Literal["idle", "running", "waiting"]  # waiting: for an approval
    last_status: State  # of the newest run
    model: str  # that answered last
    place: str  # where it is held: the platform's name, terminal, editor, web; empty where that is not known
    usage: Usage  # of the runs that have ended
    cost_usd: float | None  # an estimate by list prices; null where one of the models has none


class SessionState(SessionSummary, frozen=True, kw_only=True):
    """The same, and its latest runs, oldest first."""

    data: tuple[RunState, ...]
    page: Page


class SessionList(msgspec.Struct, frozen=True):
    data: tuple[SessionSummary, ...]
    page: Page


def session_summary(session: SessionRuns, costs: Costs, *, waiting: bool) -> SessionSummary:
    newest = session.newest
    return SessionSummary(
        id=session.id,
        title=title_of(session.first),
        created_at=session.first.created_at,
        updated_at=max(newest.created_at, ended_at(newest) or 0.0),
        runs=session.runs,
        status="waiting" if waiting else "running" if session.under_way else "idle",
        last_status=newest.state,
        model=answering_model(newest),
        place=place_of(session.id, requester(newest)),
        usage=session.usage,
        cost_usd=costs.of(session.spent),
    )


def place_of(session: str, asked_by: str) -> str:
    """Where a run of this session was asked for by this requester; empty where that is not known."""
    platform, colon, _ = session.partition(":")
    if colon and is_platform(platform):
        return platform
    return _PLACES.get(asked_by, "web") if asked_by else ""
