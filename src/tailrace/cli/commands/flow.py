"""`tailrace flow run | check | resume`: a sequence from a file, in this process.

The models' text goes to stdout as it comes, a line per step to stderr; `--json` prints the events of the instance's
stream instead. An interrupted instance stays in the journal and can be resumed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.cli.main import DONE, FAILED, INCOMPLETE, add_log_level, print_error
from tailrace.cli.screen.sanitize import Sanitizer, sanitized, sanitized_line
from tailrace.cli.signals import loop_factory
from tailrace.config.load import Config
from tailrace.config.sections import Store
from tailrace.errors import ConfigError

if TYPE_CHECKING:
    from tailrace.app import App
    from tailrace.flows.definition.source import Source
    from tailrace.flows.engine.instance_events import InstanceEvent

MAX_FILE_BYTES = 1 << 20
_STATES = {"completed": DONE, "failed": FAILED, "cancelled": INCOMPLETE}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="run | check | resume", required=True, dest="what")
    run = commands.add_parser("run", help="run a sequence from a file")
    run.add_argument("file", metavar="FILE", help="JSON or YAML")
    run.add_argument(
        "--input",
        metavar="K=V",
        action="append",
        default=[],
        help="a value of the input; JSON where it is JSON, else text",
    )
    run.add_argument("--dry-run", action="store_true", help="validate everything, call no model")
    run.add_argument("--key", default="", help="an idempotency key: an instance that has it is shown, not run again")
    check = commands.add_parser("check", help="find mistakes without running anything")
    check.add_argument("file", metavar="FILE")
    resume = commands.add_parser("resume", help="resume an interrupted instance, or watch it")
    resume.add_argument("instance", metavar="INSTANCE")
    for command in (run, resume):
        command.add_argument("--json", action="store_true", help="print the events of the instance, one a line")
    for command in (run, check, resume):
        add_log_level(command, default=argparse.SUPPRESS)


def run(args: argparse.Namespace, config: Config) -> int:
    """0 done, 1 failed, 3 cancelled. Raises `TailraceError` and `KeyboardInterrupt`."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_check(args, config) if args.what == "check" else _run(args, config))


async def _check(args: argparse.Namespace, config: Config) -> int:
    from tailrace.app import open_app
    from tailrace.flows.definition.source import MAX_MISTAKES

    source = await asyncio.to_thread(_read, args.file)
    async with open_app(msgspec.structs.replace(config, store=Store(url="memory://"))) as app:
        mistakes = await asyncio.to_thread(source.mistakes, app.flows.mistakes)
    if not mistakes:
        sys.stderr.write(f"{args.file}: {source.definition().name} is fine\n")
        return DONE
    for mistake in mistakes:
        print_error(str(mistake))
    if len(mistakes) > 1:
        many = "more than " if len(mistakes) == MAX_MISTAKES else ""
        sys.stderr.write(f"{many}{len(mistakes)} mistakes\n")
    return FAILED


async def _run(args: argparse.Namespace, config: Config) -> int:
    from tailrace.app import open_app
    from tailrace.flows.definition.definition import DefinitionError

    async with open_app(config) as app:
        if args.what == "resume":
            await app.agents.recover()
            await app.flows.recover()
            return await _show(app, args.instance, as_json=args.json)
        source = await asyncio.to_thread(_read, args.file)
        try:
            run = await app.flows.start(
                source.definition(), _input(args.input), dry_run=args.dry_run, idempotency_key=args.key
            )
        except DefinitionError as exc:
            raise source.located(exc) from exc
        try:
            return await _show(app, run.id, as_json=args.json)
        except asyncio.CancelledError:
            sys.stderr.write(f"\ninterrupted; go on with: tailrace flow resume {run.id}\n")
            raise


async def _show(app: App, instance_id: str, *, as_json: bool) -> int:
    screen: Callable[[InstanceEvent], None] = _print_json if as_json else InstancePrinter().show
    last: InstanceEvent | None = None
    async with aclosing(app.flows.watch(instance_id)) as watching:
        async for events in watching:
            for event in events:
                screen(event)
                last = event
            sys.stdout.flush()
    if last is None or last.type != "done":
        print_error(f"instance {instance_id} has not ended")
        return FAILED
    if not as_json and last.data["error"] is not None:
        print_error(last.data["error"]["message"])
    return _STATES[last.data["state"]]


class InstancePrinter:
    """Prints an instance: the models' text on stdout, a line per step on stderr."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._speaking = ""  # the block whose text the cursor stands in
        self._last = ""  # the last text that was written
        self._sanitizer = Sanitizer()
        self._spoke = False
        self._output: Any = None

    def show(self, event: InstanceEvent) -> None:
        data = event.data
        match event.type:
            case "step" if data["state"] == "started":
                self._began.setdefault(data["block_id"], time.monotonic())
                self._say(f"· {data['block_id']}" + (f" (try {data['number']})" if data["number"] > 1 else ""))
            case "step":
                how = "failed" if data["state"] == "failed" else "failed, trying again"
                self._say(f"✗ {data['block_id']} {how}: {sanitized_line(data['error']['message'])}")
            case "llm_delta":
                self._speak(data["block_id"], data["delta"])
            case "attempt_discarded":
                self._say(f"↺ {data['block_id']}: taken back ({sanitized_line(data['reason'])})")
            case "output":
                took = time.monotonic() - self._began.get(data["block_id"], time.monotonic())
                self._say(f"✓ {data['block_id']} {took:.1f} s")
                self._output = data["output"]
            case "state" if data["state"] in ("waiting", "paused"):
                self._say(f"… {data['state']}")
            case "done":
                self._end()
            case _:
                pass

    def _speak(self, block_id: str, text: str) -> None:
        if self._speaking != block_id:
            self._break()
            self._speaking = block_id
        self._spoke = True
        self._last = self._sanitizer.feed(text) if sys.stdout.isatty() else text
        sys.stdout.write(self._last)
        sys.stdout.flush()

    def _say(self, line: str) -> None:
        self._break()
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def _break(self) -> None:
        """Ends the open line of text."""
        if self._speaking and not self._last.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._speaking = ""

    def _end(self) -> None:
        """Without any streamed text, the last step's output is the answer."""
        self._break()
        if not self._spoke and self._output is not None:
            text = _text_of(self._output)
            sys.stdout.write(sanitized(text) if sys.stdout.isatty() else text)
            sys.stdout.write("" if text.endswith("\n") else "\n")


def _text_of(output: Any) -> str:
    match output:
        case {"message": {"content": str(content)}} if content:
            return content
        case str(text):
            return text
        case _:
            return msgspec.json.format(msgspec.json.encode(output)).decode()


def _print_json(event: InstanceEvent) -> None:
    line = msgspec.json.encode({"seq": event.seq, "type": event.type, **event.data}).decode()
    sys.stdout.write(line + "\n")


def _read(name: str) -> Source:
    """Raises `ConfigError`."""
    from tailrace.flows.definition.source import parse_source

    try:
        data = Path(name).read_bytes()
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror}", file=name) from exc
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"larger than {MAX_FILE_BYTES} bytes", file=name)
    try:
        return parse_source(data.decode("utf-8-sig"), name)
    except UnicodeDecodeError as exc:
        raise ConfigError("not UTF-8 text", file=name, line=data.count(b"\n", 0, exc.start) + 1) from exc


def _input(pairs: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ConfigError(f"expected K=V, found {pair[:60]!r}", key="--input")
        try:
            given[name] = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError):
            given[name] = text
    return given
