"""A conversation: the runs of one session in order, the history they share, and one of them at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tailrace.agent.turn import Turn
from tailrace.events import AnyEvent, Entry, HistoryCompressed
from tailrace.messages import Message
from tailrace.ports import ENDED, Journal, Run

_PAGE = 50


async def history_of(journal: Journal, session: str, *, before: str | None = None) -> tuple[Message, ...]:
    """What was said in the session (before this run), as far back as the last compression."""
    logs: deque[Turn] = deque()
    cursor = before
    more = True
    compressed = False
    while more and not compressed:
        runs = await journal.runs(session=session, kind="agent", before=cursor, limit=_PAGE)
        more = len(runs) == _PAGE
        cursor = runs[-1].id if runs else None
        for run in runs:
            facts = await journal.facts(run.id)
            turn = Turn()
            turn.replay(facts)
            logs.appendleft(turn)
            if compressed := any(isinstance(entry.event, HistoryCompressed) for entry in facts):
                break
    return tuple(message for turn in logs for message in turn.messages)


def last_words(run: Run, entries: Sequence[Entry]) -> list[AnyEvent]:
    """For a turn that died and is not to go on: what it leaves to the conversation. For any other run nothing."""
    if run.new.kind != "agent":
        return []
    turn = Turn()
    turn.replay(entries)
    return turn.last_words()


class _Floor:
    """One session's right to speak. Kept while anybody has it or waits for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members: list[str] = []  # runs, in the order in which they came
        self.speaker: str | None = None


class Sessions:
    """Who is speaking in which session, within this process (I101). Runs without a session are independent."""

    def __init__(self) -> None:
        self._floors: dict[str, _Floor] = {}

    def join(self, session: str, run_id: str) -> None:
        """The run wants to speak. Every run that joins leaves."""
        if session:
            self._floors.setdefault(session, _Floor()).members.append(run_id)

    def leave(self, session: str, run_id: str) -> None:
        if session:
            floor = self._floors[session]
            floor.members.remove(run_id)
            if not floor.members:
                del self._floors[session]

    def members(self, session: str) -> tuple[str, ...]:
        """The runs that have the session's turn or wait for it, first come first."""
        floor = self._floors.get(session)
        return tuple(floor.members) if floor else ()

    def current(self, session: str) -> str | None:
        """The run that has the session's turn."""
        floor = self._floors.get(session)
        return floor.speaker if floor else None

    @asynccontextmanager
    async def turn_of(self, session: str, run_id: str) -> AsyncIterator[None]:
        """Waits for the turn of this run, which has joined; first come first served."""
        if not session:
            yield
            return
        floor = self._floors[session]
        async with floor.lock:
            floor.speaker = run_id
            try:
                yield
            finally:
                floor.speaker = None


async def ended(journal: Journal, run_id: str) -> None:
    """Returns when the run has ended, whoever executes it."""
    if (await journal.get(run_id)).state in ENDED:
        return
    async for _ in journal.tail(run_id, snapshot=True):
        pass
