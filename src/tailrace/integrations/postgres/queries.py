"""The queries. Each is one statement where what it reads must be of one moment, and is safe to repeat."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from tailrace.events import Entry
from tailrace.integrations.postgres.address import Connection
from tailrace.journal.live_tail import PAGE_BYTES, PAGE_ENTRIES, PAGE_LINES
from tailrace.journal.sessions.session_search import MAX_S, SESSIONS_AT_ONCE, SessionTotals, TextSearch
from tailrace.journal.stored import rows as stored
from tailrace.journal.stored.rows import MOST_BYTES, Row, end_of
from tailrace.ports import ENDED, RUNS_LIMIT, Batch, LogPage, Run, RunFilter, SessionPage, SessionRuns, Signal

_RUN = """
    SELECT r.num, r.id, r.new, r.created_at, h.state, h.epoch, h.kills, h.owner, h.first_seq, h.outcome, h.output_seqs,
        coalesce(h.last_seq, (
            SELECT b.last_seq FROM batches AS b WHERE b.run = r.num ORDER BY b.first_seq DESC LIMIT 1
        ))
    FROM runs AS r JOIN heads AS h ON h.num = r.num
"""

_CONDITIONS = {  # by the name in `RunFilter`
    "session": "r.session = ",
    "kind": "r.kind = ",
    "ended_before": "h.ended_at < ",
    "before": "r.id < ",
}


def is_text(value: str) -> bool:
    """PostgreSQL's text has no NUL, and its encoding no lone surrogate: nothing that has one is stored."""
    return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)


def known_id(run_id: str) -> str:
    """Raises `RunNotFound` for what can be no run's id."""
    if not is_text(run_id):
        raise stored.no_such_run(run_id)
    return run_id


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def run_of(connection: Connection, run_id: str) -> Run:
    row = await connection.fetchrow(_RUN + " WHERE r.id = $1", known_id(run_id))
    if row is None:
        raise stored.no_such_run(run_id)
    return await _run(connection, stored.RunRow._make(row))


async def run_with_key(connection: Connection, idempotency_key: str) -> Run | None:
    if not is_text(idempotency_key):
        return None
    row = await connection.fetchrow(_RUN + " WHERE r.idempotency_key = $1", idempotency_key)
    return None if row is None else await _run(connection, stored.RunRow._make(row))


async def _run(connection: Connection, row: stored.RunRow) -> Run:
    seqs = row.output_seqs
    return stored.run_of_row(row, None if seqs is None else await _step_outputs(connection, row.id, row.num, seqs))


async def list_runs(connection: Connection, **wanted: Unpack[RunFilter]) -> list[Run]:
    values: list[Any] = []
    conditions: list[str] = []
    for name, condition in _CONDITIONS.items():
        if (value := wanted.get(name)) is not None:
            values.append(value)
            conditions.append(f"{condition}${len(values)}")
            if isinstance(value, str) and not is_text(value):
                return []
    if (states := wanted.get("states")) is not None:
        values.append(list(states))
        conditions.append(f"h.state = ANY(${len(values)}::text[])")
        if not ENDED.intersection(states):
            conditions.append("h.ended_at IS NULL")  # there is an index of these
        elif stored.FAILED.issuperset(states):
            conditions.append(stored.IS_FAILED)  # and of these
    if (compacted := wanted.get("compacted")) is not None:
        conditions.append("h.first_seq > 1" if compacted else "h.first_seq = 1")  # of these too, once they have ended
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    limit = wanted.get("limit", RUNS_LIMIT)
    rows = await connection.fetch(f"{_RUN}{where} ORDER BY r.id DESC LIMIT {int(limit)}", *values)
    return [await _run(connection, stored.RunRow._make(row)) for row in rows]


async def abandoned_runs(connection: Connection, now: float | None) -> list[Run]:
    """Unfinished runs that any owner may claim, oldest first. A run that another process is claiming is left out. One
    for which another only looks is not: when a process hands its runs over all look at once, and each leaves some to
    others."""
    rows = await connection.fetch(
        f"{_RUN} WHERE h.ended_at IS NULL AND (h.state = 'pending'"
        " OR (h.state = 'running' AND h.lease_until <= wall_clock($1)))"
        " ORDER BY h.num FOR SHARE OF h SKIP LOCKED",
        now,
    )
    return [await _run(connection, stored.RunRow._make(row)) for row in rows]


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────

# Of each run the rows from the one with the next entry on, as many as `$3` entries may need and `$4` bytes hold. A
# cursor into what was compacted gets the snapshot alone.
_PAGES = Path(__file__).with_name("pages.sql").read_text(encoding="utf-8")


