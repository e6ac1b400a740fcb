"""How people name a run: by its id, by the beginning of one, or as `last`."""

from __future__ import annotations

from tailrace.agent.session import TURN_KIND
from tailrace.errors import RunNotFound, TailraceError
from tailrace.ports import Journal, Run

LAST = "last"
_PREFIX = "run_"
_AFTER_HEX = "g"  # no character of an id comes after it


async def find_run(journal: Journal, word: str) -> Run:
    """The run of this id; the only turn of the agent whose id begins so, with or without `run_`; or the last turn.
    Raises `RunNotFound`, and `TailraceError` where several begin so."""
    if word == LAST:
        if not (newest := await journal.runs(kind=TURN_KIND, limit=1)):
            raise RunNotFound("there is no run yet")
        return newest[0]
    try:
        return await journal.get(word)
    except RunNotFound:
        beginning = word if word.startswith(_PREFIX) else _PREFIX + word
        found = await journal.runs(kind=TURN_KIND, before=beginning + _AFTER_HEX, limit=2)
        found = [run for run in found if run.id.startswith(beginning) and word]
        if not found:
            raise
        if len(found) > 1:
            raise TailraceError(f"several runs begin with {word[:40]!r}, the last one is {found[0].id}") from None
        return found[0]
