"""The entry point of the command line: the table of commands, and their exit codes.

A command is a module with `add_arguments(parser)` and `run(args, config) -> int`. It is imported when it is called and
not before. Where one module serves several commands, `parser.get_default("command")` and `args.command` tell which one
runs. Integrations have commands too; they are looked up when a word is none of the commands here.

Exit codes: 0 done, 1 failed, 2 usage, 3 incomplete, 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from tailrace import __version__
from tailrace.errors import ConfigError, TailraceError
from tailrace.plugins import CliCommand

if TYPE_CHECKING:
    from types import ModuleType

    from tailrace.app.telemetry.logging_setup import Level
    from tailrace.config.load import Config
    from tailrace.plugins.installed import Installed

DONE, FAILED, USAGE, INCOMPLETE, INTERRUPTED = 0, 1, 2, 3, 130
DEFAULT_COMMAND = "chat"
NEAR_COMMAND = 0.75  # difflib's ratio: "chta" is near "chat", "hello" near nothing
# What other programs call it, where it is the only word: such a word is no question.
ELSEWHERE = {
    **dict.fromkeys(("setup", "configure", "config", "login", "auth", "models"), "init"),
    **dict.fromkeys(("status", "list", "sessions"), "runs"),
    **dict.fromkeys(("watch", "logs"), "tail last"),
    **dict.fromkeys(("start", "web", "dashboard"), "serve"),
} | {"install": "add", "last": "show last", "resume": "chat --session ID", "undo": "rollback", "cost": "usage"}
OPTIONS = {"help": "--help", "version": "--version"}  # as words
# A closed pipe, a full disk, a quota, a limit of size.
UNWRITABLE = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
LOG_LEVELS = ("debug", "info", "warning")


COMMANDS: dict[str, CliCommand] = {
    "chat": CliCommand(
        "chat in the terminal; with a question, ask only that",
        ".commands.chat",
        starts_programs=True,
        mixed=True,
        group="talk",
    ),
    "rollback": CliCommand("undo a turn's changes", ".commands.rollback", group="talk"),
    "runs": CliCommand("list the latest runs", ".runs.commands", group="look"),
    "show": CliCommand("show one run", ".runs.commands", group="look"),
    "tail": CliCommand("watch one run live", ".runs.commands", group="look"),
    "stop": CliCommand("stop one run", ".runs.commands", group="look"),
    "top": CliCommand("the live runs of every process", ".runs.top", group="look"),
    "usage": CliCommand("what was used and what it cost, by key, model and day", ".usage.command", group="look"),
    "serve": CliCommand(
        "the API, the web page and every enabled platform", ".commands.serve", starts_programs=True, group="serve"
    ),
    "gateway": CliCommand("the chat platforms alone", ".commands.gateway", starts_programs=True, group="serve"),
    "reload": CliCommand(
        "running servers take up the platforms, keys and models of the config", ".commands.reload", group="serve"
    ),
    "flow": CliCommand("run, check, draw and control sequences", ".commands.flow", starts_programs=True, group="flows"),
    "init": CliCommand("find a model, try it, and write a config", ".setup.init", reads_config=False),
    "add": CliCommand("connect a chat platform", ".setup.add", reads_config=False),
    "doctor": CliCommand("check the set-up", ".setup.doctor", reads_config=False),
    "import": CliCommand("take over the settings of Hermes", ".setup.import_settings", reads_config=False),
    "approvals": CliCommand("list what was approved for always, and withdraw it", ".commands.approvals"),
    "keys": CliCommand("make, list and revoke keys of the API", ".commands.keys"),
    "backup": CliCommand("copy the journal to a file while it is in use", ".commands.backup"),
    "decode": CliCommand("what a recorded stream says, as JSON", ".commands.decode", reads_config=False),
    "demo": CliCommand("a minute of faults, without a key", ".commands.demo", reads_config=False),
}


def all_commands() -> dict[str, CliCommand]:
    """With those of the integrations."""
    return COMMANDS | {name: command for name, (_, command) in _integration_commands().items()}


def _integration_commands() -> dict[str, tuple[Installed, CliCommand]]:
    from tailrace.plugins.installed import installed  # looking them up takes longer than most commands take to start

    return {
        name: (found, command)
        for found in installed().values()
        for name, command in found.integration.commands.items()
        if name not in COMMANDS
    }


class Parser(argparse.ArgumentParser):
    """Prints mistakes in the format of every other error."""

    def error(self, message: str) -> NoReturn:
        if meant := self._meant(message):
            message = meant
        elif "are required" in message:
            self.print_help(sys.stderr)
        else:
            self.print_usage(sys.stderr)
        print_error(message)
        self.exit(USAGE)

    def _meant(self, message: str) -> str:
        """What to say of a mistyped option or word; empty for other mistakes."""
        unknown = message.removeprefix("unrecognized arguments: ").split(" ")[0].partition("=")[0]
        options = [*re.findall(r"(?<![\w-])--[a-z-]+", self.format_help()), "--version"]
        if unknown.startswith("--") and (close := get_close_matches(unknown, options, n=1, cutoff=NEAR_COMMAND)):
            return f"no option {unknown}; did you mean {close[0]}?"
        if choice := re.search(r"invalid choice: '([^']+)' \(choose from (.+)\)", message):
            close = get_close_matches(choice[1], re.findall(r"[\w-]+", choice[2]), n=1)
            return f"there is no {choice[1]!r}; did you mean {close[0]}?" if close else ""
        return ""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. `--help` and a wrong use end in `SystemExit`, as argparse does."""
    _open_closed_streams()
    try:
        code = _run(_with_command(sys.argv[1:] if argv is None else list(argv)))
        sys.stdout.flush()  # a closed pipe is noticed here, not while the interpreter shuts down
    except TailraceError as exc:
        print_error(str(exc))
        return FAILED
    except OSError as exc:
        if exc.errno not in UNWRITABLE:
            raise
        if exc.errno != errno.EPIPE:  # who closes a pipe knows it
            print_error(f"{exc.filename or 'the output'} cannot be written: {exc.strerror}")
        # What is still buffered must not be flushed at exit: it would fail once more, with a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _open_closed_streams() -> None:
    """A standard stream that the caller has closed (`>&-`) leads nowhere. Left closed, its number would be given to the
    next file or connection, which the event loop refuses to close, and which stray output would be written to."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(nowhere, True)  # for what a command starts the same holds
            setattr(sys, name, open(nowhere, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115 - for as long as the process lives


def print_error(message: str) -> None:
    """One line on stderr. Control characters are escaped (J122)."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
    print(f"error: {shown}", file=sys.stderr)  # noqa: T201 - the one place that prints errors


