"""Makes a world that breaks a rule smaller, for as long as it breaks the same one: the rest is what matters.

A world is a value, so smaller ones are made by leaving things out of it and by setting fields back to what is usual.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from proof.simulation.simulation import Outcome, simulate
from proof.simulation.world import Ask, Happening, Said, Stop, Value, Watch, World

V = TypeVar("V", bound=Value)
MAX_RUNS = 1500
_KEPT = ("happenings", "said", "faults", "chat_faults")  # lists: their items are left out one at a time
_PARTICULARS = re.compile(r"run_\w+|'[^']*'|b?\"[^\"]*\"|\d+")


def kind_of(rule: str) -> str:
    """A broken rule without its particulars."""
    return _PARTICULARS.sub("#", rule)[:70]


def shrunk(world: World, *, run: Callable[[World], Outcome] = simulate, max_runs: int = MAX_RUNS) -> Outcome:
    """The smallest world found that breaks one of the rules that this one breaks, and what it breaks."""
    found = run(world)
    kinds = set(map(kind_of, found.broken))
    if not kinds:
        return found
    runs = 0
    tried = {found.world}
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(found.world):
            if candidate in tried:
                continue
            tried.add(candidate)
            runs += 1
            if runs > max_runs:
                return found
            outcome = run(candidate)
            if kinds.intersection(map(kind_of, outcome.broken)):
                found, smaller = outcome, True
                break
    return found


def _smaller(world: World) -> Iterator[World]:
    """Worlds that are a little smaller, the largest savings first."""
    for index in range(len(world.happenings)):
        yield replace(world, happenings=_without(world.happenings, index))
    for index in range(len(world.chat_faults)):
        yield replace(world, chat_faults=world.chat_faults[:index] + world.chat_faults[index + 1 :])
    yield from _usual(world)
    for index, happening in enumerate(world.happenings):
        for other in _smaller_happening(happening):
            changed = (*world.happenings[:index], other, *world.happenings[index + 1 :])
            yield replace(world, happenings=changed)


def _without(happenings: tuple[Happening, ...], index: int) -> tuple[Happening, ...]:
    """The rest. Who watches or stops what is no longer asked for goes too, and the others keep their question."""
    gone = happenings[index]
    rest = happenings[:index] + happenings[index + 1 :]
    if not isinstance(gone, Ask):
        return rest
    number = sum(isinstance(one, Ask) for one in happenings[:index])
    kept: list[Happening] = []
    for one in rest:
        if isinstance(one, Watch | Stop) and one.ask >= number:
            if one.ask > number:
                kept.append(replace(one, ask=one.ask - 1))
        else:
            kept.append(one)
    return tuple(kept)


def _smaller_happening(happening: Happening) -> Iterator[Happening]:
    if isinstance(happening, Ask):
        for index, said in enumerate(happening.said):
            before, after = happening.said[:index], happening.said[index + 1 :]
            if len(happening.said) > 1:
                yield replace(happening, said=before + after)
            for other in _smaller_said(said):
                yield replace(happening, said=(*before, other, *after))
    yield from _usual(happening)


def _smaller_said(said: Said) -> Iterator[Said]:
    for index, fault in enumerate(said.faults):
        before, after = said.faults[:index], said.faults[index + 1 :]
        yield replace(said, faults=before + after)
        for other in _usual(fault):
            yield replace(said, faults=(*before, other, *after))
    yield from _usual(said)


def _usual(value: V) -> Iterator[V]:
    """The value with one field as it usually is, or closer to that."""
    for name, default in zip(value.__struct_fields__, value.__struct_defaults__, strict=True):
        now: Any = getattr(value, name)
        if name in _KEPT or now == default:
            continue
        if name != "at":
            yield replace(value, **{name: default})
        if isinstance(now, float) and round(now, 1) != now:
            yield replace(value, **{name: round(now, 1)})
        elif name in ("steps", "nodes", "crowd") and now > 1:
            yield replace(value, **{name: now // 2})
            yield replace(value, **{name: now - 1})
