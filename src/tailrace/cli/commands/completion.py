"""`tailrace completion bash|zsh|fish`: a script for the shell that completes commands and their options.

The options are read from the commands themselves when the script is made.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Final

from tailrace.cli.main import DONE, all_commands, parser_of
from tailrace.errors import ConfigError
from tailrace.system.private_apis import parser_actions

SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="for bash: source <(tailrace completion bash)")


def run(args: argparse.Namespace) -> int:
    words = {name: options_of(name) for name in all_commands()}
    make = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]
    sys.stdout.write(make(words))
    return DONE


def options_of(name: str) -> list[str]:
    """The long options of a command, and the choices of its arguments; none of a command that cannot be loaded."""
    words: list[str] = []
    try:
        parser = parser_of(name)
    except ConfigError:
        return words
    for action in parser_actions(parser):
        words += [option for option in action.option_strings if option.startswith("--")]
        if not action.option_strings and action.choices:
            words += [str(choice) for choice in action.choices]
    return sorted(words)


def _bash(words: dict[str, list[str]]) -> str:
    cases = "".join(f"    {name}) words='{' '.join(options)}' ;;\n" for name, options in words.items())
    return (
        "_tailrace() {\n"
        "  local words\n"
        '  if [ "$COMP_CWORD" -eq 1 ]; then\n'
        f"    words='{' '.join(words)} --help --version'\n"
        "  else\n"
        '    case "${COMP_WORDS[1]}" in\n'
        f"{cases}"
        "    esac\n"
        "  fi\n"
        '  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))\n'
        "}\n"
        "complete -o default -F _tailrace tailrace\n"
    )


def _zsh(words: dict[str, list[str]]) -> str:
    commands = "".join(f"    {shlex.quote(f'{name}:{all_commands()[name].help}')}\n" for name in words)
    cases = "".join(f"    {name}) compadd -- {' '.join(options)} ;;\n" for name, options in words.items())
    return (
        "#compdef tailrace\n"
        "_tailrace() {\n"
        "  if (( CURRENT == 2 )); then\n"
        "    local -a commands=(\n"
        f"{commands}"
        "    )\n"
        "    _describe command commands\n"
        "    return\n"
        "  fi\n"
        "  case $words[2] in\n"
        f"{cases}"
        "  esac\n"
        "  _files\n"
        "}\n"
        "compdef _tailrace tailrace\n"
    )


def _fish(words: dict[str, list[str]]) -> str:
    lines = [
        f"complete -c tailrace -n __fish_use_subcommand -a {name} -d {_fish_quoted(all_commands()[name].help)}"
        for name in words
    ]
    for name, options in words.items():
        for option in options:
            what = f"-l {option[2:]}" if option.startswith("--") else f"-a {option}"
            lines.append(f"complete -c tailrace -n '__fish_seen_subcommand_from {name}' {what}")
    return "\n".join(lines) + "\n"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
