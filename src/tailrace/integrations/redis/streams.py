"""Committed entries as entries of a Redis stream: what is written, and how it is read back.

One stream per run, `<prefix>:run:<id>`. An entry of it is what one group commit wrote to the run; its id is the last
seq and a zero, `<seq>-0`, so Redis itself refuses what is late or doubled, and a reader goes on after the seq it has.
One stream for all, `<prefix>:grown`, names the runs that grew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import TypeAlias

from tailrace.events import Entry, from_json
from tailrace.ports import Batch

PREFIX = b"tailrace"
GROWN = PREFIX + b":grown"
MAX_BYTES = 256 * 1024  # of one entry: viewers read a longer one from storage

FIRST, ATTEMPTS, EVENTS, RUNS = b"first", b"attempts", b"events", b"runs"
Fields: TypeAlias = dict[bytes, bytes]


def stream_of(run_id: str) -> bytes:
    return b"%b:run:%b" % (PREFIX, run_id.encode())


def run_of(stream: bytes) -> str:
    return stream[len(PREFIX) + len(b":run:") :].decode()


def grown_fields(run_ids: Iterable[str]) -> Fields:
    """What is written when these runs have grown."""
    return {RUNS: b",".join(run_id.encode() for run_id in dict.fromkeys(run_ids))}


def grown_in(fields: Fields) -> list[bytes]:
    """The streams of the runs that are named."""
    return [stream_of(run_id.decode()) for run_id in fields.get(RUNS, b"").split(b",") if run_id]


def id_of(seq: int) -> bytes:
    return b"%d-0" % seq


def seq_of(stream_id: bytes) -> int:
    return int(stream_id.partition(b"-")[0])


def fields_of(batch: Batch) -> Fields:
    """What is written for a batch. Only its place, where it is too long: the reader turns to storage."""
    place = {FIRST: b"%d" % batch[0].seq}
    if batch.stored_bytes > MAX_BYTES:
        return place
    return place | {ATTEMPTS: _attempts(batch), EVENTS: b"\n".join(batch.lines)}


def batch_of(fields: Fields) -> Batch | None:
    """The batch that was written; None where only its place was. Raises `ValueError` for anything else."""
    if EVENTS not in fields:
        return None
    lines = fields[EVENTS].split(b"\n")  # JSON has no line ends inside
    attempts = [int(attempt) for attempt in fields[ATTEMPTS].split(b",")]
    if len(attempts) == 1:
        attempts *= len(lines)
    batch = Batch(
        Entry(seq, from_json(line), attempt)
        for seq, line, attempt in zip(count(int(fields[FIRST])), lines, attempts, strict=False)
    )
    batch.stored = fields[EVENTS]
    return batch


def _attempts(batch: Sequence[Entry]) -> bytes:
    """One number where it is the same for every entry, as it nearly always is."""
    attempts = [entry.attempt for entry in batch]
    return b"%d" % attempts[0] if len(set(attempts)) == 1 else b",".join(b"%d" % each for each in attempts)
