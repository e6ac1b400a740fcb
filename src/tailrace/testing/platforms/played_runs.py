"""A run played to a real adapter through the gateway's consumer, over a journal in memory: what a chat is shown."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from tailrace.delivery.consumer import ChatLines, GatewayStreamConsumer
from tailrace.delivery.ledger import DeliverySpec, Ledger, new_delivery, platform_of
from tailrace.delivery.planning.state import Showing
from tailrace.delivery.port import Place, Platform
from tailrace.errors import StaleEpoch
from tailrace.events import AnyEvent, Delivered, MessageChunk, MessageStop, RunFinished
from tailrace.journal.fold import DELIVERY
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import Journal, Lease, NewRun
from tailrace.runs.lease import HeldLease
from tailrace.runs.recovery import ClaimedRun, recover, take_over
from tailrace.runs.signals import stop_failure, stop_signal

CODE = "```python\n" + "".join(f"def f{n}():\n    return '漢字 {n}'\n" for n in range(250)) + "```"
TABLE = "| name | größe | 名前 |\n|---|---|---|\n" + "".join(f"| row {n} | {n * 7} | 項目{n} |\n" for n in range(120))
PROSE = " ".join(
    ["naïve **bold** text", "👩‍👩‍👧‍👦🏳️‍🌈", "漢字かな交じり文。", "مرحبا بالعالم", "שלום עולם", "`code`"] * 100
)
# 30,000 characters of everything: a heading, emoji of several code points, CJK, right-to-left text, code, a table.
LONG = f"# Title\n\n{PROSE}\n\n{CODE}\n\n{TABLE}\n\n{PROSE}\n\n{CODE}"

PNG = base64.b64decode(  # one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class Timed(NamedTuple):
    """An event and how long after the one before it it happens."""

    after_s: float
    event: AnyEvent


def chunks(text: str, *, piece: int = 20, pace_s: float = 0.1) -> list[Timed]:
    """A model that writes this text, so many characters at a time."""
    return [Timed(pace_s, MessageChunk(text[at : at + piece])) for at in range(0, len(text), piece)]


class HeldConsumer(GatewayStreamConsumer):
    """Holds the lease while it delivers, as the host does."""

    async def run(self) -> RunFinished | None:
        async with HeldLease(self._journal, self._ledger._lease):
            try:
                return await super().run()
            except StaleEpoch:
                return None


async def begin(journal: Journal, spec: DeliverySpec, owner: str) -> Ledger | None:
    """The record of a delivery that begins; None where another process has it, or it has ended."""
    run, lease = await journal.start(new_delivery(spec), owner)
    claimed = ClaimedRun(run, lease) if lease is not None else await take_over(journal, run.id, owner)
    return Ledger(journal, claimed) if claimed is not None else None


async def orphaned(journal: Journal, platform: str, owner: str) -> AsyncIterator[Ledger]:
    """Deliveries to this platform that no living process has."""
    async for claimed in recover(
        journal, owner, wanted=lambda run: run.new.kind == DELIVERY and platform_of(run) == platform
    ):
        yield Ledger(journal, claimed)


class Scene:
    """A run, a chat, and the delivery of the run to the chat."""

    lease: Lease  # since `start`

    def __init__(self, platform: Platform, place: Place, *, streaming: bool = True) -> None:
        self.journal = MemoryJournal()
        self._platform, self._place = platform, place
        self._lines = ChatLines(platform)
        self._showing = Showing(streaming=streaming, min_tokens=5)

    async def run(self, events: Sequence[Timed], output: str) -> None:
        """The run, from its beginning to its end."""
        await self.start()
        await self.write(events)
        await self.end(output)

    async def start(self) -> None:
        _, lease = await self.journal.start(NewRun("agent"), "executor", lease_s=1e9)
        assert lease is not None
        self.lease = lease

    async def write(self, events: Sequence[Timed]) -> None:
        for after_s, event in events:
            await asyncio.sleep(after_s)
            self.journal.append(self.lease, [event])

    async def end(self, output: str) -> None:
        self.journal.append(self.lease, [MessageStop(final=True)])
        await self.journal.seal(self.lease, RunFinished("completed", output))

    async def stop(self, output: str, *, by: str) -> None:
        """A person stops the run, which has said so much."""
        self.journal.append(self.lease, [MessageStop(final=True)])
        failure = stop_failure(stop_signal(by=by))
        await self.journal.seal(self.lease, RunFinished("stopped", output, error=failure))

    async def deliver(self) -> None:
        """A gateway delivers the run, from where the one before it left off. Cancelling it is its death."""
        ledgers = [ledger async for ledger in orphaned(self.journal, self._place.platform, "heir")]
        if not ledgers:
            new = await begin(self.journal, DeliverySpec(self.lease.run_id, self._place, self._showing), "first")
            assert new is not None, "delivered once"
            ledgers = [new]
        [ledger] = ledgers
        consumer = HeldConsumer(self.journal, self._platform, self._lines.to(self._place), ledger)
        await consumer.run()

    async def facts(self) -> list[Delivered]:
        """The ledger."""
        [delivery] = await self.journal.runs(kind="delivery")
        entries = await self.journal.facts(delivery.id)
        return [entry.event for entry in entries if isinstance(entry.event, Delivered)]


async def play(
    platform: Platform, place: Place, events: Sequence[Timed], output: str, *, streaming: bool = True
) -> Scene:
    """The run and its delivery, both to their ends."""
    scene = Scene(platform, place, streaming=streaming)
    await scene.start()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(scene.deliver())
        await scene.write(events)
        await scene.end(output)
    return scene


async def show(platform: Platform, place: Place, text: str, *, pace_s: float = 0.1, streaming: bool = True) -> Scene:
    """An answer that is nothing but this text."""
    return await play(platform, place, chunks(text, pace_s=pace_s), text, streaming=streaming)
