"""Runs the benchmarks: every module beside this one that has a `main()`, or those that are named.

A benchmark's `main()` measures and returns a `Table` (or prints by itself and returns None).
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from bench.table import Table

HERE = Path(__file__).parent


def names() -> list[str]:
    """The benchmarks there are: public modules whose source defines a `main`."""
    return sorted(
        path.stem
        for path in HERE.glob("*.py")
        if not path.stem.startswith("_") and "\ndef main(" in path.read_text(encoding="utf-8")
    )


def main(argv: Sequence[str]) -> int:
    known = names()
    if unknown := [name for name in argv if name not in known]:
        print(
            f"error: no such benchmark: {', '.join(unknown)}; there are: {', '.join(known) or 'none'}", file=sys.stderr
        )
        return 2
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} when it began\n")
    for name in argv or known:
        print(f"── {name} ".ljust(100, "─"), flush=True)
        begin = time.perf_counter()
        tables = import_module(f"bench.{name}").main()
        for table in [tables] if isinstance(tables, Table) else tables or []:
            print(f"\n{table}")
        print(f"\n({time.perf_counter() - begin:.1f} s)\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
