"""How people name a run: by its id, by the beginning of one, or as `last`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from tailrace.errors import RunNotFound, TailraceError
from tailrace.journal.fold import SEQUENCE
from tailrace.ports import Journal, Run
from tailrace.runs.public_ids import RUN, public_id, run_id_of
from tailrace.runs.run_overview import OWN_RECORDS

LAST = "last"
RUN_HELP = "a run's id, the beginning of one, or `last`"
_PREFIXES = ("", RUN)  # what people leave out of an id
_AFTER_ALL = "~"  # no character of an id comes after it
_NAMED = 4  # of several that begin so
_PAGE = 50


async def find_run(journal: Journal, word: str, *, kind: str | None = None) -> Run:
    """The run of this id, the public one or the journal's; the only one whose id begins so, with or without `run_`,
    `ins_` and the like; or the newest. `kind` narrows the
    last two; without it the program's own records are left out. Raises `RunNotFound`, and `TailraceError` where several
    begin so."""
    if word == LAST:
        async with aclosing(_newest_first(journal, kind, before=None)) as runs:
            async for run in runs:
                return run
        raise RunNotFound(f"there is no {_noun(kind)} yet")
    wanted = run_id_of(word)
    try:
        return await journal.get(wanted)
    except RunNotFound as exc:
        found = await _beginning_with(journal, wanted, kind) if word else []
        if not found:
            raise RunNotFound(f"there is no {_noun(kind)} {word}") from exc
    if len(found) > 1:
        named = ", ".join(map(public_id, found[:_NAMED])) + (", …" if len(found) > _NAMED else "")
        many = f"several {_noun(kind)}s begin with {word[:40]!r}"
        raise TailraceError(f"{many}: {named}; write more of the id") from None
    return found[0]


async def find_instance(journal: Journal, word: str) -> Run:
    """The instance of a sequence that is named so. Raises as `find_run` does."""
    run = await find_run(journal, word, kind=SEQUENCE)
    if run.new.kind != SEQUENCE:
        raise RunNotFound(f"{word} is not an instance of a sequence: see `tailrace show {public_id(run)}`")
    return run


def _noun(kind: str | None) -> str:
    return "instance" if kind == SEQUENCE else "run"


async def _beginning_with(journal: Journal, word: str, kind: str | None) -> list[Run]:
    """Newest first; no more than are needed to say that there are several."""
    found: list[Run] = []
    for prefix in _PREFIXES:
        beginning = prefix + word
        async with aclosing(_newest_first(journal, kind, before=beginning + _AFTER_ALL)) as runs:
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


def short_ids(runs: list[Run], *, at_least: int = 8) -> dict[str, str]:
    """The shortest beginnings of these ids that tell them apart, without `run_`, by id: what `find_run` takes."""
    ids = [run.id for run in runs]
    bare = {each: each.partition("_")[2] or each for each in ids}
    size = at_least
    longest = max(map(len, bare.values()), default=0)
    while size < longest and len({name[:size] for name in bare.values()}) < len(bare):
        size += 1
    return {each: name[:size] for each, name in bare.items()}
