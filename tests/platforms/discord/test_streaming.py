"""An answer growing in Discord: consumer, planner, adapter and fake together, on a driven clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from platforms.played import LONG, Scene, Timed, chunks, play, show
from tailrace.delivery.port import Place
from tailrace.events import MessageStop, ToolCallChunk, ToolCallFinished
from tailrace.platforms.discord.adapter import DiscordPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.discord import FakeDiscord, flood
from tailrace.testing.platforms.discord_channels import State
from tailrace.testing.platforms.loopback import Fault, bad_gateway, cut, silence

GENERAL = Place("discord", "5", kind="group")
THREAD = Place("discord", "5", "51", kind="group")
TEXT = " ".join(f"word{number}" for number in range(200))
CURSOR = "▌"


@asynccontextmanager
async def bot(discord: FakeDiscord) -> AsyncIterator[DiscordPlatform]:
    platform = DiscordPlatform(discord.token, base_url=discord.url, answer_s=5.0)
    try:
        yield platform
    finally:
        await platform.close()


def grows(states: list[State]) -> bool:
    """Every state goes on from the one before it."""
    texts = [state.text.removesuffix(CURSOR).rstrip() for state in states]
    return all(later.startswith(earlier) for earlier, later in pairwise(texts))


async def die(delivery: asyncio.Future[None]) -> None:
    delivery.cancel()
    await asyncio.wait([delivery])


@driven
async def test_one_message_grows_by_edits_within_discords_budget() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        await show(platform, GENERAL, TEXT, pace_s=0.3)
        [message] = general.answers
        assert message.text == TEXT
        assert len(message.states) > 10
        assert grows(message.states)
        assert all(state.text.endswith(CURSOR) for state in message.states[:-1])
        assert all(later.at - earlier.at >= 1.19 for earlier, later in pairwise(message.states[:-1]))
        assert all(call.status in (200, 204) for call in discord.calls)


@driven
async def test_a_tool_stands_between_what_was_said_before_and_after_it() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        before, after = "I will look at the files in that directory first. " * 3, "There are three of them. " * 20
        events = chunks(before, pace_s=0.3)
        events += [Timed(0.1, MessageStop()), Timed(0.1, ToolCallChunk("terminal", "ls -l", index=0))]
        events += [Timed(5.0, ToolCallFinished("terminal", 5.0, ok=True, index=0))]
        await play(platform, GENERAL, [*events, *chunks(after, pace_s=0.3)], after)
        first, tool, second = general.answers
        assert (first.text.strip(), second.text.strip()) == (before.strip(), after.strip())
        assert [state.text for state in tool.states] == ["⏳ **terminal** `ls -l`", "✓ **terminal** `ls -l` (5.0 s)"]


@pytest.mark.parametrize("method", ["send", "edit"])
def test_G78_a_flood_is_waited_out_and_it_stays_one_message(method: str) -> None:
    @driven
    async def scenario() -> None:
        async with FakeDiscord() as discord, bot(discord) as platform:
            general = discord.channel(5)
            discord.fail(method, flood(17.5))
            await show(platform, GENERAL, TEXT)
            assert general.texts == [TEXT]
            flooded = next(call for call in discord.calls if call.status == 429)
            after = [call.at for call in discord.calls if call.at > flooded.at and call.method != "typing"]
            assert min(after) >= flooded.at + 17.5

    scenario()


@pytest.mark.parametrize("fault", [silence(), cut(), bad_gateway(accepted=True)], ids=["silence", "cut", "gateway"])
@pytest.mark.parametrize("method", ["send", "edit"])
def test_G80_what_got_no_reply_is_repeated_and_it_stays_one_message(method: str, fault: Fault) -> None:
    @driven
    async def scenario() -> None:
        async with FakeDiscord() as discord, bot(discord) as platform:
            general = discord.channel(5)
            discord.fail(method, fault)
            scene = await show(platform, GENERAL, TEXT)
            assert general.texts == [TEXT]
            assert (await scene.facts())[-1].state == "confirmed"

    scenario()


@driven
async def test_G85_a_thread_deleted_under_way_moves_the_answer_to_its_channel() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        thread = discord.thread(51, general)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(show(platform, THREAD, TEXT, pace_s=0.5))
            await discord.until(lambda: thread.answers and len(thread.answers[0].states) == 3)
            del discord.channels[51]
        assert general.texts.count(TEXT) == 1
        assert any("thread is gone" in text for text in general.texts)


@driven
async def test_G77_after_a_death_in_mid_stream_the_same_message_is_completed() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        scene = Scene(platform, GENERAL)
        await scene.start()
        dying = asyncio.ensure_future(scene.deliver())
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(scene.write(chunks(TEXT, pace_s=0.5)))
            await discord.until(lambda: general.answers and len(general.answers[0].states) >= 3)
            await die(dying)
            tasks.create_task(scene.deliver())
            await discord.until(lambda: len(general.answers[0].states) >= 6)
            await writing
            await scene.end(TEXT)
        assert general.texts == [TEXT]


@driven
async def test_G77_G80_a_death_before_the_first_send_was_heard_of_makes_no_second_message() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        discord.fail("send", silence())
        scene = Scene(platform, GENERAL)
        await scene.run(chunks(TEXT, pace_s=0), TEXT)
        dying = asyncio.ensure_future(scene.deliver())
        await discord.until(lambda: general.texts == [TEXT])
        await die(dying)
        await scene.deliver()
        assert general.texts == [TEXT]
        assert (await scene.facts())[-1].state == "confirmed"


@driven
async def test_G82_G84_thirty_thousand_characters_arrive_in_order() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        await play(platform, GENERAL, chunks(LONG, piece=200, pace_s=0.4), LONG)
        assert len(general.answers) >= 16
        assert all(text.count("```") % 2 == 0 for text in general.texts)
        shown = "\n".join(general.texts)
        functions = [f"def f{n}():" for n in range(250)] * 2
        assert [line for line in shown.splitlines() if line.startswith("def f")] == functions
        rows = [line.lstrip("| ").split()[1] for line in shown.splitlines() if line.lstrip("| ").startswith("row ")]
        assert rows == [str(n) for n in range(120)]
        assert shown.count("👩‍👩‍👧‍👦🏳️‍🌈") == shown.count("بالعالم") == 200
        assert CURSOR not in shown
        assert not [call for call in discord.calls if call.status >= 400]
