"""`kill -9` of owners at random moments, with runs of every kind in flight: each goes on in another node, and its log
and its chat show no trace of it but a pause (L145).

The moments follow from `SEED`. `TAILRACE_SOAK=10` runs ten times as many.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from proof.platforms.telegram import FakeTelegram
from proof.platforms.telegram_chats import TelegramChat

from cluster.conversing import TEXT
from cluster.flights import KINDS, ChoosingProvider, Flight, check, check_fold, take_off
from cluster.nodes import LEASE_S, PATIENCE_S, Cluster, Node, SeenEvent, SharedStore, has_ended, hung, watching

SEED = 20261115
SOAK = int(os.environ.get("TAILRACE_SOAK", "1"))
ROUNDS = {"sqlite": 9, "postgres": 11, "redis": 5}  # two nodes are killed in each: fifty in all

Until: TypeAlias = Callable[[Callable[[list[SeenEvent]], object]], Any]  # of `watching`


class Lateness:
    """How late this machine's processes are at worst, by the test's own loop: what a node cannot be blamed for."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def measure(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.05
            await asyncio.sleep(0.05)
            self.worst_s = max(self.worst_s, loop.time() - due)


@asynccontextmanager
async def lateness() -> AsyncGenerator[Lateness, None]:
    measured = Lateness()
    task = asyncio.create_task(measured.measure())
    try:
        yield measured
    finally:
        task.cancel()


async def kill_at(chance: random.Random, victim: Node, flights: dict[Flight, Until]) -> float:
    """Kills the node once the viewer of one of its runs has seen so many events; when that was."""
    flight = chance.choice([flight for flight in flights if flight.owner is victim])
    after = chance.randrange(1, KINDS[flight.kind])
    await flights[flight](lambda seen: len(seen) >= after or has_ended(seen))
    await victim.kill()
    return asyncio.get_running_loop().time()


def longest_pause_s(seen: list[SeenEvent], kills: list[float]) -> float:
    """Between two events, or since the kill between them."""
    pauses = [0.0]
    for before, event in pairwise(seen):
        since = max([before.at, *(kill for kill in kills if kill < event.at)])
        pauses.append(event.at - since)
    return max(pauses)


def chat_is_complete(chat: TelegramChat) -> bool:
    return any(text == TEXT for text in chat.texts)


def check_chat(chat: TelegramChat, kills: int) -> None:
    """A send of which the ledger does not know what became of it is not made again: a stray beginning may remain
    (G80)."""
    texts = [answer.states[-1].text for answer in chat.answers]
    assert texts.count(TEXT) == 1, texts
    assert len(texts) <= 1 + kills, texts
    assert all(TEXT.startswith(text.removesuffix(" ▌").rstrip(" .…▌")) for text in texts), texts


async def test_L145_kill_9_of_owners_at_random_moments(tmp_path: Path, store: SharedStore) -> None:
    chance = random.Random(f"{SEED} {store.name}")
    ran = tmp_path / "ran"
    ran.mkdir()
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(ChoosingProvider(ran))
        telegram = await stack.enter_async_context(FakeTelegram(budgets={}))
        late = await stack.enter_async_context(lateness())
        cluster = await stack.enter_async_context(
            Cluster(
                tmp_path,
                store,
                provider.openai_url,
                platforms=f'telegram: {{enabled: true, allow: ["*"], base_url: "{telegram.url}", respond: all}}',
                environment={"TELEGRAM_BOT_TOKEN": telegram.token},
            )
        )
        living = await cluster.start_many(3)
        runs: list[str] = []
        for number in range(SOAK * ROUNDS[store.name]):
            chance.shuffle(living)
            stays, *victims = living
            chat, hung_before = telegram.group(-10 - number), hung(cluster.nodes)
            telegram.write(chat, "Count.", user=7)
            async with AsyncExitStack() as watchers:
                flights: dict[Flight, Until] = {}
                for victim, kinds in zip(victims, (list(KINDS), chance.sample(list(KINDS), 2)), strict=True):
                    for kind in kinds:
                        tag = f"r{number}_{kind}_{victim.name}"
                        flight = await take_off(cluster, kind, tag, victim)
                        flights[flight] = await watchers.enter_async_context(watching(cluster, stays, flight.run_id))
                kills = await asyncio.gather(*(kill_at(chance, victim, flights) for victim in victims))
                living = [stays, *await cluster.start_many(2)]
                for flight, until in flights.items():
                    seen = await until(has_ended)
                    pause_s = longest_pause_s(seen, kills)
                    losses = 1 + hung(cluster.nodes) - hung_before
                    assert pause_s < losses * (2 * LEASE_S + 1.0) + 4 * late.worst_s, (flight.kind, late.worst_s)
                    await check(cluster, living[-1], flight, seen, ran)
                    runs.append(flight.run_id)
            try:
                await telegram.until(lambda chat=chat: chat_is_complete(chat), timeout_s=PATIENCE_S)  # type: ignore[misc]
            except TimeoutError:
                raise AssertionError([[state.text for state in answer.states] for answer in chat.answers]) from None
            check_chat(chat, len(kills))
        async with cluster.journal() as journal:
            for run_id in runs:
                await check_fold(journal, run_id)
