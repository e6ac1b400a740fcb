"""A session's runs put together into `SessionRuns`, and the search in what was asked and answered. Pure.

A run is stored as JSON: a search first looks for a piece of its text that JSON writes as it is, and decodes a run only
where it finds that.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from tailrace.messages import JsonObject, SpentTokens, Usage
from tailrace.ports import ENDED, Run, RunState, SessionRuns

MAX_S: Final = 1.0  # per search; the next page goes on
SESSIONS_AT_ONCE: Final = 50
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]+")  # ASCII that JSON does not escape
_WILD: Final = re.compile(r"([\\%_])")


class _Outcome(msgspec.Struct):
    """What is read of a stored `RunFinished`: the output is skipped."""

    usage: Usage = Usage()
    spent: tuple[SpentTokens, ...] | msgspec.UnsetType = msgspec.UNSET


_OUTCOME = msgspec.json.Decoder(_Outcome)


class SessionTotals:
    """Counts the runs of one session, oldest first."""

    def __init__(self) -> None:
        self.runs = 0
        self.first = self.newest = ""
        self._under_way: list[str] = []
        self._usage = Usage()
        self._spent: dict[tuple[str, str], Usage] = {}

    def add_row(self, run_id: str, state: RunState, outcome: bytes | None) -> None:
        """A run as it is stored."""
        self.runs += 1
        self.first, self.newest = self.first or run_id, run_id
        if state in ("pending", "running"):
            self._under_way.append(run_id)
        if state not in ENDED or outcome is None:
            return
        finished = _OUTCOME.decode(outcome)
        self._usage += finished.usage
        for each in finished.spent or ():
            who = (each.provider, each.model)
            self._spent[who] = self._spent.get(who, Usage()) + each.usage

    def session(self, name: str, first: Run, newest: Run) -> SessionRuns:
        spent = tuple(SpentTokens(*who, used) for who, used in self._spent.items())
        return SessionRuns(name, self.runs, first, newest, tuple(self._under_way), self._usage, spent)


class _Asked(msgspec.Struct):
    """What is read of a `NewRun`."""

    input: dict[str, Any] = {}


class _Answered(msgspec.Struct):
    """What is read of a `RunFinished`."""

    output: str = ""


_ASKED: Final = msgspec.json.Decoder(_Asked)
_ANSWERED: Final = msgspec.json.Decoder(_Answered)


def question_text(given: JsonObject) -> str:
    """The text of the message in a turn's input; empty for an input of another kind."""
    message = given.get("message")
    parts = message.get("parts") if isinstance(message, dict) else None
    texts = [part.get("text") for part in parts or () if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


class TextSearch:
    """Finds a text in upper or lower case, as it is: it has no wild cards."""

    def __init__(self, wanted: str) -> None:
        self._lower = wanted.lower()
        plain: str = max(_PLAIN.findall(self._lower), key=len, default="")
        self._plain = plain.encode()

    @property
    def like(self) -> str:
        """A pattern for SQL's LIKE that every stored run with the text matches; others may match too."""
        escaped = _WILD.sub(r"\\\1", self._plain.decode())
        return f"%{escaped}%"

    def is_in(self, text: str) -> bool:
        return self._lower in text.lower()

    def is_in_run(self, new: bytes, outcome: bytes | None) -> bool:
        """Whether the question or the answer of a stored run has the text."""
        return (self._plain in new.lower() and self.is_in(question_text(_ASKED.decode(new).input))) or (
            outcome is not None and self._plain in outcome.lower() and self.is_in(_ANSWERED.decode(outcome).output)
        )
