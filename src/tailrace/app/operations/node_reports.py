"""What every process on a journal says of itself when one of them is asked.

A process that asks changes one value in the journal's small state. Every process waits for that value, and answers
with its report, a value of its own. While no process asks, none writes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tailrace.app.operations.recent_calls import RecentCalls
from tailrace.errors import JournalError
from tailrace.journal.storage_wait import warning_level
from tailrace.ports import SmallState
from tailrace.runs.processes import Processes

log = logging.getLogger("tailrace.app")
ANSWER_S: Final = 1.0  # a process that takes longer is shown without a report
_ASKED: Final = ("operations", "asked")
_REPORTS: Final = "operations.reports"  # by owner


class NodeReport(msgspec.Struct, frozen=True):
    """`running`: turns of the agent; `requests`: in flight. `problems`: what does not work here, by its name (store,
    bus, a chat platform). `at` and `started_at` are the wall clock, in seconds since the epoch."""

    host: str
    pid: int
    version: str
    started_at: float
    at: float
    running: int = 0
    requests: int = 0
    problems: Mapping[str, str] = {}
    providers: Mapping[str, RecentCalls] = {}


class NodeReports:
    """`report` makes that of this process."""

    def __init__(self, journal: SmallState, processes: Processes, report: Callable[[], Awaitable[NodeReport]]) -> None:
        self._journal, self._processes, self._report = journal, processes, report

    async def collect(self) -> dict[str, NodeReport | None]:
        """The reports of all processes that live, by their owners, made now; None of one that does not answer. Raises
        `JournalError`."""
        own = self._processes.owner
        others = [owner for owner in self._processes.living if owner != own]
        found: dict[str, NodeReport | None] = {own: await self._report()}
        known = await self._journal.list_values(_REPORTS)
        for gone in known.keys() - {own, *others}:
            await self._journal.swap_value(_REPORTS, gone, known[gone], None)
        if others:
            await self._ask()
            waiting = (self._next_report(owner, known.get(owner)) for owner in others)
            found |= dict(zip(others, await asyncio.gather(*waiting), strict=True))
        return found

    async def _ask(self) -> None:
        """Another process that asks at the same time asks for the same."""
        known = await self._journal.get_value(*_ASKED)
        await self._journal.swap_value(*_ASKED, known, secrets.token_hex(8).encode())

    async def _next_report(self, owner: str, known: bytes | None) -> NodeReport | None:
        data: bytes | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                data = await self._journal.next_value(_REPORTS, owner, known)
        try:
            return None if data is None else msgspec.json.decode(data, type=NodeReport)
        except msgspec.DecodeError:  # of another version
            return None

    async def answer(self) -> None:
        """Answers whenever a process asks. Never returns: cancel it."""
        asked: bytes | None = None
        while True:
            try:
                asked = await self._journal.next_value(*_ASKED, asked)
                report, own = msgspec.json.encode(await self._report()), self._processes.owner
                await self._journal.swap_value(_REPORTS, own, await self._journal.get_value(_REPORTS, own), report)
            except JournalError as exc:
                log.log(warning_level(exc), "this process could not tell the operator's page how it is: %s", exc)
                await asyncio.sleep(self._processes.interval_s)
