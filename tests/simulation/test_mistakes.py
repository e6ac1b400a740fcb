"""The simulation can fail: a mistake that is planted in the product is found within so many worlds that can show it."""

from __future__ import annotations

import pytest
from proof.simulation.draw import world_of
from proof.simulation.simulation import simulate

from simulation.mistakes import MISTAKES

SEEDS = 4000
WORLDS = 120


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str) -> None:
    plant, suits = MISTAKES[name]
    worlds = [world for world in map(world_of, range(SEEDS)) if suits(world)][:WORLDS]
    with plant():
        found = next((world for world in worlds if simulate(world).broken), None)
    assert found is not None
    assert simulate(found).broken == (), "without the mistake the world breaks no rule"
