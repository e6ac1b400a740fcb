"""The queries about sessions. `SESSIONS` reads the index `runs_by_kind` alone."""

from __future__ import annotations

import time
from itertools import groupby
from operator import itemgetter

from tailrace.integrations.postgres.address import Connection
from tailrace.integrations.postgres.queries import is_text, run_of
from tailrace.journal.sessions.session_runs import SessionTotals
from tailrace.journal.sessions.session_search import MAX_RUNS, MAX_S, SESSIONS_AT_ONCE, TextSearch
from tailrace.ports import RUNS_LIMIT, Run, SessionPage, SessionRuns

_LAST = "~"  # after every id
SESSIONS = (
    "SELECT session, max(id) AS newest, count(*) FROM runs WHERE kind = $1 AND session > '' GROUP BY session"
    " HAVING max(id) < $2 ORDER BY newest DESC"
)
_OUTCOMES = (
    "SELECT r.session, r.id, h.state, h.outcome FROM runs AS r JOIN heads AS h ON h.num = r.num"
    " WHERE r.kind = $1 AND r.session = ANY($2::text[]) ORDER BY r.session, r.id"
)
_TEXTS = (
    "SELECT r.session, r.new, h.outcome FROM runs AS r JOIN heads AS h ON h.num = r.num"
    " WHERE r.kind = $1 AND r.session = ANY($2::text[])"
    " AND (convert_from(r.new, 'UTF8') ILIKE $3 OR convert_from(h.outcome, 'UTF8') ILIKE $3)"
)


async def list_sessions(
    connection: Connection, kind: str, *, search: str = "", before: str | None = None, limit: int = RUNS_LIMIT
) -> SessionPage:
    if not is_text(search + (before or "")):
        return SessionPage([], None)
    named = [tuple(row) for row in await connection.fetch(SESSIONS, kind, before or _LAST)]
    if not search:
        page = named[:limit]
        sessions = await _sessions(connection, kind, [name for name, *_ in page])
        return SessionPage(sessions, page[-1][1] if len(named) > limit else None)
    text, until = TextSearch(search), time.monotonic() + MAX_S
    found: list[str] = []
    looked_at = runs = 0
    while looked_at < len(named) and len(found) < limit and runs < MAX_RUNS and time.monotonic() < until:
        some = named[looked_at : looked_at + SESSIONS_AT_ONCE]
        matching = await _matching(connection, kind, [name for name, *_ in some], text)
        for name, _, count in some:
            looked_at, runs = looked_at + 1, runs + count
            found += [name] if name in matching else []
            if len(found) == limit:
                break
    more = named[looked_at - 1][1] if 0 < looked_at < len(named) else None
    return SessionPage(await _sessions(connection, kind, found), more)


async def _matching(connection: Connection, kind: str, sessions: list[str], text: TextSearch) -> set[str]:
    rows = await connection.fetch(_TEXTS, kind, sessions, text.like)
    return {session for session, new, outcome in rows if text.is_in_run(new, outcome)}


async def _sessions(connection: Connection, kind: str, names: list[str]) -> list[SessionRuns]:
    """In the order of the names. A session whose runs were deleted meanwhile is left out."""
    found: dict[str, SessionRuns] = {}
    rows = await connection.fetch(_OUTCOMES, kind, names)
    for name, own in groupby(map(tuple, rows), itemgetter(0)):
        totals = SessionTotals()
        for _, *row in own:
            totals.add_row(*row)
        first, newest = await run_of(connection, totals.first), await run_of(connection, totals.newest)
        found[name] = totals.session(name, first, newest)
    return [found[name] for name in names if name in found]


async def session_of(connection: Connection, session: str, kind: str) -> SessionRuns | None:
    found = await _sessions(connection, kind, [session]) if session and is_text(session) else []
    return found[0] if found else None


async def run_after(connection: Connection, session: str, kind: str, after: str) -> Run | None:
    if not is_text(session + after):
        return None
    found = await connection.fetchval(
        "SELECT id FROM runs WHERE kind = $1 AND session = $2 AND id > $3 ORDER BY id LIMIT 1", kind, session, after
    )
    return None if found is None else await run_of(connection, found)
