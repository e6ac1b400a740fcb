"""`tailrace runs | show | tail | stop`: the runs in the journal, including those of other processes.

Thin: it prints what the journal holds, as text or, with `--json`, as the events themselves.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import ArgumentParser, Namespace

import msgspec

from tailrace.agent.session import last_words
from tailrace.app.costs import Costs
from tailrace.app.error_advice import run_advice
from tailrace.app.timeline.export_html import read_export
from tailrace.app.timeline.overviews import overviews_of
from tailrace.app.timeline.read import read_timeline
from tailrace.app.timeline.run_overview import OWN_RECORDS
from tailrace.cli.argument_types import whole_number
from tailrace.cli.chat.oneshot import EXIT
from tailrace.cli.chat.options import REQUESTER
from tailrace.cli.chat.run_printer import RunPrinter
from tailrace.cli.main import DONE, INCOMPLETE
from tailrace.cli.own_journal import own_journal
from tailrace.cli.run_names import RUN_HELP, find_run
from tailrace.cli.runs.console import console_for, place_of, print_note
from tailrace.cli.runs.overviews import print_runs
from tailrace.cli.runs.timeline_lines import TimelineHead, timeline_lines
from tailrace.config.load import Config
from tailrace.errors import RunNotFound, RunSealed, TailraceError
from tailrace.events import entry_to_json
from tailrace.flows.definition.public_ids import public_id
from tailrace.journal.viewed_lines import without_reasoning
from tailrace.ports import ENDED, Journal, Run, RunState
from tailrace.runs.recovery import follow, stop

TAIL_EXIT = EXIT | {"stopped": INCOMPLETE}  # it was not stopped here


def add_arguments(parser: ArgumentParser) -> None:
    command = parser.get_default("command")
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    if command == "runs":
        parser.add_argument("--session", help="only the runs of this session")
        parser.add_argument("--unfinished", action="store_true", help="only those that have not ended")
        parser.add_argument(
            "--all", action="store_true", help="also the product's own records: deliveries, definitions"
        )
        parser.add_argument("--limit", type=whole_number(1), default=20, help="how many (20)")
        return
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    if command == "show":
        parser.add_argument("--full", action="store_true", help="texts, arguments and outputs whole")
        parser.add_argument("--html", metavar="FILE", help="write the run as one HTML file that needs nothing else")
        parser.add_argument("--timeline", action="store_true", help="with --json: the timeline, not the state")
    if command == "tail":
        parser.add_argument("--after", type=whole_number(0), default=0, metavar="N", help="only entries after this one")


def run(args: Namespace, config: Config) -> int:
    return asyncio.run(_run(args, config))


async def _run(args: Namespace, config: Config) -> int:
    if (missing := config.database) is not None and not missing.exists():  # looking at runs creates nothing
        if args.command != "runs":
            raise RunNotFound(f"there is no run {args.run}: no runs yet in {missing}")
        print_note(f"no runs yet in {missing}")
        return DONE
    async with own_journal(config, make=args.command == "stop") as journal:
        match args.command:
            case "runs":
                return await _list(journal, args, config)
            case "show":
                return await _show(journal, args, config)
            case "tail":
                return await _tail(journal, args, config)
            case _:
                return await _stop(journal, args)


async def _latest(journal: Journal, args: Namespace, states: tuple[RunState, ...] | None) -> list[Run]:
    """The newest runs, read page by page, without the program's own records."""
    found: list[Run] = []
    before: str | None = None
    while len(found) < args.limit:
        page = await journal.runs(session=args.session, states=states, before=before, limit=args.limit)
        found += [run for run in page if args.all or run.new.kind not in OWN_RECORDS]
        if len(page) < args.limit:
            break
        before = page[-1].id
    return found[: args.limit]


async def _list(journal: Journal, args: Namespace, config: Config) -> int:
    states: tuple[RunState, ...] | None = ("pending", "running", "parked") if args.unfinished else None
    found = await _latest(journal, args, states)
    if args.json:
        for each in found:
            _print(_run_json(each))
        return DONE
    if not found:
        shown = "no unfinished runs" if args.unfinished else "no runs yet"
        print_note(f"{shown}{f' of session {args.session}' if args.session else ''} in {place_of(config)}")
        return DONE
    await print_runs(journal, found, config)
    return DONE


async def _show(journal: Journal, args: Namespace, config: Config) -> int:
    found = await find_run(journal, args.run)
    if args.json and not args.timeline:
        _print(entry_to_json(*without_reasoning([await journal.snapshot(found.id)])).decode())
        return DONE
    if args.html is not None:
        page = await read_export(journal, found.id, costs=Costs(config))
        await asyncio.to_thread(_write_file, args.html, page)
        print_note(f"{public_id(found)} as one file: {args.html}")
        return DONE
    timeline = await read_timeline(journal, found.id, costs=Costs(config))
    if args.json:
        _print(msgspec.json.encode(timeline).decode())
        return DONE
    now = time.time()
    (overview,) = await overviews_of(journal, [found], now=now)
    console = console_for(sys.stdout)
    executed = found.state == "running" and overview.state in ("running", "asking")
    running_s = max(0.0, now - found.created_at) if executed else None
    error = found.finished.error if found.finished is not None else None
    advice = run_advice(config, found, error) if error is not None else ""
    name = public_id(found)
    head = TimelineHead(name, overview.state, found.owner, _origin(found), running_s, advice)
    width = console.width if console.is_terminal else None
    for line in timeline_lines(timeline, head, width=width, full=args.full):
        console.print(line, soft_wrap=True)
    return DONE


def _origin(run: Run) -> str:
    match run.new.input.get("forked_from"):
        case {"run_id": str(run_id), "after": int(after)}:
            return f"forked from {run_id} after its entry {after}"
        case _:
            return ""


def _write_file(name: str, text: str) -> None:
    """A new file is its owner's alone: it holds a conversation. Raises `TailraceError`."""
    try:
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as exc:
        raise TailraceError(f"{name} cannot be written: {exc.strerror}") from exc


async def _tail(journal: Journal, args: Namespace, config: Config) -> int:
    """Returns when the run has ended, with the exit code of its status."""
    run = await find_run(journal, args.run)
    printer = RunPrinter(journal, config, streamed=True, as_json=args.json, verbose=True)
    await printer.watch(run.id, after=args.after)
    return TAIL_EXIT[printer.finished.status] if printer.finished is not None else DONE


async def _stop(journal: Journal, args: Namespace) -> int:
    """Waits until the run has ended: until then its tools may still run."""
    owner = f"tailrace stop {os.getpid()}"
    run_id = (await find_run(journal, args.run)).id
    try:
        by = os.environ.get("USER") or REQUESTER  # cron and containers have no name for the user
        found = await stop(journal, run_id, owner, at=time.time(), by=by, last_words=last_words)
    except RunSealed:
        found = await journal.get(run_id)
    if found.state not in ENDED:
        print_note(f"{public_id(found)}: stopping")
        async for _ in follow(journal, run_id, after=found.last_seq):
            pass
        found = await journal.get(run_id)
    _print(_run_json(found) if args.json else f"{public_id(found)}: {found.state}")
    return DONE


def _run_json(run: Run) -> str:
    return msgspec.json.encode(msgspec.structs.replace(run, id=public_id(run))).decode()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
