"""An object out of a text, shown while it comes. python examples/typed_extraction.py FILE"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from tailrace import Agent


@dataclass
class Invoice:
    seller: str
    total: float
    currency: str
    lines: list[str]


async def main(file: Path) -> None:
    question = ["What does this invoice say?", file.read_text() if file.suffix == ".txt" else file]  # noqa: ASYNC240
    async with Agent(output=Invoice).stream(question) as run:
        async for draft in run.partial:
            print(f"{draft.seller}: {len(draft.lines or [])} lines so far", file=sys.stderr)
        invoice = (await run.result()).output
    print(f"{invoice.seller} wants {invoice.total:.2f} {invoice.currency} for {', '.join(invoice.lines)}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
