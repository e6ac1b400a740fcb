"""Compacts and deletes old runs, and old numbers of what was used, from time to time, in a process that stays.

Owns when. `journal.retention` says which runs are due, `app.usage.expiry` which numbers. A process that answers one
question ends before the first round.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from tailrace.app.usage.expiry import expire_usage
from tailrace.config.load import Config
from tailrace.errors import JournalError
from tailrace.journal.retention import Retention, retain
from tailrace.ports import Journal

log = logging.getLogger("tailrace.journal")
FIRST_AFTER_S = 60.0
EVERY_S = 3600.0
DAY_S = 86_400.0
EDITOR_SESSIONS = "editors.sessions"  # what an integration with an editor keeps of its sessions, by session


def retention_of(config: Config) -> Retention:
    compact, delete = config.store.compact_after_days, config.store.delete_after_days
    return Retention(
        compact_after_s=None if compact is None else compact * DAY_S,
        delete_after_s=None if delete is None else delete * DAY_S,
        session_values=(EDITOR_SESSIONS,),
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
