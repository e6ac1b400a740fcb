"""How long runs are kept. Decides which are due; the journal compacts and deletes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import msgspec

from tailrace.errors import RunNotFound
from tailrace.ports import Journal, Run

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
    if not session or not namespaces or len(await journal.runs(session=session, limit=2)) > 1:
        return
    for namespace in namespaces:
        if (kept := await journal.get_value(namespace, session)) is not None:
            await journal.swap_value(namespace, session, kept, None)


async def _ended(journal: Journal, ended_before: float, *, compacted: bool | None) -> AsyncIterator[Run]:
    before: str | None = None
    while page := await journal.runs(ended_before=ended_before, compacted=compacted, before=before, limit=PAGE):
        before = page[-1].id
        for run in page:
            yield run
