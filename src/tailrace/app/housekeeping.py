"""Compacts and deletes old runs, and old numbers of what was used, from time to time, in a process that stays.

Owns when, and which are due; the journal compacts and deletes them. A process that answers one question ends before
the first round.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec

from tailrace.app.usage import counters
from tailrace.config.load import Config
from tailrace.errors import JournalError, RunNotFound
from tailrace.ports import Journal, Run, SmallState

log = logging.getLogger("tailrace.journal")
FIRST_AFTER_S = 60.0
EVERY_S = 3600.0
# What is kept of sessions beside their runs, by session.
EDITOR_SESSIONS = "editors.sessions"  # by an integration with an editor
SESSION_MARKS = "sessions"  # titles and pins
CONVERSATIONS = "conversations"  # of `/v1/conversations`
SESSION_VALUES = (EDITOR_SESSIONS, SESSION_MARKS, CONVERSATIONS)

PAGE = 100


class Retention(msgspec.Struct, frozen=True):
    """Seconds after a run's end; None is for ever. `session_values` are namespaces of values with sessions as their
    keys: such a value goes with the last run of its session."""

    compact_after_s: float | None = 7 * 86_400.0  # removes its token-level entries, keeps its messages and facts
    delete_after_s: float | None = None
    session_values: tuple[str, ...] = ()


class Retained(msgspec.Struct, frozen=True):
    compacted: int = 0
    deleted: int = 0


async def retain(journal: Journal, retention: Retention, now: float) -> Retained:
    """Deletes and compacts every run that is due. `now` is the wall clock. Other processes may do the same at the same
    time: a run that one of them has deleted is skipped."""
    deleted = compacted = 0
    if retention.delete_after_s is not None:
        async for run in _ended(journal, now - retention.delete_after_s, compacted=None):
            with suppress(RunNotFound):
                await _forget_session(journal, run.new.session, retention.session_values)
                await journal.delete(run.id)
                deleted += 1
    if retention.compact_after_s is not None:
        async for run in _ended(journal, now - retention.compact_after_s, compacted=False):
            with suppress(RunNotFound):
                await journal.compact(run.id)
                compacted += 1
    return Retained(compacted, deleted)


async def _forget_session(journal: Journal, session: str, namespaces: Sequence[str]) -> None:
    """Before the last run of a session is deleted: a process that dies in between leaves no value behind."""
    if session and namespaces and len(await journal.runs(session=session, limit=2)) <= 1:
        await forget_values(journal, session, namespaces)


async def forget_values(journal: SmallState, session: str, namespaces: Sequence[str] = SESSION_VALUES) -> None:
    for namespace in namespaces:
        if (kept := await journal.get_value(namespace, session)) is not None:
            await journal.swap_value(namespace, session, kept, None)


async def _ended(journal: Journal, ended_before: float, *, compacted: bool | None) -> AsyncIterator[Run]:
    before: str | None = None
    while page := await journal.runs(ended_before=ended_before, compacted=compacted, before=before, limit=PAGE):
        before = page[-1].id
        for run in page:
            yield run


async def expire_usage(journal: SmallState, now: float, keep_s: float | None) -> None:
    """Removes what no limit looks at any more, and the details of days that ended longer than `keep_s` ago; None is for
    ever. Another node's clock may be behind: the minute and the day before are left to it."""
    await journal.remove_counters(counters.RATE, counters.RATE + counters.minute_of(now - counters.MINUTE_S))
    await journal.remove_counters(counters.RESERVED, counters.reserved_before(now - counters.RESERVED_S))
    await journal.remove_counters(counters.SPENT, counters.SPENT + counters.day_of(now - counters.DAY_S))
    if keep_s is not None:
        await journal.remove_counters(counters.DETAILS, counters.DETAILS + counters.day_of(now - keep_s))


def retention_of(config: Config) -> Retention:
    compact, delete = config.store.compact_after_days, config.store.delete_after_days
    return Retention(
        compact_after_s=None if compact is None else compact * counters.DAY_S,
        delete_after_s=None if delete is None else delete * counters.DAY_S,
        session_values=SESSION_VALUES,
    )


@asynccontextmanager
async def retention_loop(
    journal: Journal, retention: Retention, *, clock: Callable[[], float] = time.time
) -> AsyncGenerator[None, None]:
    """Applies the retention while the block lasts. `clock` is the wall clock."""
    keeping = asyncio.create_task(_keep(journal, retention, clock))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


async def _keep(journal: Journal, retention: Retention, clock: Callable[[], float]) -> None:
    await asyncio.sleep(FIRST_AFTER_S)
    while True:
        try:
            await expire_usage(journal, clock(), retention.delete_after_s)
            done = await retain(journal, retention, clock())
        except JournalError as exc:
            log.warning("old runs could not be compacted or deleted: %s", exc)
        except Exception:  # the top of the task: the next hour's round must still come
            log.exception("old runs could not be compacted or deleted")
        else:
            if done.compacted or done.deleted:
                log.info("%d old runs compacted, %d deleted", done.compacted, done.deleted)
        await asyncio.sleep(EVERY_S)
