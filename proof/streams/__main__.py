"""python -m proof.streams TARGET…             tests products: prints what was found, and where the histories are
python -m proof.streams --docs              tests every product in one run and writes the table of docs/proof.md
python -m proof.streams --rewrite           writes the table of the last run again, without a run
python -m proof.streams --install [TARGET…] installs products into environments of their own
python -m proof.streams --list              the products and the faults
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from proof.streams.faults import FAULTS, Fault
from proof.streams.history import History
from proof.streams.http import Broken
from proof.streams.judge import judge_file
from proof.streams.product import ENVIRONMENTS, Place, Product, install
from proof.streams.products import PRODUCTS
from proof.streams.provider import Provider
from proof.streams.table import RUN, Cell, TableRun, cell, now, write_table
from proof.streams.trial import Disk, Trial

SEED = 40
WITHOUT_A_DISK = "needs root, for a small disk"
UNFINISHED = ENVIRONMENTS / "run.json"
TRIES = 3  # of a trial that could not be held: the answers were over too soon, a server did not start
Found = Callable[[str, Cell], None]


def not_offered(kind: type[Product], fault: Fault) -> str:
    """Why the product has no answer to this fault. Empty where it has one."""
    return next((kind.lacks[need] for need in fault.needs if need in kind.lacks), "")


async def try_product(kind: type[Product], faults: Sequence[Fault], seed: int, histories: Path, found: Found) -> None:
    """One fault after the other; `found` gets each cell. The product's files are removed, the histories stay."""
    with tempfile.TemporaryDirectory(prefix=f"proof-{kind.name}-") as folder:
        disk = Disk(Path(folder))
        try:
            for fault in faults:
                if missing := not_offered(kind, fault):
                    found(fault.name, Cell(not_offered=missing))
                elif fault.server == "full" and not disk.is_small:
                    found(fault.name, Cell(not_run=WITHOUT_A_DISK))
                else:
                    found(fault.name, await _try(kind, fault, seed, disk, histories))
        finally:
            disk.remove()


async def _try(kind: type[Product], fault: Fault, seed: int, disk: Disk, histories: Path) -> Cell:
    """A trial that could not be held says nothing of the product: it is held again, and then called not run."""
    path = histories / f"{kind.name}-{fault.slug}.jsonl"
    reason = ""
    for again in range(TRIES):
        for old in (path, path.with_suffix(".log")):
            old.unlink(missing_ok=True)
        try:
            await _hold_trial(kind, fault, f"{seed} {again}" if again else str(seed), disk, path)
        except (RuntimeError, OSError, Broken) as exc:
            reason = (str(exc) or type(exc).__name__).splitlines()[-1][:200]
            print(f"{kind.name} · {fault.name}: {reason}", file=sys.stderr, flush=True)
        else:
            return cell(judge_file(path))
    return Cell(not_run=reason)


async def _hold_trial(kind: type[Product], fault: Fault, seed: str, disk: Disk, path: Path) -> None:
    """A product of its own for each fault: what one leaves behind does not meet the next."""
    with History(path) as history, tempfile.TemporaryDirectory(dir=disk.directory) as folder:
        provider = Provider(history)
        await provider.start()
        product = kind(Place(Path(folder), provider.url, path.with_suffix(".log")))
        try:
            await product.start()
            await Trial(product, fault, provider, disk, seed).execute()
        finally:
            await product.stop()
            await provider.stop()


def write_docs(seed: int, histories: Path) -> int:
    """The run of the table, from where it was interrupted."""
    missing = [kind.name for kind in PRODUCTS.values() if not kind.is_installed()]
    if missing:
        print(f"not installed: {', '.join(missing)}; python -m proof.streams --install", file=sys.stderr)
        return 2
    run = TableRun.new(PRODUCTS.values(), seed)
    if UNFINISHED.exists():
        run.go_on_with(TableRun.load(UNFINISHED))
        print(f"going on with the run of {run.began}; remove {UNFINISHED} to begin anew")
    for name, result in run.products.items():
        left = [fault for fault in FAULTS if fault.name not in result.cells]
        asyncio.run(try_product(PRODUCTS[name], left, seed, histories, _kept(run, name)))
    write_table(run)
    run.save(RUN)
    UNFINISHED.unlink()
    print(f"the table is written from {RUN}")
    return 0


