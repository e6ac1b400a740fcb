"""An answer growing in Discord: consumer, planner, adapter and fake together, on a driven clock."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from proof.platforms.discord import FakeDiscord
from proof.platforms.history import ShownState

from integrations.discord.discord_bot import GENERAL, THREAD, bot
from tailrace.events import MessageStop, ToolCallChunk, ToolCallFinished
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import silence
from tailrace.testing.platforms.played_runs import Scene, Timed, chunks, play, show

TEXT = " ".join(f"word{number}" for number in range(200))
CURSOR = "▌"


def grows(states: list[ShownState]) -> bool:
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
async def test_a_table_that_needs_more_than_a_message_is_columns_in_two() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        rows = [f"| {number} | no | some words of it |" for number in range(90)]
        table = "\n".join(["| number | works | notes |", "|---|---|---|", *rows])
        await show(platform, GENERAL, table, pace_s=0.3)
        assert len(general.texts) == 2
        for text in general.texts:
            assert text.startswith("```\nnumber  works  notes\n")
        shown = "\n".join(general.texts)
        assert [shown.count(f"\n{number} ") for number in range(90)] == [1] * 90


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


@pytest.mark.parametrize("locked", [False, True])
@driven
async def test_G85_a_thread_closed_under_way_is_opened_again_unless_it_is_locked(locked: bool) -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        thread = discord.thread(51, general)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(show(platform, THREAD, TEXT, pace_s=0.5))
            await discord.until(lambda: thread.answers and len(thread.answers[0].states) == 3)
            thread.archived, thread.locked = True, locked
        assert thread.archived is locked
        assert (thread.texts == [TEXT], general.texts.count(TEXT)) == ((False, 1) if locked else (True, 0))


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
