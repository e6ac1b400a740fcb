"""What was written to the bot while no process ran: questions count, and so do commands, but for those that loosen."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from proof.platforms.telegram import FakeTelegram
from proof.platforms.telegram_chats import TelegramChat

from gateway.gateways import running_gateway
from tailrace.delivery.port import MessageReceived
from tailrace.errors import PlatformError
from tailrace.integrations.telegram.adapter import DOWNTIME_S, TelegramPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.provider import reply

LONG_AGO_S = DOWNTIME_S + 60


def write(telegram: FakeTelegram, chat: TelegramChat, text: str, *, age_s: float = 0.0) -> None:
    telegram.write(chat, text, fields={"date": int(time.time() - age_s)})


async def from_downtime(inbox: CollectingInbox, count: int) -> dict[str, bool]:
    updates = await inbox.wait_for(count)
    return {update.text: update.late_s is not None for update in updates if isinstance(update, MessageReceived)}


@driven
async def test_what_was_written_minutes_before_the_start_is_known_as_such() -> None:
    async with FakeTelegram() as telegram:
        ada = telegram.private(7)
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        write(telegram, ada, "old", age_s=LONG_AGO_S)
        write(telegram, ada, "recent", age_s=60)
        async with running(platform) as inbox:
            await inbox.wait_for(2)
            write(telegram, ada, "later, by a clock that is slow", age_s=LONG_AGO_S)
            assert await from_downtime(inbox, 3) == {
                "old": True,
                "recent": False,
                "later, by a clock that is slow": False,
            }


@driven
async def test_a_long_backlog_and_one_that_could_not_be_put_at_first_are_known_too() -> None:
    async with FakeTelegram() as telegram:
        ada = telegram.private(7)
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        for number in range(150):
            write(telegram, ada, f"old {number}", age_s=LONG_AGO_S)
        closed = CollectingInbox()
        closed.closed = True
        with pytest.raises(PlatformError):
            await platform.run(closed)
        async with running(platform) as inbox:
            known = await from_downtime(inbox, 150)
        assert (len(known), all(known.values())) == (150, True)


@driven
async def test_J110_a_yolo_of_hours_ago_is_told_and_a_question_answered(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram:
        ada = telegram.private(7)
        write(telegram, ada, "/yolo on", age_s=7200)
        write(telegram, ada, "are you there?", age_s=7100)
        settings = f'telegram: {{enabled: true, allow: [7], base_url: "{telegram.url}"}}'
        env = {"TELEGRAM_BOT_TOKEN": telegram.token}
        async with running_gateway(tmp_path, [reply("Here I am.")], settings, env):
            await telegram.until(lambda: len(ada.texts) == 2)
            assert ada.texts == [
                "I was away when /yolo came, and have not carried it out. Send it again if it is still meant.",
                "Here I am.",
            ]
            write(telegram, ada, "/yolo on")
            await telegram.until(lambda: len(ada.texts) == 3)
            assert "Everything is approved without asking" in ada.texts[2]
