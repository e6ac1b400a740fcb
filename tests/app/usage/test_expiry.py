"""Old numbers go: those of limits when no limit looks at them, what was used with the runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tailrace.app.costs import Costs
from tailrace.app.housekeeping import FIRST_AFTER_S, Retention, expire_usage, retention_loop
from tailrace.app.usage.counters import amounts_of, rate_counter
from tailrace.app.usage.ledger import UsageLedger
from tailrace.config.load import load
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import SpentTokens, Usage
from tailrace.testing.clock import driven

NOON = 1_795_176_000.0  # 2026-11-20, 12:00 UTC
DAY_S = 86_400.0
SPENT = SpentTokens("p", "m", Usage(3, 2))


async def used_for_ten_days(keys: int = 1) -> MemoryJournal:
    journal = MemoryJournal()
    for day in range(10):
        at = NOON - day * DAY_S
        for number in range(keys):
            amounts = amounts_of(f"key {number}", SPENT, at) | {rate_counter(f"key {number}", at): 1.0}
            await journal.add_to_counters(amounts)
    return journal


def days(names: dict[str, float]) -> list[str]:
    return sorted({name.split("\t")[1] for name in names})


async def test_without_a_retention_only_what_limits_need_no_more_goes() -> None:
    journal = await used_for_ten_days()
    await expire_usage(journal, NOON, None)
    assert len(days(await journal.counters("usage\t"))) == 10
    assert days(await journal.counters("spent\t")) == ["2026-11-19", "2026-11-20"]
    assert len(await journal.counters("rate\t")) == 1


@driven
async def test_the_details_of_a_day_go_with_its_runs() -> None:
    journal = await used_for_ten_days()
    async with retention_loop(journal, Retention(None, 3 * DAY_S), clock=lambda: NOON):
        await asyncio.sleep(FIRST_AFTER_S + 1)
    kept = ["2026-11-17", "2026-11-18", "2026-11-19", "2026-11-20"]
    assert days(await journal.counters("usage\t")) == kept


class Watched(MemoryJournal):
    """Knows how many counters were read."""

    numbers_read = 0

    async def counters(self, prefix: str, first: str = "") -> dict[str, float]:
        found = await super().counters(prefix, first)
        self.numbers_read += len(found)
        return found


async def test_a_look_reads_the_days_and_the_key_that_it_is_about(tmp_path: Path) -> None:
    filled, journal = await used_for_ten_days(keys=20), Watched()
    await journal.add_to_counters(await filled.counters("usage\t"))
    ledger = UsageLedger(journal, Costs(load({}, tmp_path)), clock=lambda: NOON)
    assert len(await ledger.rows("2026-11-19")) == 40
    assert journal.numbers_read == 40 * 3  # calls, input and output
    journal.numbers_read = 0
    assert len(await ledger.rows("2026-11-19", "key 7")) == 2
    assert journal.numbers_read == 2 * 3
    assert len(await ledger.rows("2024-01-01", "key 7")) == 10
    assert await ledger.rows("2026-11-21", "key 7") == []
