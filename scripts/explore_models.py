"""Explores the models of `tests/model_checking` and prints a row for each. docs/reliability.md has their sums.

`--long` explores the worlds of `TAILRACE_SOAK=10` too, which takes minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from proof.model_checking import Model, explore

from model_checking import test_delivery, test_lease, test_steering
from model_checking.delivery_model import Bounds, DeliveryModel
from model_checking.lease_model import LeaseModel
from model_checking.run_store import RunStore
from model_checking.steering_model import SteeringModel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="the long worlds too")
    long = parser.parse_args().long
    print("| model | world | states | steps | longest way | ends | CPU |\n|---|---|---:|---:|---:|---:|---:|")
    total = 0
    for name, world, model in _models(long=long):
        began = time.process_time()
        found = explore(model)
        cpu_s = time.process_time() - began
        total += found.states
        figures = f"{found.states:,} | {found.steps:,} | {found.depth} | {found.ends:,} | {cpu_s:.1f} s"
        print(f"| {name} | {world} | {figures} |", flush=True)
    print(f"\n{total:,} states")


def _models(*, long: bool) -> Iterator[tuple[str, str, Model[Any]]]:
    for world, lease_bounds in (test_lease.WORLDS | test_lease.LONG if long else test_lease.WORLDS).items():
        with closing(RunStore()) as store:
            yield "lease", world, LeaseModel(store, lease_bounds)
    for world, steering_bounds in (test_steering.WORLDS | test_steering.LONG if long else test_steering.WORLDS).items():
        with closing(RunStore()) as store:
            yield "steering", world, SteeringModel(store, steering_bounds)
    for platform, faults in test_delivery.ALL_WORLDS if long else test_delivery.WORLDS:
        bounds = Bounds(test_delivery.PLATFORMS[platform], faults=test_delivery.ALL_FAULTS[faults])
        yield "delivery", f"{platform}: {faults}", DeliveryModel(bounds)


if __name__ == "__main__":
    main()
