"""A soak from its first visit to its verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from proof.soak.bare_timer import BareTimer, bare_timer
from proof.soak.provider import SoakProvider
from proof.soak.samples import SPARE_DESCRIPTORS, Finding, Sample, findings, sample
from proof.soak.server import SoakServer, soak_server
from proof.soak.visits import Broken, Client, visit

SETTLE_LOOKS: Final = 140  # for descriptors that come back late: idle connections to a model are closed after a minute
WARM_UP_VISITS: Final = 40


class SoakResult(msgspec.Struct):
    samples: list[Sample]
    findings: list[Finding]
    visits: dict[str, dict[str, int]]  # by kind and outcome
    faults: dict[str, int]
    broken: list[str]

    @property
    def holds(self) -> bool:
        return not self.broken and all(finding.holds for finding in self.findings)


class _Soak:
    def __init__(self, server: SoakServer, bare: BareTimer, seed: int, clients: int) -> None:
        self._server, self._bare, self._seed, self._clients = server, bare, seed, clients
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.broken: list[str] = []
        self.samples: list[Sample] = []
        self._began = time.monotonic()

    async def look(self) -> Sample:
        async with self._http.get(self._server.url + "/metrics") as response:
            text = await response.text()
        at_s = time.monotonic() - self._began
        return sample(self._server.pid, at_s, self.outcomes.total(), text, self._bare.buckets())

    async def visits(self, number: int, until: Callable[[], bool]) -> None:
        client = Client(self._http, self._server.url, random.Random(f"{self._seed}/{number}"))
        while not until():
            try:
                self.outcomes[await visit(client)] += 1
            except Broken as exc:
                self.broken.append(str(exc))

    async def load(self, seconds: float, say: Callable[[Sample], None]) -> None:
        self._began = time.monotonic()
        over = self._began + seconds
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self.visits(number, lambda: time.monotonic() >= over))
            while time.monotonic() < over:
                await asyncio.sleep(min(1.0, seconds / 20))
                self.samples.append(await self.look())
                say(self.samples[-1])

    async def settled(self, idle: Sample) -> Sample:
        """What is left when the clients have gone."""
        await self._http.close()
        self._http = aiohttp.ClientSession()
        left = await self.look()
        for _ in range(SETTLE_LOOKS):
            if left.descriptors - idle.descriptors <= SPARE_DESCRIPTORS:
                break
            await asyncio.sleep(0.5)
            left = await self.look()
        return left

    async def close(self) -> None:
        await self._http.close()


async def soak(
    seconds: float,
    home: Path,
    *,
    seed: int = 0,
    clients: int = 16,
    say: Callable[[Sample], None] = lambda _sample: None,
) -> SoakResult:
    """Mixed load with faults for so long. The same seed makes the same choices; what meets what is the clock's."""
    async with SoakProvider(seed) as provider, soak_server(provider, home) as server, bare_timer(BareTimer()) as bare:
        run = _Soak(server, bare, seed, clients)
        try:
            first = iter(range(WARM_UP_VISITS))
            await run.visits(-1, lambda: next(first, None) is None)  # connections, caches, lazily imported modules
            idle = await run.look()
            run.outcomes.clear()
            await run.load(seconds, say)
            after = await run.settled(idle)
        finally:
            await run.close()
        found = findings(run.samples, idle, after)
        kinds: dict[str, dict[str, int]] = {}
        for (kind, outcome), count in sorted(run.outcomes.items()):
            kinds.setdefault(kind, {})[outcome] = count
        return SoakResult(run.samples, found, kinds, dict(sorted(provider.faults.items())), run.broken)
