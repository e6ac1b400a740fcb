"""The first screen: who answers, where, with which tools, what to try, and how to get a real model.

Pure: what is known in, rows out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tailrace.cli.screen.painter import Rows
from tailrace.cli.screen.sanitize import sanitized_line

_Row = tuple[tuple[str, str], ...]
_EMPTY: Final[_Row] = (("", ""),)
_TOOLS_ROOM: Final = 150  # characters of the names of tools


class WelcomeFacts(msgspec.Struct, frozen=True):
    version: str
    model: str  # <provider>/<model>
    directory: str
    tools: tuple[str, ...] = ()
    embedded: bool = False  # the model is the small one that comes along
    yolo: bool = False
    file: str = ""  # one in the directory, to try "@" with
    is_repository: bool = False
    init: str = "tailrace init"  # as it can be typed


def welcome(facts: WelcomeFacts) -> Rows:
    tools = _listed(facts.tools) if facts.tools else "none: this model only talks"
    model: _Row = (("  model      ", "dim"), (facts.model, "bold"))
    if facts.embedded:
        model = (*model, ("  small and often wrong: for a first look", "dim"))
    rows: list[_Row] = [
        _EMPTY,
        (("● ", "bold cyan"), ("tailrace", "bold"), (f" {facts.version}", "dim")),
        _EMPTY,
        model,
        (("  directory  ", "dim"), (facts.directory, "")),
        (("  tools      ", "dim"), (tools, "")),
    ]
    if facts.yolo:
        rows.append((("  yolo       ", "dim"), ("nothing is asked before it runs", "yellow")))
    rows += [_EMPTY, (("  Try", "cyan"),)]
    rows += [(("    ", ""), (line, "")) for line in _examples(facts)]
    if facts.embedded:
        rows += [_EMPTY, (("  A real model", "cyan"),), *_real_model(facts.init)]
    keys = "Enter sends · Ctrl-C stops · Ctrl-D leaves · /help lists the commands"
    return Rows((*rows, _EMPTY, (("  ", ""), (keys, "dim"))), indent=0)


def _listed(names: Sequence[str]) -> str:
    """As many names as two or three lines have room for, each whole, and how many there are beside them."""
    shown: list[str] = []
    for name in names:
        line = ", ".join([*shown, sanitized_line(name, 60)])
        if len(line) > _TOOLS_ROOM:
            return f"{', '.join(shown)} and {len(names) - len(shown)} more"
        shown.append(sanitized_line(name, 60))
    return ", ".join(shown)


def _examples(facts: WelcomeFacts) -> tuple[str, str, str]:
    talk = "What is in this directory?" if facts.tools else "Write a limerick about a water mill."
    file = f"Explain @{facts.file} in three sentences." if facts.file else "How does a water wheel work?"
    command = "!git log --oneline -5" if facts.is_repository else "!ls -l"
    return talk, file, f"{command}   and then: what do you make of this?"


def _real_model(init: str) -> list[_Row]:
    return [
        ((f"    {init}", "bold"), ("   finds a key or an Ollama, and writes the config", "dim")),
        (("    /model ollama/qwen3:8b", "bold"), ("   or another, for this conversation", "dim")),
    ]


def cut_off(question: str, age: str) -> Rows:
    """An answer was cut off when its terminal died."""
    bar = ("▌ ", "bold yellow")
    return Rows(
        (
            _EMPTY,
            (bar, (f"An answer was cut off when its terminal died, {age}:", "bold yellow")),
            (bar, (f"“{sanitized_line(question, 160)}”", "bold")),
            (bar, ("Enter", "bold yellow"), (" joins it and goes on; or just ask something else.", "yellow")),
        ),
        indent=0,
    )
