"""What a token costs where it is seen: CPU of the process that shows it, per token and per person who watches.

    python -m bench surfaces

The unit is a bare `transport.write` to one connection in the same run. The server's share is a further viewer of a run
with a thousand; the terminal's is drawing, without the model's call; a chat's is tailing, planning, editing and the
ledger, with a platform in memory; the page's is the main thread of headless Chromium.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from bench import delivery, fanout, page, render
from bench.table import Table
from server.web import chromium

FRAMES_PER_S = 20  # of the terminal
CHATS = 50


def terminal(tokens_per_s: int) -> float:
    """CPU seconds per token."""
    chunks = render.chunks_of(render.answer(), render.CHUNKS)
    per_frame = max(1, tokens_per_s // FRAMES_PER_S)
    render.drawn(chunks, per_frame=per_frame)  # grammars of the highlighter are loaded once
    return render.drawn(chunks, per_frame=per_frame) / len(chunks)


def chat() -> float:
    cpu_s, *_ = asyncio.run(delivery.chats(CHATS))
    return cpu_s / (CHATS * delivery.TOKENS)


def browser() -> float | None:
    """None without Chromium."""
    if chromium.PROGRAM is None:
        return None
    with tempfile.TemporaryDirectory() as home, chromium.started(Path(home) / "browser") as devtools:
        figures = asyncio.run(page.measure(devtools, Path(home) / "server", {"mixed": page.TEXTS["mixed"]}))
    return float(sum(figures["mixed"]["processor_ms"])) / 1000 / (page.TOKENS_PER_S * page.SECONDS)


def main() -> Table:
    bare, viewer = fanout.measured()
    table = Table("a token where it is seen", "where", "tokens/s", "CPU µs per token", "of a bare write")
    shown = [
        ("a bare transport.write", 0, bare),
        (f"the server, for one of {fanout.VIEWERS:,} viewers", 0, viewer),
        ("the terminal", 20, terminal(20)),
        ("the terminal", 200, terminal(200)),
        (f"a chat, one of {CHATS}", delivery.TOKENS_PER_S, chat()),
    ]
    if (drawn := browser()) is not None:
        shown.append(("the page, its main thread", page.TOKENS_PER_S, drawn))
    for where, rate, cost_s in shown:
        table.row(where, rate or "any", cost_s * 1e6, cost_s / bare)
    return table


if __name__ == "__main__":
    print(main())
