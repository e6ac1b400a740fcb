"""One fault against one product: some runs side by side, their viewers, and what is done to the servers meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from proof.streams.faults import Fault
from proof.streams.history import History, Words
from proof.streams.http import Broken
from proof.streams.product import Accepted, Cleared, Ended, Kept, Product, Refused, Sight, Text
from proof.streams.provider import Plan, Provider

PATIENCE_S = 75.0  # of a viewer with silence: some products wait a minute between two attempts
TOTAL_S = 240.0  # of a viewer with an answer, with everything that it may come back for
KEPT_S = 20.0  # for a product to call a run finished after its viewers are gone
HUNG_S = 15.0
IDLE_S = 3.0  # after which a viewer of a server that hangs goes to another one
FULL_S = 4.0
SLOW_S = 5.0
TOOLS_S = 4.0  # for the tools of all runs to begin after the first: some products' own wait 5 s for their answer


class Disk:
    """A small disk of a product's own, where this process may mount one."""

    SIZE = "256m"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "filler"
        mount = ("mount", "-t", "tmpfs", "-o", f"size={self.SIZE}", "tmpfs", str(directory))
        self.is_small = os.geteuid() == 0 and _done(*mount)

    def fill(self) -> None:
        """To the last page."""
        with self._filler.open("ab", buffering=0) as filler:
            for size in (2**20, 2**12):
                with suppress(OSError):
                    while filler.write(bytes(size)):
                        pass

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def remove(self) -> None:
        if self.is_small:
            _done("umount", "-l", str(self.directory))


def _done(*argv: str) -> bool:
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@dataclass
class Viewer:
    """One person at one screen, who comes back with the cursor of the last thing that the screen shows."""

    name: str
    run: str
    history: History
    words: Words = field(default_factory=Words)
    cursor: str = ""
    last: int = 0
    accepted: bool = False
    done: set[str] = field(default_factory=set)  # what it has caused

    def shows(self, sight: Sight) -> None:
        match sight:
            case Accepted():
                self.accepted = True
                self.history.write("client", self.run, "accepted")
            case Text(text, cursor):
                self.cursor = cursor or self.cursor
                self._saw(self.words.feed(text))
            case Cleared():
                self.words, self.last = Words(), 0
                self.history.write(self.name, self.run, "cleared")
            case Ended():
                self._saw(self.words.end())

    def _saw(self, words: Iterator[tuple[int, str]]) -> None:
        for n, word in words:
            self.last = n or self.last
            self.history.write(self.name, self.run, "saw", n=n, hash=word)

    def ended(self, how: str) -> None:
        self._saw(self.words.end())
        self.history.write(self.name, self.run, "ended", how=how)