def add_to_docs(faults: Sequence[Fault], seed: int, histories: Path) -> int:
    """Tries these faults at every product of the table and says that this was later."""
    run = TableRun.load(RUN)
    for name, result in run.products.items():
        asyncio.run(try_product(PRODUCTS[name], faults, seed, histories, result.cells.__setitem__))
    run.added |= {fault.name: now() for fault in faults}
    write_table(run)
    run.save(RUN)
    return 0


def rewrite_docs() -> int:
    """Writes what the last run found, with the reasons as the products' adapters say them now."""
    run = TableRun.load(RUN)
    for name, result in run.products.items():
        for fault in FAULTS:
            if result.cells[fault.name].not_offered:
                result.cells[fault.name] = Cell(not_offered=not_offered(PRODUCTS[name], fault))
    write_table(run)
    run.save(RUN)
    return 0


def _kept(run: TableRun, name: str) -> Found:
    """Keeps each cell as it is found, and says how far the run is."""
    result, last = run.products[name], time.monotonic()

    def found(fault: str, made: Cell) -> None:
        nonlocal last
        seconds, last = time.monotonic() - last, time.monotonic()
        result.cells[fault] = made
        result.seconds = round(result.seconds + seconds, 1)
        run.ended = now()
        run.save(UNFINISHED)
        done = sum(len(each.cells) for each in run.products.values())
        cells = len(run.products) * len(FAULTS)
        print(f"{now()[-5:]} {done}/{cells} {name} · {fault}: {made.text()} ({seconds:.0f} s)", flush=True)

    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.streams", description="A test of streaming for any product.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="products, by the names that --list prints")
    parser.add_argument("--faults", metavar="WORD", nargs="+", help="only the faults whose names have one of these")
    parser.add_argument("--seed", type=int, default=SEED, help="decides at which words things happen (%(default)s)")
    parser.add_argument(
        "--docs",
        action="store_true",
        help="every product and fault in one run, which goes on after an interruption; writes docs/proof.md; with "
        "--faults: adds these to the table",
    )
    parser.add_argument("--rewrite", action="store_true", help="write the table of the last run again, without a run")
    parser.add_argument("--install", action="store_true", help="install the products instead; all, if none is named")
    parser.add_argument("--list", action="store_true", help="list products and faults")
    return parser


def _list() -> None:
    for name, kind in PRODUCTS.items():
        print(f"{name:20} {'installed' if kind.is_installed() else 'not installed'}: {kind.versions()}")
    for fault in FAULTS:
        print(f"{fault.name:24} {fault.about}")


def main() -> int:
    parser = _parser()
    asked = parser.parse_args()
    if unknown := [name for name in asked.targets if name not in PRODUCTS]:
        parser.error(f"there is no {unknown[0]}; name products of: {', '.join(PRODUCTS)}")
    kinds = [PRODUCTS[name] for name in asked.targets]
    if asked.list:
        _list()
        return 0
    if asked.install:
        for kind in kinds or PRODUCTS.values():
            install(kind)
        return 0
    if asked.rewrite:
        return rewrite_docs()
    if bool(kinds) == asked.docs:
        parser.error("name products, or have all of them tested with --docs")
    histories = ENVIRONMENTS / "histories"
    histories.mkdir(parents=True, exist_ok=True)
    faults = [fault for fault in FAULTS if not asked.faults or any(word in fault.name for word in asked.faults)]
    if asked.docs:
        return add_to_docs(faults, asked.seed, histories) if asked.faults else write_docs(asked.seed, histories)
    for kind in kinds:
        if not kind.is_installed():
            print(f"{kind.name} is not installed: python -m proof.streams --install {kind.name}")
            continue

        def found(fault: str, made: Cell, name: str = kind.name) -> None:
            print(f"{name} · {fault}: {made.text()}", flush=True)

        asyncio.run(try_product(kind, faults, asked.seed, histories, found))
    print(f"histories: {histories}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
