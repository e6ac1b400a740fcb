"""How long /healthz waits while a server is attacked, one attack after the other.

    python -m bench attacks

The attacks are those of tests/attacks. The server is a real `tailrace serve`, the prober a process of its own that asks
every 5 ms; the figures are its worst answer from the beginning of the attack to its end, and how much more memory than
idle the server had at most meanwhile. Each attack has a server of its own. A second server measures the CPU time of its
loop's longest callback: other load of the machine makes the first figure larger, and not that one.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from bench.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attacks.attacked_server import TIMED_SERVER, attacked_server
from attacks.catalogue import ATTACKS

IDLE_S = 1.0


async def measure() -> Table:
    columns = ("it took s", "/healthz worst ms", "peak MB more", "longest callback ms")
    table = Table("worst /healthz through each attack", "attack", *columns)
    for attack in ATTACKS:
        with tempfile.TemporaryDirectory() as home:
            async with attacked_server(Path(home)) as server:
                await asyncio.sleep(IDLE_S)
                idle, idle_mb = await server.waited(), server.peak_mb()
                if attack is ATTACKS[0]:
                    table.row("(idle)", IDLE_S, idle.worst_ms, 0, 0)
                begun = time.perf_counter()
                await attack.run(server)
                took_s = time.perf_counter() - begun
                waited, more_mb = await server.waited(), server.peak_mb() - idle_mb
        with tempfile.TemporaryDirectory() as home:
            async with attacked_server(Path(home), str(TIMED_SERVER)) as server:
                await asyncio.sleep(IDLE_S)
                await server.longest_callback_ms()
                await attack.run(server)
                table.row(attack.what, took_s, waited.worst_ms, more_mb, await server.longest_callback_ms())
    return table


def main() -> Table:
    return asyncio.run(measure())