class Trial:
    """All runs of one fault at one product. What is done to the servers is done once, when all are accepted and
    one is at its word: the others are somewhere else in their answers."""

    def __init__(self, product: Product, fault: Fault, provider: Provider, disk: Disk, seed: str) -> None:
        self._product = product
        self._fault = fault
        self._provider = provider
        self._history = provider.history
        self._disk = disk
        self._rng = random.Random(f"{seed} {fault.name}")
        self._accepted = 0
        self._all_accepted = asyncio.Event()
        self._strike: asyncio.Task[None] | None = None
        self._others: list[asyncio.Task[None]] = []

    async def execute(self) -> None:
        await self._product.restart()
        if self._fault.server == "kill-in-tool":
            self._provider.holds_tools = True
            self._strike = asyncio.create_task(self._hit_in_tools())
        names = [f"run-{self._fault.slug}-{number}" for number in range(self._fault.trials)]
        await asyncio.gather(*(self._visit(name, self._rng.random() * 0.4, self._word()) for name in names))
        await asyncio.gather(*self._others)
        if self._strike is not None:
            await self._strike
        elif self._fault.server:
            raise RuntimeError(f"{self._fault.name}: the answers were over before it could happen")
        await asyncio.gather(*map(self._ask_what_is_kept, names))

    def _word(self) -> int:
        """Where the fault happens: not so late that the answer is over before anyone can act."""
        words = min(self._fault.words, 60)
        return self._rng.randint(2, words - 4) if self._fault.provider != "none" else self._rng.randint(2, words // 2)

    async def _visit(self, run: str, delay_s: float, at: int) -> None:
        fault = self._fault
        tool = self._product.tool(self._provider.tool_url(run)) if fault.tool else None
        self._provider.plans[run] = Plan(fault.provider, at, fault.words, fault.pace_s, fault.padding, tool)
        if tool is not None:
            self._history.write("client", run, "planned", tools=1)
        await asyncio.sleep(delay_s)
        await self._watch(Viewer("viewer-1", run, self._history), at, asks=True)

    async def _watch(self, viewer: Viewer, at: int, *, asks: bool) -> None:
        """One viewer to the end of its patience."""
        how = "waiting"
        try:
            async with asyncio.timeout(TOTAL_S):
                how = await self._follow_to_the_end(viewer, at, asks=asks)
        except TimeoutError:
            pass
        viewer.ended(how)

    async def _follow_to_the_end(self, viewer: Viewer, at: int, *, asks: bool) -> str:
        slow = self._fault.viewer == "slow"
        sights = (
            self._product.ask(viewer.run, _prompt(viewer.run), slow=slow)
            if asks
            else self._product.attach(viewer.run, "", slow=slow)
        )
        closed = 0
        while True:
            try:
                how = await self._follow(viewer, sights, at if asks else 0)
            except Refused:
                if asks and not viewer.accepted:
                    viewer.history.write("client", viewer.run, "refused")
                return "failed"
            except Broken:
                how = "broken"
            closed += how == "closed"
            goes_on = how in ("broken", "closed", "left") and "resume" not in self._product.lacks
            if not goes_on or closed > 2 or (asks and not viewer.accepted):
                return how
            await asyncio.sleep(0.3 if how != "left" else self._rng.random() * 0.5)
            sights = self._product.attach(viewer.run, viewer.cursor, slow=slow)

    async def _follow(self, viewer: Viewer, sights: AsyncGenerator[Sight, None], at: int) -> str:
        """One connection, until it is over."""
        async with aclosing(sights):
            while True:
                idle_s = IDLE_S if self._fault.server == "hang-one" and viewer.accepted else PATIENCE_S
                try:
                    sight = await asyncio.wait_for(anext(sights), idle_s)
                except StopAsyncIteration:
                    return "closed"
                except TimeoutError:
                    return "broken" if idle_s == IDLE_S else "waiting"
                viewer.shows(sight)
                self._accepted += isinstance(sight, Accepted)
                if self._accepted == self._fault.trials:
                    self._all_accepted.set()
                if isinstance(sight, Ended):
                    return sight.how
                if at and viewer.last >= at and isinstance(sight, Text) and await self._act(viewer, at):
                    return "left"

    async def _act(self, viewer: Viewer, at: int) -> bool:
        """What this fault does when a viewer has seen word `at`. True: the viewer leaves."""
        done = viewer.done
        if self._fault.server and self._strike is None and self._all_accepted.is_set():
            self._strike = asyncio.create_task(self._hit_servers())
        action = self._fault.viewer
        if action == "second" and "second" not in done:
            done.add("second")
            second = Viewer("viewer-2", viewer.run, self._history, accepted=True)
            self._others.append(asyncio.create_task(self._watch(second, 0, asks=False)))
        if action == "slow" and "slow" not in done:
            done.add("slow")
            await asyncio.sleep(SLOW_S)
        if action in ("drop", "stop") and "left" not in done:
            done.add("left")
            return True
        if action == "stop" and "stopped" not in done and viewer.last >= at + 5:
            done.add("stopped")
            await self._product.halt(viewer.run)
            self._history.write("client", viewer.run, "halted")
        return False

    async def _hit_in_tools(self) -> None:
        """When the tool of every run has had its effect, and no product knows that yet."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TOTAL_S):
                await self._provider.tools_begun(1)
            async with asyncio.timeout(TOOLS_S):
                await self._provider.tools_begun(self._fault.trials)
                await self._all_accepted.wait()
        await self._hit_servers()
        await self._provider.answer_tools()

    async def _hit_servers(self) -> None:
        product = self._product
        match self._fault.server:
            case "kill" | "kill-in-tool":
                for server in product.servers:
                    server.kill()
                await product.restart()
            case "kill-one":
                product.kill_one()
            case "hang-one":
                hung = product.hang_one()
                await asyncio.sleep(HUNG_S)
                os.kill(hung, signal.SIGCONT)
            case "full":
                self._disk.fill()
                await asyncio.sleep(FULL_S)
                self._disk.free()
                await product.restart()
            case other:
                raise ValueError(f"no such fault of a server: {other}")

    async def _ask_what_is_kept(self, run: str) -> None:
        """As long as the product calls the run unfinished, a while."""
        kept: Kept | None = Kept("unknown", "")
        try:
            async with asyncio.timeout(KEPT_S):
                while True:
                    try:
                        kept = await self._product.kept(run)
                    except Broken:
                        await asyncio.sleep(0.5)
                        continue
                    if kept is None or kept.status not in ("running", "unknown"):
                        break
                    await asyncio.sleep(0.5)
        except TimeoutError:
            pass
        if kept is None:
            return
        words = Words()
        for n, word in (*words.feed(kept.text), *words.end()):
            self._history.write("product", run, "kept", n=n, hash=word)
        self._history.write("product", run, "status", how=kept.status)


def _prompt(run: str) -> str:
    return f"Count for {run}."
