"""How long /healthz waits while a server is attacked, one attack after the other.

    python -m bench attacks
    python -m bench attacks --docs      also writes the table of docs/security.md: the worst of each kind

The attacks are those of tests/attacks. The server is a real `tailrace serve`, the prober a process of its own that asks
every 5 ms; the figures are its worst answer from the beginning of the attack until `SETTLE_S` after its end, and how
much more memory than idle the server had at most meanwhile. Each attack has a server of its own. A second server
measures the CPU time of its loop's longest callback: other load of the machine makes the first figure larger, and not
that one. The last table has the attacks that miss a bound.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attacks.attacked_server import TIMED_SERVER, attacked_server
from attacks.catalogue import ATTACKS

IDLE_S = 1.0
SETTLE_S = 2.0  # what an attack has left behind to do is measured too
BOUND_MS, BOUND_MB = 100.0, 150.0

PAGE = Path(__file__).parents[1] / "docs" / "security.md"
HEAD = "attack | loop | `/healthz` | memory\n---|---|---|---\n"
DOCUMENTED = {
    "arguments_of_five_megabytes": "5 MB tool arguments",
    "one_letter_cut": "5 MB of one letter, cut",
    "endless_answer": "endless agent's answer",
    "endless_raw_answer": "endless raw answer",
    "packed_answers": "250 MB of packed comments",
    "many_large_bodies": "12 bodies of 30 MB",
    "growing_bodies": "300 growing bodies of 2 MB",
    "gzip_without_a_key": "12 gzip bodies, no key",
    "unread_approval_streams": "300 unread approval streams",
}


class Figures(NamedTuple):
    """The longest callback, the worst /healthz, and memory beyond idle."""

    callback_ms: float
    healthz_ms: float
    more_mb: float


def documented(page: str, measured: Mapping[str, Figures], load: float) -> str:
    """The page with these figures in its table. Attacks that it does not name are one row, of the worst of each."""
    rest = [figures for name, figures in measured.items() if name not in DOCUMENTED]
    rows = [(words, measured[name]) for name, words in DOCUMENTED.items()]
    rows.append(("each other", Figures(*map(max, zip(*rest, strict=True)))))
    lines = [f"{words} | {each[0]:.0f} ms | {each[1]:.0f} ms | +{each[2]:.0f} MB" for words, each in rows]
    before, head, after = page.partition(HEAD)
    _, _, after = after.partition("\n\n")  # the old rows,
    _, _, after = after.partition("\n")  # and how they were measured
    told = "\n".join(lines)
    return f"{before}{head}{told}\n\n{os.cpu_count()} cores, load {load:.1f} before.\n{after}"


async def measure(measured: dict[str, Figures]) -> list[Table]:
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
        measured[attack.name] = Figures(figures[2], figures[0], figures[1])
        if waited.worst_ms > BOUND_MS or more_mb > BOUND_MB:
            missed.row(attack.what, *figures)
        print(f"{attack.name}: {waited.worst_ms:.0f} ms, +{more_mb:.0f} MB, {figures[-1]:.0f} ms of CPU", flush=True)
    return [table, missed]


def main(options: Sequence[str] = ()) -> list[Table]:
    parser = argparse.ArgumentParser(prog="python -m bench attacks")
    parser.add_argument("--docs", action="store_true", help="write the table of docs/security.md")
    args = parser.parse_args(options)
    load, measured = os.getloadavg()[0], dict[str, Figures]()
    tables = asyncio.run(measure(measured))
    if args.docs:
        PAGE.write_text(documented(PAGE.read_text(encoding="utf-8"), measured, load), encoding="utf-8")
    return tables
