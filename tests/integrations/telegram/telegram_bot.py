"""The Telegram adapter at a fake, with a connection for updates and without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proof.platforms.telegram import FakeTelegram

from tailrace.delivery.port import Place, Send
from tailrace.integrations.telegram.adapter import TelegramPlatform
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running

ADA = Place("telegram", "7")
GROUP = Place("telegram", "-100", kind="group")
TOPIC = Place("telegram", "-200", "11", kind="group")
SEND = Send("k", "hello")


@asynccontextmanager
async def bot(telegram: FakeTelegram) -> AsyncIterator[TelegramPlatform]:
    """The adapter without a connection for updates."""
    platform = TelegramPlatform(telegram.token, base_url=telegram.url, answer_s=5.0)
    try:
        yield platform
    finally:
        await platform.close()


@asynccontextmanager
async def polling(telegram: FakeTelegram) -> AsyncIterator[tuple[TelegramPlatform, CollectingInbox]]:
    platform = TelegramPlatform(telegram.token, base_url=telegram.url)
    async with running(platform) as inbox:
        yield platform, inbox
