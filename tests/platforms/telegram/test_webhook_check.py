"""What `tailrace doctor` says of a webhook that Telegram cannot call."""

from __future__ import annotations

import pytest

from tailrace.errors import PlatformError
from tailrace.platforms.telegram.adapter import HOOK_PATH, TelegramPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.telegram import FakeTelegram

HOOK_URL = "https://bot.example.org" + HOOK_PATH
WELL = "@tailrace_bot, sees mentions, replies and commands in groups"


@driven
async def test_messages_that_wait_behind_a_failing_webhook_are_told_with_the_reason() -> None:
    async with FakeTelegram() as telegram:
        platform = TelegramPlatform(telegram.token, base_url=telegram.url, webhook_url=HOOK_URL)
        try:
            telegram.webhook_error = "Wrong response from the webhook: 502 Bad Gateway"
            assert await platform.check() == WELL, "the address is not the one in use"
            telegram.webhook = (HOOK_URL, "")
            assert await platform.check() == WELL, "nothing waits: it works again"
            telegram.write(telegram.private(7), "hello")
            with pytest.raises(PlatformError) as told:
                await platform.check()
        finally:
            await platform.close()
    assert str(told.value) == (
        f"telegram: Telegram calls {HOOK_URL} and fails: Wrong response from the webhook: 502 Bad Gateway; "
        "1 message waits"
    )