class _StoredPage(NamedTuple):
    """Rows of one run and what is needed to read them."""

    run_id: str
    num: int
    output_seqs: bytes | None
    snapshot: Row | None
    rows: list[Row]

    async def completed(self, connection: Connection, entries: list[Entry]) -> list[Entry]:
        """Gives the last entry the outputs that were left out when it was stored."""
        if not stored.repeats_outputs(entries) or self.output_seqs is None:
            return entries
        outputs = await _step_outputs(connection, self.run_id, self.num, self.output_seqs)
        return [*entries[:-1], stored.with_outputs(entries[-1], outputs)]

    async def entries(self, connection: Connection, after: int) -> Batch:
        if self.snapshot is not None:
            return Batch(await self.completed(connection, stored.entries_of(self.run_id, self.snapshot)))
        found = stored.entries_after(self.run_id, self.rows, after, PAGE_ENTRIES)
        batch = Batch(await self.completed(connection, found))
        ends = (self.rows[0].first_seq - 1, self.rows[-1].last_seq) if found else (0, 0)
        if self.output_seqs is None and ends == (after, after + len(found)):
            batch.stored = b"".join([row.events for row in self.rows])
        return batch


async def _stored_pages(
    connection: Connection, cursors: Mapping[str, int], limit: int, most_bytes: int
) -> list[_StoredPage]:
    """Of the runs that are there."""
    found = await connection.fetch(_PAGES, [*map(known_id, cursors)], [*cursors.values()], limit, most_bytes)
    pages: list[_StoredPage] = []
    for run_id, group in groupby(map(tuple, found), itemgetter(0)):
        rows = list(group)
        _, num, output_seqs, seq, attempt, crc, state = rows[0][:7]
        snapshot = None if seq is None else Row(seq, seq, attempt, crc, state)
        entries = [Row._make(row[7:]) for row in rows if row[7] is not None]
        pages.append(_StoredPage(run_id, num, output_seqs, snapshot, entries))
    return pages


async def _stored_page(connection: Connection, run_id: str, after: int, limit: int, most_bytes: int) -> _StoredPage:
    for page in await _stored_pages(connection, {run_id: after}, limit, most_bytes):
        return page
    raise stored.no_such_run(run_id)


async def read_page(connection: Connection, run_id: str, after: int) -> Batch:
    """Entries after the cursor; none only where there are none."""
    page = await _stored_page(connection, run_id, after, PAGE_ENTRIES, MOST_BYTES)
    return await page.entries(connection, after)


async def read_pages(connection: Connection, cursors: Mapping[str, int]) -> dict[str, Batch]:
    """The same of each of these runs that is there: all in one read."""
    pages = await _stored_pages(connection, cursors, PAGE_ENTRIES, MOST_BYTES)
    return {page.run_id: await page.entries(connection, cursors[page.run_id]) for page in pages}


async def read_lines(connection: Connection, run_id: str, after: int) -> LogPage:
    """The same as they are stored: one page, as `Source.stored_page` says."""
    page = await _stored_page(connection, run_id, after, PAGE_LINES, PAGE_BYTES)
    if page.snapshot is not None:
        return Batch(await page.completed(connection, stored.entries_of(run_id, page.snapshot))).page
    lines = stored.lines_after(run_id, page.rows, after)
    if lines and lines[-1].type == b"run_finished" and page.output_seqs is not None:
        lines[-1:] = Batch(await page.completed(connection, [lines[-1].entry])).page
    return LogPage(lines)


async def _pages(connection: Connection, run_id: str) -> AsyncIterator[Batch]:
    after = 0
    while page := await read_page(connection, run_id, after):
        yield page
        after = page[-1].seq


async def facts_of_runs(connection: Connection, run_ids: Sequence[str]) -> list[list[Entry]]:
    found = await connection.fetch(
        "SELECT w.place, r.num, h.output_seqs, b.first_seq, b.last_seq, b.attempt, b.crc, b.events"
        " FROM unnest($1::text[]) WITH ORDINALITY AS w(id, place) LEFT JOIN runs AS r ON r.id = w.id"
        " LEFT JOIN heads AS h ON h.num = r.num LEFT JOIN batches AS b ON b.run = r.num ORDER BY w.place, b.first_seq",
        list(map(known_id, run_ids)),
    )
    facts: list[list[Entry]] = []
    for place, rows in groupby(map(tuple, found), itemgetter(0)):
        run_id, (_, num, output_seqs, *first), *rest = run_ids[place - 1], *rows
        if num is None:
            raise stored.no_such_run(run_id)
        page = _StoredPage(run_id, num, output_seqs, None, [Row._make(first), *(Row._make(row[3:]) for row in rest)])
        facts.append(await page.completed(connection, stored.facts_in(run_id, page.rows)))
    return facts


