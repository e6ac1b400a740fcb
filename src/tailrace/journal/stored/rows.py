"""Entries and runs to rows and back, for every database. Pure: knows no database and never awaits.

A row holds consecutive entries of one attempt: the JSON of their events, a line each, as they are sent. A sequence's
output is its steps' outputs, and they are stored once, in the `StepFinished` entries: `output_seqs` of a run lists
these entries, and what repeats them is stored without them and completed when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from tailrace.errors import CorruptLog, JournalError, RunNotFound
from tailrace.events import AnyEvent, Entry, RunFailure, RunFinished, Snapshot, StepFinished, from_json
from tailrace.journal.fold import Fold, is_fact, is_progress, outputs_text
from tailrace.journal.live_tail import PAGE_BYTES, PAGE_LINES, next_page_end
from tailrace.journal.stored.commit_times import Times, timed_stretches
from tailrace.messages import JsonObject
from tailrace.ports import CRASH_LOOP, NewRun, Run, RunState, StoredLine
from tailrace.values.validation_words import decoding_problem

MOST_BYTES = 1 << 20  # of a page of decoded entries, but for one row
FAILED: Final[frozenset[RunState]] = frozenset({"failed", "incomplete", "parked", "stopped"})
IS_FAILED: Final = "h.state IN ('failed', 'incomplete', 'parked', 'stopped')"  # as the index `heads_failed` has it
_ENCODER = msgspec.json.Encoder()
_EVENTS = msgspec.json.Decoder(AnyEvent)
_NEW = msgspec.json.Decoder(NewRun)
_FINISHED = msgspec.json.Decoder(RunFinished)
_FAILURE = msgspec.json.Decoder(RunFailure)
_PAYLOAD = msgspec.json.Decoder(dict[str, Any])
_SEQS = msgspec.json.Decoder(list[int])


class Row(NamedTuple):
    """One stretch of consecutive entries of one attempt, as it is stored."""

    first_seq: int
    last_seq: int
    attempt: int
    crc: int
    events: bytes


class TimedRow(NamedTuple):
    """A row as it is written. `at` is the wall clock's time of the commit; None where it is not known."""

    first_seq: int
    last_seq: int
    attempt: int
    crc: int
    events: bytes
    at: float | None


BoundRow: TypeAlias = tuple[int, int, int, int, int, bytes, float | None, int]
"""As a statement takes it: the number of a run, the fields of a `TimedRow`, an epoch."""
EVENTS: Final = 5  # the place of the events in a `BoundRow`


class RunRow(NamedTuple):
    """A run as it is stored. `outcome` is the last entry of an ended run, or why a run is parked."""

    num: int
    id: str
    new: bytes
    created_at: float
    state: RunState
    epoch: int
    kills: int
    owner: str
    first_seq: int
    outcome: bytes | None
    output_seqs: bytes | None
    last_seq: int | None


def encode(value: msgspec.Struct) -> bytes:
    return _ENCODER.encode(value)


def decoded_payload(payload: bytes) -> JsonObject:
    """The payload of a signal."""
    return _PAYLOAD.decode(payload)


def no_such_run(run_id: str) -> RunNotFound:
    return RunNotFound(f"there is no run {run_id}")


