"""The reasons that an operator is told: by `tailrace doctor`, and in the log."""

from __future__ import annotations

import pytest
from proof.platforms.telegram import FakeTelegram

from tailrace.delivery.port import Gone, Place, Send
from tailrace.errors import PlatformError
from tailrace.integrations.telegram.adapter import TelegramPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox
from tailrace.testing.platforms.loopback import cut

WELL = "@tailrace_bot, sees mentions, replies and commands in groups"


def test_the_log_says_why_a_chat_cannot_be_written_to(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def send() -> None:
        async with FakeTelegram() as telegram:
            telegram.private(7).blocked = "Forbidden: bot was blocked by the user"
            platform = TelegramPlatform(telegram.token, base_url=telegram.url)
            try:
                assert await platform.perform(Place("telegram", "7"), Send("k", "hello")) == Gone("chat")
            finally:
                await platform.close()

    send()
    assert caplog.messages == ["telegram:7 cannot be written to: Forbidden: bot was blocked by the user"]


@driven
async def test_a_connection_that_breaks_is_told_without_the_name_of_a_class() -> None:
    async with FakeTelegram() as telegram:
        telegram.fail("getUpdates", cut())
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        try:
            with pytest.raises(PlatformError) as told:
                await platform.run(CollectingInbox())
        finally:
            await platform.close()
    assert str(told.value) == "telegram: Server disconnected without sending a response"
