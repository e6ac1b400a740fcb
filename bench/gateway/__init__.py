"""Tailrace beside bare prototypes, nginx and other gateways: the same load on each, in one run.

    python -m bench gateway                    everything, about half an hour
    python -m bench gateway --quick            about two minutes
    python -m bench gateway --only own,raw     two of them
    python -m bench gateway --docs             also writes the table and the chart of docs/performance.md

`native` is the provider and the load generator, `programs` and `peers` are what is measured, `measure` says how,
`report` makes tables of it, `chart` a picture.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.table import Table

DOCS = Path(__file__).parents[2] / "docs"
BUSY = 0.1  # of the cores, by other work: from here on latencies are not the programs'


def main(options: Sequence[str] = ()) -> list[Table]:
    from bench.gateway.measure import QUICK, WHOLE, busy_elsewhere, measure, say
    from bench.gateway.native import NoCompiler, compiled
    from bench.gateway.peers import PEERS
    from bench.gateway.programs import OWN
    from bench.gateway.report import tables, write_docs

    programs = [*PEERS[:3], *OWN, *PEERS[3:]]
    parser = argparse.ArgumentParser("python -m bench gateway", description="Gateways side by side, in one run.")
    parser.add_argument("--quick", action="store_true", help="about two minutes; the paced figures are coarse")
    parser.add_argument("--only", metavar="NAMES", help=f"of {','.join(p.name for p in programs)}")
    parser.add_argument("--docs", action="store_true", help="write docs/performance.md's table and its chart")
    args = parser.parse_args(options)
    only = args.only.split(",") if args.only else [program.name for program in programs]
    if unknown := [name for name in only if name not in [program.name for program in programs]]:
        parser.error(f"no such program: {', '.join(unknown)}")
    if sys.platform != "linux":
        print("error: this benchmark needs Linux: epoll, /proc and a core for each side", file=sys.stderr)
        raise SystemExit(1)
    try:
        compiled("provider")
    except NoCompiler as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    _raise_file_limit()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # on the way out the programs are ended too
    if (busy := busy_elsewhere()) > BUSY:
        say(f"  other work takes {busy:.0%} of the cores: first tokens will say little, and all costs more")
    effort = QUICK if args.quick else WHOLE
    figures = measure([program for program in programs if program.name in only], effort)
    if args.docs:
        write_docs(figures, DOCS, quick=args.quick, busy=busy)
    return tables(figures)


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
