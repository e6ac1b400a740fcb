"""The queries. Each function runs in the thread that holds the connection."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Unpack

from tailrace.errors import StorageFailed
from tailrace.events import Entry
from tailrace.journal.live_tail import PAGE_ENTRIES
from tailrace.journal.sessions.session_search import MAX_S, SessionTotals, TextSearch
from tailrace.journal.sqlite.places import NEWER_SEQS, newest_placed_seq, newest_seq, placed_row, rows_of_run
from tailrace.journal.stored import rows as stored_rows
from tailrace.journal.stored.rows import Row, decoded_payload, decoded_seqs, entries_after, no_such_run, repeats_outputs
from tailrace.ports import ENDED, RUNS_LIMIT, Batch, LogPage, Run, RunFilter, SessionPage, SessionRuns, Signal

_RUN_COLUMNS = (
    "r.num, r.id, r.new, r.created_at, h.state, h.epoch, h.kills, h.owner, h.first_seq, h.outcome, h.output_seqs"
)
_JOINED = "FROM runs AS r CROSS JOIN heads AS h ON h.num = r.num"
_RUN = f"SELECT {_RUN_COLUMNS}, coalesce(h.last_seq, {newest_seq('r.num')}) {_JOINED}"
_HEADS_FIRST = "FROM heads AS h CROSS JOIN runs AS r ON r.num = h.num"
_SORTED = 2000  # heads, rather than to look through all runs from the newest on

_RUN_CONDITIONS = {"session": "r.session = ?", "kind": "r.kind = ?", "before": "r.id < ?"}  # as in `RunFilter`
_HEAD_CONDITIONS = {"compacted": "(h.first_seq > 1) = ?", "ended_before": "h.ended_at < ?"}


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def number_of(connection: sqlite3.Connection, run_id: str) -> int:
    row: tuple[int] | None = connection.execute("SELECT num FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise no_such_run(run_id)
    return row[0]


def run_of(connection: sqlite3.Connection, run_id: str) -> Run:
    row = connection.execute(_RUN + " WHERE r.id = ?", (run_id,)).fetchone()
    if row is None:
        raise no_such_run(run_id)
    return _run(connection, row)


def run_with_key(connection: sqlite3.Connection, idempotency_key: str) -> Run | None:
    row = connection.execute(_RUN + " WHERE r.idempotency_key = ?", (idempotency_key,)).fetchone()
    return None if row is None else _run(connection, row)


def _run(connection: sqlite3.Connection, found: tuple[Any, ...]) -> Run:
    row = stored_rows.RunRow._make(found)
    seqs = row.output_seqs
    return stored_rows.run_of_row(row, None if seqs is None else _step_outputs(connection, row.id, row.num, seqs))


def list_runs(connection: sqlite3.Connection, **wanted: Unpack[RunFilter]) -> list[Run]:
    """However many runs there are, it reads few more than it returns. Newest first there are indexes of all runs, those
    of a session and those of a kind, and of few heads: runs that have not ended, have failed, are to be compacted."""
    conditions, values = _conditions(_RUN_CONDITIONS, wanted)
    of_heads, head_values = _conditions(_HEAD_CONDITIONS, wanted)
    is_indexed = wanted.get("ended_before") is not None
    if is_indexed and wanted.get("compacted") is None:
        of_heads.append("(h.first_seq > 1) IN (0, 1)")  # both parts of the index
    if (states := wanted.get("states")) is not None:
        of_heads.append(f"h.state IN ({', '.join('?' * len(states))})")
        head_values += states
        is_open = not ENDED.intersection(states)
        if is_open or stored_rows.FAILED.issuperset(states):
            of_heads.append("h.ended_at IS NULL" if is_open else stored_rows.IS_FAILED)
            is_indexed = True
    joined = _JOINED
    if wanted.get("session") is not None:
        conditions = [condition.replace("r.kind", "+r.kind") for condition in conditions]  # it has runs of few kinds
    elif is_indexed:
        count = f"SELECT count(*) FROM (SELECT 1 FROM heads AS h WHERE {' AND '.join(of_heads)} LIMIT {_SORTED})"  # noqa: S608
        (few,) = connection.execute(count, head_values).fetchone()
        joined = _HEADS_FIRST if few < _SORTED else _JOINED
    where = " AND ".join((*conditions, *of_heads)) or "true"
    limit = wanted.get("limit", RUNS_LIMIT)
    rows = connection.execute(_runs_sql(f"{joined} WHERE {where}"), (*values, *head_values, limit))
    return [_run(connection, row) for row in rows.fetchall()]


def _conditions(known: Mapping[str, str], wanted: RunFilter) -> tuple[list[str], list[Any]]:
    given = [name for name in known if wanted.get(name) is not None]
    return [known[name] for name in given], [wanted.get(name) for name in given]


def _runs_sql(joined: str) -> str:
    """The rows without a place are looked through once, and not for each run."""
    columns = ", ".join(f"f.{name[2:]}" for name in _RUN_COLUMNS.split(", "))
    return (
        f"WITH newer AS MATERIALIZED ({NEWER_SEQS}),"  # noqa: S608
        f" found AS (SELECT {_RUN_COLUMNS}, h.last_seq {joined} ORDER BY r.id DESC LIMIT ?)"
        f" SELECT {columns}, coalesce(f.last_seq, n.last_seq, {newest_placed_seq('f.num')})"
        " FROM found AS f LEFT JOIN newer AS n ON n.run = f.num ORDER BY f.id DESC"
    )


def newest_in_session(connection: sqlite3.Connection, session: str) -> str:
    """The id of the session's newest run; empty where it has none."""
    newest: str | None = None
    if session:
        (newest,) = connection.execute("SELECT max(id) FROM runs WHERE session = ?", (session,)).fetchone()
    return newest or ""


