"""Nothing that is sent to a server holds it up (L140, L142, L143, O176, O181): no callback of its loop takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from attacks.attacked_server import TIMED_SERVER, attacked_server
from attacks.catalogue import ATTACKS

# CPU time, which no other load of the machine makes longer. What this is about took 5 s to hours; docs/security.md has
# the figures, which `python -m bench attacks` measures.
BOUND_MS = 3000.0
BOUND_MB = 700.0  # twelve bodies of 30 MB took 1.4 GB


@pytest.mark.timeout(900)
async def test_L140_L142_L143_no_attack_holds_up_the_loop(tmp_path: Path) -> None:
    longest: dict[str, float] = {}
    async with attacked_server(tmp_path / "home", str(TIMED_SERVER)) as server:
        await server.longest_callback_ms()
        for attack in ATTACKS:
            await attack.run(server)
            longest[attack.name] = await server.longest_callback_ms()
        peak_mb = server.peak_mb()
        waited = await server.waited()
    assert {name: ms for name, ms in longest.items() if ms > BOUND_MS} == {}
    assert waited.answers, "/healthz answers"
    assert peak_mb < BOUND_MB
