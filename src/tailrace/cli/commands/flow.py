"""`tailrace flow`: sequences from files, and their instances.

`run`, `resume` and `retry` execute an instance in this process and show it; the other commands look at the journal or
signal the process that executes the instance. An interrupted instance stays in the journal and can be resumed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tailrace.cli.argument_types import whole_number
from tailrace.cli.chat.options import REQUESTER
from tailrace.cli.main import DONE, FAILED, add_log_level, print_error
from tailrace.cli.signals import loop_factory
from tailrace.config.load import Config
from tailrace.config.sections import Store
from tailrace.system.own_program import typed

if TYPE_CHECKING:
    from tailrace.app import App
    from tailrace.flows.definition.definition import Definition, DefinitionError
    from tailrace.flows.definition.source import Source
    from tailrace.ports import Run

INSTANCE_HELP = "an instance's id, the beginning of one, or `last`"
FORMATS = ("tree", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="what")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        add_log_level(made, default=argparse.SUPPRESS)
        return made

    run = command("run", "run a sequence from a file, and show it")
    run.add_argument("file", metavar="FILE", help="JSON or YAML")
    run.add_argument(
        "--input",
        metavar="K=V",
        action="append",
        default=[],
        help="a value of the input; JSON where it is JSON and the input_schema does not say string, else text",
    )
    run.add_argument("--dry-run", action="store_true", help="validate everything, call no model")
    run.add_argument("--key", default="", help="an idempotency key: an instance that has it is shown, not run again")
    new = command("new", "write a first sequence to change, with its schema for editors beside it")
    new.add_argument("name", metavar="NAME", help="of the sequence; the file is NAME.yaml")
    command("schema", "print the JSON schema of a sequence, for editors")
    check = command("check", "find every mistake without running anything")
    check.add_argument("file", metavar="FILE", help="JSON or YAML")
    graph = command("graph", "print a sequence as a picture")
    graph.add_argument("file", metavar="FILE|ID", help="JSON or YAML; or an instance, whose steps are marked")
    graph.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="tree by default")
    listed = command("ls", "list the latest instances")
    which = listed.add_mutually_exclusive_group()
    which.add_argument("--failed", action="store_true", help="only those that failed or were set aside")
    which.add_argument("--unfinished", action="store_true", help="only those that have not ended")
    listed.add_argument("--limit", type=whole_number(1), default=20, help="how many (20)")
    show = command("show", "show an instance: its steps, outputs, times and cost")
    pause = command("pause", "pause an instance; the step in flight is run again afterwards")
    resume = command("resume", "go on with an instance that was interrupted or paused, or watch it")
    resume.add_argument("instance", metavar="ID", nargs="?", help=f"{INSTANCE_HELP}; without it the latest unfinished")
    cancel = command("cancel", "end an instance")
    retry = command("retry", "go on with a failed instance from the step that failed, as a new instance")
    signal = command("signal", "send a signal to an instance that waits for one")
    for one in (show, pause, cancel, retry, signal):
        one.add_argument("instance", metavar="ID", help=INSTANCE_HELP)
    signal.add_argument("name", metavar="NAME", help="what its wait_signal step waits for")
    signal.add_argument("--payload", metavar="JSON", default="", help="an object that the step gives as its output")
    for one in (run, resume, retry):
        one.add_argument("--json", action="store_true", help="print the events of the instance, one a line")
    for one in (listed, show):
        one.add_argument("--json", action="store_true", help="print JSON, one object a line")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 done, 1 failed, 3 cancelled. Raises `TailraceError` and `KeyboardInterrupt`."""
    from tailrace.cli.flow.control import COMMANDS, on_journal

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        match args.what:
            case "new" | "schema":
                return runner.run(_write_schema(args, config))
            case "check":
                return runner.run(_check(args, config))
            case "graph":
                return runner.run(_graph(args, config))
            case other if other in COMMANDS:
                return runner.run(on_journal(args, config))
            case _:
                return runner.run(_execute(args, config))


async def _check(args: argparse.Namespace, config: Config) -> int:
    from tailrace.app import open_app
    from tailrace.cli.flow.files import read_source

    source = await asyncio.to_thread(read_source, args.file)
    async with open_app(msgspec.structs.replace(config, store=Store(url="memory://"))) as app:
        if await _print_mistakes(app, source, ready=True):
            return FAILED
    sys.stderr.write(f"{args.file}: {source.definition().name} is fine\n")
    return DONE


