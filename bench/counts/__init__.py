"""Function calls, memory blocks and cycles of `tailrace serve`, per request, token, commit and viewer: no clock.

    python -m bench counts             prints the counts, and the table of ceilings to paste into the test
    python -m bench counts --write     also stores the profile that a failure of the test is compared with

`served` is the counted server, `peer` its provider and clients, `cases` what is counted, `compare` the ceilings.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.table import Table


def main(options: Sequence[str] = ()) -> list[Table]:
    from bench.counts.cases import count_all, counted_server
    from bench.counts.compare import ceilings_to_paste, store_profile

    parser = argparse.ArgumentParser("python -m bench counts", description="What requests and tokens cost, counted.")
    parser.add_argument("--write", action="store_true", help="store the profile in tests/speed/profile.json")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="the N most called functions of each count")
    args = parser.parse_args(options)
    with counted_server() as server:
        counts = count_all(server)
    table = Table("per unit", "count", "value", "unit")
    for count in counts:
        table.row(count.name, count.value, count.unit)
        for function, calls in sorted(count.profile.items(), key=lambda item: -item[1])[: args.top]:
            table.row("", calls, f"  {function}")
    if args.write:
        store_profile(counts)
    print(ceilings_to_paste(counts))
    return [table]