def end_of(prefix: str) -> str:
    """The least name of a counter that is greater than every one that begins so, in the order of UTF-8 bytes, which
    every database has. The last character of a prefix is ASCII."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────


def rows_of(entries: Sequence[Entry]) -> Sequence[Row]:
    """`entries` are consecutive. A row is as long as a page at most: a page costs the rows that it is made of."""
    attempts = {entry.attempt for entry in entries}
    if len(attempts) == 1 and len(entries) <= PAGE_LINES:  # nearly all of them: the same, without grouping
        # A list: of a tuple, msgspec 0.22 never frees the iterator.
        events = _ENCODER.encode_lines([entry.event for entry in entries])
        if len(events) <= MOST_BYTES or len(entries) == 1:
            return (Row(entries[0].seq, entries[-1].seq, entries[0].attempt, crc32(events), events),)
        del events  # each alone: a text of megabytes is not in memory once more with the others
        return [row for entry in entries for row in rows_of([entry])]
    return [*_rows_by_attempt(entries)]


def bound_rows(entries: Sequence[Entry], num: int, epoch: int, at: float) -> list[BoundRow]:
    """The rows of entries that the run `num` was given under this epoch, as a statement takes them."""
    if len(entries) == 1:  # as `rows_of`, without a row in between
        (entry,) = entries
        events, seq = _ENCODER.encode_lines([entry.event]), entry.seq
        return [(num, seq, seq, entry.attempt, crc32(events), events, at, epoch)]
    return [(num, *row, at, epoch) for row in rows_of(entries)]


def _rows_by_attempt(entries: Sequence[Entry]) -> Iterator[Row]:
    for attempt, group in groupby(entries, attrgetter("attempt")):
        stretch = list(group)
        for start in range(0, len(stretch), PAGE_LINES):
            some = stretch[start : start + PAGE_LINES]
            events = _ENCODER.encode_lines([entry.event for entry in some])
            yield Row(some[0].seq, some[-1].seq, attempt, crc32(events), events)


def timed_rows(entries: Iterable[Entry], times: Times) -> list[TimedRow]:
    """The rows of entries of several commits. There may be gaps between the entries."""
    return [TimedRow(*row, at) for at, stretch in timed_stretches(entries, times) for row in rows_of(stretch)]


def rows_as_stored(run: Run, entries: Iterable[Entry], times: Times) -> list[TimedRow]:
    """The rows of a whole run. Raises `JournalError` for an event that cannot be written as JSON."""
    try:
        return timed_rows(entries, times)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:  # a lone surrogate, a strange object
        raise JournalError(f"run {run.id}: an event cannot be written as JSON: {exc}") from exc


def entries_of(run_id: str, row: Row) -> list[Entry]:
    """Raises `CorruptLog` for a row that is not what was written."""
    _check_sum(run_id, row)
    try:
        events = _EVENTS.decode_lines(row.events)
    except msgspec.MsgspecError as exc:
        raise CorruptLog(
            f"run {run_id}: entries {row.first_seq}-{row.last_seq} cannot be read: {decoding_problem(exc)}"
        ) from exc
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


def _consecutive(run_id: str, rows: Iterable[Row], after: int) -> Iterator[Row]:
    """The rows with entries after the cursor. Raises `CorruptLog` where one is missing."""
    due = after + 1
    for row in rows:
        if row.last_seq < due:
            continue
        if row.first_seq > due:
            raise CorruptLog(f"run {run_id}: entries {due}-{row.first_seq - 1} are missing")
        yield row
        due = row.last_seq + 1


def entries_after(run_id: str, rows: Iterable[Row], after: int, limit: int) -> list[Entry]:
    """At most `limit` entries after the cursor. Takes no more rows than it needs or `MOST_BYTES` have."""
    entries, read_bytes = list[Entry](), 0
    for row in _consecutive(run_id, rows, after):
        entries += entries_of(run_id, row)[after + 1 + len(entries) - row.first_seq :]
        read_bytes += len(row.events)
        if len(entries) >= limit or read_bytes >= MOST_BYTES:
            break
    return entries[:limit]


def lines_after(run_id: str, rows: Iterable[Row], after: int) -> list[StoredLine]:
    """The same as they are stored: one page, as `Source.stored_page` says."""
    end, page_bytes = next_page_end(after), 0
    lines: list[StoredLine] = []
    for row in _consecutive(run_id, rows, after):
        for line in lines_of(run_id, row)[after + 1 + len(lines) - row.first_seq :]:
            page_bytes += len(line.json)
            if line.seq > end or (page_bytes > PAGE_BYTES and lines):
                return lines
            lines.append(line)
        if page_bytes > PAGE_BYTES:
            break  # the next row may be long too: it is not read to be left out
    return lines


def facts_in(run_id: str, rows: Iterable[Row]) -> list[Entry]:
    return [entry for row in rows for entry in entries_of(run_id, row) if is_fact(entry.event)]


PROGRESS_TYPES = (b"step_finished", b"tool_output_recorded", b"delivered")
_PROGRESS = tuple(b'{"type":"%b"' % name for name in PROGRESS_TYPES)  # most entries need not be decoded


def shows_progress(first_seq: int, events: bytes, claimed_seq: int) -> bool:
    """Whether an entry after the claim says that work was completed."""
    return any(
        seq > claimed_seq and line.startswith(_PROGRESS) and is_progress(from_json(line))
        for seq, line in enumerate(events.splitlines(), first_seq)
    )


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def run_of_row(row: RunRow, outputs: Mapping[str, Any] | None) -> Run:
    """`outputs` are those of its steps, where `output_seqs` lists them."""
    if row.last_seq is None:
        raise CorruptLog(f"run {row.id} has lost all its entries")
    try:
        parked = row.state == "parked"
        finished = None if row.outcome is None or parked else _FINISHED.decode(row.outcome)
        if finished is not None and outputs is not None:
            finished = msgspec.structs.replace(finished, output=outputs_text(outputs))
        return Run(
            row.id,
            _NEW.decode(row.new),
            row.state,
            row.last_seq,
            row.first_seq,
            row.created_at,
            row.epoch,
            row.kills,
            row.owner,
            finished,
            _FAILURE.decode(row.outcome) if parked and row.outcome is not None else None,
        )
    except msgspec.MsgspecError as exc:
        raise CorruptLog(f"run {row.id} cannot be read: {decoding_problem(exc)}") from exc


def is_crash_loop(outcome: bytes) -> bool:
    """Whether this is why a run is parked: owners that seemed to die."""
    return _FAILURE.decode(outcome).kind == CRASH_LOOP


# ── a sequence's output, stored in its steps alone ───────────────────────────────────────────────────────────


def decoded_seqs(output_seqs: bytes) -> list[int]:
    return _SEQS.decode(output_seqs)


def step_finished(run_id: str, seq: int, row: Row | None) -> StepFinished:
    """The step's end that is the entry `seq`, in the row that holds it."""
    entries = entries_of(run_id, row) if row is not None else []
    event = next((entry.event for entry in entries if entry.seq == seq), None)
    if not isinstance(event, StepFinished):
        raise CorruptLog(f"run {run_id}: entry {seq} is not the output of a step")
    return event


