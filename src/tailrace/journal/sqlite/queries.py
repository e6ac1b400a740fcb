"""Entries to rows and back, and the queries. Each function runs in the thread that holds the connection."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from tailrace.errors import CorruptLog, RunNotFound, StorageFailed
from tailrace.events import AnyEvent, Entry, RunFailure, RunFinished, Snapshot, StepFinished, from_json
from tailrace.journal.fold import Fold, fold, is_fact, outputs_text
from tailrace.journal.live_tail import PAGE_BYTES, PAGE_ENTRIES, PAGE_LINES, next_page_end
from tailrace.ports import RUNS_LIMIT, Batch, LogPage, NewRun, Run, RunFilter, Signal, StoredLine

_ENCODER = msgspec.json.Encoder()
_EVENTS = msgspec.json.Decoder(AnyEvent)
_NEW = msgspec.json.Decoder(NewRun)
_FINISHED = msgspec.json.Decoder(RunFinished)
_FAILURE = msgspec.json.Decoder(RunFailure)
_PAYLOAD = msgspec.json.Decoder(dict[str, Any])

_RUN = """
    SELECT r.num, r.id, r.new, r.created_at, h.state, h.epoch, h.kills, h.owner, h.first_seq, h.outcome, h.output_seqs,
        coalesce(h.last_seq, (
            SELECT b.last_seq FROM batches AS b WHERE b.run = r.num ORDER BY b.first_seq DESC LIMIT 1
        ))
    FROM runs AS r JOIN heads AS h ON h.num = r.num
"""

_CONDITIONS = {  # by the name in `RunFilter`
    "session": "r.session = ?",
    "kind": "r.kind = ?",
    "ended_before": "h.ended_at < ?",
    "compacted": "(h.first_seq > 1) = ?",
    "before": "r.id < ?",
}


class Row(NamedTuple):
    """One stretch of consecutive entries of one attempt, as it is stored."""

    first_seq: int
    last_seq: int
    attempt: int
    crc: int
    events: bytes


def rows_of(entries: Sequence[Entry]) -> Iterator[Row]:
    """`entries` are consecutive. A row is as long as a page at most: a page costs the rows that it is made of."""
    for attempt, group in groupby(entries, attrgetter("attempt")):
        stretch = list(group)
        for start in range(0, len(stretch), PAGE_LINES):
            some = stretch[start : start + PAGE_LINES]
            events = _ENCODER.encode_lines([entry.event for entry in some])
            yield Row(some[0].seq, some[-1].seq, attempt, crc32(events), events)


def _stretches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Groups of consecutive entries: compaction leaves gaps between them."""
    for _, group in groupby(enumerate(entries), lambda pair: pair[1].seq - pair[0]):
        yield [entry for _, entry in group]


def entries_of(run_id: str, row: Row) -> list[Entry]:
    """Raises `CorruptLog` for a row that is not what was written."""
    _check_sum(run_id, row)
    try:
        events = _EVENTS.decode_lines(row.events)
    except msgspec.MsgspecError as exc:
        raise CorruptLog(f"run {run_id}: entries {row.first_seq}-{row.last_seq} cannot be read: {exc}") from exc
    _check_count(run_id, row, len(events))
    return [Entry(seq, event, row.attempt) for seq, event in enumerate(events, row.first_seq)]


def lines_of(run_id: str, row: Row) -> list[StoredLine]:
    """The same without decoding them."""
    _check_sum(run_id, row)
    lines = row.events.splitlines()  # JSON has no line ends inside
    _check_count(run_id, row, len(lines))
    return [StoredLine(seq, row.attempt, line) for seq, line in enumerate(lines, row.first_seq)]


def _check_sum(run_id: str, row: Row) -> None:
    if crc32(row.events) != row.crc:
        raise CorruptLog(f"run {run_id}: entries {row.first_seq}-{row.last_seq} are damaged (checksum)")


