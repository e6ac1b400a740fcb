"""`tailrace rollback [N]`: puts the working directory back to a checkpoint, after showing what that would do.

Thin: asks and prints. `tools.checkpoint` makes and restores checkpoints.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from tailrace.cli.main import DONE, FAILED, USAGE, print_error
from tailrace.cli.own_journal import is_agreed
from tailrace.cli.screen.sanitize import Sanitizer
from tailrace.config.load import Config
from tailrace.tools.checkpoint.checkpoint import Checkpoint, Checkpoints, RollbackPlan

_SIGNS: Final = {"change": "~", "create": "+", "delete": "-"}
_MAX_SHOWN: Final = 200


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "number", nargs="?", type=int, metavar="N", help="which checkpoint; 1, the default, is the latest"
    )
    parser.add_argument("--yes", action="store_true", help="do it without asking")
    parser.add_argument("--list", action="store_true", help="list the checkpoints of this directory and end")
    parser.add_argument("--diff", action="store_true", help="show the changes in full")
    parser.add_argument("--directory", type=Path, default=Path(), help="of which directory; the default is this one")


def run(args: Namespace, config: Config) -> int:
    """0 done, 1 declined, 2 a wrong number or no terminal to ask on. Raises `CheckpointError`."""
    number = 1 if args.number is None else args.number
    if number < 1:
        print_error(f"checkpoints count from 1, the latest; there is no {number}")
        return USAGE
    checkpoints = Checkpoints(config.home / "checkpoints", args.directory)
    if args.list:
        listed = checkpoints.all()
        for checkpoint in listed:
            _print(_line(checkpoint))
        if not listed:
            _say(f"there is no checkpoint of {args.directory.resolve()}; tailrace chat --checkpoints makes them\n")
        return DONE
    plan = checkpoints.plan(number)
    if not plan.changes:
        _print("nothing to undo: the directory is as it was then")
        return DONE
    _show(plan, checkpoints.diff(plan) if args.diff else "")
    if not args.yes:
        if not sys.stdin.isatty():
            print_error("no terminal to ask on; to do it: tailrace rollback --yes")
            return USAGE
        if not is_agreed("put these back (~ changed, + deleted since, - made since)?"):
            _say("left as it is\n")
            return FAILED
    checkpoints.restore(plan)
    _say("done; to undo this: tailrace rollback\n")
    return DONE


def _line(checkpoint: Checkpoint) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.at))
    return f"{checkpoint.number:3}  {when}  {checkpoint.label}".rstrip()


def _show(plan: RollbackPlan, diff: str) -> None:
    for change in plan.changes[:_MAX_SHOWN]:
        _print(f"{_SIGNS[change.kind]} {change.path}")
    if len(plan.changes) > _MAX_SHOWN:
        _print(f"… and {len(plan.changes) - _MAX_SHOWN} more")
    for path in plan.left:
        _print(f"! {path}: is too large or ignored by now; it is left as it is")
    if diff:
        _print(diff)


def _print(text: str) -> None:
    """Names and contents of files may hold control sequences: they are removed (J122)."""
    safe = Sanitizer().feed(text.encode("utf-8", "replace").decode("utf-8", "replace"))
    sys.stdout.write(f"{safe}\n")


def _say(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(text)
    sys.stderr.flush()
