"""Stores with so many runs in them: a few runs are made through the journal, and multiplied by the database itself.

What is multiplied has all that a run has: its row, its head, its rows of entries and their places. Of twenty runs ten
are turns in sessions of ten turns, nine are calls without a session, and one in a thousand has failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from tailrace.agent.session import TURN_KIND
from tailrace.calls.call_log import CALL_KIND
from tailrace.events import MessageChunk, MessageRecorded, RunFailure, RunFinished
from tailrace.journal.sqlite.places import index_rows
from tailrace.journal.sqlite.schema import connect
from tailrace.messages import Usage, assistant, user
from tailrace.ports import Journal, NewRun

SAMPLES = 20
TURNS_OF_A_SESSION = 10
FAILED_ONE_IN = 1000
ANSWER = ("The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", ".")
FIRST_ID = 1_600_000_000_000_000  # microseconds: before every run that is begun now


async def add_run(journal: Journal, session: str, *, pieces: int = 2) -> str:
    """A whole run: begun, answered in so many commits, ended."""
    new = NewRun(TURN_KIND if session else CALL_KIND, {"message": "What does the fox do?"}, "up/model", session)
    run, lease = await journal.start(new, "bench")
    assert lease is not None
    size = len(ANSWER) // pieces
    journal.append(lease, [MessageRecorded(user("What does the fox do?"))])
    for start in range(0, len(ANSWER), size):
        journal.append(lease, [MessageChunk(text) for text in ANSWER[start : start + size]])
        await journal.commit(lease)
    journal.append(lease, [MessageRecorded(assistant("".join(ANSWER)))])
    await journal.seal(lease, RunFinished("completed", "".join(ANSWER), Usage(20, 10)))
    return run.id


async def add_samples(open_journal: Callable[[], Awaitable[Journal]]) -> None:
    journal = await open_journal()
    for number in range(SAMPLES):
        await add_run(journal, "sample" if number % 2 else "")
    _, lease = await journal.start(NewRun(CALL_KIND, {}, "up/model"), "bench")
    assert lease is not None
    await journal.seal(lease, RunFinished("failed", "", error=RunFailure("bench", "it failed")))
    await journal.close()


# The run `n.i` is a copy of the sample `t`; the number of the last sample is that of the failed one. What is formatted
# here is text of this module and numbers.
_SAMPLE = f"CASE WHEN n.i % {FAILED_ONE_IN} = 0 THEN {SAMPLES + 1} ELSE 1 + n.i % {SAMPLES} END"
_COPIES = """
INSERT INTO runs (num, id, kind, session, new, created_at) {overriding}
    SELECT n.i, 'run_' || {hex} || {decimal}, t.kind,
        CASE WHEN t.session = '' THEN '' ELSE 's' || (n.i / {of_session}) END, t.new, t.created_at
    FROM {numbers} AS n(i) JOIN runs AS t ON t.num = {sample};
INSERT INTO heads (num, state, epoch, kills, owner, {pipe}lease_until, first_seq, last_seq, ended_at, outcome)
    SELECT n.i, t.state, t.epoch, t.kills, t.owner, {pipe}t.lease_until, t.first_seq, t.last_seq, t.ended_at, t.outcome
    FROM {numbers} AS n(i) JOIN heads AS t ON t.num = {sample};
INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events, at)
    SELECT n.i, t.first_seq, t.last_seq, t.attempt, t.crc, t.events, t.at
    FROM {numbers} AS n(i) JOIN batches AS t ON t.run = {sample}
"""


def copies(numbers: str, hexadecimal: str, decimal: str, overriding: str = "", pipe: str = "") -> list[str]:
    """The statements that fill runs, heads and batches, in a database's own words."""
    words = {"numbers": numbers, "hex": hexadecimal, "decimal": decimal, "overriding": overriding, "pipe": pipe}
    return _COPIES.format(sample=_SAMPLE, of_session=2 * TURNS_OF_A_SESSION, **words).split(";")


def fill_sqlite(path: Path, runs: int) -> None:
    """Up to so many runs, where those of `add_samples` are there."""
    id_words = f"printf('%014x', {FIRST_ID} + n.i)", "printf('%010d', n.i)"
    with closing(connect(path, writer=True)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        (newest,) = connection.execute("SELECT max(num) FROM runs").fetchone()
        connection.execute("CREATE TEMP TABLE n (i INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO n VALUES (?)", ((number,) for number in range(newest + 1, runs + 1)))
        for statement in copies("n", *id_words, pipe="pipe, "):
            connection.execute(statement.replace("n AS n(i)", "n"))
        index_rows(connection)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fill_postgres(execute: Callable[[str], str], schema: str, runs: int) -> None:
    """The same."""
    newest = int(execute(f"SELECT max(num) FROM {schema}.runs"))  # noqa: S608 - a name of this program's own
    id_words = f"lpad(to_hex({FIRST_ID} + n.i), 14, '0')", "lpad(n.i::text, 10, '0')"
    filled = copies(f"generate_series({newest + 1}, {runs})", *id_words, "OVERRIDING SYSTEM VALUE")
    for statement in (*filled, f"ALTER TABLE runs ALTER num RESTART WITH {runs + 1}", "ANALYZE", "CHECKPOINT"):
        execute(f"SET search_path TO {schema}; {statement}")
