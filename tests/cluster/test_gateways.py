"""Two gateways and one bot: one of them polls, and the other goes on with what the chat is shown (L170)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from proof.platforms.telegram import FakeTelegram
from proof.platforms.telegram_chats import TelegramChat

from cluster.conversing import TEXT, ConversingProvider
from cluster.nodes import ON_SQLITE, WITHOUT_REDIS, Cluster, Node, SharedStore, hung

POLLED = "telegram is connected"


@asynccontextmanager
async def gateways(
    directory: Path, store: SharedStore, count: int, *, pace_s: float = 0.1, stalls: int = 0
) -> AsyncGenerator[tuple[FakeTelegram, Cluster, list[Node]], None]:
    """The first one polls. A group: what is shown there is edited."""
    async with FakeTelegram(budgets={}) as telegram, ConversingProvider(pace_s=pace_s, stalls=stalls) as provider:
        platforms = f'telegram: {{enabled: true, allow: ["*"], base_url: "{telegram.url}", respond: all}}'
        environment = {"TELEGRAM_BOT_TOKEN": telegram.token}
        async with Cluster(
            directory, store, provider.openai_url, platforms=platforms, environment=environment
        ) as cluster:
            nodes = [await cluster.start("gateway")]
            await nodes[0].logged(POLLED)
            nodes += [await cluster.start("gateway") for _ in range(count - 1)]
            yield telegram, cluster, nodes
            conflicts = [poll for poll in telegram.called("getUpdates") if poll.status == 409]
            lost = max(count - 1, hung(nodes))  # a process that hung has polled meanwhile
            assert len(conflicts) <= lost, "only the last poll of a process that polls no more is ended by another's"


def shows(chat: TelegramChat, count: int) -> bool:
    return sum(text == TEXT for text in chat.texts) == count


@WITHOUT_REDIS
async def test_L170_of_two_gateways_one_polls_and_each_message_is_answered_once(
    tmp_path: Path, store: SharedStore, node_count: int
) -> None:
    async with gateways(tmp_path, store, node_count, pace_s=0.0) as (telegram, _, nodes):
        group = telegram.group(-5)
        for number in range(1, 4):
            telegram.write(group, f"Count {number}.", user=7)
            await telegram.until(lambda number=number: shows(group, number))  # type: ignore[misc]
        for node in nodes[1:]:
            await node.logged("telegram is polled by another process")
            assert not any(POLLED in line for line in node.log)
        assert len(group.answers) == 3


@ON_SQLITE
@pytest.mark.parametrize("states", [1, 2, 3])
async def test_L170_kill_9_of_the_gateway_that_polls(tmp_path: Path, store: SharedStore, states: int) -> None:
    """Another gateway completes the message that was shown in so many states, and answers the next one. A send of which
    the ledger does not know what became of it is not made again: a stray beginning may remain (G80)."""
    async with gateways(tmp_path, store, 2) as (telegram, _, (polling, other)):
        group = telegram.group(-5)
        telegram.write(group, "Count.", user=7)
        await telegram.until(lambda: group.answers and len(group.answers[0].states) >= states)
        await polling.kill()
        second = telegram.group(-6)
        telegram.write(second, "Count.", user=7)
        await other.logged(POLLED)
        await telegram.until(lambda: shows(group, 1) and shows(second, 1))
        assert len(second.answers) == 1
        if states > 1:
            assert len(group.answers) == 1


@WITHOUT_REDIS
async def test_L170_a_gateway_that_hangs_is_replaced_and_stays_quiet_when_it_goes_on(
    tmp_path: Path, store: SharedStore
) -> None:
    async with gateways(tmp_path, store, 2, stalls=1) as (telegram, _, (polling, other)):
        group = telegram.group(-5)
        telegram.write(group, "Count.", user=7)
        await telegram.until(lambda: group.answers and len(group.answers[0].states) >= 2)
        polling.hang()
        await other.logged(POLLED)
        await telegram.until(lambda: shows(group, 1))
        polling.go_on()
        await polling.logged("it stops polling and sending")
        telegram.write(group, "Count again.", user=7)
        await telegram.until(lambda: shows(group, 2))
        assert len(group.answers) == 2


@ON_SQLITE
async def test_L171_a_gateway_that_is_stopped_hands_its_chats_over_without_a_word(
    tmp_path: Path, store: SharedStore
) -> None:
    async with gateways(tmp_path, store, 2) as (telegram, _, (polling, other)):
        group = telegram.group(-5)
        telegram.write(group, "Count.", user=7)
        await telegram.until(lambda: group.answers and len(group.answers[0].states) >= 2)
        assert await polling.stop() == 0
        await other.logged(POLLED)
        telegram.write(telegram.group(-6), "Count.", user=7)
        await telegram.until(lambda: shows(group, 1))
        await telegram.until(lambda: shows(telegram.chats[-6], 1))
        [answer] = group.answers
        assert all("restart" not in state.text.lower() for state in answer.states)
