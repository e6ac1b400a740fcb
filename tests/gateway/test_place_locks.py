from __future__ import annotations

import asyncio
import random

import pytest
from proof.memory_platform import MemoryPlatform

from tailrace.delivery.consumer import ChatLines
from tailrace.delivery.port import Capabilities, Place
from tailrace.gateway.conversations import PlaceLocks
from tailrace.testing.clock import driven

PLACE = Place("telegram", "42")


@driven
async def test_a_task_that_comes_when_the_lock_is_handed_on_waits_too() -> None:
    """The first leaves, the second is about to enter, the third comes in between."""
    locks = PlaceLocks()
    inside: list[str] = []
    seen: list[str] = []
    may_leave = asyncio.Event()

    async def enter(name: str) -> None:
        async with locks.of(PLACE):
            inside.append(name)
            assert len(inside) == 1
            seen.append(name)
            await may_leave.wait()
            await asyncio.sleep(1)
            inside.remove(name)

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(enter("first"))
        tasks.create_task(enter("second"))
        await asyncio.sleep(1)
        first.add_done_callback(lambda _: tasks.create_task(enter("third")))
        may_leave.set()
    assert seen == ["first", "second", "third"]


@pytest.mark.parametrize("seed", range(20))
@driven
async def test_each_place_has_one_task_at_a_time_in_order_and_leaves_nothing(seed: int) -> None:
    rng, locks = random.Random(seed), PlaceLocks()
    inside: dict[str, int] = {}
    seen: dict[str, list[int]] = {}

    async def enter(place: Place, number: int) -> None:
        async with locks.of(place):
            assert place.key not in inside
            inside[place.key] = number
            seen.setdefault(place.key, []).append(number)
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.01]))
            del inside[place.key]

    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(enter(Place("telegram", str(rng.randrange(3))), number))
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.005]))
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert len(locks) == 0


def test_lines_of_chats_are_bounded_and_one_in_use_is_never_replaced() -> None:
    lines = ChatLines(MemoryPlatform(Capabilities()), limit=10)
    held = lines.to(PLACE)
    for number in range(1000):
        lines.to(Place("telegram", f"c{number}"))
    assert len(lines) == 11
    assert lines.to(PLACE) is held
    assert lines.to(Place("telegram", "42", thread="7")) is held
