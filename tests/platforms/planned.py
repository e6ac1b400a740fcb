"""A run played to a real adapter by the planner: what a chat is shown, without the rest of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tailrace.delivery.pace import Pace
from tailrace.delivery.planner import Done, Planner, Showing, Wait
from tailrace.delivery.port import Place, Platform
from tailrace.delivery.present import Presenter
from tailrace.events import AnyEvent, Delivered, Entry, MessageChunk, MessageStop, RunFinished, RunStarted

CODE = "```python\n" + "".join(f"def f{n}():\n    return '漢字 {n}'\n" for n in range(250)) + "```"
TABLE = "| name | größe | 名前 |\n|---|---|---|\n" + "".join(f"| row {n} | {n * 7} | 項目{n} |\n" for n in range(120))
PROSE = " ".join(
    ["naïve **bold** text", "👩‍👩‍👧‍👦🏳️‍🌈", "漢字かな交じり文。", "مرحبا بالعالم", "שלום עולם", "`code`"] * 100
)
# 30,000 characters of everything: a heading, emoji of several code points, CJK, right-to-left text, code, a table.
LONG = f"# Title\n\n{PROSE}\n\n{CODE}\n\n{TABLE}\n\n{PROSE}\n\n{CODE}"


class Timed(NamedTuple):
    """An event and how long after the one before it it happens."""

    after_s: float
    event: AnyEvent


def answer(text: str, *, piece: int = 20, pace_s: float = 0.1) -> list[Timed]:
    """A run that writes this text, so many characters at a time."""
    chunks = [Timed(pace_s, MessageChunk(text[at : at + piece])) for at in range(0, len(text), piece)]
    return [Timed(0, RunStarted("agent")), *chunks, *ending(text)]


def ending(output: str) -> list[Timed]:
    return [Timed(0, MessageStop(final=True)), Timed(0, RunFinished("completed", output))]


class Delivery:
    """One reply. `facts` is its ledger: another delivery that is given them goes on with the same messages."""

    def __init__(
        self, platform: Platform, place: Place, *, facts: Iterable[Delivered] = (), streaming: bool = True
    ) -> None:
        capabilities = platform.capabilities(place)
        showing = Showing(streaming=streaming, min_tokens=5)
        self._platform = platform
        self._planner = Planner(
            "test", place, capabilities, Presenter(), showing=showing, pace=Pace(capabilities.windows)
        )
        self.facts = list(facts)
        self._planner.restore(self.facts)

    async def play(self, events: Sequence[Timed]) -> None:
        """Returns when everything that can be shown is shown."""
        clock = asyncio.get_running_loop().time
        times, at = [], clock()
        for event in events:
            at += event.after_s
            times.append(at)
        fed = 0
        while True:
            while fed < len(events) and times[fed] <= clock():
                fed += 1
                self._planner.apply(Entry(fed, events[fed - 1].event))
            step = self._planner.step(clock())
            if isinstance(step, Done):
                return
            if isinstance(step, Wait):
                until = min([*times[fed : fed + 1], *([] if step.until is None else [step.until])])
                await asyncio.sleep(until - clock())
                continue
            if (ahead := self._planner.write_ahead) is not None:
                self.facts.append(ahead)
            reply = await self._platform.perform(self._planner.place, step)
            self.facts += self._planner.replied(reply, clock())
