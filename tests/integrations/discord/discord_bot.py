"""The Discord adapter at a fake, with a gateway and without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proof.platforms.discord import FakeDiscord

from tailrace.delivery.port import Place, Send
from tailrace.integrations.discord.adapter import DiscordPlatform
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running

ADA = Place("discord", "70")
GENERAL = Place("discord", "5", kind="group")
THREAD = Place("discord", "5", "51", kind="group")
SEND = Send("k", "hello")


@asynccontextmanager
async def bot(discord: FakeDiscord) -> AsyncIterator[DiscordPlatform]:
    """The adapter without a gateway."""
    platform = DiscordPlatform(discord.token, base_url=discord.url, answer_s=5.0)
    try:
        yield platform
    finally:
        await platform.close()


@asynccontextmanager
async def listening(discord: FakeDiscord) -> AsyncIterator[tuple[DiscordPlatform, CollectingInbox]]:
    platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
    async with running(platform) as inbox:
        yield platform, inbox
