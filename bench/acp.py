"""What a token costs on its way to an editor, against the same entries as server-sent events of `/runs/{id}/stream`.

    python -m bench acp

Both take the batches of a commit, with the JSON that the commit has made of them, and give the bytes of the channel.
One process, CPU time, rounds of the two alternate: read the ratio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bench.table import Table
from tailrace.events import Entry, MessageChunk, to_json
from tailrace.integrations.acp.log_to_updates import LogToUpdates
from tailrace.journal.viewed_lines import sse_without_reasoning
from tailrace.ports import Batch

TOKENS, BATCH, ROUNDS = 20_000, 4, 9


def batches() -> list[Batch]:
    """As a commit hands them to viewers; new ones each time, since a batch keeps what was made of it."""
    log = [Entry(seq, MessageChunk(f" word{seq % 97}")) for seq in range(1, TOKENS + 1)]
    made = [Batch(log[at : at + BATCH]) for at in range(0, TOKENS, BATCH)]
    for batch in made:
        batch.stored = b"\n".join(to_json(entry.event) for entry in batch)
    return made


def to_updates(made: list[Batch]) -> None:
    updates = LogToUpdates("ses_0123456789abcdef", "run_0123456789abcdef", directory="/project", context_tokens=128_000)
    for batch in made:
        updates.feed(batch)


def to_sse(made: list[Batch]) -> None:
    for batch in made:
        batch.page.framed(sse_without_reasoning)


def cost_us(work: Callable[[list[Batch]], None]) -> float:
    """CPU microseconds a token."""
    made = batches()
    began = time.process_time()
    work(made)
    return (time.process_time() - began) / TOKENS * 1e6


def main() -> Table:
    rounds = [(cost_us(to_updates), cost_us(to_sse)) for _ in range(ROUNDS)]
    updates, sse = (statistics.median(column) for column in zip(*rounds, strict=True))
    table = Table("A token as bytes of its channel, CPU", "channel", "µs a token", "× the stream of events")
    table.row("/runs/{id}/stream", sse, 1.0)
    table.row("session/update", updates, updates / sse)
    return table
