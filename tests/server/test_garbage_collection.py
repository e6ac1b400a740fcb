"""A server collects garbage when few streams would wait for it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from typing import Any

import pytest

from tailrace.server import garbage_collection
from tailrace.server.garbage_collection import FEW, GROWN_BYTES, FullCollections, collected_when_quiet, memory_bytes

MANY = 50 * FEW


class Knot:
    """An object in a cycle with itself."""

    freed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Knot.freed += 1


@pytest.mark.parametrize(
    ("seconds", "grown", "young", "in_flight", "due"),
    [
        (3600, 0, 0, 0, None),  # nothing is new
        (3600, 0, 9, 0, "quiet"),
        (3600, 0, 9, FEW, "quiet"),  # a page that stays open does not put it off for ever
        (5, 0, 9, 0, None),
        (3600, 0, 9, MANY, None),
        (3600, GROWN_BYTES, 9, MANY, "memory"),
        (5, GROWN_BYTES, 9, MANY, "memory"),
        (5, GROWN_BYTES // 2, 9, MANY, None),
        (5, GROWN_BYTES, 0, MANY, None),  # a body that was read: no objects
    ],
)
def test_L148_a_full_collection_waits_for_a_quiet_moment(
    seconds: float, grown: int, young: int, in_flight: int, due: str | None
) -> None:
    start = GROWN_BYTES // 3
    assert FullCollections(0, start, 0).due(seconds, start + grown, young, in_flight) == due


def test_memory_that_is_in_use_is_not_looked_at_again_before_it_has_doubled() -> None:
    full = FullCollections(0, 0, 0)
    full.made(1, 2 * GROWN_BYTES, 1)
    assert full.due(2, 2 * GROWN_BYTES + GROWN_BYTES, 2, MANY) is None
    assert full.due(2, 4 * GROWN_BYTES, 2, MANY) == "memory"


async def test_L148_the_interpreter_makes_no_collection_that_grows_with_the_streams() -> None:
    seen: list[int] = []

    def count(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    before = gc.get_threshold()
    async with collected_when_quiet(lambda: MANY):
        gc.callbacks.append(count)
        try:
            held = [[index] for index in range(300_000)]
        finally:
            gc.callbacks.remove(count)
    assert len(held) == 300_000
    assert set(seen) == {0}
    assert gc.get_threshold() == before


@pytest.mark.parametrize("reason", ["quiet", "memory"])
async def test_a_cycle_that_has_grown_old_is_freed(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr(garbage_collection, "LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(garbage_collection, "STEP_EVERY_S", 0.001)
    monkeypatch.setattr(garbage_collection, "QUIET_EVERY_S", 0.0 if reason == "quiet" else 1e9)
    monkeypatch.setattr(garbage_collection, "GROWN_BYTES", -(1 << 60) if reason == "memory" else 1 << 60)
    monkeypatch.setattr(FullCollections, "_memory_bytes", property(lambda _: 0, lambda *_: None), raising=False)
    Knot.freed = 0
    async with collected_when_quiet(lambda: 0 if reason == "quiet" else MANY):
        knot = Knot()
        gc.collect(0)  # it is in an older generation now
        del knot
        gc.collect(0)
        assert not Knot.freed
        async with asyncio.timeout(20):
            while not Knot.freed:
                await asyncio.sleep(0.001)
                gc.collect(0)


async def test_L148_new_objects_do_not_pile_up_behind_the_old_ones_that_are_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage_collection, "STEP_EVERY_S", 0.001)
    async with collected_when_quiet(lambda: MANY):
        held = [[index] for index in range(1000)]
        async with asyncio.timeout(20):
            while any(found is held[-1] for found in gc.get_objects(0)):  # noqa: ASYNC110 - the collector has no event
                await asyncio.sleep(0.001)


def test_memory_is_known() -> None:
    assert memory_bytes() > 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are those of glibc")
def test_O178_freed_texts_go_back_to_the_system() -> None:
    """In a process of its own: the limits hold for all of it."""
    program = """
import sys
from tailrace.server.garbage_collection import memory_bytes, return_freed_memory
assert return_freed_memory() or sys.exit(0)
big = b"x" * 30_000_000
del big  # glibc keeps texts of this size in its heap from now on
before = memory_bytes()
texts, kept = [], []
for _ in range(100):
    texts.append(b'x' * (1_000_000 + len(texts)))
    kept.append(b'x' * (2000 + len(texts)))
del texts
print(memory_bytes() - before)
"""
    grown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    assert int(grown or 0) < 20_000_000