async def _write_schema(args: argparse.Namespace, config: Config) -> int:
    from tailrace.app import open_app
    from tailrace.cli.flow.new_file import write_first_flow
    from tailrace.flows.engine.editor_schema import editor_schema

    async with open_app(msgspec.structs.replace(config, store=Store(url="memory://"))) as app:
        schema = msgspec.json.format(msgspec.json.encode(editor_schema(app.flows.handlers))) + b"\n"
    if args.what == "schema":
        sys.stdout.write(schema.decode())
        return DONE
    path = await asyncio.to_thread(write_first_flow, args.name, schema)
    run = typed(f'flow run {path} --input topic="water mills"')
    sys.stderr.write(f"{path} is written; run it: {run}\n")
    return DONE


async def _print_mistakes(app: App, source: Source, *, ready: bool) -> bool:
    """Whether there are any. `ready`: what a run would fail by here is one too."""
    from tailrace.flows.definition.source import MAX_MISTAKES

    def check(definition: Definition) -> Iterator[DefinitionError]:
        yield from app.flows.mistakes(definition)
        if ready:
            yield from app.flows.unknown_models(definition)

    mistakes = await asyncio.to_thread(source.mistakes, check)
    for mistake in mistakes:
        print_error(str(mistake))
    if len(mistakes) > 1:
        many = "at least " if len(mistakes) == MAX_MISTAKES else ""
        sys.stderr.write(f"{many}{len(mistakes)} mistakes\n")
    return bool(mistakes)


async def _graph(args: argparse.Namespace, config: Config) -> int:
    from tailrace.app import open_app
    from tailrace.cli.flow.files import read_source
    from tailrace.cli.run_names import find_instance
    from tailrace.flows.definition.graph import graph_of, tree

    states = None
    is_file = await asyncio.to_thread(Path(args.file).exists)
    if is_file or Path(args.file).suffix or "/" in args.file:
        graph = graph_of((await asyncio.to_thread(read_source, args.file)).definition())
    else:
        async with open_app(config) as app:
            graph = drawn = await app.flows.graph((await find_instance(app.journal, args.file)).id)
            states = drawn.states
    sys.stdout.write(tree(graph, states) if args.format == "tree" else msgspec.json.encode(graph).decode() + "\n")
    return DONE


async def _execute(args: argparse.Namespace, config: Config) -> int:
    from tailrace.app import open_app
    from tailrace.cli.flow.watch import watch_instance
    from tailrace.flows.definition.public_ids import public_id

    async with open_app(config) as app:
        match args.what:
            case "run":
                instance = await _started(app, args)
            case "retry":
                instance = await _retried(app, args)
            case _:
                instance = await _resumed(app, args)
        if instance is None:
            return FAILED
        try:
            code = await watch_instance(app, instance, as_json=args.json)
        except asyncio.CancelledError:
            sys.stderr.write(f"\ninterrupted; go on with: {typed(f'flow resume {public_id(instance)}')}\n")
            raise
        return code


async def _started(app: App, args: argparse.Namespace) -> Run | None:
    """None where the file has mistakes, which were printed."""
    from tailrace.cli.flow.files import check_required, parse_input, read_source
    from tailrace.flows.definition.definition import DefinitionError

    source = await asyncio.to_thread(read_source, args.file)
    parse_input(args.input)  # wrong use is told before the file's mistakes
    if await _print_mistakes(app, source, ready=args.dry_run):
        return None
    definition = source.definition()
    given = parse_input(args.input, definition.input_schema)
    check_required(definition, given, args.file)
    try:
        return await app.flows.start(
            definition, given, dry_run=args.dry_run, idempotency_key=args.key, requester=REQUESTER, is_admin=True
        )
    except DefinitionError as exc:
        raise source.located(exc) from exc


async def _retried(app: App, args: argparse.Namespace) -> Run:
    from tailrace.cli.run_names import find_instance

    found = await find_instance(app.journal, args.instance)
    return await app.flows.retry(found.id, requester=REQUESTER, is_admin=True)


async def _resumed(app: App, args: argparse.Namespace) -> Run:
    from tailrace.cli.flow.control import unfinished
    from tailrace.cli.run_names import find_instance
    from tailrace.flows.engine.instance_state import instance_states
    from tailrace.flows.engine.plan import RESUME

    instance = await (find_instance(app.journal, args.instance) if args.instance else unfinished(app.journal))
    if (await instance_states(app.journal, [instance]))[instance.id] == "paused":
        await app.flows.signal(instance.id, RESUME)
    await app.agents.recover()  # turns of the agent that are steps of it
    await app.flows.take_over(instance.id)
    return instance
