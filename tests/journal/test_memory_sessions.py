"""Sessions of which a part lives in memory: listed in one pass, and each of them once."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Unpack

import msgspec

from tailrace.journal.memory import MemoryJournal
from tailrace.journal.memory_first import MemoryFirst
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Run, RunFilter
from tailrace.testing.conformance.journal_sessions import question


class CountedJournal(MemoryJournal):
    """Counts how often it goes through its runs."""

    passes = 0

    async def runs(self, **wanted: Unpack[RunFilter]) -> list[Run]:
        self.passes += 1
        return await super().runs(**wanted)


async def test_any_number_of_sessions_is_listed_in_one_pass() -> None:
    journal = CountedJournal()
    for name in range(20):
        await journal.create(question("hello", f"s{name}"))
    page = await journal.sessions("agent", search="hell")
    assert (len(page.sessions), journal.passes) == (20, 1)


async def test_a_live_session_is_on_one_page_alone(tmp_path: Path) -> None:
    seconds = count(1_700_000_000)
    storage = await SqliteJournal.open(tmp_path / "runs.db", clock=lambda: float(next(seconds)))
    journal = MemoryFirst(storage, clock=lambda: float(next(seconds)))
    for name in ("live", "w", "x", "s1", "s2", "x"):
        in_memory = name == "live" or (name == "x" and await journal.session("x", "agent") is not None)
        new = msgspec.structs.replace(question(name, name), durability="memory" if in_memory else "committed")
        await journal.start(new, "me")
    pages: list[list[str]] = []
    before: str | None = None
    while not pages or before is not None:
        page = await journal.sessions("agent", before=before, limit=1)
        pages.append([session.id for session in page.sessions])
        before = page.next
    await journal.close()
    assert [name for names in pages for name in names] == ["x", "s2", "s1", "w", "live"]
