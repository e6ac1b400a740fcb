"""The queries about sessions. Each function runs in the thread that holds the connection.

The index `runs_by_kind` has all that the list of sessions needs: it is read from one end to the other, and no run is.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence

from tailrace.journal.sessions.session_runs import SessionTotals
from tailrace.journal.sessions.session_search import MAX_RUNS, MAX_S, TextSearch
from tailrace.journal.sqlite.queries import run_of
from tailrace.ports import RUNS_LIMIT, Run, SessionPage, SessionRuns

_LAST = "~"  # after every id
SESSIONS = (
    "SELECT session, max(id) AS newest FROM runs WHERE kind = ? AND session > '' GROUP BY session"
    " HAVING newest < ? ORDER BY newest DESC"
)
_OUTCOMES = (
    "SELECT r.id, h.state, h.outcome FROM runs AS r JOIN heads AS h ON h.num = r.num"
    " WHERE r.kind = ? AND r.session = ? ORDER BY r.id"
)
_TEXTS = (
    "SELECT r.new, h.outcome FROM runs AS r JOIN heads AS h ON h.num = r.num"
    " WHERE r.kind = ? AND r.session = ? ORDER BY r.id DESC"
)


def list_sessions(
    connection: sqlite3.Connection, kind: str, *, search: str = "", before: str | None = None, limit: int = RUNS_LIMIT
) -> SessionPage:
    named = connection.execute(SESSIONS, (kind, before or _LAST)).fetchall()
    found: list[SessionRuns] = []
    searching = _Searching(connection, kind, search) if search else None
    for place, (name, newest) in enumerate(named):
        if searching is None or searching.is_in(name):
            session = session_of(connection, name, kind)
            found += [session] if session is not None else []
        if len(found) == limit or (searching is not None and searching.is_over):
            return SessionPage(found, newest if place + 1 < len(named) else None)
    return SessionPage(found, None)


class _Searching:
    """One search, through session after session."""

    def __init__(self, connection: sqlite3.Connection, kind: str, search: str) -> None:
        self._connection, self._kind, self._text = connection, kind, TextSearch(search)
        self._until = time.monotonic() + MAX_S
        self._runs = 0

    @property
    def is_over(self) -> bool:
        return self._runs >= MAX_RUNS or time.monotonic() > self._until

    def is_in(self, session: str) -> bool:
        """A session that is begun is looked through to its end: the next page goes on with the one after it."""
        return any(self._text.is_in_run(new, outcome) for new, outcome in self._texts(session))

    def _texts(self, session: str) -> Iterator[tuple[bytes, bytes | None]]:
        for row in self._connection.execute(_TEXTS, (self._kind, session)):
            self._runs += 1
            yield row


def session_of(connection: sqlite3.Connection, session: str, kind: str) -> SessionRuns | None:
    totals = SessionTotals()
    for row in connection.execute(_OUTCOMES, (kind, session)).fetchall():
        totals.add_row(*row)
    if not totals.runs or not session:
        return None
    return totals.session(session, run_of(connection, totals.first), run_of(connection, totals.newest))


def run_after(connection: sqlite3.Connection, session: str, kind: str, after: str) -> Run | None:
    row: tuple[str] | None = connection.execute(
        "SELECT id FROM runs WHERE kind = ? AND session = ? AND id > ? ORDER BY id LIMIT 1", (kind, session, after)
    ).fetchone()
    return None if row is None else run_of(connection, row[0])


def newest_runs(connection: sqlite3.Connection, sessions: Sequence[str]) -> dict[str, str]:
    """The newest run of each of these sessions, of whatever kind."""
    found = {}
    for session in sessions:
        (newest,) = connection.execute("SELECT max(id) FROM runs WHERE session = ?", (session,)).fetchone()
        found[session] = newest or ""
    return found
