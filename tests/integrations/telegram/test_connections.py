"""How updates reach the bot, by polling: lost connections, and what is refused."""

from __future__ import annotations

import logging

import pytest
from proof.platforms.telegram import FakeTelegram, refusal

from integrations.telegram.telegram_bot import bot, polling
from tailrace.errors import PlatformError
from tailrace.integrations.telegram.adapter import TelegramPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import bad_gateway


@driven
async def test_a_lost_connection_is_said_and_the_next_run_goes_on_where_it_was() -> None:
    async with FakeTelegram() as telegram:
        ada = telegram.private(7)
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        inbox = CollectingInbox()
        telegram.write(ada, "one")
        telegram.fail("getUpdates", bad_gateway())
        with pytest.raises(PlatformError):
            await platform.run(inbox)
        async with running(platform) as inbox:
            telegram.write(ada, "two")
            assert [update.update_id for update in await inbox.wait_for(2)] == ["1001", "1002"]


# As servers before Bot API 9.6 send it: the library requires `persistent_id` of each option.
OLD_POLL = {"id": "1", "question": "Tea?", "options": [{"text": "Yes", "voter_count": 0}], "total_voter_count": 0}
OLD_POLL |= {"is_closed": False, "is_anonymous": True, "type": "regular", "allows_multiple_answers": False}


def test_an_update_that_the_library_cannot_read_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def hear() -> list[str]:
        async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
            ada = telegram.private(7)
            telegram.write(ada, fields={"poll": OLD_POLL})
            telegram.write(ada, "hello")
            return [update.update_id for update in await inbox.wait_for(1)]

    assert hear() == ["1002"]
    passed_over = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(passed_over) == 1
    assert passed_over[0].startswith("telegram: update 1001 is passed over: the client library cannot read it")
    assert "Tea?" not in caplog.text


def test_J114_the_libraries_log_no_token(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with FakeTelegram() as telegram, bot(telegram) as platform:
            await platform.check()

    with caplog.at_level(logging.DEBUG):
        ask()
    assert any("/bot…/getMe" in record.getMessage() for record in caplog.records)
    assert not any("a-token-for-tests" in record.getMessage() for record in caplog.records)


@driven
async def test_a_second_process_with_the_same_token_is_named() -> None:
    async with FakeTelegram() as telegram:
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        telegram.fail("getUpdates", refusal(409, "Conflict: terminated by other getUpdates request"))
        try:
            with pytest.raises(PlatformError, match="another process polls"):
                await platform.run(CollectingInbox())
        finally:
            await platform.close()


@driven
async def test_a_webhook_left_behind_is_taken_off_for_polling() -> None:
    async with FakeTelegram() as telegram:
        telegram.webhook = "https://old.example.org"
        async with polling(telegram) as (_, inbox):
            telegram.write(telegram.private(7), "hello")
            await inbox.wait_for(1)
        assert telegram.webhook == ""


@driven
async def test_doctor_hears_who_the_bot_is() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        assert await platform.check() == "@tailrace_bot, sees mentions, replies and commands in groups"
