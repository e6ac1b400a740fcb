"""`tailrace runs | show | tail | stop`: the runs in the journal, including those of other processes.

Thin: it prints what the journal holds, as text or, with `--json`, as the events themselves.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TypeAlias, assert_never

import msgspec

from tailrace.agent.session import last_words
from tailrace.cli.argument_types import whole_number
from tailrace.cli.main import DONE, FAILED, INCOMPLETE
from tailrace.config.load import Config
from tailrace.errors import RunSealed
from tailrace.events import (
    ApprovalFact,
    AttemptFact,
    Commentary,
    Delivered,
    Entry,
    GatewayNotice,
    HistoryFact,
    LongToolHint,
    MessageChunk,
    MessageStop,
    ReasoningChunk,
    RunFact,
    RunFinished,
    RunStatus,
    SequenceFact,
    Snapshot,
    ToolCallChunk,
    ToolCallFinished,
    entry_to_json,
)
from tailrace.journal.open_journal import open_journal
from tailrace.journal.viewed_lines import in_short, without_reasoning
from tailrace.ports import ENDED, Journal, Run, RunState
from tailrace.runs.approval_words import outcome_words
from tailrace.runs.recovery import follow, stop

_NotShown: TypeAlias = (
    RunFact
    | ReasoningChunk
    | ToolCallFinished
    | LongToolHint
    | AttemptFact
    | HistoryFact
    | ApprovalFact
    | SequenceFact
    | Delivered
)
EXIT: dict[RunStatus, int] = {"completed": DONE, "incomplete": INCOMPLETE, "failed": FAILED, "stopped": INCOMPLETE}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
OWN_RECORDS = frozenset({"delivery", "definition"})  # kinds of runs that the program keeps for itself
OUTPUT_PREVIEW = 60  # characters of an answer in the list


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
    parser.add_argument("run", metavar="RUN", help="a run's id, as `tailrace runs` lists it")
    if command == "tail":
        parser.add_argument("--after", type=whole_number(0), default=0, metavar="N", help="only entries after this one")


def run(args: Namespace, config: Config) -> int:
    return asyncio.run(_run(args, config))


async def _run(args: Namespace, config: Config) -> int:
    async with open_journal(
        config.store.url, config.database, password=config.store_password, bus_url=config.bus.url
    ) as journal:
        match args.command:
            case "runs":
                return await _list(journal, args)
            case "show":
                return await _show(journal, args)
            case "tail":
                return await _tail(journal, args)
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


async def _list(journal: Journal, args: Namespace) -> int:
    states: tuple[RunState, ...] | None = ("pending", "running", "parked") if args.unfinished else None
    for found in await _latest(journal, args, states):
        _print(_run_json(found) if args.json else _line(found))
    return DONE


def _line(run: Run) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_at))
    text = run.parked.message if run.parked else ""
    if run.finished:
        text = run.finished.output or (run.finished.error.message if run.finished.error else "")
    preview = " ".join(text.split())
    preview = preview if len(preview) <= OUTPUT_PREVIEW else preview[: OUTPUT_PREVIEW - 1] + "…"
    return f"{run.id}  {run.state:<10}  {began}  {run.new.kind:<8}  {run.last_seq:>6}  {_safe(preview)}".rstrip()


async def _show(journal: Journal, args: Namespace) -> int:
    found = await journal.get(args.run)
    entry = await journal.snapshot(args.run)
    if args.json:
        _print(entry_to_json(*without_reasoning([entry])).decode())
        return DONE
    if not isinstance(entry.event, Snapshot):
        raise TypeError(entry)
    for line in _described(found, entry.event):
        _print(line)
    return DONE


def _described(run: Run, state: Snapshot) -> list[str]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_at))
    owner = f", executed by {run.owner}" if run.owner else ""
    usage = f"{state.usage.input_tokens} tokens in, {state.usage.output_tokens} out"
    lines = [
        f"{run.id}: {run.state}{owner}",
        f"{run.new.kind} {run.new.model}".rstrip() + f", begun {began}, {run.last_seq} entries, {usage}",
        f"durability {run.new.durability}" + (", compacted" if run.first_seq > 1 else ""),
    ]
    if origin := run.new.input.get("forked_from"):
        lines.append(f"forked from {origin['run_id']} after its entry {origin['after']}")
    if run.parked:
        lines.append(f"parked: {run.parked.message}")
    if state.error:
        lines.append(f"error: {state.error.message}")
    for tool in state.tools:
        outcome = "running" if tool.ok is None else f"{'done' if tool.ok else 'failed'} in {tool.duration:.1f} s"
        lines.append(f"tool {tool.tool_name}: {outcome}")
    lines += [
        f"approval {approval.asked.approval_id}: "
        f"{outcome_words(approval.asked, approval) or 'waiting'}: {approval.asked.command}"
        + (f" ({approval.asked.scope})" if approval.asked.scope else "")
        for approval in state.approvals
    ]
    for message in state.messages:
        lines += ["", message.text]
    return [_safe(line) for line in lines]


async def _tail(journal: Journal, args: Namespace) -> int:
    """Returns when the run has ended, with the exit code of its status."""
    status: RunStatus = "completed"
    async for batch in follow(journal, args.run, after=args.after):
        entries = list(in_short(batch))
        if args.json and entries:
            _print("\n".join(entry_to_json(entry).decode() for entry in entries))
        elif not args.json:
            sys.stdout.write("".join(map(_shown, entries)))
        sys.stdout.flush()
        if isinstance(batch[-1].event, RunFinished):
            status = batch[-1].event.status
    return EXIT[status]


def _shown(entry: Entry) -> str:
    match entry.event:
        case MessageChunk(text=text):
            return _safe(text)
        case MessageStop():
            return "\n"
        case Commentary(text=text):
            return f"{_safe(text)}\n"
        case ToolCallChunk(tool_name=name, preview=preview):
            return f"· {_safe(name)} {_safe(preview or '')}".rstrip() + "\n"
        case ToolCallFinished(tool_name=name, ok=False):
            return f"· {_safe(name)} failed\n"
        case GatewayNotice(text=text):
            return f"{_safe(text)}\n"
        case Snapshot(messages=messages):
            return "".join(f"{_safe(message.text)}\n" for message in messages)
        case RunFinished(status=status, error=error) if status != "completed":
            return f"[{status}]" + (f" {_safe(error.message)}" if error else "") + "\n"
        case _ if isinstance(entry.event, _NotShown):
            return ""
        case _:
            assert_never(entry.event)


async def _stop(journal: Journal, args: Namespace) -> int:
    """Waits until the run has ended: until then its tools may still run."""
    owner = f"tailrace stop {os.getpid()}"
    try:
        by = os.environ.get("USER", "")
        found = await stop(journal, args.run, owner, at=time.time(), by=by, last_words=last_words)
    except RunSealed:
        found = await journal.get(args.run)
    if found.state not in ENDED:
        async for _ in follow(journal, args.run, after=found.last_seq):
            pass
        found = await journal.get(args.run)
    _print(_run_json(found) if args.json else f"{found.id}: {found.state}")
    return DONE


def _run_json(run: Run) -> str:
    return msgspec.json.encode(run).decode()


def _safe(text: str) -> str:
    """Model output must not move the cursor or write the clipboard (J122)."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
