"""The explorer: breadth first through every state of a model, so that the first broken rule has a shortest trace.

Knows no model. A model is a value, the steps that lead from it, and rules. The explorer checks the rules in each state,
checks that a state without a step is an end, and that an end can be reached from every state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
_NO_ORIGIN = -1


class Step(NamedTuple, Generic[S]):
    """What one actor does at once, and the state that it leads to. `broken`: the rule that the step itself breaks, in
    words, where the state after it does not show that."""

    name: str
    state: S
    broken: str = ""


class Model(Protocol[S]):
    """A state is hashable and never changes. Two equal states must have the same steps, so everything that a step
    depends on is part of the state."""

    def begin(self) -> S:
        """The first state."""

    def steps(self, state: S) -> Iterable[Step[S]]:
        """Every step that is possible: of every actor, and of the world around them. A step that changes nothing may be
        left out."""

    def broken_rule(self, state: S) -> str:
        """The rule that this state breaks, in words; empty where it breaks none."""

    def is_end(self, state: S) -> bool:
        """Whether nothing is left to do. A state with no step that is not an end breaks a rule, and so does a state
        from which no end can be reached."""


class Exploration(NamedTuple):
    """How much was explored. `depth` is the length of the longest of the shortest ways to a state."""

    states: int
    steps: int
    depth: int
    ends: int
    complete: bool  # False: `max_depth` has left out states


class RuleBroken(AssertionError):
    """`trace` has the names of the steps from the first state; no shorter trace breaks a rule in a state or a step."""

    def __init__(self, rule: str, trace: tuple[str, ...], state: object) -> None:
        self.rule, self.trace, self.state = rule, trace, state
        lines = [f"{number:3}. {name}" for number, name in enumerate(trace, start=1)]
        super().__init__("\n".join([f"{rule}, after {len(trace)} steps:", *lines, f"  => {state!r}"]))


class TooManyStates(AssertionError):
    """The model is not as small as it was said to be: a bound is missing, or a state holds what grows for ever."""


class _Found(Generic[S]):
    """The states in the order in which they were found, each with the step that found it."""

    def __init__(self, first: S) -> None:
        self.states: list[S] = [first]
        self.index: dict[S, int] = {first: 0}
        self.origins: list[tuple[int, str]] = [(_NO_ORIGIN, "")]
        self.depths: list[int] = [0]
        self.before: list[list[int]] = [[]]  # of each state, those with a step to it

    def add(self, origin: int, step: Step[S]) -> None:
        known = self.index.setdefault(step.state, len(self.states))
        if known == len(self.states):
            self.states.append(step.state)
            self.origins.append((origin, step.name))
            self.depths.append(self.depths[origin] + 1)
            self.before.append([])
        self.before[known].append(origin)

    def trace(self, at: int) -> tuple[str, ...]:
        names: list[str] = []
        while (origin := self.origins[at])[0] != _NO_ORIGIN:
            at = origin[0]
            names.append(origin[1])
        return tuple(reversed(names))


def explore(model: Model[S], *, max_depth: int | None = None, max_states: int = 1_000_000) -> Exploration:
    """Raises `RuleBroken` with a shortest trace where the model breaks a rule, `TooManyStates` where it has more states
    than that. With `max_depth` the states that are further away are left out, and whether an end can be reached is not
    judged."""
    found: _Found[S] = _Found(model.begin())
    ends: list[int] = []
    steps = at = 0
    complete = True
    while at < len(found.states):
        state = found.states[at]
        if rule := model.broken_rule(state):
            raise RuleBroken(rule, found.trace(at), state)
        if is_end := model.is_end(state):
            ends.append(at)
        if max_depth is not None and found.depths[at] >= max_depth:
            complete = False
            at += 1
            continue
        leaves = False
        for step in model.steps(state):
            leaves = True
            steps += 1
            if step.broken:
                raise RuleBroken(step.broken, (*found.trace(at), step.name), step.state)
            found.add(at, step)
        if not leaves and not is_end:
            raise RuleBroken("no step is possible, and this is no end", found.trace(at), state)
        if len(found.states) > max_states:
            raise TooManyStates(f"more than {max_states} states after {found.depths[-1]} steps: {found.states[-1]!r}")
        at += 1
    if complete:
        _check_ends(found, ends)
    return Exploration(len(found.states), steps, found.depths[-1], len(ends), complete)


def _check_ends(found: _Found[S], ends: Iterable[int]) -> None:
    """Walks backwards from the ends: what is not met can never come to one."""
    waiting = list(ends)
    reaching = set(waiting)
    while waiting:
        for origin in found.before[waiting.pop()]:
            if origin not in reaching:
                reaching.add(origin)
                waiting.append(origin)
    if len(reaching) < len(found.states):
        at = next(at for at in range(len(found.states)) if at not in reaching)
        raise RuleBroken("no end can be reached any more", found.trace(at), found.states[at])
