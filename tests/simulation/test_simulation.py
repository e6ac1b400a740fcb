"""Worlds of many seeds keep every rule, and the same world is the same run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from proof.simulation.draw import world_of
from proof.simulation.simulation import simulate
from proof.simulation.world import Ask, Bad, Kill, Said, Watch, World

SEEDS = int(os.environ.get("TAILRACE_SEEDS", "2000"))  # `make simulate` runs as many as one likes
PIECES = 8  # shared by the workers of the test run
_DIGESTS = """
from proof.simulation.draw import world_of
from proof.simulation.simulation import simulate
print([simulate(world_of(seed)).digest for seed in range(12)])
"""


@pytest.mark.parametrize("piece", range(PIECES))
def test_no_world_breaks_a_rule(piece: int) -> None:
    for seed in range(piece, SEEDS, PIECES):
        outcome = simulate(world_of(seed))
        assert outcome.broken == (), f"seed {seed}: {outcome.world!r}"


def test_the_same_seed_is_the_same_run_in_another_process_and_with_another_hash_seed() -> None:
    expected = str([simulate(world_of(seed)).digest for seed in range(12)])
    for hash_seed in ("1", "7"):
        run = subprocess.run(
            [sys.executable, "-c", _DIGESTS],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == expected


def test_another_noise_is_another_run() -> None:
    assert simulate(World(noise=1)).digest != simulate(World(noise=2)).digest


def test_a_world_prints_as_the_literal_that_makes_it_again() -> None:
    for seed in range(50):
        world = world_of(seed)
        names = {kind.__name__: kind for kind in (World, Said, Bad, *map(type, world.happenings))}
        assert eval(repr(world), names) == world  # noqa: S307 - our own literal


@pytest.mark.parametrize("pages", [False, True])
def test_a_crowd_is_served_in_rounds(pages: bool) -> None:
    asked, watched = (
        Ask(at=0.1, said=(Said(words=40, faults=(Bad("drip"),)),)),
        Watch(at=0.1, pages=pages, live=True, crowd=5),
    )
    at_once = simulate(World(happenings=(asked, watched)))
    in_rounds = simulate(World(rounds=True, happenings=(asked, watched)))
    assert (at_once.broken, in_rounds.broken) == ((), ())
    entries, pieces = "entry handed to a viewer", "piece handed to a viewer"
    assert in_rounds.counts[entries] / in_rounds.counts[pieces] > 1.5 * at_once.counts[entries] / at_once.counts[pieces]


def test_a_killed_process_runs_no_line_of_its_own_after_that() -> None:
    world = World(nodes=2, happenings=(Ask(at=0.1, said=(Said(words=40),)), Watch(at=0.1), Kill(at=0.3, back_s=60.0)))
    outcome = simulate(world, keep_trace=True)
    assert outcome.broken == ()
    after = outcome.trace[next(number for number, line in enumerate(outcome.trace) if "dead n0.1" in line) + 1 :]
    assert not any("n0.1" in line for line in after)
