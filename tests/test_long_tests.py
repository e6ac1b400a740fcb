"""The long tests come early, each worker has some of them, and every test is run."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from long_tests import LONG, SHARED, dealt
from slow_tests import SLOW

TESTS = Path(__file__).parent


class Named:
    """All that is read of an item."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def collected(*counts: tuple[str, int]) -> list[pytest.Item]:
    named = [Named(f"tests/{file}::test_it[{number}]") for file, count in counts for number in range(count)]
    return cast("list[pytest.Item]", named)


def test_the_files_that_are_named_are_there() -> None:
    assert [name for name in (*LONG, *SHARED, *SLOW) if not (TESTS / name).exists()] == []


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_each_worker_has_long_tests_first_or_in_the_middle(workers: int) -> None:
    items = collected(("agent/test_turn.py", 50), ("cluster/test_kills.py", 3), ("simulation/test_simulation.py", 7))
    order = dealt(items, workers)
    assert sorted(item.nodeid for item in order) == sorted(item.nodeid for item in items)
    size = len(items) / workers
    parts = [order[round(number * size) : round((number + 1) * size)] for number in range(workers)]
    for number, part in enumerate(parts):
        long = [item.nodeid.startswith(("tests/cluster", "tests/simulation")) for item in part]
        assert sum(long) in (10 // workers, 10 // workers + 1)
        first = long.index(True)
        assert all(long[first : first + sum(long)])
        assert first == ((len(part) - sum(long)) // 2 if number % 2 else 0)


def test_tests_that_share_what_their_module_started_stay_together() -> None:
    shared = SHARED[1]
    order = [item.nodeid for item in dealt(collected((shared, 5), ("cluster/test_kills.py", 3), ("a.py", 40)), 4)]
    places = [number for number, nodeid in enumerate(order) if shared in nodeid]
    assert places == list(range(places[0], places[0] + 5))


def test_more_long_tests_than_a_worker_has_room_for() -> None:
    items = collected(("cluster/test_outages.py", 9), ("a.py", 2))
    assert sorted(item.nodeid for item in dealt(items, 4)) == sorted(item.nodeid for item in items)
