"""A conversation: the runs of one session in order, the history they share, and one of them at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from weakref import WeakValueDictionary

from tailrace.agent.context import has_media, outweighs, split_off_summary
from tailrace.agent.turn import Turn
from tailrace.events import AnyEvent, Entry, HistoryCompressed
from tailrace.messages import Message
from tailrace.ports import Journal, Run
from tailrace.runs.failures import is_of_media, is_of_policy, is_too_long

TURN_KIND = "agent"
_PAGE = 50


class Branch:
    """Which of a session's turns lead to its newest one. A turn that replaces others (an answer regenerated, a question
    edited) names its `previous_run`, empty where there is none; others follow the one before them."""

    def __init__(self, previous_run: str | None = None) -> None:
        self._wanted = previous_run

    @property
    def is_whole(self) -> bool:
        """Whether no earlier turn is one of them."""
        return self._wanted == ""

    def takes(self, run: Run) -> bool:
        """Whether this turn is one of them. Asked of each turn of the session, newest first."""
        if self._wanted is not None and (not self._wanted or run.id > self._wanted):
            return False
        previous_run = run.new.input.get("previous_run")
        self._wanted = previous_run if isinstance(previous_run, str) else None
        return True


async def history_of(
    journal: Journal, session: str, *, before: str | None = None, previous_run: str | None = None
) -> tuple[Message, ...]:
    """What was said in the session (before this run, up to the one that it follows), as far back as the last
    compression. Turns that another one replaced are left out, and so is a question that the provider has refused for
    what it is: every turn after it would be refused too."""
    turns: deque[tuple[Run, Turn]] = deque()
    branch = Branch(previous_run)
    cursor = before
    while runs := await journal.runs(session=session, kind=TURN_KIND, before=cursor, limit=_PAGE):
        cursor = runs[-1].id
        taken = [run for run in runs if branch.takes(run)]
        for run, facts in zip(taken, await journal.facts_of_runs([run.id for run in taken]), strict=True):
            turn = Turn(foreign=[tool["name"] for tool in run.new.input.get("foreign", ())])
            turn.replay(facts)
            turns.appendleft((run, turn))
            if any(isinstance(entry.event, HistoryCompressed) for entry in facts):
                return _messages(turns)
        if len(runs) < _PAGE or branch.is_whole:
            break
    return _messages(turns)


def without_refused(run: Run, messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation up to the end of this run, without the run's question where the provider has refused that for
    what it is: too long, with an image that the model does not read, against a policy. A short question after a long
    history stays: it is the history that has to be shortened."""
    error = run.finished.error if run.finished is not None else None
    if error is None or not messages or messages[-1].role != "user":
        return tuple(messages)
    summary, question = split_off_summary(messages[-1])
    before = (*messages[:-1], *summary)
    if is_too_long(error):
        is_refused = outweighs(question, before)
    else:
        is_refused = is_of_policy(error) or (is_of_media(error) and has_media(question))
    return before if is_refused else tuple(messages)


def _messages(turns: Iterable[tuple[Run, Turn]]) -> tuple[Message, ...]:
    messages: list[Message] = []
    for run, turn in turns:
        messages += turn.messages
        if run.finished is not None and run.finished.error is not None:
            messages = [*without_refused(run, messages)]
    return tuple(messages)


async def last_words(run: Run, entries: Sequence[Entry]) -> list[AnyEvent]:
    """What completes the log of a turn that died and is not to go on: its results and its text so far become part of
    the conversation. Nothing for a run of another kind."""
    if run.new.kind != TURN_KIND:
        return []
    turn = Turn()
    turn.replay(entries)
    return turn.last_words()


def new_session() -> str:
    """A name that no other session has."""
    return f"ses_{secrets.token_hex(6)}"


class Sessions:
    """Which run has the turn in which session, within this process (I101). Runs without a session are independent."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # kept alive by their users
        self._current: dict[str, str] = {}

    def current(self, session: str) -> str | None:
        """The run that has the session's turn."""
        return self._current.get(session)

    def turn_of(self, run: Run) -> AbstractAsyncContextManager[None]:
        """Within the block the run has its session's turn. The runs before it must have ended: a run that waits for
        them here would keep them from going on."""
        return self._turn_in(run.new.session, run) if run.new.session else nullcontext()

    @asynccontextmanager
    async def _turn_in(self, session: str, run: Run) -> AsyncIterator[None]:
        if (lock := self._locks.get(session)) is None:
            lock = self._locks[session] = asyncio.Lock()
        async with lock:
            self._current[session] = run.id
            try:
                yield
            finally:
                del self._current[session]
