"""The names in place of numbers: those of the server, and in direct messages of the servers that both are in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace.delivery.port import MessageReceived
from tailrace.integrations.discord.adapter import DiscordPlatform
from tailrace.integrations.discord.known_names import KEEP_S
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.discord import BOT_ROLE_ID, FakeDiscord, flood
from tailrace.testing.platforms.discord_channels import GUILD_ID, DiscordChannel
from tailrace.testing.platforms.loopback import bad_gateway, silence

ADA, BOB = 7, 8
OTHER = 9100
RANDOM, SECRET = 900_000_000_000_000_055, 900_000_000_000_000_066


async def said(discord: FakeDiscord, inbox: CollectingInbox, where: DiscordChannel, text: str) -> str:
    """What the model reads of what Ada writes."""
    heard = len(inbox.updates)
    await discord.write(where, text, user=ADA, fields={"mentions": []})
    update = (await inbox.wait_for(heard + 1))[-1]
    assert isinstance(update, MessageReceived)
    return update.text


def platform_of(discord: FakeDiscord) -> DiscordPlatform:
    return DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)


def other_server() -> dict[str, Any]:
    """A second server that the bot is in, with a role and a channel."""
    role: dict[str, Any] = {"id": "9101", "name": "judges", "color": 0, "hoist": False, "position": 1, "flags": 0}
    role |= {"permissions": str(1 << 10), "managed": False, "mentionable": True}
    channel = {"id": "9102", "type": 0, "name": "elsewhere", "position": 0, "permission_overwrites": []}
    server: dict[str, Any] = {"id": str(OTHER), "name": "Other", "owner_id": "1", "members": [], "member_count": 1}
    return server | {
        "roles": [role, role | {"id": str(OTHER), "name": "@everyone"}],
        "channels": [channel],
        "threads": [],
    }


@pytest.mark.parametrize(
    ("text", "read"),
    [
        pytest.param(f"in <#{RANDOM}>?", "in #random?", id="a-channel"),
        pytest.param("in <#51>?", "in #rowing?", id="a-thread"),
        pytest.param(f"ask <@&{BOT_ROLE_ID}>", "ask @tailrace", id="a-role"),
        pytest.param(f"ask <@{BOB}> or <@!{BOB}>", "ask @user8 or @user8", id="a-person"),
        pytest.param("see <#9>, ask <@&9> or <@!9>", "see a channel, ask a role or somebody", id="not-known"),
        pytest.param(f"in <#{SECRET}>?", "in a channel?", id="M-a-channel-that-not-all-see"),
        pytest.param("what is `<#9>`?\n```\n<@&9>\n```", "what is `<#9>`?\n```\n<@&9>\n```", id="in-code"),
    ],
)
async def test_in_a_direct_message_names_are_those_of_the_servers(text: str, read: str) -> None:
    async with FakeDiscord() as discord:
        discord.channel(RANDOM, "random")
        hidden = {"id": "9000", "type": 0, "allow": "0", "deny": str(1 << 10)}
        discord.channel(SECRET, "plans", overwrites=[hidden])
        discord.thread(51, discord.channels[RANDOM], "rowing")
        discord.members[GUILD_ID] = {ADA, BOB}
        async with running(platform_of(discord)) as inbox:
            assert await said(discord, inbox, discord.direct(70, ADA), text) == read


@pytest.mark.parametrize(
    ("where", "members", "read"),
    [
        pytest.param("server", {ADA, BOB}, "see a channel, ask a role or somebody", id="M-in-another-server"),
        pytest.param("private", {BOB}, "see a channel, ask a role or somebody", id="M-in-private-a-stranger-there"),
        pytest.param("private", {ADA, BOB}, "see #elsewhere, ask @judges or @user8", id="in-private-a-member"),
    ],
)
async def test_the_names_of_a_server_are_told_to_its_members_alone(where: str, members: set[int], read: str) -> None:
    async with FakeDiscord() as discord:
        discord.members = {GUILD_ID: {ADA}, OTHER: members}
        channel = discord.direct(70, ADA) if where == "private" else discord.channel(5)
        async with running(platform_of(discord)) as inbox:
            await discord.dispatch("GUILD_CREATE", other_server())
            assert await said(discord, inbox, channel, f"see <#9102>, ask <@&9101> or <@{BOB}>") == read


@driven
async def test_discord_is_asked_about_a_person_once_in_ten_minutes() -> None:
    async with FakeDiscord() as discord:
        discord.channel(RANDOM, "random")
        direct = discord.direct(70, ADA)
        async with running(platform_of(discord)) as inbox:
            for asked in (1, 1):
                assert await said(discord, inbox, direct, f"in <#{RANDOM}> or <#{RANDOM}>?") == "in #random or #random?"
                assert len(discord.called("member")) == asked
            discord.members[GUILD_ID] = {BOB}  # Ada has left
            await asyncio.sleep(KEEP_S)
            assert await said(discord, inbox, direct, f"in <#{RANDOM}>?") == "in a channel?"
            assert await said(discord, inbox, direct, "no name here") == "no name here"
        assert len(discord.called("member")) == 2


async def test_discord_is_asked_for_no_name_that_somebody_writes_who_is_not_served() -> None:
    async with FakeDiscord() as discord:
        discord.channel(RANDOM, "random")
        async with running(platform_of(discord), strangers=[str(ADA)]) as inbox:
            read = await said(discord, inbox, discord.direct(70, ADA), f"in <#{RANDOM}>, <@{BOB}>?")
        assert read == "in a channel, somebody?"
        assert not discord.called("member")


@driven
async def test_where_discord_does_not_tell_the_name_is_left_out_and_asked_for_again() -> None:
    async with FakeDiscord() as discord:
        discord.channel(RANDOM, "random")
        direct = discord.direct(70, ADA)
        async with running(platform_of(discord)) as inbox:
            for fault in (bad_gateway(), flood(1), silence()):
                discord.fail("member", fault)
                assert await said(discord, inbox, direct, f"in <#{RANDOM}>?") == "in a channel?"
            assert await said(discord, inbox, direct, f"in <#{RANDOM}>?") == "in #random?"