async def times_of(connection: Connection, run_id: str) -> list[tuple[int, float]]:
    rows = await connection.fetch(
        "SELECT b.first_seq, b.at FROM runs AS r LEFT JOIN batches AS b ON b.run = r.num AND b.at IS NOT NULL"
        " WHERE r.id = $1 ORDER BY b.first_seq",
        known_id(run_id),
    )
    if not rows:
        raise stored.no_such_run(run_id)
    return [(first_seq, at) for first_seq, at in rows if first_seq is not None]


async def compacted(connection: Connection, run_id: str) -> tuple[Row, list[stored.TimedRow]]:
    """The snapshot before the last entry, and the rows that are kept: the facts and that entry."""
    compaction = stored.Compaction()
    async for page in _pages(connection, run_id):
        compaction.add(page)
    seqs = await connection.fetchval(
        "SELECT h.output_seqs FROM runs AS r JOIN heads AS h ON h.num = r.num WHERE r.id = $1", run_id
    )
    return compaction.rows(await times_of(connection, run_id), outputs_in_steps=seqs is not None)


async def _step_outputs(connection: Connection, run_id: str, num: int, seqs: bytes) -> dict[str, Any]:
    found = await connection.fetch(
        "SELECT w.seq, b.first_seq, b.last_seq, b.attempt, b.crc, b.events FROM unnest($2::integer[]) AS w(seq)"
        " LEFT JOIN LATERAL (SELECT * FROM batches AS c WHERE c.run = $1 AND c.first_seq <= w.seq"
        " ORDER BY c.first_seq DESC LIMIT 1) AS b ON true",
        num,
        stored.decoded_seqs(seqs),
    )
    steps = [stored.step_finished(run_id, seq, None if row[0] is None else Row._make(row)) for seq, *row in found]
    return {step.block_id: step.output for step in steps}


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────


async def signals_after(connection: Connection, run_id: str, after: int) -> list[Signal]:
    rows = await connection.fetch(
        "SELECT s.name, s.payload, s.sender, s.id FROM runs AS r LEFT JOIN signals AS s ON s.run = r.num AND s.id > $2"
        " WHERE r.id = $1 ORDER BY s.id",
        known_id(run_id),
        after,
    )
    if not rows:
        raise stored.no_such_run(run_id)
    return [
        Signal(name, stored.decoded_payload(payload), sender, number)
        for name, payload, sender, number in rows
        if number is not None
    ]


# ── small state ──────────────────────────────────────────────────────────────────────────────────────────────


async def value_of(connection: Connection, namespace: str, key: str) -> bytes | None:
    if not is_text(namespace + key):
        return None
    value: bytes | None = await connection.fetchval(
        "SELECT value FROM key_values WHERE namespace = $1 AND key = $2", namespace, key
    )
    return value


async def values_in(connection: Connection, namespace: str) -> dict[str, bytes]:
    rows = await connection.fetch("SELECT key, value FROM key_values WHERE namespace = $1", namespace)
    return {key: value for key, value in rows}  # noqa: C416 - a record is no pair for `dict`


async def counters(connection: Connection, prefix: str, first: str = "") -> dict[str, float]:
    rows = await connection.fetch(
        "SELECT name, value FROM counters WHERE name >= $1 AND name < $2", max(prefix, first), end_of(prefix)
    )
    return {name: value for name, value in rows}  # noqa: C416 - a record is no pair for `dict`


# ── sessions: a run after the other by the index `runs_by_kind`, as far as the page goes ──────────────────────

_LAST = "~"  # after every id
_SESSIONS = (  # `>=` of what can only be equal: of an equation the planner expects too few rows to stop early
    "SELECT r.session, r.id FROM runs AS r WHERE r.kind = $1 AND r.session > '' AND r.id < $2 AND r.id >="
    " (SELECT max(n.id) FROM runs AS n WHERE n.session = r.session AND n.kind = $1) ORDER BY r.id DESC LIMIT $3"
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
    before, found = before or _LAST, list[str]()
    text, until = TextSearch(search), time.monotonic() + MAX_S
    while len(found) < limit and time.monotonic() < until:
        named = await connection.fetch(_SESSIONS, kind, before, SESSIONS_AT_ONCE if search else limit)
        names = [name for name, _ in named]
        matching = await _matching(connection, kind, names, text) if search else set(names)
        if not named:
            break
        for name, newest in named:
            before = newest
            found += [name] if name in matching else []
            if len(found) == limit:
                break
    has_more = await connection.fetch(_SESSIONS, kind, before, 1)
    return SessionPage(await _sessions(connection, kind, found), before if has_more else None)


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
