"""What people have approved beyond one call: "always" is kept in the journal, "session" is read from the log."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.agent.safety.approval import ApprovalMemory
from tailrace.agent.session import TURN_KIND
from tailrace.events import ApprovalAnswered, ApprovalAsked, Decision, Entry
from tailrace.journal.key_values import KeyValues
from tailrace.ports import RUNS_LIMIT, Journal, Run


def always_approved(journal: Journal) -> KeyValues[bool]:
    """By digest, which holds the requester and the directory too."""
    return KeyValues(journal, "approvals.always", bool)


class JournalApprovals(ApprovalMemory):
    """The approvals that hold in one turn. The session's log is read once, when the first question would be asked."""

    def __init__(self, journal: Journal, run: Run) -> None:
        super().__init__()
        self._journal = journal
        self._always = always_approved(journal)
        self._unread: Run | None = run

    async def holds(self, digest: str) -> bool:
        if self._unread is not None:
            self.digests |= await session_approved(self._journal, self._unread)
            self._unread = None
        return digest in self.digests or await self._always.get(digest) is not None

    async def remember(self, digest: str, decision: Decision) -> None:
        if decision == "always":
            await self._always.set_default(digest, True)
        else:
            await super().remember(digest, decision)


async def session_approved(journal: Journal, run: Run) -> set[str]:
    """The digests that were approved for the session of this run; for the run alone where it has no session."""
    if not run.new.session:
        return _approved_in(await journal.facts(run.id))
    digests: set[str] = set()
    before, page = None, [run]
    while page:
        page = await journal.runs(session=run.new.session, kind=TURN_KIND, before=before, limit=RUNS_LIMIT)
        for facts in await journal.facts_of_runs([known.id for known in page]):
            digests |= _approved_in(facts)
        before = page[-1].id if page else None
    return digests


def _approved_in(facts: Sequence[Entry]) -> set[str]:
    events = [entry.event for entry in facts]
    approved = {
        (event.approval_id, event.by)
        for event in events
        if isinstance(event, ApprovalAnswered) and event.decision == "session"
    }
    asked = (event for event in events if isinstance(event, ApprovalAsked))
    return {event.digest for event in asked if (event.approval_id, event.requester) in approved}