def _with_command(argv: list[str]) -> list[str]:
    """`tailrace` alone, with options of `chat`, or with a question is `tailrace chat`. A word that looks like a
    command's name is a mistake and no question."""
    if not argv:
        return [DEFAULT_COMMAND]
    first = argv[0]
    if first.partition("=")[0] == "--log-level":  # every command takes it, so it may stand before each
        count = 1 if "=" in first else 2
        command, *rest = _with_command(argv[count:])
        return [command, *argv[:count], *rest]
    if first in COMMANDS or first in {"-h", "--help", "--version"} or (_is_word(first) and first in all_commands()):
        return argv
    if first == "help" or argv in (["version"], ["-v"], ["-V"]):
        return ["--help" if first == "help" else "--version"]
    if meant := near_command(first, alone=len(argv) == 1):
        print_error(f"no command {first!r}; did you mean {meant}? chat -q asks it as a question")
        raise SystemExit(USAGE)
    return [DEFAULT_COMMAND, *argv]


def near_command(word: str, *, alone: bool = False) -> str | None:
    """The command that a mistyped word stands for; None for a question. `alone`: it is the only word."""
    if not _is_word(word):
        return None
    from tailrace.plugins.installed import platforms

    known = {name: name for name in all_commands()}
    if alone:
        known |= ELSEWHERE | OPTIONS | {name: f"add {name}" for name in platforms()}
    return next((known[name] for name in get_close_matches(word.lower(), known, n=1, cutoff=NEAR_COMMAND)), None)


