"""The first screen: who answers, where, with which tools, and how to get a real model.

`facts_of` asks what is known; the rest is pure: facts in, rows out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tailrace import __version__
from tailrace.app.models import LOCAL
from tailrace.cli.chat.conversation import Conversation
from tailrace.cli.chat.status_line import short_path
from tailrace.cli.screen.painter import Rows
from tailrace.cli.screen.sanitize import sanitized_line
from tailrace.system.own_program import typed

_Row = tuple[tuple[str, str], ...]
_EMPTY: Final[_Row] = (("", ""),)
_TOOLS_ROOM: Final = 150  # characters


class WelcomeFacts(msgspec.Struct, frozen=True):
    version: str
    model: str  # <provider>/<model>
    directory: str
    tools: tuple[str, ...] = ()
    embedded: bool = False  # the model is the small one that comes along
    yolo: bool = False
    init: str = "tailrace init"  # as it can be typed
    rules: tuple[str, ...] = ()  # the files with rules of the project


def facts_of(conversation: Conversation, home: Path) -> WelcomeFacts:
    choice, app = conversation.choice, conversation.app
    return WelcomeFacts(
        __version__,
        f"{choice.provider}/{choice.name}",
        short_path(app.directory, home, limit=80),
        app.offered_tools(conversation.options.model),
        choice.provider == LOCAL,
        conversation.options.yolo or app.config.yolo,
        typed("init"),
        tuple(short_path(path, home, limit=60) for path in app.rules_of(app.directory).files),
    )


def welcome(facts: WelcomeFacts) -> Rows:
    tools = sanitized_line(", ".join(facts.tools), _TOOLS_ROOM) or "none: this model only talks"
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
    if facts.rules:
        rows.append((("  rules      ", "dim"), (sanitized_line(", ".join(facts.rules), _TOOLS_ROOM), "")))
    if facts.yolo:
        rows.append((("  yolo       ", "dim"), ("nothing is asked before it runs", "yellow")))
    if facts.embedded:
        rows += [_EMPTY, (("  A real model", "cyan"),), *_real_model(facts.init)]
    keys = "Enter sends · @file adds a file · Ctrl-C stops · /help lists the commands"
    return Rows((*rows, _EMPTY, (("  ", ""), (keys, "dim"))), indent=0)


def _real_model(init: str) -> list[_Row]:
    other = "/model ollama/qwen3:8b"
    width = max(len(init), len(other))
    return [
        ((f"    {init:<{width}}", "bold"), ("   finds a key or an Ollama, and writes the config", "dim")),
        ((f"    {other:<{width}}", "bold"), ("   or another, for this conversation", "dim")),
    ]


def cut_off(question: str, age: str, *, taken_over: bool = False) -> Rows:
    """An answer was cut off when its terminal died. `taken_over`: another process goes on with it."""
    what = "goes on in another process" if taken_over else "was cut off when its terminal died"
    then = (
        " watches it; or just ask something else."
        if taken_over
        else " joins it and goes on; or just ask something else."
    )
    bar = ("▌ ", "bold yellow")
    return Rows(
        (
            _EMPTY,
            (bar, (f"An answer {what}, {age}:", "bold yellow")),
            (bar, (f"“{sanitized_line(question, 160)}”", "bold")),
            (bar, ("Enter", "bold yellow"), (then, "yellow")),
        ),
        indent=0,
    )
