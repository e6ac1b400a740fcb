"""The line below the input: model · directory · context left · tokens · cost · time, and what Ctrl-C does meanwhile.

Pure: facts and a width in, styled text out. What does not fit is left out whole, the least important first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tailrace.app.costs import dollars
from tailrace.cli.words import count, duration

QUIET: Final = "fg:ansibrightblack"
_SEPARATOR: Final = " · "


class StatusFacts(msgspec.Struct, frozen=True):
    model: str
    directory: str = ""
    context_tokens: int = 0  # of the last call
    context_window: int | None = None
    tokens: int = 0
    cost_usd: float | None = None
    turn_s: float | None = None  # how long the last turn took, or has taken
    running: str = ""  # what is happening: "answering", "waiting for your answer"; empty while idle
    interrupt_means: str = ""  # what Ctrl-C does now
    switches: tuple[str, ...] = ()  # yolo, verbose …


def status_line(facts: StatusFacts, width: int) -> list[tuple[str, str]]:
    """In order of importance when room is short: what runs, the model, how to stop it, context, cost, time …"""
    running = facts.running
    if running and facts.turn_s is not None:
        running += f" {duration(facts.turn_s)}"
    parts: list[tuple[int, str, str]] = [  # the smaller the first, the longer it stays
        (0, "fg:ansicyan", running),
        (1, "fg:ansiyellow", facts.interrupt_means if facts.running else ""),
        (2, QUIET, facts.model),
        (3, "fg:ansiyellow", _SEPARATOR.join(facts.switches)),
        (6, QUIET, facts.directory),
        (4, *_context(facts)),
        (7, QUIET, f"{count(facts.tokens)} tokens" if facts.tokens else ""),
        (5, QUIET, dollars(facts.cost_usd)),
        (8, QUIET, duration(facts.turn_s) if facts.turn_s is not None and not facts.running else ""),
        (9, QUIET, "" if facts.running else "/help"),
    ]
    shown = [part for part in parts if part[2]]
    while len(shown) > 1 and _length(shown) > width:
        shown.remove(max(shown))
    line: list[tuple[str, str]] = []
    for number, (_, style, text) in enumerate(shown):
        line += [(QUIET, _SEPARATOR)] if number else []
        line.append((style, text if len(text) <= width else f"{text[: max(1, width - 1)]}…"))
    return line


def _length(parts: Sequence[tuple[int, str, str]]) -> int:
    return sum(len(text) for _, _, text in parts) + len(_SEPARATOR) * (len(parts) - 1)


def _context(facts: StatusFacts) -> tuple[str, str]:
    if not facts.context_window or not facts.context_tokens:
        return QUIET, ""
    left = max(0, 100 - round(100 * facts.context_tokens / facts.context_window))
    return ("fg:ansired bold" if left <= 10 else "fg:ansiyellow" if left <= 25 else QUIET), f"{left}% context left"


def short_path(path: Path, home: Path | None, limit: int = 32) -> str:
    """With `~` for the home directory, and the middle left out where it is long."""
    text = str(path)
    if home is not None and path.is_relative_to(home) and home != Path("/"):
        text = "~" if path == home else f"~/{path.relative_to(home)}"
    return text if len(text) <= limit else f"…/{text[-limit + 2 :].partition('/')[2] or text[-limit + 2 :]}"
