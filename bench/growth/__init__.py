"""How the cost grows: per token and per run against runs in the store, entries in a log, turns in a session, viewers,
nodes and tokens per second.

    python -m bench growth                        everything, about twenty minutes
    python -m bench growth --quick                stores up to 10,000 runs, a short load, in two minutes
    python -m bench growth --only store,volume    some of it

Costs are CPU time: of this process, and of PostgreSQL's. A line is flat where its last figure is about the first.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.table import Table


def main(options: Sequence[str] = ()) -> list[Table]:
    from bench.growth import knee, store, watching

    parts: dict[str, Callable[[bool], list[Table]]] = {
        "store": store.by_runs,
        "history": store.by_history,
        "volume": store.volume,
        "knee": knee.one_postgres,
        "viewers": watching.viewers,
        "lengths": watching.lengths,
        "streams": watching.streams,
    }
    parser = argparse.ArgumentParser("python -m bench growth", description="How the cost grows.")
    parser.add_argument("--quick", action="store_true", help="small stores and short loads")
    parser.add_argument("--only", metavar="PARTS", help=f"of {','.join(parts)}")
    args = parser.parse_args(options)
    only = args.only.split(",") if args.only else list(parts)
    if unknown := [name for name in only if name not in parts]:
        parser.error(f"no such part: {', '.join(unknown)}")
    if not Path("/usr/lib/postgresql").exists():
        print("PostgreSQL is not installed in /usr/lib/postgresql: its part is not measured")
        only = [name for name in only if name != "knee"]
    if shutil.which("cc") is None:
        print("no C compiler: raw streams are not measured")
        only = [name for name in only if name not in ("lengths", "streams")]
    for name in only:
        for table in parts[name](args.quick):
            print(f"\n{table}", flush=True)  # now: a part takes minutes
    return []
