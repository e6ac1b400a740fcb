"""What an action is found to be, and the program start that is judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from tailrace.agent.safety.rules.places import Places
from tailrace.agent.safety.words import Word

Verdict = Literal["allow", "ask", "refuse"]
_RANK: dict[Verdict, int] = {"allow": 0, "ask": 1, "refuse": 2}


class Assessment(NamedTuple):
    verdict: Verdict
    reason: str = ""


HARMLESS = Assessment("allow")


def ask(reason: str) -> Assessment:
    return Assessment("ask", reason)


def refuse(reason: str) -> Assessment:
    return Assessment("refuse", reason)


def graver(*assessments: Assessment) -> Assessment:
    """The one that counts most; the first where they are equal."""
    return max(assessments, key=lambda assessment: _RANK[assessment.verdict], default=HARMLESS)


class ProgramStart(NamedTuple):
    """One program with its arguments, where it may run, and the here-documents that it reads."""

    name: str
    words: Sequence[Word]
    places: Places
    documents: Sequence[Word] = ()

    @property
    def args(self) -> list[str]:
        return [word.text for word in self.words]


Rule = Callable[[ProgramStart], Assessment]


def judge_target(target: Word, places: Places) -> Assessment:
    """What writing to this path would do."""
    path = target.text
    if path.startswith("/proc/sysrq"):
        return refuse("turns the machine off")
    if places.is_disk(path):
        return refuse(f"writes to the device {path}")
    if target.dynamic and not path:
        return ask("writes to a file that is known only when it runs")
    if places.sensitive(path) or places.leads_outside(path):
        return ask(f"writes to {path}")
    return HARMLESS
