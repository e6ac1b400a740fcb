"""How long /healthz waits while a server is attacked, one attack after the other.

    python -m bench attacks

The attacks are those of tests/attacks. The server is a real `tailrace serve`, the prober a process of its own that asks
every 5 ms; the figures are its worst answer from the beginning of the attack until `SETTLE_S` after its end, and how
much more memory than idle the server had at most meanwhile. Each attack has a server of its own. A second server
measures the CPU time of its loop's longest callback: other load of the machine makes the first figure larger, and not
that one. On two quiet cores no attack misses a bound; the last table has those that do.
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
SETTLE_S = 2.0  # what an attack has left behind to do is measured too
BOUND_MS, BOUND_MB = 100.0, 150.0


async def measure() -> list[Table]:
    columns = ("it took s", "/healthz worst ms", "peak MB more", "longest callback ms")
    table = Table("worst /healthz through each attack", "attack", *columns)
    missed = Table(f"attacks over {BOUND_MS:g} ms or {BOUND_MB:g} MB", "attack", *columns[1:])
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
                await asyncio.sleep(SETTLE_S)
                waited, more_mb = await server.waited(), server.peak_mb() - idle_mb
        with tempfile.TemporaryDirectory() as home:
            async with attacked_server(Path(home), str(TIMED_SERVER)) as server:
                await asyncio.sleep(IDLE_S)
                await server.longest_callback_ms()
                await attack.run(server)
                await asyncio.sleep(SETTLE_S)
                figures = (waited.worst_ms, more_mb, await server.longest_callback_ms())
        table.row(attack.what, took_s, *figures)
        if waited.worst_ms > BOUND_MS or more_mb > BOUND_MB:
            missed.row(attack.what, *figures)
        print(f"{attack.name}: {waited.worst_ms:.0f} ms, +{more_mb:.0f} MB, {figures[-1]:.0f} ms of CPU", flush=True)
    return [table, missed]


def main() -> list[Table]:
    return asyncio.run(measure())
