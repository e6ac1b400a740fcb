"""How long /healthz waits while a server is attacked, one attack after the other.

    python -m bench attacks

The attacks are those of tests/attacks. The server is a real `tailrace serve`, the prober a process of its own that asks
every 5 ms; the figure is its worst answer from the beginning of the attack to its end.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from bench.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attacks.attacked_server import attacked_server
from attacks.catalogue import ATTACKS

IDLE_S = 3.0


async def measure() -> Table:
    table = Table("worst /healthz through each attack", "attack", "it took s", "/healthz worst ms", "answers")
    with tempfile.TemporaryDirectory() as home:
        async with attacked_server(Path(home)) as server:
            await asyncio.sleep(IDLE_S)
            idle = await server.waited()
            table.row("(idle)", IDLE_S, idle.worst_ms, idle.answers)
            for attack in ATTACKS:
                begun = time.perf_counter()
                await attack.run(server)
                took_s = time.perf_counter() - begun
                waited = await server.waited()
                table.row(attack.what, took_s, waited.worst_ms, waited.answers)
            table.row("(peak memory of the server, MB)", 0, server.peak_mb(), 0)
    return table


def main() -> Table:
    return asyncio.run(measure())
