"""`/sessions`: conversations as a resource. The bodies are in `sessions_schemas`, the live stream in `session_stream`.

Every key that may read runs reads every session (docs/security.md). Only the key that began one renames, pins or
deletes it, and a platform's chat only an admin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter

import msgspec
from aiohttp import web

from tailrace.agent.session import TURN_KIND
from tailrace.app.housekeeping import CONVERSATIONS, SESSION_MARKS, forget_values
from tailrace.calls.call_log import CALL_KIND
from tailrace.errors import RunNotFound
from tailrace.events import Snapshot
from tailrace.journal.fold import DELIVERY
from tailrace.journal.key_values import KeyValues
from tailrace.ports import ENDED, Journal, Run, SessionRuns
from tailrace.ports import RunState as State
from tailrace.runs.charged_to import owner_of
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity
from tailrace.server.http.pipeline import RequestPipeline
from tailrace.server.http.request_body import IDENTITY, query_of, read_as
from tailrace.server.http.route import Route, json_response
from tailrace.server.http.session_access import check_name, check_session
from tailrace.server.routes.runs_schemas import Page, RunState, RunSummary, before_of, state_of, summary_of
from tailrace.server.routes.sessions_schemas import (
    Conversation,
    Excerpt,
    SessionChange,
    SessionList,
    SessionMarks,
    SessionQuery,
    SessionsQuery,
    SessionState,
    SessionStreamQuery,
    SessionSummary,
    excerpt_of,
    is_of_program,
    session_summary,
)
from tailrace.server.routes.streams.session_stream import SessionFeed, parse_cursor

_DELETED_KINDS = (TURN_KIND, CALL_KIND)  # a conversation of `/v1/responses` has calls of raw models too
_DELETED_AT_ONCE = 200
_SEARCHED_RUNS = 200  # of a conversation, for the words around what was found
_UNMARKED = SessionMarks()


class Sessions:
    """The handlers."""

    def __init__(self, pipeline: RequestPipeline) -> None:
        self._pipeline = pipeline
        self._journal = pipeline.app.journal
        self._costs = pipeline.app.costs
        self._marks = KeyValues(self._journal, SESSION_MARKS, SessionMarks)

    async def show_all(self, request: web.Request) -> web.Response:
        """The conversations: those that are pinned, then the one that was asked last first.

        A search (`q`) that takes long ends early: `page.more` says so, and `page.next` goes on with it."""
        query = query_of(request, SessionsQuery)
        page = await self._journal.sessions(
            TURN_KIND, search=query.q, before=before_of(query.before), limit=query.limit
        )
        marks = await self._marks.all()
        sessions = [each for each in page.sessions if not (query.people and is_of_program(each))]
        if query.before is None and not query.q:
            shown = {each.id for each in sessions}
            further = [name for name, each in marks.items() if each.pinned and name not in shown]
            pinned = [await self._journal.session(name, TURN_KIND) for name in further]
            sessions += [each for each in pinned if each is not None]
            sessions.sort(key=lambda each: not marks.get(each.id, _UNMARKED).pinned)
        await self._costs.load(each for session in sessions for each in session.spent)
        data = await self._summaries(sessions, marks, query.q)
        return json_response(SessionList(data, Page(page.next is not None, page.next)))

    async def show(self, request: web.Request) -> web.Response:
        """One conversation, with the state of its latest runs, oldest first: all that a page needs to show it again."""
        query, name = query_of(request, SessionQuery), request.match_info["id"]
        session = await self._journal.session(name, TURN_KIND)
        if session is None:
            raise _no_such_session(name)
        runs = await self._journal.runs(
            session=name, kind=TURN_KIND, before=before_of(query.before), limit=query.limit + 1
        )
        await self._costs.load(session.spent)
        states = [await self._state(run, reasoning=query.reasoning) for run in runs[: query.limit]]
        shown = [state for state in reversed(states) if state is not None]
        more = len(runs) > query.limit
        marks = await self._marks.get(name)
        (summary,) = await self._summaries([session], {name: marks} if marks is not None else {})
        return json_response(
            SessionState(
                **msgspec.structs.asdict(summary),
                data=tuple(shown),
                page=Page(more, runs[query.limit - 1].id if more else None),
            )
        )

    async def change(self, request: web.Request) -> web.Response:
        """Renames or pins a conversation; an empty title is the first question again."""
        name, body = request.match_info["id"], await read_as(request, SessionChange)
        await self._require_own(name, request[IDENTITY])
        if await self._journal.session(name, TURN_KIND) is None:
            raise _no_such_session(name)

        def changed(old: SessionMarks | None) -> SessionMarks | None:
            before = old or _UNMARKED
            title = before.title if body.title is None else " ".join(body.title.split())
            after = SessionMarks(title, before.pinned if body.pinned is None else body.pinned)
            return None if after == _UNMARKED else after

        return json_response(await self._marks.update(name, changed) or _UNMARKED)

    async def delete(self, request: web.Request) -> web.Response:
        """Removes the conversation: its runs, and with them what was approved for it.

        204, also where there is none. 403 for another key's and for a platform's chat, 409 while one of its runs is
        under way or still being shown in a chat."""
        name = request.match_info["id"]
        await self._require_own(name, request[IDENTITY])
        await self.check_idle(name)
        await self._pipeline.run_to_end(self._delete(name))
        return web.Response(status=204)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """All that happens in a conversation, run after run, as server-sent events; never ends by itself.

        `id` is `<run>:<seq>`. A run begins with an event `run`, its summary with the question; the entries of its log
        follow as in `/runs/{id}/stream`, with the `run_id`. The conversation need not have begun yet."""
        query, name = query_of(request, SessionStreamQuery), request.match_info["id"]
        check_name(name, "id")
        if last_event_id := request.headers.get("Last-Event-ID", "").strip():
            cursor = parse_cursor(last_event_id, "Last-Event-ID")
        else:
            cursor = parse_cursor(query.after, "after")
        if cursor is not None:
            await self._check_cursor(name, cursor.run_id, cursor.seq)
        stream = self._pipeline.stream(request)
        feed = SessionFeed(self._pipeline, stream, name, self._summary, reasoning=query.reasoning)
        await feed.send_all(cursor)
        return await stream.end()

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _require_own(self, name: str, caller: Identity) -> None:
        """Raises `ApiError` 403 for the conversation of another key or of a platform's chat."""
        check_session(name, caller, "id")
        begun = await begun_conversation(self._journal, name)
        if begun is not None and not caller.owns(begun.owner):
            raise ApiError(403, "another key has begun this session", code="not_your_session", param="id")

    async def _state(self, run: Run, *, reasoning: bool) -> RunState | None:
        """None where the run was deleted meanwhile."""
        try:
            entry = await self._journal.snapshot(run.id)
        except RunNotFound:
            return None
        if not isinstance(entry.event, Snapshot):
            raise TypeError(entry.event)
        await self._costs.load(entry.event.spent)
        return state_of(run, entry.seq, entry.event, self._costs, reasoning=reasoning)

    async def _summary(self, run: Run) -> RunSummary:
        await self._costs.load(run.finished.spent or () if run.finished is not None else ())
        return summary_of(run, self._costs)

    async def _summaries(
        self, sessions: Sequence[SessionRuns], marks: Mapping[str, SessionMarks], text: str = ""
    ) -> tuple[SessionSummary, ...]:
        """What waits for an approval is listed once for all of them: no log of a run under way is folded for it."""
        under_way = any(session.under_way for session in sessions)
        asking = {each.run.id for each in await self._pipeline.app.waiting.listed()} if under_way else set()
        found: dict[str, Excerpt | None] = {}
        for session in sessions if text else ():
            found[session.id] = excerpt_of(
                await self._journal.runs(session=session.id, kind=TURN_KIND, limit=_SEARCHED_RUNS), text
            )
        return tuple(
            session_summary(
                each,
                self._costs,
                marks.get(each.id, _UNMARKED),
                waiting=not asking.isdisjoint(each.under_way),
                excerpt=found.get(each.id),
            )
            for each in sessions
        )

    async def _check_cursor(self, session: str, run_id: str, seq: int) -> None:
        """Raises `ApiError` 400 for a run of another session, 409 for an entry that is not there (H98). A run that is
        no longer kept is no mistake: those after it follow."""
        try:
            run = await self._journal.get(run_id)
        except RunNotFound:
            return
        if run.new.session != session:
            raise ApiError(400, "the cursor is of another session", param="Last-Event-ID")
        if seq > run.last_seq:
            raise ApiError(409, f"the log has {run.last_seq} entries and the cursor says {seq}", code="cursor_ahead")

    async def check_idle(self, session: str) -> None:
        """Raises `ApiError` 409."""
        for kind in _DELETED_KINDS:
            for run in await self._journal.runs(session=session, kind=kind, states=_UNFINISHED, limit=1):
                raise ApiError(409, f"run {run.id} has not ended; stop it first", code="session_busy")
        for delivery in await self._journal.runs(kind=DELIVERY, states=_UNFINISHED, limit=_DELETED_AT_ONCE):
            with suppress(RunNotFound):
                shown = await self._journal.get(str(delivery.new.input.get("run_id", "")))
                if shown.new.session == session:
                    raise ApiError(409, f"run {shown.id} is still being shown in a chat", code="session_busy")

    async def _delete(self, session: str) -> None:
        """The newest first: what is left of one that broke off keeps its title."""
        await forget_values(self._journal, session)
        for kind in _DELETED_KINDS:
            before: str | None = None
            while runs := await self._journal.runs(session=session, kind=kind, before=before, limit=_DELETED_AT_ONCE):
                before = runs[-1].id
                for run in runs:
                    if run.state in ENDED:  # not one that has begun meanwhile: the conversation goes on with it
                        with suppress(RunNotFound):
                            await self._journal.delete(run.id)