def unfinished_runs(connection: sqlite3.Connection) -> list[tuple[str, str, float, str]]:
    """Neither ended nor parked, oldest first: id, state, end of the lease, the owner's pipe."""
    return connection.execute(
        "SELECT r.id, h.state, h.lease_until, h.pipe FROM heads AS h JOIN runs AS r ON r.num = h.num"
        " WHERE h.ended_at IS NULL AND h.state <> 'parked' ORDER BY h.num"
    ).fetchall()


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────


_ROW = "first_seq, last_seq, attempt, crc, events"
_ROWS_AFTER = rows_of_run(  # from the one with the next entry on; of those with a place perhaps one before it too
    _ROW,
    placed="p.first_seq >= (SELECT coalesce(max(first_seq), 0) FROM places WHERE run = ?1 AND first_seq <= ?2 + 1)",
    newer="b.last_seq > ?2",
)
_ROWS = rows_of_run(_ROW)
_PLACED_ROW = placed_row(_ROW)
_ROW_WITH = rows_of_run(_ROW, placed="p.first_seq <= ?2", newer="b.first_seq <= ?2", newest_first=True, limit=1)
_TIMES = rows_of_run("first_seq, at", placed="b.at IS NOT NULL", newer="b.at IS NOT NULL")


def read_page(connection: sqlite3.Connection, run_id: str, after: int) -> Batch:
    """Entries after the cursor; none only where there are none."""
    num = number_of(connection, run_id)
    if snapshot := _snapshot_after(connection, run_id, num, after):
        return Batch((snapshot,))
    # Closing ends the read transaction, so that the write-ahead log can start over.
    with closing(connection.execute(_ROWS_AFTER, (num, after))) as rows:
        entries = entries_after(run_id, map(Row._make, rows), after, PAGE_ENTRIES)
    return Batch(completed(connection, run_id, num, entries))


def read_lines(connection: sqlite3.Connection, run_id: str, after: int) -> LogPage:
    """The same as they are stored: one page, as `Source.stored_page` says."""
    num = number_of(connection, run_id)
    if snapshot := _snapshot_after(connection, run_id, num, after):
        return Batch((snapshot,)).page
    with closing(connection.execute(_ROWS_AFTER, (num, after))) as rows:
        lines = stored_rows.lines_after(run_id, map(Row._make, rows), after)
    if lines and lines[-1].type == b"run_finished" and _output_seqs(connection, num) is not None:
        lines[-1:] = Batch(completed(connection, run_id, num, [lines[-1].entry])).page
    return LogPage(lines)


