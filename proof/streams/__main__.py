"""python -m proof.streams TARGET…             tests products: prints what was found, and where the histories are
python -m proof.streams --all --docs        tests every product and writes the table of docs/proof.md
python -m proof.streams --install TARGET…   installs products into environments of their own
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
from proof.streams.judge import judge_file
from proof.streams.product import ENVIRONMENTS, Place, Product, install
from proof.streams.products import PRODUCTS
from proof.streams.provider import Provider
from proof.streams.table import RESULTS, Cell, ProductResult, cell, write_table
from proof.streams.trial import Disk, Trial

SEED = 40
WITHOUT_A_DISK = "needs root, for a small disk"


async def try_product(
    kind: type[Product], faults: Sequence[Fault], seed: int, histories: Path, found: Callable[[str, Cell], None]
) -> None:
    """One fault after the other; `found` gets each cell. The product's files are removed, the histories stay."""
    with tempfile.TemporaryDirectory(prefix=f"proof-{kind.name}-") as folder:
        disk = Disk(Path(folder))
        try:
            for fault in faults:
                missing = next((kind.lacks[need] for need in fault.needs if need in kind.lacks), "")
                if fault.server == "full" and not disk.is_small:
                    missing = missing or WITHOUT_A_DISK
                if missing:
                    found(fault.name, Cell(not_offered=missing))
                    continue
                path = histories / f"{kind.name}-{fault.slug}.jsonl"
                for old in (path, path.with_suffix(".log")):
                    old.unlink(missing_ok=True)
                found(fault.name, await _try(kind, fault, seed, disk, path))
        finally:
            disk.remove()


async def _try(kind: type[Product], fault: Fault, seed: int, disk: Disk, path: Path) -> Cell:
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
    return cell(judge_file(path))


def _told(kind: type[Product], *, keep: bool) -> Callable[[str, Cell], None]:
    """Prints each cell as it is found, and keeps it: a product that fails later loses no earlier one."""
    began = time.monotonic()

    def found(fault: str, cell: Cell) -> None:
        print(f"{kind.name} · {fault}: {cell.text()}", flush=True)
        if keep:
            seconds = round(time.monotonic() - began)
            ProductResult(kind.versions(), kind.page, kind.setup, seconds, {fault: cell}).save(kind.name)

    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.streams", description="A test of streaming for any product.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="products, by the names that --list prints")
    parser.add_argument("--all", action="store_true", help="every product that is installed")
    parser.add_argument("--faults", metavar="WORD", nargs="+", help="only the faults whose names have one of these")
    parser.add_argument("--seed", type=int, default=SEED, help="decides at which words things happen (%(default)s)")
    parser.add_argument(
        "--docs", action="store_true", help="write the table of docs/proof.md, from what this and earlier runs found"
    )
    parser.add_argument("--install", action="store_true", help="install the products instead")
    parser.add_argument("--list", action="store_true", help="list products and faults")
    asked = parser.parse_args()
    if asked.list:
        for name, kind in PRODUCTS.items():
            print(f"{name:20} {'installed' if kind.is_installed() else 'not installed'}: {kind.versions()}")
        for fault in FAULTS:
            print(f"{fault.name:24} {fault.about}")
        return 0
    unknown = [name for name in asked.targets if name not in PRODUCTS]
    if unknown or not (asked.targets or asked.all or asked.docs):
        parser.error(f"name products of: {', '.join(PRODUCTS)}" + (f"; there is no {unknown[0]}" if unknown else ""))
    kinds = [PRODUCTS[name] for name in asked.targets or (PRODUCTS if asked.all else ())]
    if asked.install:
        for kind in kinds:
            install(kind)
        return 0
    faults = [fault for fault in FAULTS if not asked.faults or any(word in fault.name for word in asked.faults)]
    histories = ENVIRONMENTS / "histories"
    histories.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        if not kind.is_installed():
            print(f"{kind.name} is not installed: python -m proof.streams --install {kind.name}")
            continue
        asyncio.run(try_product(kind, faults, asked.seed, histories, _told(kind, keep=asked.docs)))
    print(f"histories: {histories}")
    if asked.docs:
        write_table(PRODUCTS)
        print(f"the table is written from {RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
