"""`tailrace usage`: what was used and what it cost, by key, by model or by day.

Thin: reads the counters that every process of this store writes.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import Sequence
from datetime import date, timedelta

import msgspec
from rich.cells import cell_len

from tailrace.app.costs import UNKNOWN, Costs, dollars
from tailrace.app.usage.counters import (
    By,
    UsageRow,
    day_of,
    details_since,
    mean_call,
    priced,
    rows_of,
    summed,
    total_of,
)
from tailrace.cli.main import DONE
from tailrace.cli.own_journal import own_journal
from tailrace.cli.runs.console import print_note
from tailrace.cli.screen.fitted_table import Column, FittedTable, no_style
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.config.load import Config

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

MAX_NAME = 60
AT_LEAST = "≥ "


def usage_table(rows: Sequence[UsageRow], *, by: By | None) -> list[str]:
    """A line for each row. `by` is the one name that the rows have; None: key and model."""
    names: tuple[By, ...] = ("key", "model") if by is None else (by,)
    columns = [Column(name, style=no_style) for name in names]
    columns += [Column(title, right=True) for title in ("calls", "input", "output", "cost")]
    total = total_of(rows)
    body = [[sanitized_line(getattr(row, name), MAX_NAME) for name in names] + _numbers(row) for row in rows]
    foot = ["total", *[""] * (len(names) - 1), *_numbers(total)] if len(rows) > 1 else ()
    lines = [line.plain for line in FittedTable(columns, names[0], 1).lines(body, None, total=foot)]
    if foot:
        lines.insert(-1, "─" * cell_len(lines[0]))
    notes = [f"without {total.unpriced:,} tokens of models that have no price"] * bool(total.unpriced)
    if total.estimated_tokens:
        notes.append(f"{total.estimated_tokens:,} of the tokens are estimated: their provider has not counted them")
    return [*lines, "", *notes] if notes else lines


def _numbers(row: UsageRow) -> list[str]:
    return [
        f"{row.calls:,}",
        f"{row.input_tokens:,}",
        f"{row.output_tokens:,}",
        UNKNOWN if row.is_unpriced else f"{AT_LEAST if row.unpriced else ''}{dollars(row.usd)}",
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "since",
        nargs="?",
        type=_since,
        default="today",
        metavar="today|week|month|DAY",
        help="from when on: today, the last 7 or 30 days, or a day as 2026-11-30 (today)",
    )
    parser.add_argument("--by", choices=("key", "model", "day"), help="one row for each; without it, for key and model")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.epilog = "Days are those of UTC. Money is estimated by list prices; models without a price have –."


def run(args: argparse.Namespace, config: Config) -> int:
    return asyncio.run(_run(args, config))


async def _run(args: argparse.Namespace, config: Config) -> int:
    since = first_day(args.since, time.time())
    rows = await _rows(config, since)
    shown = summed(rows, args.by) if args.by else _without_days(rows)
    if args.json:
        for row in shown:
            print(msgspec.json.encode(row).decode())  # noqa: T201 - the output
    elif not rows:
        print_note(f"nothing was used since {since}")
    else:
        for line in usage_table(shown, by=args.by):
            print(line)  # noqa: T201 - the output
    return DONE


async def _rows(config: Config, since: str) -> list[UsageRow]:
    if config.database is not None and not config.database.exists():  # looking creates nothing
        return []
    async with own_journal(config) as journal:
        rows = rows_of(await journal.counters(*details_since(since)))
    costs = Costs(config)
    await costs.load(map(mean_call, rows))
    return priced(rows, costs.price)


def first_day(since: str, now: float) -> str:
    """The first day of a time that was named."""
    days = {"today": 0, "week": 6, "month": 29}
    if since not in days:
        return since
    return str(date.fromisoformat(day_of(now)) - timedelta(days[since]))


def _without_days(rows: list[UsageRow]) -> list[UsageRow]:
    """A row for each key and model, the most expensive first."""
    sums: list[UsageRow] = []
    for key in sorted({row.key for row in rows}):
        of_key = summed((row for row in rows if row.key == key), "model")
        sums += [msgspec.structs.replace(row, key=key) for row in of_key]
    return sums


def _since(word: str) -> str:
    if word in ("today", "week", "month"):
        return word
    try:
        return str(date.fromisoformat(word)) if _DAY.fullmatch(word) else _refused(word)
    except ValueError:
        return _refused(word)


def _refused(word: str) -> str:
    raise argparse.ArgumentTypeError(f"expected today, week, month or a day as 2026-11-30, not {word!r}")
