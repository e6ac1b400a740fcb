"""`python -m proof.simulation`: runs many worlds and shrinks the first one that breaks a rule."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from collections.abc import Generator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, get_args

from proof.simulation.coverage import Coverage, Progress, fingerprint, report
from proof.simulation.draw import world_of
from proof.simulation.postgres_server import is_installed, start_server
from proof.simulation.shrink import shrunk
from proof.simulation.simulation import simulate
from proof.simulation.total import TOTAL, Total
from proof.simulation.world import StoreName

CHUNK = 50


class Chunk(NamedTuple):
    """Some seeds, run one after the other."""

    coverage: Coverage
    digests: bytes
    failed: list[int]


def run_chunk(first: int, count: int, store: str) -> Chunk:
    coverage, digests, failed = Coverage(), bytearray(), list[int]()
    for seed in range(first, first + count):
        outcome = simulate(world_of(seed, store))
        coverage.add(outcome)
        digests += bytes.fromhex(outcome.digest)
        if outcome.broken:
            failed.append(seed)
    return Chunk(coverage, bytes(digests), failed)


def _chunks(first: int, count: int, jobs: int, store: str) -> Generator[Chunk]:
    """In the order of their seeds."""
    parts = [(start, min(CHUNK, first + count - start), store) for start in range(first, first + count, CHUNK)]
    if jobs == 1:
        yield from (run_chunk(*part) for part in parts)
        return
    with ProcessPoolExecutor(jobs, initializer=_begin_worker) as pool:
        waiting: list[Future[Chunk]] = []
        try:
            for part in parts:
                waiting.append(pool.submit(run_chunk, *part))
                if len(waiting) >= 4 * jobs:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the parent that is interrupted, and ends its workers
    gc.freeze()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="how many worlds (2000)")
    parser.add_argument("--from", type=int, default=0, metavar="SEED", dest="first", help="the first seed (0)")
    parser.add_argument("--seed", type=int, metavar="SEED", help="one world: what happens in it, line by line")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (one a core)")
    parser.add_argument(
        "--store",
        choices=(*get_args(StoreName), "drawn"),
        help="of the worlds (sqlite); drawn: one in fifty on PostgreSQL, as --nightly does where that is installed",
    )
    parser.add_argument("--go-on", action="store_true", help="run all seeds, also after one has failed")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write what was met, as a page of Markdown")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="keep how far the run is; a stopped run goes on from there"
    )
    parser.add_argument(
        "--mended",
        action="store_true",
        help="the code has changed since the checkpoint: run the worlds that failed again, and go on from there",
    )
    parser.add_argument(
        "--nightly",
        action="store_true",
        help="the seeds after all that were ever run; adds them to the sum, and goes on after one has failed",
    )
    parser.add_argument("--total", type=Path, default=TOTAL, metavar="FILE", help="the sum of all nights")
    parser.add_argument("--fingerprint", action="store_true", help="say by which name a report knows this code")
    return parser


def show(seed: int, store: str) -> int:
    outcome = simulate(world_of(seed, store), keep_trace=True)
    sys.stdout.write("\n".join([repr(outcome.world), *outcome.trace, f"digest {outcome.digest}", ""]))
    for rule in outcome.broken:
        sys.stdout.write(f"broken: {rule}\n")
    return 1 if outcome.broken else 0


def explain(seed: int, store: str) -> None:
    """Prints the smallest world that fails like this one, as a literal for tests/simulation/test_found.py."""
    sys.stderr.write(f"seed {seed} breaks a rule; looking for the smallest world that does …\n")
    outcome = shrunk(world_of(seed, store))
    for rule in outcome.broken:
        sys.stdout.write(f"broken: {rule}\n")
    sys.stdout.write(f"{outcome.world!r}\n")


def _begun(args: argparse.Namespace) -> Progress:
    """Where the run stands: at its beginning, or where the checkpoint says. Raises `ValueError` for another run's."""
    new = Progress(args.first, args.seeds, fingerprint(), args.store)
    if args.checkpoint is None or not args.checkpoint.exists():
        return new
    known = Progress.load(args.checkpoint)
    if (known.first, known.seeds, known.store) != (new.first, new.seeds, new.store):
        raise ValueError(f"it is of {known.seeds} seeds from {known.first} ({known.store}); remove it to begin anew")
    if known.code != new.code:
        if not args.mended:
            ways = "remove it to begin anew, or go on with --mended"
            raise ValueError(f"it is of the code {known.code}, and the code is {new.code} now; {ways}")
        still_failed = [seed for seed in known.failed if simulate(world_of(seed, known.store)).broken]
        known.change_code(new.code, still_failed)
    return known


def _run(progress: Progress, args: argparse.Namespace) -> None:
    """Runs what is left, and says how far it is."""
    began, ran_s, done = time.monotonic(), progress.ran_s, progress.coverage.worlds
    with ExitStack() as stack:
        chunks = _chunks(args.first + done, args.seeds - done, min(args.jobs, args.seeds), args.store)
        stack.callback(chunks.close)
        for chunk in chunks:
            progress.add(*chunk)
            progress.ran_s = ran_s + time.monotonic() - began
            if args.checkpoint is not None:
                progress.save(args.checkpoint)
            worlds, failed = progress.coverage.worlds, progress.failed
            line = f"{worlds:,} of {args.seeds:,} worlds · {progress.rate:.0f} a second · {len(failed)} failed"
            sys.stderr.write(f"\r{line} " if sys.stderr.isatty() else f"{line}\n")
            if failed and not args.go_on:
                break
    sys.stderr.write("\n" if sys.stderr.isatty() else "")


def _store(named: str | None, *, nightly: bool) -> str:
    """The server of PostgreSQL is started before the processes that share it."""
    store = named or ("drawn" if nightly and is_installed() else "sqlite")
    if store != "sqlite":
        start_server()
    return store


def _refuse(why: str) -> int:
    sys.stderr.write(f"error: {why}\n")
    return 2


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.seeds < 1 or args.jobs < 1:
        return _refuse("--seeds and --jobs must be at least 1")
    if args.fingerprint:
        sys.stdout.write(f"{fingerprint()}\n")
        return 0
    args.store = _store(args.store, nightly=args.nightly)
    if args.seed is not None:
        return show(args.seed, args.store)
    if args.nightly:
        args.first, args.go_on = Total.load(args.total).next_seed, True
    try:
        progress = _begun(args)
    except (OSError, ValueError) as exc:
        return _refuse(f"{args.checkpoint}: {exc}")
    try:
        _run(progress, args)
    except KeyboardInterrupt:
        kept = "" if args.checkpoint is None else "; the same command goes on from there"
        sys.stderr.write(f"\nstopped after {progress.coverage.worlds:,} worlds{kept}\n")
        if not args.nightly:
            return 130
    if args.nightly:
        sum_of_all = Total.load(args.total)
        sum_of_all.add(progress)
        sum_of_all.save(args.total)
    if args.report is not None:
        args.report.write_text(report(progress, Total.load(args.total)))
    total, failed = progress.coverage, progress.failed
    sys.stdout.write(f"{total.worlds:,} worlds, {len(failed)} broke a rule, digest {progress.digest}\n")
    for name, count in sorted(total.counts.items()):
        sys.stdout.write(f"{count:>12,}  {name}\n")
    sys.stdout.write(f"failures met: {', '.join(total.failures())}\n")
    if failed:
        sys.stdout.write(f"seeds that failed: {failed[:20]}\n")
        explain(failed[0], args.store)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
