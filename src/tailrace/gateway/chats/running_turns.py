"""The turns that have not ended in a conversation, or in a chat in which every thread is one."""

from __future__ import annotations

from tailrace.agent.session import TURN_KIND
from tailrace.delivery.port import Place
from tailrace.ports import Journal, Run, RunState

_UNFINISHED: tuple[RunState, ...] = ("pending", "running")


async def turns_of_session(journal: Journal, session: str) -> list[Run]:
    """The newest first. Raises `JournalError`."""
    return await journal.runs(session=session, kind=TURN_KIND, states=_UNFINISHED)


async def turns_of_chat(journal: Journal, place: Place) -> list[Run]:
    """Those of the chat itself and of all its threads, the newest first. Raises `JournalError`."""
    within, found = f"{place.key}:", list[Run]()
    before: str | None = None
    while page := await journal.runs(kind=TURN_KIND, states=_UNFINISHED, before=before):
        before = page[-1].id
        found += [run for run in page if f"{run.new.session}:".startswith(within)]
    return found


def requester_of_turn(run: Run) -> str:
    return str(run.new.input.get("requester") or "")
