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
from typing import Any

import msgspec

from cluster.conversing import TEXT, TOOL, ConversingProvider
from cluster.nodes import LEASE_S, PATIENCE_S, Cluster, Node, SeenEvent, SharedStore, has_ended, text_of, watching
from cluster.sequences import SEQUENCE
from tailrace.journal.fold import fold
from tailrace.ports import Journal
from tailrace.testing.platforms.telegram import FakeTelegram
from tailrace.testing.platforms.telegram_chats import TelegramChat

SEED = 20261115
SOAK = int(os.environ.get("TAILRACE_SOAK", "1"))
ROUNDS = {"sqlite": 5, "postgres": 10, "redis": 10}  # two nodes are killed in each
KINDS = {"unsafe": 40, "repeatable": 40, "response": 35, "sequence": 80}  # and about how many events each has


class Flight(msgspec.Struct):
    """One run that somebody watches from a node that stays."""

    kind: str
    tag: str
    owner: Node
    run_id: str
    until: Callable[[Callable[[list[SeenEvent]], object]], Any]
    response_id: str = ""


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


async def take_off(cluster: Cluster, kind: str, tag: str, owner: Node) -> tuple[str, str]:
    """A run of this kind that has begun on this node: its id, and that of its response."""
    if kind == "sequence":
        sequence = await cluster.post(owner, "/sequences", {**SEQUENCE, "name": tag})
        instance = await cluster.post(owner, "/instances", {"sequence_id": sequence["id"]})
        return instance["id"], ""
    if kind == "response":
        body = {"model": "fake/any", "input": "Count.", "background": True, "store": True}
        response = await cluster.post(owner, "/v1/responses", body)
        return (await cluster.get(owner, "/runs?kind=call&limit=1"))["data"][0]["id"], response["id"]
    wish = f"{TOOL} It is terminal {tag}." if kind == "unsafe" else f"{TOOL} It is read_file."
    return await cluster.run(owner, wish, session=tag), ""


async def kill_at(chance: random.Random, victim: Node, flights: list[Flight]) -> float:
    """Kills the node once the viewer of one of its runs has seen so many events; when that was."""
    flight = chance.choice([flight for flight in flights if flight.owner is victim])
    after = chance.randrange(1, KINDS[flight.kind])
    await flight.until(lambda seen: len(seen) >= after or has_ended(seen))
    await victim.kill()
    return asyncio.get_running_loop().time()


def longest_pause_s(seen: list[SeenEvent], kills: list[float]) -> float:
    """Between two events, or since the kill between them."""
    pauses = [0.0]
    for before, event in pairwise(seen):
        since = max([before.at, *(kill for kill in kills if kill < event.at)])
        pauses.append(event.at - since)
    return max(pauses)


async def check(cluster: Cluster, node: Node, flight: Flight, seen: list[SeenEvent], ran: Path) -> None:
    assert [event.seq for event in seen] == [*range(1, len(seen) + 1)]
    assert seen[-1]["status"] == "completed", seen[-1]
    assert [event.type for event in seen].count("run_finished") == 1
    if flight.kind == "sequence":
        finished = [event["block_id"] for event in seen if event.type == "step_finished"]
        assert sorted({*finished, "both"}) == ["a", "b", "both", "c"]
        assert len(finished) == len({*finished}), "a step finished twice"
        state = await cluster.get(node, f"/instances/{flight.run_id}")
        assert {state["outputs"][step]["message"]["content"] for step in "abc"} == {TEXT}
        return
    assert sum(event.type == "message_stop" and event["final"] for event in seen) == 1
    assert seen[-1]["output"] == TEXT
    if flight.kind == "response":
        final = await cluster.get(node, f"/v1/responses/{flight.response_id}")
        assert (final["status"], text_of(seen)) == ("completed", TEXT)
        return
    assert text_of(seen).endswith(TEXT)
    assert [event.type for event in seen].count("tool_output_recorded") == 1
    if flight.kind == "unsafe":
        written = (ran / flight.tag).read_text() if (ran / flight.tag).exists() else ""
        assert written.count("ran") <= 1, "a tool that is not safe to repeat ran again"


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
            chat = telegram.group(-10 - number)
            telegram.write(chat, "Count.", user=7)
            async with AsyncExitStack() as watchers:
                flights: list[Flight] = []
                for victim, kinds in zip(victims, (list(KINDS), chance.sample(list(KINDS), 2)), strict=True):
                    for kind in kinds:
                        tag = f"r{number}_{kind}_{victim.name}"
                        run_id, response_id = await take_off(cluster, kind, tag, victim)
                        until = await watchers.enter_async_context(watching(cluster, stays, run_id))
                        flights.append(Flight(kind, tag, victim, run_id, until, response_id))
                kills = await asyncio.gather(*(kill_at(chance, victim, flights) for victim in victims))
                living = [stays, *await cluster.start_many(2)]
                for flight in flights:
                    seen = await flight.until(has_ended)
                    pause_s = longest_pause_s(seen, kills)
                    assert pause_s < 2 * LEASE_S + 1.0 + 4 * late.worst_s, (flight.kind, pause_s, late.worst_s)
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


async def check_fold(journal: Journal, run_id: str) -> None:
    run, entries = await journal.get(run_id), await journal.read(run_id)
    assert run.finished is not None
    assert fold(entries).output == run.finished.output


class ChoosingProvider(ConversingProvider):
    """Calls the tool that the question names; `terminal` leaves a word in a file of the run's own."""

    def __init__(self, ran: Path) -> None:
        super().__init__()
        self._ran = ran

    def tool_call(self, wish: str) -> tuple[str, dict[str, Any]]:
        if "read_file" in wish:
            return "read_file", {"path": "config.yaml"}
        tag = wish.rsplit(maxsplit=1)[-1].rstrip(".")
        return "terminal", {"command": f"echo ran >> '{self._ran}/{tag}'; sleep 0.2"}
