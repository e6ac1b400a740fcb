"""`tailrace approvals`: what an agent may do without asking, because a person said "always"; and taking that back.

Thin: reads and changes the journal. A server on the same journal knows it at once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

import msgspec

from tailrace.app.approvals import AlwaysApproval, AlwaysApprovals, find_approval
from tailrace.cli.main import DONE
from tailrace.cli.own_journal import own_journal
from tailrace.cli.runs.console import console_for, place_of, print_note
from tailrace.cli.screen.approvals_table import approval_line, approvals_table
from tailrace.config.load import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print JSON, one object a line, with the whole texts and ids"
    )
    parser.add_argument("--forget", metavar="ID", help="ask about this one again; the beginning of its id is enough")
    parser.epilog = 'What was approved "for the session" ends with its session and is not listed.'


def run(args: argparse.Namespace, config: Config) -> int:
    """Raises `TailraceError` for an id that names none, or several."""
    approvals = asyncio.run(_listed(config))
    if args.forget is not None:
        found = find_approval(approvals, args.forget)
        asyncio.run(_forget(config, found))
        said = msgspec.json.encode(found).decode() if args.json else f"asked about again: {approval_line(found)}"
        sys.stdout.write(f"{said}\n")
    elif not approvals:
        print_note(f'nothing was approved with "always" in {place_of(config)}')
    else:
        _show(approvals, as_json=args.json)
    return DONE


async def _listed(config: Config) -> list[AlwaysApproval]:
    if config.database is not None and not config.database.exists():  # looking creates nothing
        return []
    async with own_journal(config) as journal:
        return await AlwaysApprovals(journal).listed()


async def _forget(config: Config, approval: AlwaysApproval) -> None:
    async with own_journal(config, make=True) as journal:
        await AlwaysApprovals(journal).forget(approval)


def _show(approvals: Sequence[AlwaysApproval], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.writelines(f"{msgspec.json.encode(approval).decode()}\n" for approval in approvals)
        return
    console = console_for(sys.stdout)
    for line in approvals_table(approvals, width=console.width if console.is_terminal else None):
        console.print(line, soft_wrap=True)
