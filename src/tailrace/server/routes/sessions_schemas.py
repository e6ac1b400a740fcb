"""The bodies and parameters of `/sessions`. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tailrace.app.costs import Costs
from tailrace.app.timeline.question import question_of
from tailrace.app.timeline.run_summary import answering_model, ended_at, title_of
from tailrace.messages import Usage, Value
from tailrace.plugins.installed import is_platform
from tailrace.ports import Run, SessionRuns
from tailrace.ports import RunState as State
from tailrace.server.frontends.client_thread import requester
from tailrace.server.routes.runs_schemas import Page, RunState

_PROGRAMS = {"python", "mcp"}
_BEFORE, _AFTER = 40, 120  # characters around a text that was found
_PLACES = {"cli": "terminal", "editor": "editor", "mcp": "mcp", "python": "python"}  # by who asks


class SessionsQuery(msgspec.Struct, frozen=True):
    """`q`: only sessions in which a question or an answer has this text. `people`: without those of programs."""

    q: Annotated[str, Meta(max_length=256)] = ""
    people: bool = False
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


class SessionMarks(Value):
    """What people have noted of a conversation beside its runs. `title`: "" for the first question."""

    title: Annotated[str, Meta(max_length=256)] = ""
    pinned: bool = False


class Conversation(Value):
    """Who began a session and when, with OpenAI's metadata: what is kept of a conversation beside its runs."""

    owner: str
    created_at: int
    metadata: dict[str, str] = msgspec.field(default_factory=dict)


class SessionChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: Annotated[str, Meta(max_length=256)] | None = None
    pinned: bool | None = None


class Excerpt(msgspec.Struct, frozen=True):
    """Where a search has found its text: in the question or the answer of this run."""

    run_id: str
    text: str


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str  # as people have named it, else the first question, in one line
    pinned: bool = False
    excerpt: Excerpt | None = None  # of a search
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


def session_summary(
    session: SessionRuns, costs: Costs, marks: SessionMarks, *, waiting: bool, excerpt: Excerpt | None = None
) -> SessionSummary:
    newest = session.newest
    return SessionSummary(
        id=session.id,
        title=marks.title or title_of(session.first),
        pinned=marks.pinned,
        excerpt=excerpt,
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


def excerpt_of(runs: Iterable[Run], text: str) -> Excerpt | None:
    """The first place among these runs that has the text, with the words around it."""
    for run in runs:
        for said in (question_of(run), run.finished.output if run.finished is not None else ""):
            if (at := said.lower().find(text.lower())) >= 0:
                start = max(0, at - _BEFORE)
                shown = " ".join(said[start : at + len(text) + _AFTER].split())
                return Excerpt(run.id, f"{'… ' if start else ''}{shown}")
    return None


def is_of_program(session: SessionRuns) -> bool:
    return requester(session.first) in _PROGRAMS


def place_of(session: str, asked_by: str) -> str:
    """Where a run of this session was asked for by this requester; empty where that is not known."""
    platform, colon, _ = session.partition(":")
    if colon and is_platform(platform):
        return platform
    return _PLACES.get(asked_by, "web") if asked_by else ""
