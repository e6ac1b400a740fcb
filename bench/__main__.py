"""Runs the benchmarks: every module beside this one that has a `main()`, or those that are named.

    python -m bench                     all of them
    python -m bench wire journal        these
    python -m bench gateway --quick     one, with its options; `--help` says which it has

A benchmark's `main()` measures and returns a `Table` (or prints by itself and returns None). One that has options is a
package whose `main(options)` reads them.
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
    """The benchmarks there are: public modules and packages whose source defines a `main`."""
    modules = {path.stem: path for path in HERE.glob("*.py")}
    packages = {path.parent.name: path for path in HERE.glob("*/__init__.py")}
    return sorted(
        name
        for name, path in (modules | packages).items()
        if not name.startswith("_") and "\ndef main(" in path.read_text(encoding="utf-8")
    )


def main(argv: Sequence[str]) -> int:
    known = names()
    if argv and argv[0] in ("-h", "--help"):
        print(f"{__doc__}\nThere are: {', '.join(known)}")
        return 0
    if len(argv) > 1 and argv[0] in known and argv[1].startswith("-"):
        return _run_with_options(argv[0], argv[1:])
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


def _run_with_options(name: str, options: Sequence[str]) -> int:
    module = import_module(f"bench.{name}")
    if not module.main.__code__.co_argcount:
        print(f"error: {name} has no options", file=sys.stderr)
        return 2
    for table in module.main(options) or []:
        print(f"\n{table}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
