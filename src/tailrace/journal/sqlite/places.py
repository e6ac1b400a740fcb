"""Where the rows of a run are: a deferred index of `batches`, brought up to date for a thousand rows at once.

In a plain index by run every row of a commit is on another page. So a commit appends to `batches` alone, and after
`INDEX_ROWS` rows those of a run get their places together. `indexed.upto` is the last row that has its place; a query
also scans the few rows that follow it (docs/decisions/0020-places-come-later.md). Measured against a plain index, 560
streams, 56 rows a commit: 813 bytes written per row in place of 3,659, and 3.4 µs of CPU in place of 6.7 (-49 %). Rows
without a place follow those that have one.
"""

from __future__ import annotations

import sqlite3

INDEX_ROWS = 1024  # after so many changes places are due: a query looks through so many rows in 0.1 ms

_UPTO = "coalesce((SELECT upto FROM indexed), 0)"


def rows_of_run(
    columns: str, *, placed: str = "true", newer: str = "true", newest_first: bool = False, limit: int = -1
) -> str:
    """The query for a run's rows by their entries. ?1 is the number of the run, and `first_seq` is one of the columns.
    `placed` says which of the rows with a place are wanted, `newer` which of the others: `p` is the place, `b` the
    row. They keep the order of `f`, the outer loop of the CROSS JOIN; without a LIMIT SQLite drops its ORDER BY."""
    order = "DESC" if newest_first else "ASC"
    wanted = ", ".join(f"f.{name}" if name == "first_seq" else f"b.{name}" for name in columns.split(", "))
    return (  # rows without a place are sorted, so only their numbers are: a row may have megabytes
        f"SELECT {wanted} FROM ({_placed('first_seq, id')} AND {placed}"  # noqa: S608 - our own names
        f" UNION ALL SELECT first_seq, id FROM batches AS b WHERE b.id > {_UPTO} AND b.run = ?1 AND {newer}"
        f" ORDER BY first_seq {order} LIMIT {limit}) AS f CROSS JOIN batches AS b ON b.id = f.id"
    )


def placed_row(columns: str) -> str:
    """The query for the row of the run ?1 that has the entry ?2, where that row has a place: it looks through no
    others."""
    return (
        f"SELECT * FROM ({_placed(columns)} AND p.first_seq <= ?2 ORDER BY p.first_seq DESC LIMIT 1)"  # noqa: S608
        " WHERE last_seq >= ?2"
    )


def _placed(columns: str) -> str:
    wanted = ", ".join(f"p.{name}" if name == "first_seq" else f"b.{name}" for name in columns.split(", "))
    return f"SELECT {wanted} FROM places AS p CROSS JOIN batches AS b ON b.id = p.id WHERE p.run = ?1"  # noqa: S608


NEWER_SEQS = (  # by run, its last entry among the rows without a place: looked through once for many runs
    f"SELECT run, max(last_seq) AS last_seq FROM batches WHERE id > {_UPTO} GROUP BY run"  # noqa: S608 - our own names
)


def newest_seq(run: str) -> str:
    """The expression for the last entry of the run with this number; NULL where it has none."""
    return (
        f"coalesce((SELECT last_seq FROM batches WHERE id > {_UPTO} AND run = {run} ORDER BY id DESC LIMIT 1),"  # noqa: S608
        f" {newest_placed_seq(run)})"
    )


def newest_placed_seq(run: str) -> str:
    """The same of the rows that have a place."""
    return (
        "(SELECT b.last_seq FROM places AS p CROSS JOIN batches AS b ON b.id = p.id"  # noqa: S608 - our own names
        f" WHERE p.run = {run} ORDER BY p.first_seq DESC LIMIT 1)"
    )


def index_rows(connection: sqlite3.Connection) -> None:
    """Gives every row its place; inside a transaction. Of two rows with the same entries the first counts, as it does
    for a reader."""
    connection.execute(
        "INSERT OR IGNORE INTO places (run, first_seq, id)"  # noqa: S608 - our own names
        f" SELECT run, first_seq, id FROM batches WHERE id > {_UPTO} ORDER BY run, first_seq"
    )
    _note_indexed(connection)


def delete_rows(connection: sqlite3.Connection, num: int) -> None:
    """Removes all rows of a run; inside a transaction. SQLite gives the ids of the newest rows again once they are
    gone, so `upto` goes back with them."""
    index_rows(connection)
    connection.execute("DELETE FROM batches WHERE id IN (SELECT id FROM places WHERE run = ?)", (num,))
    connection.execute("DELETE FROM places WHERE run = ?", (num,))
    _note_indexed(connection)


def _note_indexed(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO indexed (one, upto) SELECT 1, coalesce(max(id), 0) FROM batches")


def unplaced_rows(connection: sqlite3.Connection) -> int:
    """About how many rows have no place yet: at least as many as have none."""
    (count,) = connection.execute(f"SELECT coalesce(max(id), 0) - {_UPTO} FROM batches").fetchone()  # noqa: S608
    return int(count)
