"""Where the bot may not write, whoever asked is told in private, once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tailrace.delivery.port import AnyReply, Edit, Gone, Place, Refused, Send, Sent
from tailrace.integrations.discord.adapter import DiscordPlatform
from tailrace.testing.platforms.collecting_inbox import running
from tailrace.testing.platforms.discord import FakeDiscord, refusal
from tailrace.testing.platforms.loopback import Fault

GENERAL = Place("discord", "5", kind="group", extra={"user": "7"})
NO_RIGHT = refusal(403, 50013, "Missing Permissions")
CLOSED = refusal(403, 50007, "Cannot send messages to this user")


@asynccontextmanager
async def bot(discord: FakeDiscord) -> AsyncIterator[DiscordPlatform]:
    platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url, answer_s=5.0)
    try:
        yield platform
    finally:
        await platform.close()


@pytest.mark.parametrize(
    ("fault", "reply"),
    [
        (NO_RIGHT, Refused("Missing Permissions (50013)")),
        (refusal(403, 50001, "Missing Access"), Gone("chat")),
    ],
)
async def test_who_asked_is_told_once_in_a_direct_message(fault: Fault, reply: AnyReply) -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general, ada = discord.channel(5), discord.direct(70, 7)
        for key in ("one", "two"):
            discord.fail("send", fault)
            assert await platform.perform(GENERAL, Send(key, "Hello.")) == reply
        [told] = ada.texts
        assert told.startswith("I may not write in <#5>, so my answer is not shown there. Ask me here")
        assert general.texts == []


async def test_who_asked_is_told_where_the_bot_is_put_out_in_the_middle_of_its_answer() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        discord.channel(5)
        ada = discord.direct(70, 7)
        sent = await platform.perform(GENERAL, Send("one", "Hel"))
        assert isinstance(sent, Sent)
        discord.fail("edit", refusal(403, 50001, "Missing Access"))
        assert await platform.perform(GENERAL, Edit(sent.message_id, "Hello.")) == Gone("chat")
        [told] = ada.texts
        assert told.startswith("I may not write in <#5>, so my answer is not shown there. Ask me here")


async def test_nobody_is_told_of_any_other_refusal_or_of_a_closed_door() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        discord.channel(5)
        discord.fail("send", refusal(400, 160005, "Thread is locked"))
        await platform.perform(GENERAL, Send("one", "Hello."))
        discord.fail("send", NO_RIGHT)
        await platform.perform(Place("discord", "5", kind="group"), Send("two", "Hello."))
        assert discord.called("direct") == []
        discord.fail("send", NO_RIGHT, CLOSED)
        assert await platform.perform(GENERAL, Send("three", "Hello.")) == Refused("Missing Permissions (50013)")
        assert len(discord.called("direct")) == 1
        assert isinstance(await platform.perform(GENERAL, Send("four", "Hello.")), Sent)


async def test_a_command_where_the_bot_may_not_write_says_so_beside_it() -> None:
    async with FakeDiscord() as discord:
        general, thread = discord.channel(5), discord.thread(51, discord.channels[5])
        discord.rights = 1 << 10 | 1 << 38  # View Channels, Send Messages in Threads
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        async with running(platform):
            used = [await discord.command(place, "status", user=7) for place in (general, thread)]
            await discord.until(lambda: len(discord.interaction_answers) == 2)
            told, confirmed = (discord.interaction_answers[one]["data"]["content"] for one in used)
            assert told.startswith("👍 I may not write in this channel")
            assert confirmed == "👍"
            discord.fail("send", NO_RIGHT)
            await platform.perform(GENERAL, Send("k", "model: any"))
            assert discord.called("direct") == [], "they have read it already"
