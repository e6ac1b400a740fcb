"""How updates reach the bot, by polling and by webhook: lost connections, secrets, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from integrations.telegram.telegram_bot import bot, polling
from tailrace.config.load import load
from tailrace.delivery.port import HookRequest, Sender
from tailrace.errors import ConfigError, PlatformError
from tailrace.integrations.telegram.adapter import HOOK_PATH, SECRET_HEADER, TelegramPlatform, make
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import bad_gateway
from tailrace.testing.platforms.telegram import FakeTelegram, refusal


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
        telegram.webhook = ("https://old.example.org", "")
        async with polling(telegram) as (_, inbox):
            telegram.write(telegram.private(7), "hello")
            await inbox.wait_for(1)
        assert telegram.webhook == ("", "")


@driven
async def test_doctor_hears_who_the_bot_is() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        assert await platform.check() == "@tailrace_bot, sees mentions, replies and commands in groups"


@driven
async def test_J120_a_webhook_takes_only_what_carries_the_secret() -> None:
    async with FakeTelegram() as telegram:
        platform = TelegramPlatform(
            telegram.token, base_url=telegram.url, webhook_url="https://bot.example.org" + HOOK_PATH
        )
        assert platform.hook_path == HOOK_PATH
        async with running(platform) as inbox:
            url, secret = telegram.webhook
            assert url == "https://bot.example.org" + HOOK_PATH
            body = b'{"update_id": 5, "message": {"message_id": 1, "date": 1, "text": "hello",'
            body += b'"chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": false, "first_name": "Ada"}}}'

            async def post(given: str, content: bytes, method: str = "POST") -> int:
                headers = {SECRET_HEADER: given}
                return (await platform.hook(HookRequest(method, HOOK_PATH, {}, headers, content), inbox)).status

            assert await post("", body) == 403
            assert await post(secret[:-1] + "0", body) == 403
            assert await post(secret, b"{") == 400
            assert await post(secret, b"{}") == 400
            unreadable = {"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "poll": OLD_POLL}
            assert await post(secret, msgspec.json.encode({"update_id": 4, "message": unreadable})) == 200
            assert await post(secret, body, "GET") == 405
            assert inbox.updates == []
            assert await post(secret, body) == 200
            inbox.closed = True
            assert await post(secret, body) == 503
            assert [update.sender for update in inbox.updates] == [Sender("7", "Ada")]


@pytest.mark.parametrize(
    ("webhook", "more", "mistake"),
    [
        (
            "http://bot.example.org/hook",
            "",
            "Telegram calls https:// addresses only; found 'http://bot.example.org/hook'",
        ),
        ("https://bot.example.org:9000/hook", "", "Telegram calls the ports 443, 80, 88, 8443 only; found 9000"),
        ("https://[::", "", "expected an address; found 'https://[::'"),
        ("https://bot.example.org:8443/hook", "", ""),
        ("http://10.0.0.5:9000/hook", ', base_url: "http://10.0.0.4:8081"', ""),
    ],
)
def test_a_webhook_that_telegram_would_not_call_is_refused_at_the_start(
    webhook: str, more: str, mistake: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(f'platforms: {{telegram: {{enabled: true, webhook_url: "{webhook}"{more}}}}}')
    config = load({"TELEGRAM_BOT_TOKEN": "42:x"}, tmp_path)
    if not mistake:
        assert make(config).hook_path == HOOK_PATH
        return
    with pytest.raises(ConfigError) as raised:
        make(config)
    assert str(raised.value) == f"platforms.telegram.webhook_url: {mistake}"
