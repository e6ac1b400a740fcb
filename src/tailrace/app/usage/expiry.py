"""How long the numbers of what was used are kept."""

from __future__ import annotations

from tailrace.app.usage.counters import DAY_S, DETAILS, MINUTE_S, RATE, SPENT, day_of, minute_of
from tailrace.ports import SmallState


async def expire_usage(journal: SmallState, now: float, keep_s: float | None) -> None:
    """Removes what no limit looks at any more, and the details of days that ended longer than `keep_s` ago; None is for
    ever. Another node's clock may be behind: the minute and the day before are left to it."""
    await journal.remove_counters(RATE, RATE + minute_of(now - MINUTE_S))
    await journal.remove_counters(SPENT, SPENT + day_of(now - DAY_S))
    if keep_s is not None:
        await journal.remove_counters(DETAILS, DETAILS + day_of(now - keep_s))
