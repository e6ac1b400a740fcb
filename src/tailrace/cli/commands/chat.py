"""`tailrace chat`: one question, or a conversation in the terminal.

Owns the arguments and the choice of the surface: `oneshot` for one question, `screen_chat` on a capable terminal,
`line_chat` elsewhere. Knows no provider.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import stat
import sys
from importlib import import_module
from pathlib import Path

from tailrace.cli.argument_types import whole_number
from tailrace.cli.chat.options import Options
from tailrace.cli.main import FAILED, INTERRUPTED, USAGE, print_error, with_origin
from tailrace.cli.signals import cancel_on_sigterm, loop_factory
from tailrace.config.load import Config
from tailrace.errors import ConfigError
from tailrace.system.own_program import typed
from tailrace.system.unread_bytes import unread_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="QUESTION", nargs="*", help="ask this and exit, as -q does; a last - takes stdin along"
    )
    parser.add_argument(
        "-q", metavar="QUESTION", help="ask this and exit; without it, stdin is the question unless it is a terminal"
    )
    parser.add_argument("--provider", help="the provider: local, openai, anthropic, openrouter, … or one of the config")
    parser.add_argument("--model", metavar="[PROVIDER/]NAME", help="a model of that provider, or of the configured one")
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show the answer as it comes, or at the end",
    )
    parser.add_argument("--json", action="store_true", help="print the events of the run, one a line")
    parser.add_argument("--session", metavar="ID", default="", help="go on with this conversation")
    parser.add_argument("--max-turns", metavar="N", type=whole_number(1), help="model calls in one turn, at most")
    parser.add_argument("--yolo", action="store_true", help="approve without asking; the hard list stays blocked")
    parser.add_argument("--checkpoints", action="store_true", help="a snapshot before the first change of a turn")


def run(args: argparse.Namespace, config: Config) -> int:
    """0 done, 1 failed, 2 nothing was asked, 3 incomplete, 130 interrupted. Raises `TailraceError`,
    `KeyboardInterrupt`."""
    question: str | None = args.q
    with_stdin = args.words[-1:] == ["-"]
    if words := args.words[:-1] if with_stdin else args.words:
        if question is not None:
            print_error("one question at a time: either -q or the words alone")
            return USAGE
        question = " ".join(words)
    typed_question = question or ""
    if question is None and (with_stdin or not sys.stdin.isatty()):
        question = _stdin()
    elif question is not None and question.strip() and with_stdin:
        question = f"{question.strip()}\n\n<stdin>\n{_stdin().strip()}\n</stdin>"
    if question is not None and not question.strip():
        print_error('nothing was asked: tailrace chat -q "…", or a question on stdin')
        return USAGE
    if question is None and args.json:
        print_error('--json goes with a question: tailrace chat --json -q "…"')
        return USAGE
    from tailrace.app.models import check_known, chosen, default_model

    if args.provider:
        check_known(config, args.provider)
    if args.provider and not args.model and default_model(config, args.provider) is None:
        print_error(f"which model of {args.provider}? name it with --model")
        return USAGE
    choice = chosen(config, args.provider, args.model)
    options = Options(
        model=f"{choice.provider}/{choice.name}" if args.provider or args.model else "",
        streamed=config.streams("cli", args.stream),
        session=args.session,
        yolo=args.yolo,
        checkpoints=args.checkpoints,
        max_turns=args.max_turns,
        reasoning=config.agent.show_reasoning,
    )
    if question is not None:
        work = _ask(config, options, question.strip(), typed_question, as_json=args.json)
    else:
        work = _converse(config, options)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(work)
    except asyncio.CancelledError:  # by a signal other than Ctrl-C's
        return INTERRUPTED
    except ConfigError as exc:
        return _refused(with_origin(exc, args, config))


def _refused(problem: ConfigError) -> int:
    """A key that is not set has its next step below it, for a person; a program that reads stderr gets the one line."""
    print_error(str(problem))
    is_key = problem.key.startswith("providers.") and problem.key.endswith(".key_env")
    if is_key and sys.stderr.isatty():
        sys.stderr.write(f"       export it and start again, or choose another model: {typed('init')}\n")
    return FAILED


async def _ask(config: Config, options: Options, question: str, typed_question: str, *, as_json: bool) -> int:
    """`typed_question` is the part of it that does not come from stdin."""
    from tailrace.app import open_app
    from tailrace.app.models import named
    from tailrace.cli.chat.conversation import is_new_session, turn_of
    from tailrace.cli.chat.oneshot import OneShot
    from tailrace.cli.chat.question import files_named
    from tailrace.cli.chat.run_printer import print_status
    from tailrace.cli.chat.tty_approval import TerminalAsker
    from tailrace.cli.screen.sanitize import sanitized_line

    cancel_on_sigterm()
    async with open_app(config) as app:
        await app.models.make_ready(named(config, options.model))
        if options.session and sys.stderr.isatty() and await is_new_session(app.journal, options.session):
            print_status(f"there is no session {sanitized_line(options.session, 80)} yet: this question begins it")
        if files := files_named(typed_question, Path.cwd()):
            names = sanitized_line(", ".join(files), 200)
            print_status(f"sent as text: {names}; files come along in a conversation, {typed('chat')}")
        asker = TerminalAsker.open()
        shot = OneShot(
            app, streamed=options.streamed, as_json=as_json, reasoning=options.reasoning, asker=asker, footer=True
        )
        try:
            code = await shot.ask(turn_of(options, question), options.session)
        finally:
            if asker is not None:
                asker.close()
        if stdin_is_unread():
            print_status("stdin was not read; with a - after the question it goes along")
        return code


async def _converse(config: Config, options: Options) -> int:
    from tailrace.app import open_app
    from tailrace.app.models import named
    from tailrace.cli.chat.conversation import Conversation

    async with open_app(config) as app:
        await app.models.make_ready(named(config, options.model))
        conversation = Conversation(app, options)
        surface = import_module("tailrace.cli.chat.screen_chat" if _can_draw(config) else "tailrace.cli.chat.line_chat")
        return int(await surface.converse(conversation))


def _stdin() -> str:
    return sys.stdin.buffer.read().decode(errors="replace")


def stdin_is_unread() -> bool:
    """Whether stdin is a file that was not read yet, or a pipe with something in it."""
    try:
        stdin = sys.stdin.fileno()
        about = os.fstat(stdin)
        if stat.S_ISREG(about.st_mode):
            return about.st_size > 0 and os.lseek(stdin, 0, os.SEEK_CUR) == 0
        return stat.S_ISFIFO(about.st_mode) and unread_bytes(stdin) > 0
    except (AttributeError, OSError, ValueError):  # closed, or none of the system's
        return False


def _can_draw(config: Config) -> bool:
    """Whether stdout is a terminal that can move its cursor."""
    return sys.stdout.isatty() and (config.environment.get("TERM") or "dumb") not in ("dumb", "unknown")
