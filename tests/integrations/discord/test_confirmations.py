"""Slash commands and buttons are answered within the three seconds that Discord gives, whatever they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proof.platforms.discord import INTERACTION_S, FakeDiscord
from proof.platforms.discord_channels import DiscordChannel

from tailrace.delivery.port import Button, Place, Send
from tailrace.integrations.discord.adapter import DiscordPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running

GENERAL = Place("discord", "5", kind="group")
STRANGER = "I do not know you yet, and have done nothing."


@asynccontextmanager
async def slow(
    discord: FakeDiscord, strangers: tuple[str, ...]
) -> AsyncIterator[tuple[DiscordChannel, CollectingInbox]]:
    """A channel with a question and its button, and an inbox that takes nothing yet."""
    general = discord.channel(5)
    platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
    async with running(platform, strangers=strangers) as inbox:
        await platform.perform(GENERAL, Send("k", "Run it?", buttons=(Button("Yes", "a:once"),)))
        inbox.flowing.clear()
        yield general, inbox


@pytest.mark.parametrize(
    ("command", "strangers", "content", "flags"),
    [
        pytest.param(("stop", ""), (), "👍", 64, id="a-command"),
        pytest.param(("new", "What is up?"), (), "> What is up?", 4, id="a-question"),
        pytest.param(("stop", ""), ("9",), STRANGER, 64, id="of-a-stranger"),
    ],
)
@driven
async def test_a_command_that_storage_holds_up_is_deferred_and_answered_later(
    command: tuple[str, str], strangers: tuple[str, ...], content: str, flags: int
) -> None:
    async with FakeDiscord() as discord, slow(discord, strangers) as (general, inbox):
        used = await discord.command(general, *command, user=9)
        await asyncio.sleep(INTERACTION_S)
        assert discord.interaction_answers[used] == {"type": 5, "data": {"flags": flags}}
        inbox.flowing.set()
        await discord.until(lambda: discord.called("original"))
        told = {"content": content, "flags": flags, "allowed_mentions": {"parse": []}}
        assert discord.interaction_answers[used] == {"type": 5, "data": told}


@pytest.mark.parametrize("strangers", [(), ("9",)])
@driven
async def test_a_button_behind_a_message_that_storage_holds_up_is_answered_in_time(strangers: tuple[str, ...]) -> None:
    async with FakeDiscord() as discord, slow(discord, strangers) as (general, inbox):
        await discord.write(general, "<@42> hello", user=8)
        pressed = await discord.press(general, general.answers[0], "Yes", user=9)
        await asyncio.sleep(INTERACTION_S)
        assert discord.interaction_answers[pressed] == {"type": 6}
        inbox.flowing.set()
        await inbox.wait_for(2)
        if strangers:
            await discord.until(lambda: discord.follow_ups)
            assert (discord.follow_ups[pressed]["content"], discord.follow_ups[pressed]["flags"]) == (STRANGER, 64)
        await asyncio.sleep(INTERACTION_S)
        assert [call.status for call in discord.called("callback")] == [204]


@driven
async def test_a_command_that_was_deferred_and_is_heard_again_by_the_next_connection_is_answered() -> None:
    async with FakeDiscord() as discord:
        general, inbox = discord.channel(5), CollectingInbox()
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        try:
            first = asyncio.create_task(platform.run(inbox))
            await inbox.wait_connected()
            inbox.flowing.clear()
            used = await discord.command(general, "stop", user=9)
            await asyncio.sleep(INTERACTION_S)
            first.cancel()
            await asyncio.wait([first])
            await asyncio.sleep(INTERACTION_S)
            inbox.flowing.set()
            second = asyncio.create_task(platform.run(inbox))
            await discord.until(lambda: discord.called("original"))
            second.cancel()
            await asyncio.wait([second])
        finally:
            await platform.close()
        told = {"content": "👍", "flags": 64, "allowed_mentions": {"parse": []}}
        assert discord.interaction_answers[used] == {"type": 5, "data": told}