def _snapshot_after(connection: sqlite3.Connection, run_id: str, num: int, after: int) -> Entry | None:
    row = connection.execute(
        "SELECT seq, attempt, crc, state FROM snapshots WHERE run = ? AND seq > ?", (num, after)
    ).fetchone()
    if row is None:
        return None
    seq, attempt, crc, state = row
    (entry,) = completed(connection, run_id, num, stored_rows.entries_of(run_id, Row(seq, seq, attempt, crc, state)))
    return entry


def all_entries(connection: sqlite3.Connection, run_id: str) -> Iterator[Entry]:
    after = 0
    while page := read_page(connection, run_id, after):
        yield from page
        after = page[-1].seq


def facts_of(connection: sqlite3.Connection, run_id: str) -> list[Entry]:
    num = number_of(connection, run_id)
    with closing(connection.execute(_ROWS, (num,))) as rows:
        facts = stored_rows.facts_in(run_id, map(Row._make, rows))
    return completed(connection, run_id, num, facts)


def facts_of_runs(connection: sqlite3.Connection, run_ids: Sequence[str]) -> list[list[Entry]]:
    return [facts_of(connection, run_id) for run_id in run_ids]


def times_of(connection: sqlite3.Connection, run_id: str) -> list[tuple[int, float]]:
    return connection.execute(_TIMES, (number_of(connection, run_id),)).fetchall()


def compacted(connection: sqlite3.Connection, run_id: str) -> tuple[Row, list[stored_rows.TimedRow]]:
    """The snapshot before the last entry, and the rows that are kept: the facts and that entry."""
    compaction = stored_rows.Compaction()
    compaction.add(all_entries(connection, run_id))
    num = number_of(connection, run_id)
    times = times_of(connection, run_id)
    return compaction.rows(times, outputs_in_steps=_output_seqs(connection, num) is not None)


# ── a sequence's output, stored in its steps alone ───────────────────────────────────────────────────────────


def _output_seqs(connection: sqlite3.Connection, num: int) -> bytes | None:
    row: tuple[bytes | None] | None = connection.execute(
        "SELECT output_seqs FROM heads WHERE num = ?", (num,)
    ).fetchone()
    return None if row is None else row[0]


def completed(connection: sqlite3.Connection, run_id: str, num: int, entries: list[Entry]) -> list[Entry]:
    """Gives the last entry the outputs that were left out when it was stored."""
    if not repeats_outputs(entries) or (seqs := _output_seqs(connection, num)) is None:
        return entries
    return [*entries[:-1], stored_rows.with_outputs(entries[-1], _step_outputs(connection, run_id, num, seqs))]


def _step_outputs(connection: sqlite3.Connection, run_id: str, num: int, seqs: bytes) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for seq in decoded_seqs(seqs):
        row = (
            connection.execute(_PLACED_ROW, (num, seq)).fetchone()
            or connection.execute(_ROW_WITH, (num, seq)).fetchone()
        )
        step = stored_rows.step_finished(run_id, seq, None if row is None else Row._make(row))
        outputs[step.block_id] = step.output
    return outputs


def signals_after(connection: sqlite3.Connection, run_id: str, after: int) -> list[Signal]:
    rows = connection.execute(
        "SELECT name, payload, sender, id FROM signals WHERE run = ? AND id > ? ORDER BY id",
        (number_of(connection, run_id), after),
    ).fetchall()
    return [Signal(name, decoded_payload(payload), sender, number) for name, payload, sender, number in rows]


def signalled_since(connection: sqlite3.Connection, after: int) -> list[tuple[int, str]]:
    """Every newer signal's id and the run it is for, oldest first."""
    return connection.execute(
        "SELECT s.id, r.id FROM signals AS s JOIN runs AS r ON r.num = s.run WHERE s.id > ? ORDER BY s.id", (after,)
    ).fetchall()


# ── the file itself ──────────────────────────────────────────────────────────────────────────────────────────────