def repeats_outputs(entries: Sequence[Entry]) -> bool:
    """Whether the last entry may be one that was stored without the outputs of its run's steps."""
    return bool(entries) and isinstance(entries[-1].event, (RunFinished, Snapshot))


def without_outputs(entry: Entry) -> Entry:
    """What is stored of an entry that repeats the outputs of steps: `with_outputs` takes it back."""
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


def with_outputs(entry: Entry, outputs: Mapping[str, Any]) -> Entry:
    """The entry with the outputs that were left out when it was stored."""
    changes: dict[str, object] = {"output": outputs_text(outputs)}
    if isinstance(entry.event, Snapshot):
        changes["steps"] = tuple(
            msgspec.structs.replace(step, output=outputs.get(step.block_id, step.output)) for step in entry.event.steps
        )
    return Entry(entry.seq, msgspec.structs.replace(entry.event, **changes), entry.attempt)


# ── compaction ───────────────────────────────────────────────────────────────────────────────────────────────


class Compaction:
    """Folds a whole log, entry after entry, into what compaction keeps of it."""

    def __init__(self) -> None:
        self._state, self._kept = Fold(), list[Entry]()

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if not isinstance(entry.event, RunFinished):
                self._state.apply(entry)
            if is_fact(entry.event):
                self._kept.append(entry)

    def rows(self, times: Times, *, outputs_in_steps: bool) -> tuple[Row, list[TimedRow]]:
        """The snapshot before the last entry, and the rows that are kept: the facts and that entry, each with its own
        time."""
        snapshot, kept = self._state.entry(), self._kept
        if outputs_in_steps:
            kept[-1], snapshot = without_outputs(kept[-1]), without_outputs(snapshot)
        (snapshot_row,) = rows_of([snapshot])
        return snapshot_row, timed_rows(kept, times)
