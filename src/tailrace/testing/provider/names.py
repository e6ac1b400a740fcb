"""The language in which a scenario is named, so that a model's name can choose one.

A name is terms joined by `+`, at most one reply and any number of faults: `tools+crlf+cut@120`. Offsets are bytes of
the response body or per cent of it: `cut@50%`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tailrace.messages import Value
from tailrace.testing.provider.edits import ALL, EDITS, Edit
from tailrace.testing.provider.replies import REPLIES
from tailrace.testing.provider.scenario import (
    Break,
    BreakKind,
    Framing,
    Instead,
    Offset,
    Scenario,
    Status,
    UnknownScenario,
)
from tailrace.testing.scripted.failures import BY_STATUS, FAILURES

HUGE_RETRY_AFTER_S = 31_536_000  # a year
_STATUS = re.compile(r"status-(\d{3})(?:-after-(?:(huge)|date-(\d+)|(\d+(?:\.\d+)?))|-(html))?")
_STATUSES = ", ".join(str(status) for status in sorted(BY_STATUS))


class Term(Value):
    """A word of the language. `argument` shows how its argument is written, with `?` where it may be left out."""

    summary: str
    apply: Callable[[Scenario, str], Scenario]
    argument: str = ""


def _break(summary: str, kind: BreakKind, argument: str = "@N") -> Term:
    return Term(summary, lambda made, at: replace(made, broken=Break(kind, _offset(at) if at else None)), argument)


def _instead(summary: str, what: Instead) -> Term:
    return Term(summary, lambda made, _: replace(made, instead=what))


def _framing(summary: str, how: Framing) -> Term:
    return Term(summary, lambda made, _: replace(made, framing=(*made.framing, how)))


def _drip(made: Scenario, size: str) -> Scenario:
    return replace(made, write_bytes=max(1, int(_number(size or "1"))))


def _only_comments(made: Scenario, _: str) -> Scenario:
    return replace(made, broken=Break("comments", Offset(0)))


class _Words(Value):
    framing: dict[Framing, str]
    instead: dict[Instead, str]


_WORDS = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Words)
DELIVERY: dict[str, Term] = {
    "cut": _break("the connection is closed at that byte", "cut"),
    "reset": _break("the connection is reset at that byte", "reset"),
    "end": _break("the body ends at that byte as if it were complete", "end"),
    "stall": _break("silence from that byte on, the connection open", "stall"),
    "half-close": _break("at that byte the server shuts its sending side, and reads on", "half-close"),
    "pings": _break("from the last event before that byte on, keep-alives for ever", "pings", "@N?"),
    "only-comments": Term("comments for ever and nothing else", _only_comments),
    "endless-line": _break("from the last event before that byte on, a line without end", "endless-line", "@N?"),
    "drip": Term("the body in writes of N bytes, one byte if not said", _drip, "@N?"),
    "pace": Term("so many seconds between writes", lambda made, s: replace(made, pace_s=_number(s)), "@S"),
    "slow-headers": Term(
        "so many seconds before the status line", lambda made, s: replace(made, headers_after_s=_number(s)), "@S"
    ),
    "silence": _instead("the request is read and nothing ever comes, not even a status line", "silence"),
    "drop": _instead("the connection is closed without a byte, as a dead pooled one is", "drop"),
}
INSTEAD: dict[str, Term] = {
    **{name: _instead(summary, name) for name, summary in _WORDS.instead.items()},
    "refuses": Term(
        "a 400 that names this field, dotted, where the request has it",
        lambda made, field: replace(made, refuses=(*made.refuses, field)),
        "@FIELD",
    ),
    "if-streamed": Term(
        "the other faults hold for a stream alone: asked whole, the answer comes",
        lambda made, _: replace(made, streams_only=True),
    ),
}
STATUSES: dict[str, str] = {
    "status-CODE": f"an error: {_STATUSES}",
    "status-CODE-after-S": "the same with Retry-After in seconds",
    "status-CODE-after-date-S": "the same with Retry-After as a date that far ahead",
    "status-CODE-after-huge": "the same with a Retry-After of a year",
    "status-CODE-html": "the same with a proxy's HTML page as the body",
}
ERRORS: dict[str, str] = {
    "error-KIND": f"half-way the stream reports an error and ends: {', '.join(FAILURES)}",
    "first-error-KIND": "the same as the first event of the stream",
}
FRAMING: dict[str, Term] = {name: _framing(summary, name) for name, summary in _WORDS.framing.items()}


def scenario(name: str) -> Scenario:
    """The scenario of that name. Raises `UnknownScenario`."""
    made, chosen = Scenario(name=name), ""
    for term in name.split("+"):
        word, _, argument = term.partition("@")
        if word not in REPLIES or argument:
            made = _apply(made, word, argument)
        elif chosen:
            raise UnknownScenario(f"'{name}' names two replies: '{chosen}' and '{word}'")
        else:
            made, chosen = replace(made, reply=REPLIES[word].reply), word
    needed = next((EDITS[edit].needs for edit in made.edits if EDITS[edit].needs), "")
    return made if chosen or not needed else replace(made, reply=REPLIES[needed].reply)


def catalogue() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Every term there is, under headings, with what it does."""
    yield "replies", [(name, named.summary) for name, named in REPLIES.items()]
    instead = [(name + term.argument, term.summary) for name, term in INSTEAD.items()]
    yield "instead of the reply", [*instead, *STATUSES.items()]
    yield "delivery", [(name + term.argument, term.summary) for name, term in DELIVERY.items()]
    yield "framing", [(name, term.summary) for name, term in FRAMING.items()]
    yield (
        "events",
        [(name, _described(edit)) for name, edit in EDITS.items() if "error-" not in name] + [*ERRORS.items()],
    )


def _described(edit: Edit) -> str:
    return edit.summary if edit.dialects == ALL else f"{edit.summary} [{', '.join(edit.dialects)}]"


def _apply(made: Scenario, word: str, argument: str) -> Scenario:
    if found := _STATUS.fullmatch(word):
        return replace(made, status=_status(found))
    if word in EDITS and not argument:
        return replace(made, edits=(*made.edits, word))
    term = DELIVERY.get(word) or INSTEAD.get(word) or FRAMING.get(word)
    if term is None:
        raise UnknownScenario(f"no scenario term '{word}'; python -m tailrace.testing.provider --list shows them all")
    if bool(argument) != bool(term.argument) and not term.argument.endswith("?"):
        written = f"{word}@{argument}" if argument else word
        raise UnknownScenario(f"write '{word}{term.argument}', not '{written}'")
    return term.apply(made, argument)


def _status(found: re.Match[str]) -> Status:
    code, huge, date, seconds, html = found.groups()
    if int(code) not in BY_STATUS:
        raise UnknownScenario(f"status {code} is none of {_STATUSES}")
    retry_after = str(HUGE_RETRY_AFTER_S) if huge else f"date:{date}" if date else seconds or ""
    return Status(int(code), retry_after, bool(html))


def _offset(text: str) -> Offset:
    return Offset(_number(text.removesuffix("%")), text.endswith("%"))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e12:
        raise UnknownScenario(f"'{text}' is not a number of 0 or more")
    return number
