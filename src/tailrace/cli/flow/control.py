"""`tailrace flow ls | show | pause | cancel | signal`: instances in the journal, whichever process executes them.

Nothing is executed here: the process that has the instance does what it is signalled.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable

import msgspec

from tailrace.app.timeline.question import question_of
from tailrace.app.timeline.run_overview import overview_of
from tailrace.cli.flow.files import json_or_text
from tailrace.cli.flow.watch import Outputs, print_summary
from tailrace.cli.main import DONE
from tailrace.cli.own_journal import own_journal
from tailrace.cli.run_names import find_instance
from tailrace.cli.runs.console import print_note
from tailrace.cli.runs.overviews import print_runs
from tailrace.config.load import Config
from tailrace.errors import ConfigError, RunNotFound, RunSealed, TailraceError
from tailrace.events import InstanceState, StateChanged, StepFinished
from tailrace.flows.definition.definition import parsed
from tailrace.flows.definition.public_ids import public_id
from tailrace.flows.definition.signals import unknown_signal
from tailrace.flows.engine.instance_state import instance_states
from tailrace.flows.engine.plan import PAUSE
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import ENDED, Journal, Run, RunState, Signal
from tailrace.runs.recovery import follow, stop
from tailrace.system.own_program import typed

PATIENCE_S = 5.0  # for the process that executes an instance to pause it
UNFINISHED: tuple[RunState, ...] = ("pending", "running", "parked")
Command = Callable[[Journal, Namespace, Config], Awaitable[int]]


async def on_journal(args: Namespace, config: Config) -> int:
    """Runs one of `COMMANDS`. Looking at instances creates nothing."""
    if (missing := config.database) is not None and not missing.exists():
        if args.what != "ls":
            raise RunNotFound(f"there is no instance {args.instance}: no runs yet in {missing}")
        print_note(f"no instances yet in {missing}")
        return DONE
    async with own_journal(config, make=args.what not in ("ls", "show")) as journal:
        return await COMMANDS[args.what](journal, args, config)


async def unfinished(journal: Journal) -> Run:
    """The latest instance that has not ended. Raises `RunNotFound`."""
    for run in await journal.runs(kind=SEQUENCE, states=UNFINISHED, limit=1):
        return run
    raise RunNotFound(f"there is no unfinished instance; {typed('flow ls')} lists all")


async def _list(journal: Journal, args: Namespace, config: Config) -> int:
    states = UNFINISHED if args.unfinished else ("failed", "parked") if args.failed else None
    runs = await journal.runs(kind=SEQUENCE, states=states, limit=args.limit)
    if args.json:
        known = await instance_states(journal, runs)
        for run in runs:
            _print_json(_described(run, known[run.id]))
        return DONE
    if not runs:
        print_note("no such instances" if states else "no instances yet")
        return DONE
    await print_runs(journal, runs, config)
    return DONE


async def _show(journal: Journal, args: Namespace, config: Config) -> int:
    run = await find_instance(journal, args.instance)
    state = (await instance_states(journal, [run]))[run.id]
    if args.json:
        facts = await journal.facts(run.id)
        outputs = {entry.event.block_id: entry.event.output for entry in facts if isinstance(entry.event, StepFinished)}
        _print_json({**_described(run, state), "input": run.new.input.get("input", {}), "outputs": outputs})
        return DONE
    left = await _is_left(journal, run)
    orphaned = run.state == "running" and left
    shown = overview_of(run, await journal.facts(run.id), now=time.time(), orphaned=orphaned).state
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_at))
    dry = " (dry run)" if run.new.input.get("dry_run") else ""  # nothing was called
    owner = f", executed by {run.owner}" if run.owner and not left and shown in ("running", "waiting") else ""
    print_note(f"{public_id(run)}  {question_of(run)}{dry}: {shown}, begun {began}{owner}")
    if origin := run.new.input.get("retry_of"):
        print_note(f"retries {origin}")
    if given := run.new.input.get("input"):
        print_note("input: " + msgspec.json.encode(given).decode())
    outputs_of = Outputs(run)
    for entry in await journal.facts(run.id):
        sys.stdout.write(outputs_of.text(entry, coloured=sys.stdout.isatty()))
    sys.stdout.flush()
    await print_summary(journal, run, config, orphaned=shown == "orphaned")
    if left and shown == "waiting":
        print_note(_goes_on(run))
    return DONE


async def _is_left(journal: Journal, run: Run) -> bool:
    """Whether no living process executes it, so that what it waits for changes nothing until one does."""
    return any(other.id == run.id for other in await journal.orphans())


def _goes_on(run: Run) -> str:
    return f"no process executes it now: {typed(f'flow resume {public_id(run)}')} goes on with it"


async def _pause(journal: Journal, args: Namespace, _config: Config) -> int:
    run = await find_instance(journal, args.instance)
    sent = await _send(journal, run, Signal(PAUSE, by=_user()))
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for batch in follow(journal, sent.id, after=sent.last_seq):
                if any(entry.event == StateChanged("paused") for entry in batch):
                    break
    except TimeoutError:
        print_note(f"{public_id(run)}: will pause when a step in flight has ended, or a process goes on with it")
        return DONE
    return await _told(journal, run, f"{typed(f'flow resume {public_id(run)}')} goes on")


async def _cancel(journal: Journal, args: Namespace, _config: Config) -> int:
    """Waits until the instance has ended: until then its steps may still run."""
    run = await find_instance(journal, args.instance)
    try:
        found = await stop(journal, run.id, f"tailrace flow cancel {os.getpid()}", at=time.time(), by=_user())
    except RunSealed:
        raise _ended(run) from None
    if found.state not in ENDED:
        print_note(f"{public_id(run)}: stopping")
        async for _ in follow(journal, run.id, after=found.last_seq):
            pass
    return await _told(journal, run)


async def _signal(journal: Journal, args: Namespace, config: Config) -> int:
    match args.name:
        case "pause":
            return await _pause(journal, args, config)
        case "cancel":
            return await _cancel(journal, args, config)
        case "resume":
            raise TailraceError(f"use: {typed(f'flow resume {args.instance}')}")
        case _:
            pass
    payload = json_or_text(args.payload) if args.payload else {}
    if not isinstance(payload, dict):
        raise ConfigError("expected a JSON object, such as '{\"ok\": true}'", key="--payload")
    run = await find_instance(journal, args.instance)
    if run.state not in ENDED and (mistake := unknown_signal(parsed(run.new.input["definition"]), args.name)):
        raise TailraceError(mistake)
    await _send(journal, run, Signal(args.name, payload, _user()))
    print_note(f"{public_id(run)}: signalled {args.name}")
    if await _is_left(journal, run):
        print_note(_goes_on(run))
    return DONE


async def _send(journal: Journal, run: Run, signal: Signal) -> Run:
    """Returns the run as it was just before. Raises `TailraceError` where it has ended."""
    try:
        before = await journal.get(run.id)
        await journal.signal(run.id, signal)
    except RunSealed:
        raise _ended(run) from None
    return before


def _ended(run: Run) -> TailraceError:
    return TailraceError(f"instance {public_id(run)} has ended: {run.state}")


async def _told(journal: Journal, run: Run, then: str = "") -> int:
    state = (await instance_states(journal, [await journal.get(run.id)]))[run.id]
    print_note(f"{public_id(run)}: {state}" + (f"; {then}" if then else ""))
    return DONE


def _described(run: Run, state: InstanceState) -> dict[str, object]:
    finished = run.finished
    error = finished.error if finished is not None else run.parked
    return {
        "id": public_id(run),
        "name": question_of(run),
        "state": state,
        "dry_run": bool(run.new.input.get("dry_run")),
        "created_at": run.created_at,
        "finished_at": finished.at if finished is not None else None,
        "usage": msgspec.to_builtins(finished.usage) if finished is not None else None,
        "error": msgspec.to_builtins(error),
    }


def _user() -> str:
    return os.environ.get("USER", "")


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


COMMANDS: dict[str, Command] = {"ls": _list, "show": _show, "pause": _pause, "cancel": _cancel, "signal": _signal}
