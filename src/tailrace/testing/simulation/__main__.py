"""`python -m tailrace.testing.simulation`: runs many worlds and shrinks the first one that breaks a rule."""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tailrace.testing.simulation.coverage import Coverage, report
from tailrace.testing.simulation.draw import world_of
from tailrace.testing.simulation.shrink import shrunk
from tailrace.testing.simulation.simulation import simulate

CHUNK = 50


class Chunk(NamedTuple):
    """Some seeds, run one after the other."""

    coverage: Coverage
    digests: bytes
    failed: list[int]


def run_chunk(first: int, count: int) -> Chunk:
    coverage, digests, failed = Coverage(), bytearray(), list[int]()
    for seed in range(first, first + count):
        outcome = simulate(world_of(seed))
        coverage.add(outcome)
        digests += bytes.fromhex(outcome.digest)
        if outcome.broken:
            failed.append(seed)
    return Chunk(coverage, bytes(digests), failed)


def _chunks(first: int, count: int, jobs: int) -> Iterator[Chunk]:
    """In the order of their seeds."""
    parts = [(start, min(CHUNK, first + count - start)) for start in range(first, first + count, CHUNK)]
    if jobs == 1:
        yield from (run_chunk(*part) for part in parts)
        return
    with ProcessPoolExecutor(jobs, initializer=gc.freeze) as pool:
        waiting: list[Future[Chunk]] = []
        for part in parts:
            waiting.append(pool.submit(run_chunk, *part))
            if len(waiting) >= 4 * jobs:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tailrace.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="how many worlds (2000)")
    parser.add_argument("--from", type=int, default=0, metavar="SEED", dest="first", help="the first seed (0)")
    parser.add_argument("--seed", type=int, metavar="SEED", help="one world: what happens in it, line by line")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (one a core)")
    parser.add_argument("--go-on", action="store_true", help="run all seeds, also after one has failed")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was met, as a page of Markdown")
    return parser


def show(seed: int) -> int:
    outcome = simulate(world_of(seed), keep_trace=True)
    sys.stdout.write("\n".join([repr(outcome.world), *outcome.trace, f"digest {outcome.digest}", ""]))
    for rule in outcome.broken:
        sys.stdout.write(f"broken: {rule}\n")
    return 1 if outcome.broken else 0


def explain(seed: int) -> None:
    """Prints the smallest world that fails like this one, as a literal for tests/simulation/test_found.py."""
    sys.stderr.write(f"seed {seed} breaks a rule; looking for the smallest world that does …\n")
    outcome = shrunk(world_of(seed))
    for rule in outcome.broken:
        sys.stdout.write(f"broken: {rule}\n")
    sys.stdout.write(f"{outcome.world!r}\n")


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.seeds < 1 or args.jobs < 1:
        sys.stderr.write("error: --seeds and --jobs must be at least 1\n")
        return 2
    if args.seed is not None:
        return show(args.seed)
    began = time.monotonic()
    total, digest, failed = Coverage(), hashlib.blake2b(digest_size=16), list[int]()
    rate = 0.0
    with ExitStack() as stack:
        chunks = _chunks(args.first, args.seeds, min(args.jobs, args.seeds))
        stack.callback(chunks.close)  # type: ignore[attr-defined]
        for chunk in chunks:
            total.join(chunk.coverage)
            digest.update(chunk.digests)
            failed += chunk.failed
            rate = total.worlds / (time.monotonic() - began)
            line = f"{total.worlds:,} of {args.seeds:,} worlds · {rate:.0f} a second · {len(failed)} failed"
            sys.stderr.write(f"\r{line} " if sys.stderr.isatty() else f"{line}\n")
            if failed and not args.go_on:
                break
    sys.stderr.write("\n" if sys.stderr.isatty() else "")
    if args.report is not None:
        page = report(total, first=args.first, failed=len(failed), digest=digest.hexdigest(), rate=rate)
        args.report.write_text(page)
    sys.stdout.write(f"{total.worlds:,} worlds, {len(failed)} broke a rule, digest {digest.hexdigest()}\n")
    for name, count in sorted(total.counts.items()):
        sys.stdout.write(f"{count:>12,}  {name}\n")
    sys.stdout.write(f"failures met: {', '.join(total.failures())}\n")
    if failed:
        sys.stdout.write(f"seeds that failed: {failed[:20]}\n")
        explain(failed[0])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