def free_bytes(connection: sqlite3.Connection, path: Path) -> int:
    """The space that is left beside the file, once the file was read."""
    connection.execute("SELECT count(*) FROM (SELECT 1 FROM runs LIMIT 1)").fetchone()
    try:
        return shutil.disk_usage(path.parent).free
    except OSError as exc:
        raise StorageFailed(f"{path.parent}: {exc.strerror}") from exc


# ── small state ──────────────────────────────────────────────────────────────────────────────────────────────


def value_of(connection: sqlite3.Connection, namespace: str, key: str) -> bytes | None:
    row: tuple[bytes] | None = connection.execute(
        "SELECT value FROM key_values WHERE namespace = ? AND key = ?", (namespace, key)
    ).fetchone()
    return None if row is None else row[0]


def values_in(connection: sqlite3.Connection, namespace: str) -> dict[str, bytes]:
    return dict(connection.execute("SELECT key, value FROM key_values WHERE namespace = ?", (namespace,)).fetchall())


def counters(connection: sqlite3.Connection, prefix: str, first: str = "") -> dict[str, float]:
    found = connection.execute(
        "SELECT name, value FROM counters WHERE name >= ? AND name < ?",
        (max(prefix, first), stored_rows.end_of(prefix)),
    )
    return dict(found.fetchall())


# ── sessions: a run after the other by the index `runs_by_kind`, as far as the page goes ──────────────────────

_LAST = "~"  # after every id
_SESSIONS = (
    "SELECT r.session, r.id FROM runs AS r WHERE r.kind = ?1 AND r.session > '' AND r.id < ?2 AND r.id ="
    " (SELECT max(n.id) FROM runs AS n WHERE n.session = r.session AND +n.kind = ?1) ORDER BY r.id DESC"
)
_OUTCOMES = (
    "SELECT r.id, h.state, h.outcome FROM runs AS r JOIN heads AS h ON h.num = r.num"
    " WHERE +r.kind = ? AND r.session = ? ORDER BY r.id"
)
_TEXTS = (
    "SELECT r.new, h.outcome FROM runs AS r JOIN heads AS h ON h.num = r.num"
    " WHERE +r.kind = ? AND r.session = ? ORDER BY r.id DESC"
)


def list_sessions(
    connection: sqlite3.Connection, kind: str, *, search: str = "", before: str | None = None, limit: int = RUNS_LIMIT
) -> SessionPage:
    """A search looks through a session that is begun to its end: the next page goes on with the one after it."""
    found: list[SessionRuns] = []
    text, until = TextSearch(search), time.monotonic() + MAX_S
    with closing(connection.execute(_SESSIONS, (kind, before or _LAST))) as named:
        for name, newest in named:
            if not search or any(text.is_in_run(*run) for run in connection.execute(_TEXTS, (kind, name))):
                session = session_of(connection, name, kind)
                found += [session] if session is not None else []
            if len(found) == limit or (search and time.monotonic() > until):
                return SessionPage(found, newest if named.fetchone() else None)
    return SessionPage(found, None)


def session_of(connection: sqlite3.Connection, session: str, kind: str) -> SessionRuns | None:
    totals = SessionTotals()
    for row in connection.execute(_OUTCOMES, (kind, session)).fetchall():
        totals.add_row(*row)
    if not totals.runs or not session:
        return None
    return totals.session(session, run_of(connection, totals.first), run_of(connection, totals.newest))


def run_after(connection: sqlite3.Connection, session: str, kind: str, after: str) -> Run | None:
    row: tuple[str] | None = connection.execute(
        "SELECT id FROM runs WHERE +kind = ? AND session = ? AND id > ? ORDER BY id LIMIT 1", (kind, session, after)
    ).fetchone()
    return None if row is None else run_of(connection, row[0])


def newest_runs(connection: sqlite3.Connection, sessions: Sequence[str]) -> dict[str, str]:
    """The newest run of each of these sessions, of whatever kind."""
    found = {}
    for session in sessions:
        (newest,) = connection.execute("SELECT max(id) FROM runs WHERE session = ?", (session,)).fetchone()
        found[session] = newest or ""
    return found
