"""The approvals that wait for a person, over all runs and processes: which they are, and when that changes.

A question is posted right before it is recorded and taken down once its answer is recorded. The logs decide what is
listed: a question that a dead process left posted is not. One small value changes with the list, so that any process
can wait for the next change.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from tailrace.errors import RunNotFound
from tailrace.events import ApprovalAnswered, ApprovalAsked, Entry
from tailrace.ports import Journal, Run, RunState

_POSTED: Final = "approvals.waiting"  # by approval: the run that asks
_CHANGED: Final = ("approvals", "waiting.changed")  # a new value with each change of the list
_LIVE: Final[Collection[RunState]] = ("pending", "running")


class WaitingApproval(NamedTuple):
    run: Run
    asked: ApprovalAsked


class RunQuestions:
    """The open questions of one run, as a turn's `QuestionBoard`."""

    def __init__(self, waiting: WaitingApprovals, run_id: str) -> None:
        self._waiting = waiting
        self._run_id = run_id

    async def post(self, approval_id: str) -> None:
        await self._waiting.post(approval_id, self._run_id)

    async def tell(self) -> None:
        await self._waiting.tell()

    async def take_down(self, approval_ids: Iterable[str]) -> None:
        await self._waiting.take_down(approval_ids)


class WaitingApprovals:
    """The list of this journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def of_run(self, run_id: str) -> RunQuestions:
        return RunQuestions(self, run_id)

    async def post(self, approval_id: str, run_id: str) -> None:
        """Called before the question is recorded, so that a reader of the log finds it here."""
        await self._journal.swap_value(_POSTED, approval_id, None, run_id.encode())

    async def take_down(self, approval_ids: Iterable[str]) -> None:
        for approval_id in approval_ids:
            await self._remove(approval_id)
        await self.tell()

    async def tell(self) -> None:
        """Wakes the readers that wait for a change. Another process that changes it at the same time wakes the same."""
        await self._journal.swap_value(*_CHANGED, await self.version(), secrets.token_hex(8).encode())

    async def listed(self) -> list[WaitingApproval]:
        """The questions that wait now, the oldest first."""
        posted = {key: value.decode() for key, value in (await self._journal.list_values(_POSTED)).items()}
        runs = await self._live(set(posted.values()))
        facts = await self._journal.facts_of_runs(list(runs)) if runs else []
        found = {
            asked.approval_id: WaitingApproval(run, asked)
            for run, entries in zip(runs.values(), facts, strict=True)
            for asked in _open_questions(entries)
        }
        for approval_id, run_id in posted.items():
            if run_id not in runs:
                await self._remove(approval_id)
        waiting = [found[approval_id] for approval_id in posted if approval_id in found]
        return sorted(waiting, key=lambda each: (each.asked.asked_at, each.asked.approval_id))

    async def version(self) -> bytes | None:
        """Read it before the list: `next_version` then misses no change of it."""
        return await self._journal.get_value(*_CHANGED)

    async def next_version(self, known: bytes | None) -> bytes | None:
        """Waits until the list has changed, here or in another process."""
        return await self._journal.next_value(*_CHANGED, known)

    async def _live(self, run_ids: Collection[str]) -> dict[str, Run]:
        runs: dict[str, Run] = {}
        for run_id in sorted(run_ids):
            try:
                run = await self._journal.get(run_id)
            except RunNotFound:
                continue
            if run.state in _LIVE:
                runs[run_id] = run
        return runs

    async def _remove(self, approval_id: str) -> None:
        if (value := await self._journal.get_value(_POSTED, approval_id)) is not None:
            await self._journal.swap_value(_POSTED, approval_id, value, None)


def _open_questions(facts: Sequence[Entry]) -> list[ApprovalAsked]:
    events = [entry.event for entry in facts]
    answered = {event.approval_id for event in events if isinstance(event, ApprovalAnswered)}
    asked = (event for event in events if isinstance(event, ApprovalAsked))
    return [event for event in asked if event.approval_id not in answered]
