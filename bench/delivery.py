"""500 chats streaming at once in one process: what an edit costs, and whether every answer ends on time.

The journal and the platform are in memory, so the CPU is that of tailing, planning, balancing, splitting and the
ledger; the writers of each platform's markup are measured by themselves beside it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

from proof.memory_platform import MemoryPlatform

from bench.table import Table
from tailrace.delivery.consumer import ChatLines, GatewayStreamConsumer
from tailrace.delivery.ledger import DeliverySpec, Ledger, new_delivery
from tailrace.delivery.planning.state import Showing
from tailrace.delivery.port import Capabilities, Place, Typing, Window
from tailrace.delivery.text.balance import balance
from tailrace.delivery.text.split import CURSOR, parts
from tailrace.events import MessageChunk, MessageStop, RunFinished
from tailrace.integrations.discord.adapter import discord_text
from tailrace.integrations.matrix.markup import matrix_html
from tailrace.integrations.slack.blocks import without_calls
from tailrace.integrations.telegram.markup import telegram_text
from tailrace.integrations.whatsapp.adapter import whatsapp_markup
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import NewRun
from tailrace.runs.recovery import ClaimedRun

CHATS = 500
TOKENS = 240
TOKENS_PER_S = 30
LATENCY_S = 0.05
PARAGRAPH = (
    "Water leaves the **mill** by the *tailrace* and goes `wherever` it is needed, "
    "as [the miller](https://example.org/mill) said:\n\n"
    "- one wheel\n- two stones\n\n```python\nfor drop in race:\n    print(drop)\n```\n\n"
)
CAPABILITIES = Capabilities(
    mode="edit", edits=True, deletes=True, limit=4096, unit="utf16", windows=(Window(1, 1.0),), typing_s=5.0
)


def tokens() -> list[str]:
    text = PARAGRAPH * 10
    size = len(text) // TOKENS
    return [text[at : at + size] for at in range(0, len(text), size)]


async def one_chat(journal: MemoryJournal, platform: MemoryPlatform, lines: ChatLines, number: int) -> float:
    """Streams one answer; returns how long after its end the chat showed it all."""
    place = Place("telegram", str(number))
    _, lease = await journal.start(NewRun("agent", idempotency_key=str(number)), "bench", lease_s=1e9)
    if lease is None:
        raise RuntimeError("the journal was not empty")
    spec = DeliverySpec(lease.run_id, place, Showing(streaming=True))
    delivery, held = await journal.start(new_delivery(spec), "bench", lease_s=1e9)
    if held is None:
        raise RuntimeError("the journal was not empty")
    ledger = Ledger(journal, ClaimedRun(delivery, held))
    async with asyncio.TaskGroup() as group:
        delivering = group.create_task(GatewayStreamConsumer(journal, platform, lines.to(place), ledger).run())
        await asyncio.sleep(number / CHATS)  # they did not all ask at the same instant
        said = tokens()
        for token in said:
            journal.append(lease, [MessageChunk(token)])
            await asyncio.sleep(1 / TOKENS_PER_S)
        journal.append(lease, [MessageStop(final=True)])
        await journal.seal(lease, RunFinished("completed", "".join(said)))
        ended = time.perf_counter()
        await delivering
    if "".join(platform.chat(place.chat).texts) != "".join(said):
        raise RuntimeError(f"chat {number} shows something else")
    return time.perf_counter() - ended


async def chats(count: int) -> tuple[float, float, int, list[float]]:
    journal = MemoryJournal()
    platform = MemoryPlatform(CAPABILITIES, latency_s=LATENCY_S)
    lines = ChatLines(platform)
    began, wall = time.process_time(), time.perf_counter()
    late = await asyncio.gather(*(one_chat(journal, platform, lines, number) for number in range(count)))
    cpu, wall = time.process_time() - began, time.perf_counter() - wall
    overruns = sum(len(chat.overruns) for chat in platform.chats.values())
    if overruns:
        raise RuntimeError(f"{overruns} requests were over the budget")
    requests = sum(not isinstance(action, Typing) for _, action in platform.performed)
    return cpu, wall, requests, list(late)


def cost_us(work: Callable[[str], object], text: str, rounds: int = 200) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(rounds):
            work(text)
        best = min(best, time.process_time() - began)
    return best / rounds * 1e6


def main() -> list[Table]:
    table = Table(
        "answers of 240 tokens at 30 a second", "chats", "edits", "CPU µs/edit", "cores", "late p50 s", "late p99 s"
    )
    for count in (50, CHATS):
        cpu, wall, requests, late = asyncio.run(chats(count))
        late.sort()
        p99 = late[int(len(late) * 0.99) - 1]
        table.row(count, requests, cpu / requests * 1e6, cpu / wall, statistics.median(late), p99)
    text = (PARAGRAPH * 20)[:3900]
    writers = Table("one message of 3,900 characters", "what", "CPU µs")
    writers.row("balance with cursor", cost_us(lambda source: balance(source, CURSOR), text))
    writers.row("split, 30,000 characters", cost_us(lambda source: list(parts(source, 4096, "utf16")), text * 8, 20))
    for name, write in (
        ("telegram", telegram_text),
        ("discord", discord_text),
        ("slack", without_calls),
        ("matrix", matrix_html),
        ("whatsapp", whatsapp_markup),
    ):
        writers.row(name, cost_us(write, text, 50))
    return [table, writers]
