"""Worlds on PostgreSQL: the real journal, driver and server keep every rule, in the order that the seed decides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from proof.simulation import postgres_server
from proof.simulation.draw import world_of
from proof.simulation.simulation import simulate
from proof.simulation.world import Ask, Kill, Said, StoreFault, Watch, World

from simulation.mistakes import hangs_too_long, has
from tailrace.integrations.postgres import commits
from tailrace.integrations.postgres.address import is_lost
from tailrace.integrations.postgres.wakeups import Wakeup

SEEDS = int(os.environ.get("TAILRACE_POSTGRES_SEEDS", "40"))
PIECES = 4
SUITING = 60  # worlds in which a mistake can show
_DIGESTS = """
from proof.simulation.draw import world_of
from proof.simulation.simulation import simulate
print([simulate(world_of(seed, "postgres")).digest for seed in (3, 2, 1, 0)][::-1])
"""
pytestmark = pytest.mark.skipif(not postgres_server.is_installed(), reason="PostgreSQL is not installed")


@pytest.mark.parametrize("piece", range(PIECES))
def test_no_world_on_postgresql_breaks_a_rule(piece: int) -> None:
    for seed in range(piece, SEEDS, PIECES):
        outcome = simulate(world_of(seed, "postgres"))
        assert outcome.broken == (), f"seed {seed}: {outcome.world!r}"


def test_the_same_seed_is_the_same_run_on_another_server_and_in_another_order() -> None:
    expected = str([simulate(world_of(seed, "postgres")).digest for seed in range(4)])
    environment = {name: value for name, value in os.environ.items() if name != postgres_server.URL}
    run = subprocess.run([sys.executable, "-c", _DIGESTS], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == expected


def test_a_transaction_is_lost_with_the_process_that_dies_in_it() -> None:
    asked = Ask(at=0.1, said=(Said(words=40),))
    world = World(store="postgres", nodes=2)
    kills = [Kill(at=0.3, steps=steps, back_s=60.0) for steps in range(1, 24, 2)]
    cut = [simulate(replace(world, happenings=(asked, kill))) for kill in kills]
    assert [outcome.broken for outcome in cut] == [()] * len(cut)
    assert any(outcome.counts.get("transaction cut off") for outcome in cut)


def lost_group() -> tuple[object, str, object]:
    attempt = commits.Commits._attempt

    async def taken_for_written(self: Any, connection: Any, group: Any) -> None:
        try:
            await attempt(self, connection, group)
        except Exception as exc:
            if not is_lost(exc):
                raise

    return commits.Commits, "_attempt", taken_for_written


def unfenced_append() -> tuple[object, str, object]:
    return commits, "APPEND", commits.APPEND.replace("AND h.epoch = w.epoch AND h.owner = w.owner", "")


def silent_commit() -> tuple[object, str, object]:
    return Wakeup, "encoded", lambda _wakeup: ""


def breaks(world: World) -> bool:
    """Connections break while something may be written."""
    faults = [one.at for one in world.happenings if isinstance(one, StoreFault) and one.kind == "io"]
    return any(ask.at < at < ask.at + 2.0 for ask in world.asks for at in faults)


class Mistake(NamedTuple):
    """`plant` says what stands where instead; `suits` are the worlds in which it can show, from the first seed on."""

    plant: Callable[[], tuple[object, str, object]]
    suits: Callable[[World], bool]
    first: int


MISTAKES = {
    "a group whose connection was lost is taken for written": Mistake(lost_group, breaks, 1700),
    "entries of an old claim are written": Mistake(unfenced_append, hangs_too_long, 4165),
    "a commit wakes no viewer": Mistake(silent_commit, lambda world: has(world, Watch) and world.nodes > 1, 1500),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_planted_in_the_journal_on_postgresql_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, suits, first = MISTAKES[name]
    worlds = [world for seed in range(first, first + 2000) if suits(world := world_of(seed, "postgres"))][:SUITING]
    monkeypatch.setattr(*plant())
    found = next((world for world in worlds if simulate(world).broken), None)
    monkeypatch.undo()
    assert found is not None
    assert simulate(found).broken == (), "without the mistake the world breaks no rule"