async def begun_conversation(journal: Journal, session: str) -> Conversation | None:
    """The session as it was made at `/v1/conversations`, else as its first run began it."""
    if (made := await KeyValues(journal, CONVERSATIONS, Conversation).get(session)) is not None:
        return made
    sessions = [await journal.session(session, kind) for kind in _DELETED_KINDS]
    first = min((each.first for each in sessions if each is not None), key=attrgetter("id"), default=None)
    return None if first is None else Conversation(owner_of(first), int(first.created_at))


_UNFINISHED: tuple[State, ...] = ("pending", "running", "parked")


def _no_such_session(name: str) -> ApiError:
    return ApiError(404, f"there is no session {name[:80]!r}", code="session_not_found", param="id")


def routes(pipeline: RequestPipeline) -> Sequence[Route]:
    api, route = Sessions(pipeline), partial(Route, access="runs")
    cursor = {"Last-Event-ID": "The id of the last event that the client has; wins over the query."}
    return (
        route("GET", "/sessions", api.show_all, query=SessionsQuery, answer=SessionList),
        route("GET", "/sessions/{id}", api.show, query=SessionQuery, answer=SessionState, errors=(404,)),
        route("PATCH", "/sessions/{id}", api.change, body=SessionChange, answer=SessionMarks, errors=(403, 404)),
        route("DELETE", "/sessions/{id}", api.delete, status=204, errors=(403, 409)),
        route(
            "GET",
            "/sessions/{id}/stream",
            api.stream,
            query=SessionStreamQuery,
            headers=cursor,
            streams=True,
            errors=(409,),
        ),
    )
