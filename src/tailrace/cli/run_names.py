"""How people name a run: by its id, by the beginning of one, or as `last`."""

from __future__ import annotations

from tailrace.agent.session import TURN_KIND
from tailrace.errors import RunNotFound, TailraceError
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import Journal, Run
from tailrace.runs.public_ids import RUN, public_id, run_id_of

LAST = "last"
_NOUNS = {SEQUENCE: "instance"}
_AFTER_HEX = "g"  # no character of an id comes after it


async def find_run(journal: Journal, word: str, *, kind: str = TURN_KIND) -> Run:
    """The run of this id, whatever its kind; the only one of `kind` whose id begins so, with or without what stands
    before its digits; or the last one of `kind`. Raises `RunNotFound`, and `TailraceError` where several begin so."""
    noun = _NOUNS.get(kind, "run")
    if word == LAST:
        if not (newest := await journal.runs(kind=kind, limit=1)):
            raise RunNotFound(f"there is no {noun} yet")
        return newest[0]
    wanted = run_id_of(word)
    try:
        return await journal.get(wanted)
    except RunNotFound as exc:
        beginning = wanted if wanted.startswith(RUN) else RUN + wanted
        found = await journal.runs(kind=kind, before=beginning + _AFTER_HEX, limit=2)
        found = [run for run in found if run.id.startswith(beginning) and word]
        if not found:
            raise RunNotFound(f"there is no {noun} {word}") from exc
        if len(found) > 1:
            last = public_id(found[0])
            raise TailraceError(f"several {noun}s begin with {word[:40]!r}, the last one is {last}") from None
        return found[0]


async def find_instance(journal: Journal, word: str) -> Run:
    """The instance of a sequence that is named so. Raises as `find_run` does."""
    run = await find_run(journal, word, kind=SEQUENCE)
    if run.new.kind != SEQUENCE:
        raise RunNotFound(f"{word} is not an instance of a sequence: see `tailrace show {public_id(run)}`")
    return run