def _check_count(run_id: str, row: Row, found: int) -> None:
    if found != row.last_seq - row.first_seq + 1:
        raise CorruptLog(f"run {run_id}: {found} entries where {row.first_seq}-{row.last_seq} are due")


def encode(value: msgspec.Struct) -> bytes:
    return _ENCODER.encode(value)


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def number_of(connection: sqlite3.Connection, run_id: str) -> int:
    row: tuple[int] | None = connection.execute("SELECT num FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunNotFound(f"there is no run {run_id}")
    return row[0]


def run_of(connection: sqlite3.Connection, run_id: str) -> Run:
    row = connection.execute(_RUN + " WHERE r.id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunNotFound(f"there is no run {run_id}")
    return _run(connection, row)


def run_with_key(connection: sqlite3.Connection, idempotency_key: str) -> Run | None:
    row = connection.execute(_RUN + " WHERE r.idempotency_key = ?", (idempotency_key,)).fetchone()
    return None if row is None else _run(connection, row)


def _run(connection: sqlite3.Connection, row: tuple[Any, ...]) -> Run:
    num, run_id, new, created_at, state, epoch, kills, owner, first_seq, outcome, output_seqs, last_seq = row
    if last_seq is None:
        raise CorruptLog(f"run {run_id} has lost all its entries")
    try:
        finished = None if outcome is None or state == "parked" else _FINISHED.decode(outcome)
        if finished is not None and output_seqs is not None:
            output = outputs_text(_step_outputs(connection, run_id, num, output_seqs))
            finished = msgspec.structs.replace(finished, output=output)
        parked = _FAILURE.decode(outcome) if state == "parked" else None
        new = _NEW.decode(new)
        return Run(run_id, new, state, last_seq, first_seq, created_at, epoch, kills, owner, finished, parked)
    except msgspec.MsgspecError as exc:
        raise CorruptLog(f"run {run_id} cannot be read: {exc}") from exc


def list_runs(connection: sqlite3.Connection, wanted: RunFilter) -> list[Run]:
    conditions = [_CONDITIONS[name] for name in _CONDITIONS if wanted.get(name) is not None]
    values = [wanted.get(name) for name in _CONDITIONS if wanted.get(name) is not None]
    if (states := wanted.get("states")) is not None:
        conditions.append(f"h.state IN ({', '.join('?' * len(states))})")
        values += states
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    limit = wanted.get("limit", RUNS_LIMIT)
    rows = connection.execute(f"{_RUN}{where} ORDER BY r.id DESC LIMIT ?", (*values, limit))
    return [_run(connection, row) for row in rows.fetchall()]


def newest_in_session(connection: sqlite3.Connection, session: str) -> str:
    """The id of the session's newest run; empty where it has none."""
    newest: str | None = None
    if session:
        (newest,) = connection.execute("SELECT max(id) FROM runs WHERE session = ?", (session,)).fetchone()
    return newest or ""


def unfinished_runs(connection: sqlite3.Connection) -> list[tuple[str, str, float, str]]:
    """Neither ended nor parked, oldest first: id, state, end of the lease, the owner's pipe."""
    return connection.execute(
        "SELECT r.id, h.state, h.lease_until, h.bell FROM heads AS h JOIN runs AS r ON r.num = h.num"
        " WHERE h.ended_at IS NULL AND h.state <> 'parked' ORDER BY h.num"
    ).fetchall()


def last_seq_of(connection: sqlite3.Connection, run_id: str) -> int:
    row: tuple[int] | None = connection.execute(
        "SELECT last_seq FROM batches WHERE run = ? ORDER BY first_seq DESC LIMIT 1", (number_of(connection, run_id),)
    ).fetchone()
    if row is None:
        raise CorruptLog(f"run {run_id} has lost all its entries")
    return row[0]


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────


def read_page(connection: sqlite3.Connection, run_id: str, after: int, limit: int) -> Batch:
    """Entries after the cursor, at most `limit`; none only where there are none."""
    num = number_of(connection, run_id)
    if snapshot := _snapshot_after(connection, run_id, num, after):
        return Batch((snapshot,))
    entries: list[Entry] = []
    with closing(_rows_after(connection, run_id, num, after)) as rows:
        for row in rows:
            entries += entries_of(run_id, row)[after + 1 + len(entries) - row.first_seq :]
            if len(entries) >= limit:
                break
    return Batch(completed(connection, run_id, num, entries[:limit]))


def read_lines(connection: sqlite3.Connection, run_id: str, after: int) -> LogPage:
    """The same as they are stored: one page, as `Source.stored_page` says."""
    num, end = number_of(connection, run_id), next_page_end(after)
    if snapshot := _snapshot_after(connection, run_id, num, after):
        return Batch((snapshot,)).page
    lines: list[StoredLine] = []
    page_bytes = 0
    with closing(_rows_after(connection, run_id, num, after)) as rows:
        for row in rows:
            for line in lines_of(run_id, row)[after + 1 + len(lines) - row.first_seq :]:
                page_bytes += len(line.json)
                if line.seq > end or (page_bytes > PAGE_BYTES and lines):
                    break
                lines.append(line)
            else:
                continue
            break
    if lines and lines[-1].type == b"run_finished" and _output_seqs(connection, num) is not None:
        last = Entry(lines[-1].seq, from_json(lines[-1].json), lines[-1].attempt)
        lines[-1:] = Batch(completed(connection, run_id, num, [last])).page
    return LogPage(lines)


def _rows_after(connection: sqlite3.Connection, run_id: str, num: int, after: int) -> Generator[Row, None, None]:
    """The rows with entries after the cursor. Close it: that ends the read transaction, so that the write-ahead log can
    start over."""
    due = after + 1
    rows = connection.execute(
        "SELECT first_seq, last_seq, attempt, crc, events FROM batches WHERE run = ?1 AND first_seq >="
        " (SELECT coalesce(max(first_seq), 0) FROM batches WHERE run = ?1 AND first_seq <= ?2) ORDER BY first_seq",
        (num, due),
    )
    with closing(rows):
        for row in map(Row._make, rows):
            if row.last_seq < due:
                continue
            if row.first_seq > due:
                raise CorruptLog(f"run {run_id}: entries {due}-{row.first_seq - 1} are missing")
            yield row
            due = row.last_seq + 1


def _snapshot_after(connection: sqlite3.Connection, run_id: str, num: int, after: int) -> Entry | None:
    row = connection.execute(
        "SELECT seq, attempt, crc, state FROM snapshots WHERE run = ? AND seq > ?", (num, after)
    ).fetchone()
    if row is None:
        return None
    seq, attempt, crc, state = row
    (entry,) = completed(connection, run_id, num, entries_of(run_id, Row(seq, seq, attempt, crc, state)))
    return entry


def read_all(connection: sqlite3.Connection, run_id: str, after: int, limit: int | None) -> Batch:
    entries: list[Entry] = []
    while limit is None or len(entries) < limit:
        page = read_page(connection, run_id, after, PAGE_ENTRIES if limit is None else limit - len(entries))
        if not page:
            break
        entries += page
        after = page[-1].seq
    return Batch(entries[:limit])


def all_entries(connection: sqlite3.Connection, run_id: str) -> Iterator[Entry]:
    after = 0
    while page := read_page(connection, run_id, after, PAGE_ENTRIES):
        yield from page
        after = page[-1].seq


def folded(connection: sqlite3.Connection, run_id: str) -> Fold:
    return fold(all_entries(connection, run_id))


def facts_of(connection: sqlite3.Connection, run_id: str) -> list[Entry]:
    num = number_of(connection, run_id)
    rows = connection.execute(
        "SELECT first_seq, last_seq, attempt, crc, events FROM batches WHERE run = ? ORDER BY first_seq", (num,)
    ).fetchall()
    facts = [entry for row in rows for entry in entries_of(run_id, Row._make(row)) if is_fact(entry.event)]
    return completed(connection, run_id, num, facts)


def compacted(connection: sqlite3.Connection, run_id: str) -> tuple[Row, list[Row]]:
    """The snapshot before the last entry, and the rows that are kept: the facts and that entry."""
    state, kept = Fold(), []
    for entry in all_entries(connection, run_id):
        if not isinstance(entry.event, RunFinished):
            state.apply(entry)
        if is_fact(entry.event):
            kept.append(entry)
    snapshot = state.entry()
    if _output_seqs(connection, number_of(connection, run_id)) is not None:
        kept[-1], snapshot = without_outputs(kept[-1]), without_outputs(snapshot)
    (snapshot_row,) = rows_of([snapshot])
    return snapshot_row, [row for stretch in _stretches(kept) for row in rows_of(stretch)]


# ── a sequence's output, stored in its steps alone ───────────────────────────────────────────────────────────


def without_outputs(entry: Entry) -> Entry:
    """What is stored of an entry that repeats the outputs of steps: `completed` takes it back."""
    match entry.event:
        case RunFinished() as event:
            return Entry(entry.seq, msgspec.structs.replace(event, output=""), entry.attempt)
        case Snapshot(steps=steps) as event:
            bare = tuple(
                msgspec.structs.replace(step, output=None) if step.state == "finished" else step for step in steps
            )
            return Entry(entry.seq, msgspec.structs.replace(event, output="", steps=bare), entry.attempt)
        case _:
            return entry


def _output_seqs(connection: sqlite3.Connection, num: int) -> bytes | None:
    row: tuple[bytes | None] | None = connection.execute(
        "SELECT output_seqs FROM heads WHERE num = ?", (num,)
    ).fetchone()
    return None if row is None else row[0]


def completed(connection: sqlite3.Connection, run_id: str, num: int, entries: list[Entry]) -> list[Entry]:
    """Gives the last entry the outputs that were left out when it was stored."""
    if not entries or not isinstance(entries[-1].event, (RunFinished, Snapshot)):
        return entries
    seqs = _output_seqs(connection, num)
    if seqs is None:
        return entries
    outputs, last = _step_outputs(connection, run_id, num, seqs), entries[-1]
    changes: dict[str, object] = {"output": outputs_text(outputs)}
    if isinstance(last.event, Snapshot):
        changes["steps"] = tuple(
            msgspec.structs.replace(step, output=outputs.get(step.block_id, step.output)) for step in last.event.steps
        )
    return [*entries[:-1], Entry(last.seq, msgspec.structs.replace(last.event, **changes), last.attempt)]


def _step_outputs(connection: sqlite3.Connection, run_id: str, num: int, seqs: bytes) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for seq in msgspec.json.decode(seqs, type=list[int]):
        row = connection.execute(
            "SELECT first_seq, last_seq, attempt, crc, events FROM batches WHERE run = ? AND first_seq <= ?"
            " ORDER BY first_seq DESC LIMIT 1",
            (num, seq),
        ).fetchone()
        entries = entries_of(run_id, Row._make(row)) if row is not None else []
        event = next((entry.event for entry in entries if entry.seq == seq), None)
        if not isinstance(event, StepFinished):
            raise CorruptLog(f"run {run_id}: entry {seq} is not the output of a step")
        outputs[event.block_id] = event.output
    return outputs


def signals_after(connection: sqlite3.Connection, run_id: str, after: int) -> list[Signal]:
    rows = connection.execute(
        "SELECT name, payload, sender, id FROM signals WHERE run = ? AND id > ? ORDER BY id",
        (number_of(connection, run_id), after),
    ).fetchall()
    return [Signal(name, _PAYLOAD.decode(payload), sender, number) for name, payload, sender, number in rows]


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
