"""How people name a run: by its id, by the beginning of one, or as `last`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from tailrace.app.timeline.run_overview import OWN_RECORDS
from tailrace.errors import RunNotFound, TailraceError
from tailrace.flows.definition.public_ids import RUN, public_id, run_id_of
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import Journal, Run

LAST = "last"
RUN_HELP = "a run's id, the beginning of one, or `last`"
_NOUNS = {SEQUENCE: "instance"}
_AFTER_HEX = "g"  # no character of an id comes after it
_NAMED = 4  # of several that begin so
_PAGE = 50


async def find_run(journal: Journal, word: str, *, kind: str | None = None) -> Run:
    """The run of this id, whatever its kind; the only one whose id begins so, with or without what stands before its
    digits; or the newest. `kind` narrows the last two; without it the program's own records are left out. Raises
    `RunNotFound`, and `TailraceError` where several begin so."""
    noun = _NOUNS.get(kind or "", "run")
    if word == LAST:
        async with aclosing(_newest_first(journal, kind, before=None)) as runs:
            async for run in runs:
                return run
        raise RunNotFound(f"there is no {noun} yet")
    wanted = run_id_of(word)
    try:
        return await journal.get(wanted)
    except RunNotFound as exc:
        found = await _beginning_with(journal, wanted if wanted.startswith(RUN) else RUN + wanted, kind) if word else []
        if not found:
            raise RunNotFound(f"there is no {noun} {word}") from exc
    if len(found) > 1:
        named = ", ".join(map(public_id, found[:_NAMED])) + (", …" if len(found) > _NAMED else "")
        raise TailraceError(f"several {noun}s begin with {word[:40]!r}: {named}; write more of the id")
    return found[0]


async def find_instance(journal: Journal, word: str) -> Run:
    """The instance of a sequence that is named so. Raises as `find_run` does."""
    run = await find_run(journal, word, kind=SEQUENCE)
    if run.new.kind != SEQUENCE:
        raise RunNotFound(f"{word} is not an instance of a sequence: see `tailrace show {public_id(run)}`")
    return run


async def _beginning_with(journal: Journal, beginning: str, kind: str | None) -> list[Run]:
    """Newest first; no more than are needed to say that there are several."""
    found: list[Run] = []
    async with aclosing(_newest_first(journal, kind, before=beginning + _AFTER_HEX)) as runs:
        async for run in runs:
            if not run.id.startswith(beginning) or len(found) > _NAMED:
                break
            found.append(run)
    return found


async def _newest_first(journal: Journal, kind: str | None, *, before: str | None) -> AsyncGenerator[Run, None]:
    while page := await journal.runs(kind=kind, before=before, limit=_PAGE):
        for run in page:
            if kind is not None or run.new.kind not in OWN_RECORDS:
                yield run
        before = page[-1].id


def short_ids(runs: Sequence[Run], *, at_least: int = 8) -> dict[str, str]:
    """The shortest beginnings of these ids that tell them apart, without what stands before the digits, by id: what
    `find_run` takes."""
    digits = {run.id: run.id.removeprefix(RUN) for run in runs}
    size, longest = at_least, max(map(len, digits.values()), default=0)
    while size < longest and len({name[:size] for name in digits.values()}) < len(digits):
        size += 1
    return {run_id: name[:size] for run_id, name in digits.items()}
