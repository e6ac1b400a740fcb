"""A session's runs put together into `SessionRuns`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from tailrace.messages import SpentTokens, Usage
from tailrace.ports import ENDED, Run, RunState, SessionRuns


class _Outcome(msgspec.Struct):
    """What is read of a stored `RunFinished`: the output is skipped."""

    usage: Usage = Usage()
    spent: tuple[SpentTokens, ...] | msgspec.UnsetType = msgspec.UNSET


_NOTHING = _Outcome()
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
        self._add(run_id, state, _OUTCOME.decode(outcome) if state in ENDED and outcome is not None else _NOTHING)

    def add(self, run: Run) -> None:
        finished = run.finished
        self._add(run.id, run.state, _NOTHING if finished is None else _Outcome(finished.usage, finished.spent))

    def _add(self, run_id: str, state: RunState, outcome: _Outcome) -> None:
        self.runs += 1
        self.first, self.newest = self.first or run_id, run_id
        if state in ("pending", "running"):
            self._under_way.append(run_id)
        self._usage += outcome.usage
        self.add_spent(outcome.spent or ())

    def add_spent(self, spent: Iterable[SpentTokens]) -> None:
        for each in spent:
            who = (each.provider, each.model)
            self._spent[who] = self._spent.get(who, Usage()) + each.usage

    def session(self, name: str, first: Run, newest: Run) -> SessionRuns:
        spent = tuple(SpentTokens(*who, used) for who, used in self._spent.items())
        return SessionRuns(name, self.runs, first, newest, tuple(self._under_way), self._usage, spent)


def session_of(name: str, runs: Iterable[Run]) -> SessionRuns:
    """Of all runs of the session, oldest first. There must be one."""
    known, totals = list(runs), SessionTotals()
    for run in known:
        totals.add(run)
    return totals.session(name, known[0], known[-1])


def joined(one: SessionRuns, other: SessionRuns) -> SessionRuns:
    """The same session in two journals."""
    by_id = attrgetter("id")
    first, newest = min((one.first, other.first), key=by_id), max((one.newest, other.newest), key=by_id)
    totals = SessionTotals()
    for spent in (one.spent, other.spent):
        totals.add_spent(spent)
    merged = totals.session(one.id, first, newest)
    return msgspec.structs.replace(
        merged,
        runs=one.runs + other.runs,
        under_way=tuple(sorted((*one.under_way, *other.under_way))),
        usage=one.usage + other.usage,
    )
