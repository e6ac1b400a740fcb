"""The explorer on models of which everything is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from proof.model_checking import Exploration, RuleBroken, Step, TooManyStates, explore


class Counters:
    """Two actors that each read a shared counter and write it back, one higher. State: the counter, and for each actor
    what it has read (None: nothing yet, -1: it has written)."""

    def __init__(self, *, atomic: bool) -> None:
        self._atomic = atomic

    def begin(self) -> tuple[int, tuple[int | None, ...]]:
        return 0, (None, None)

    def steps(self, state: tuple[int, tuple[int | None, ...]]) -> Iterator[Step[tuple[int, tuple[int | None, ...]]]]:
        counter, read = state
        for actor, value in enumerate(read):
            if value == -1:
                continue
            if self._atomic or value is not None:
                written = (counter if value is None else value) + 1
                yield Step(f"{actor} writes {written}", (written, _with(read, actor, -1)))
            else:
                yield Step(f"{actor} reads {counter}", (counter, _with(read, actor, counter)))

    def broken_rule(self, state: tuple[int, tuple[int | None, ...]]) -> str:
        counter, read = state
        return "an increment is lost" if read == (-1, -1) and counter != 2 else ""

    def is_end(self, state: tuple[int, tuple[int | None, ...]]) -> bool:
        return state[1] == (-1, -1)


def _with(values: tuple[int | None, ...], at: int, value: int) -> tuple[int | None, ...]:
    return (*values[:at], value, *values[at + 1 :])


def test_every_interleaving_is_explored_once() -> None:
    assert explore(Counters(atomic=True)) == Exploration(states=4, steps=4, depth=2, ends=1, complete=True)


def test_a_lost_update_is_found_with_its_shortest_trace() -> None:
    with pytest.raises(RuleBroken) as caught:
        explore(Counters(atomic=False))
    assert caught.value.rule == "an increment is lost"
    assert caught.value.trace == ("0 reads 0", "1 reads 0", "0 writes 1", "1 writes 1")
    assert "  3. 0 writes 1\n  4. 1 writes 1\n  => (1, (-1, -1))" in str(caught.value)


def test_a_bounded_exploration_says_that_it_is_not_complete() -> None:
    assert explore(Counters(atomic=False), max_depth=3).complete is False


class Graph:
    """The model whose steps are the edges of a graph."""

    def __init__(self, edges: dict[int, Iterable[int]], *, end: int, forbidden: tuple[int, int] | None = None) -> None:
        self._edges, self._end, self._forbidden = edges, end, forbidden

    def begin(self) -> int:
        return 0

    def steps(self, state: int) -> Iterator[Step[int]]:
        for to in self._edges.get(state, ()):
            yield Step(f"to {to}", to, "that way is closed" if (state, to) == self._forbidden else "")

    def broken_rule(self, _state: int) -> str:
        return ""

    def is_end(self, state: int) -> bool:
        return state == self._end


def test_a_state_without_a_step_must_be_an_end() -> None:
    with pytest.raises(RuleBroken, match="no step is possible") as caught:
        explore(Graph({0: [1, 2], 1: [3]}, end=3))
    assert caught.value.trace == ("to 2",)


def test_a_circle_that_no_end_can_be_reached_from_is_found() -> None:
    with pytest.raises(RuleBroken, match="no end can be reached") as caught:
        explore(Graph({0: [1, 2], 1: [4], 2: [3], 3: [2]}, end=4))
    assert caught.value.trace == ("to 2",)


def test_a_circle_that_can_be_left_is_no_fault() -> None:
    assert explore(Graph({0: [1], 1: [0, 2]}, end=2)).ends == 1


def test_a_step_may_break_a_rule_by_itself() -> None:
    with pytest.raises(RuleBroken, match="that way is closed") as caught:
        explore(Graph({0: [1, 2], 1: [2]}, end=2, forbidden=(1, 2)))
    assert caught.value.trace == ("to 1", "to 2")


class Endless(Graph):
    def steps(self, state: int) -> Iterator[Step[int]]:
        yield Step("one more", state + 1)


def test_a_model_without_a_bound_is_told() -> None:
    with pytest.raises(TooManyStates, match="more than 50 states"):
        explore(Endless({}, end=-1), max_states=50)