def _is_word(text: str) -> bool:
    """Whether the text may be the name of a command: it is no option and no question."""
    return not text.startswith("-") and not any(c.isspace() for c in text)


def _run(argv: list[str]) -> int:
    name = argv[0]
    if name.startswith("-"):
        _parser(COMMANDS if name == "--version" else all_commands()).parse_args(argv)  # each exits here
        raise AssertionError(f"argparse let {name!r} pass")
    command, module = _command(name)
    parser = parser_of(name)
    args = (parser.parse_intermixed_args if command.mixed else parser.parse_args)(argv[1:])
    if not command.reads_config:
        return int(module.run(args))

    from tailrace.config.load import load

    config = load(os.environ)
    try:
        if command.starts_programs:
            _hide_secrets(config)
        if args.log_level:
            _log_to_stderr(config, args.log_level)
        return int(module.run(args, config))
    except ConfigError as exc:
        raise with_origin(exc, args, config) from exc


def with_origin(problem: ConfigError, args: argparse.Namespace, config: Config) -> ConfigError:
    """The same error with the file and the line of its key. What an option has set instead stands in no file."""
    from tailrace.config.error_place import with_place

    section, _, name = problem.key.partition(".")
    is_of_option = section == "server" and getattr(args, name, None) is not None
    return problem if is_of_option else with_place(problem, config)


def _hide_secrets(config: Config) -> None:
    from tailrace.app.secrets.config_secrets import secrets_of
    from tailrace.app.secrets.own_environment import hide_secrets

    hide_secrets(secrets_of(config))


def _command(name: str) -> tuple[CliCommand, ModuleType]:
    """Raises `ConfigError` for an integration's command that cannot be loaded."""
    if (own := COMMANDS.get(name)) is not None:
        return own, import_module(f"tailrace.cli{own.module}")
    found, command = _integration_commands()[name]
    return command, found.load(command.module)


def parser_of(name: str) -> Parser:
    """The parser of one command. Every command takes `--log-level`."""
    command, module = _command(name)
    parser = Parser(prog=f"tailrace {name}", description=command.help)
    parser.set_defaults(command=name)
    module.add_arguments(parser)
    add_log_level(parser)
    return parser


def add_log_level(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    """For a parser below a command's own, the default is `argparse.SUPPRESS`: what stood before it holds."""
    shown = "log to stderr; debug traces each decision of a run"
    parser.add_argument("--log-level", choices=LOG_LEVELS, default=default, help=shown)


def _log_to_stderr(config: Config, level: Level) -> None:
    from tailrace.app.secrets.config_secrets import redactor_of
    from tailrace.app.telemetry.logging_setup import configure

    configure(redactor_of(config), level=level)


def _parser(listed: Mapping[str, CliCommand]) -> Parser:
    """The top level: only for its help, with the commands in their groups, and for `--version`."""
    groups: dict[str, list[str]] = {}
    for name, command in listed.items():
        groups.setdefault(command.group, []).append(f"  {name:<11} {command.help}")
    parser = Parser(
        prog="tailrace",
        usage='tailrace [-h] [--version] COMMAND …\n       tailrace "a question"',
        description="Runs an agent once, keeps every token in a log, and lets everyone watch it live.\n"
        "Without a command: tailrace chat. At first: tailrace init, or tailrace demo.",
        epilog="\n\n".join("\n".join([f"{group}:", *lines]) for group, lines in groups.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tailrace {__version__}")
    return parser
