"""Nothing that is sent to a server holds it up (L140, L142, L143): /healthz answers all the while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from attacks.attacked_server import attacked_server
from attacks.catalogue import ATTACKS

IDLE_S = 1.0
# For a busy machine that has other tests to run: what this is about took 5 s to hours. `python -m bench attacks` has
# the exact figures.
BOUND_MS = 1500.0
BOUND_MB = 900.0  # twelve bodies of 30 MB took 1.4 GB


@pytest.mark.timeout(600)
async def test_L140_L142_L143_healthz_answers_through_every_attack(tmp_path: Path) -> None:
    async with attacked_server(tmp_path / "home") as server:
        await asyncio.sleep(IDLE_S)  # the baseline is a measurement, nothing is waited for
        idle = await server.waited()
        waited = {}
        for attack in ATTACKS:
            await attack.run(server)
            waited[attack.name] = (await server.waited()).worst_ms
        peak_mb = server.peak_mb()
    bound_ms = max(BOUND_MS, 20 * idle.worst_ms)
    assert {name: worst for name, worst in waited.items() if worst > bound_ms} == {}
    assert peak_mb < BOUND_MB
