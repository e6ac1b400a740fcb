"""The runs of a journal as they are now, in whichever processes they are executed: what `tailrace top` shows.

Reads what is new since the last look and nothing twice: a long log costs no more than a short one. Also tells how the
providers did in the newest runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tailrace import events
from tailrace.app.timeline.run_overview import OWN_RECORDS, RunOverview, overview_of
from tailrace.journal.fold import is_fact
from tailrace.ports import Journal, Run, RunState

LIVE: tuple[RunState, ...] = ("pending", "running", "parked")
MOST_LIVE = 200
RECENT = 30  # runs that ended, from which the health of providers is told
SHOWN_ENDED = 8
RATE_WINDOW_S = 3.0  # over which tokens per second are counted
_CHARS_PER_TOKEN = 4


class LiveRun(msgspec.Struct, frozen=True):
    """`tokens_per_s` is estimated from the length of what came; None where nothing did."""

    overview: RunOverview
    run: Run
    tokens_per_s: float | None = None


class ProviderHealth(msgspec.Struct, frozen=True):
    """How a provider did in the runs that were read. `last_failure` is the newest, in words."""

    name: str
    attempts: int = 0
    failures: int = 0
    last_failure: str = ""


class Look(msgspec.Struct, frozen=True):
    """What one look at the journal has found: live runs first, the newest first, then a few that ended."""

    runs: tuple[LiveRun, ...] = ()
    providers: tuple[ProviderHealth, ...] = ()

    def counted(self, *states: str) -> int:
        return sum(each.overview.state in states for each in self.runs)


class _Log:
    """What was read of one run."""

    __slots__ = ("after", "chars", "facts", "since")

    def __init__(self, since: float) -> None:
        self.since = since  # the first look
        self.after = 0
        self.facts: list[events.Entry] = []
        self.chars: list[tuple[float, int]] = []  # when pieces of answers were seen, and how long they were

    def add(self, entries: Sequence[events.Entry], now: float, *, first: bool) -> None:
        chars = 0
        for entry in entries:
            event = entry.event
            if is_fact(event):
                self.facts.append(entry)
            if isinstance(event, events.MessageChunk | events.ReasoningChunk | events.ToolArgumentsChunk):
                chars += len(event.text)
            elif isinstance(event, events.LlmDelta):
                chars += len(event.delta)
            self.after = entry.seq
        if not first:  # when the pieces of the first look came is not known
            self.chars = [*((at, some) for at, some in self.chars if now - at < RATE_WINDOW_S), (now, chars)]

    def tokens_per_s(self, now: float) -> float | None:
        total = sum(some for at, some in self.chars if now - at < RATE_WINDOW_S)
        return total / _CHARS_PER_TOKEN / max(1.0, min(RATE_WINDOW_S, now - self.since)) if total else None


class LiveRuns:
    """Looks at one journal, again and again."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._logs: dict[str, _Log] = {}

    async def look(self, now: float) -> Look:
        """`now` is the wall clock."""
        live = [run for run in await self._journal.runs(states=LIVE, limit=MOST_LIVE) if _shown(run)]
        ended = [run for run in await self._journal.runs(limit=RECENT) if _shown(run) and run.finished is not None]
        orphans = {run.id for run in await self._journal.orphans()} if live else set()
        shown = [*live, *(run for run in ended if run.id not in {each.id for each in live})]
        for run in shown:
            await self._read(run, now)
        self._logs = {run.id: self._logs[run.id] for run in shown}
        rows = [
            LiveRun(
                overview_of(run, self._logs[run.id].facts, now=now, orphaned=run.id in orphans),
                run,
                self._logs[run.id].tokens_per_s(now) if run.state == "running" else None,
            )
            for run in [*live, *ended[:SHOWN_ENDED]]
        ]
        return Look(tuple(rows), _health([(run, self._logs[run.id].facts) for run in reversed(shown)]))

    async def _read(self, run: Run, now: float) -> None:
        log = self._logs.get(run.id)
        first = log is None
        if log is None:
            log = self._logs[run.id] = _Log(now)
        if first and run.finished is not None:
            log.facts, log.after = await self._journal.facts(run.id), run.last_seq
        elif log.after < run.last_seq:
            log.add(await self._journal.read(run.id, after=log.after), now, first=first)


def _shown(run: Run) -> bool:
    return run.new.kind not in OWN_RECORDS


def _health(logs: Sequence[tuple[Run, Sequence[events.Entry]]]) -> tuple[ProviderHealth, ...]:
    """`logs`: the oldest run first."""
    found: dict[str, ProviderHealth] = {}

    def change(name: str, attempts: int = 0, failure: str = "") -> None:
        known = found.get(name) or ProviderHealth(name)
        found[name] = ProviderHealth(
            name,
            known.attempts + attempts,
            known.failures + bool(failure),
            failure or known.last_failure,
        )

    for _, facts in logs:
        asked: dict[str, str] = {}  # whose attempt is under way, by step; of a turn there is one
        for entry in facts:
            event = entry.event
            if isinstance(event, events.AttemptStarted):
                if event.previous_failure and (before := asked.pop(event.block_id, "")):
                    change(before, failure=event.previous_failure)
                asked[event.block_id] = event.provider
                change(event.provider, attempts=1)
            elif isinstance(event, events.AttemptDiscarded) and (before := asked.pop(event.block_id, "")):
                change(before, failure=event.reason or "taken back")
            elif isinstance(event, events.MessageRecorded) and event.message.role == "assistant":
                asked.pop("", None)
            elif (
                isinstance(event, events.RunFinished) and event.status == "failed" and event.error is not None and asked
            ):
                change(next(reversed(asked.values())), failure=event.error.message)
    return tuple(sorted((each for each in found.values() if each.name), key=lambda each: -each.attempts))
