"""Connections through discord.py: each way to reconnect, what is heard again, and who is refused."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from proof.platforms.discord import FakeDiscord

from integrations.discord.discord_bot import GENERAL, THREAD, bot, listening
from tailrace.config.load import load
from tailrace.delivery.port import MessageReceived, Update
from tailrace.errors import ConfigError, PlatformError
from tailrace.integrations.discord.adapter import DiscordPlatform, make
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import Fault


@pytest.mark.parametrize("how", ["asked", "dropped"])
async def test_a_connection_that_ends_is_resumed_and_what_was_said_meanwhile_arrives(how: str) -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        async with listening(discord) as (_, inbox):
            await discord.write(ada, "one")
            await inbox.wait_for(1)
            if how == "asked":
                await discord.ask_to_reconnect()
            else:
                discord.drop_connections()
            await discord.write(ada, "two")
            updates = await inbox.wait_for(2)
            await inbox.wait_connected(2)
            assert [update.text for update in updates if isinstance(update, MessageReceived)] == ["one", "two"]
            assert (discord.resumes, len(discord.identified)) == (1, 1)


async def test_G89_what_comes_again_after_a_failure_begins_with_the_held_part_of_a_paste() -> None:
    async with FakeDiscord() as discord:
        ada, inbox = discord.direct(70, 7), CollectingInbox()
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        first = asyncio.create_task(platform.run(inbox))
        await inbox.wait_connected()
        await discord.write(ada, "before")
        await inbox.wait_for(1)
        inbox.held = {"the part"}
        await discord.write(ada, "the part")
        await discord.write(ada, "more of it")
        await inbox.wait_for(3)
        inbox.closed = True
        await discord.write(ada, "the rest")
        with pytest.raises(PlatformError):
            await first
        inbox.closed = False
        second = asyncio.create_task(platform.run(inbox))
        heard = await inbox.wait_for(6)
        second.cancel()
        await asyncio.wait([second])
        await platform.close()
        texts = [update.text for update in heard[3:] if isinstance(update, MessageReceived)]
        assert texts == ["the part", "more of it", "the rest"]


async def test_an_event_that_cannot_be_read_is_left_out_and_what_follows_is_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        endless: dict[str, object] = {
            "question": {"text": "Tea?"},
            "answers": [],
            "expiry": None,
            "allow_multiselect": False,
        }
        async with listening(discord) as (_, inbox):
            await discord.write(ada, "vote", fields={"poll": endless})  # discord.py computes with its end
            await discord.write(ada, "hello")
            [update] = await inbox.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.text, discord.resumes) == ("hello", 0)
    assert "an event could not be read and is left out: MESSAGE_CREATE (TypeError)" in caplog.text


async def test_the_log_says_that_a_connection_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace.integrations.discord")
    async with FakeDiscord() as discord, listening(discord) as (_, inbox):
        discord.drop_connections()
        await inbox.wait_connected(2)
        await discord.invalidate_sessions()
        await inbox.wait_connected(3)
    lines = [record.message for record in caplog.records if record.name == "tailrace.integrations.discord"]
    assert lines == [
        "discord: the connection was lost; its session is resumed",
        "discord: the session was ended; another one begins",
    ]


async def test_a_session_that_cannot_be_resumed_is_begun_anew() -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        async with listening(discord) as (_, inbox):
            await discord.invalidate_sessions()
            await inbox.wait_connected(2)
            await discord.write(ada, "hello")
            assert len(await inbox.wait_for(1)) == 1
            assert (discord.resumes, len(discord.identified)) == (0, 2)


async def test_a_wrong_token_and_a_missing_intent_are_permanent_and_the_token_is_never_shown() -> None:
    async with FakeDiscord() as discord:
        stranger = DiscordPlatform("wrong-token", base_url=discord.url, gateway_url=discord.gateway_url)
        with pytest.raises(PlatformError, match="token was refused") as refused:
            await stranger.run(CollectingInbox())
        assert refused.value.permanent
        assert "wrong-token" not in str(refused.value)
        with pytest.raises(PlatformError, match="token was refused"):
            await stranger.check()
        await stranger.close()
        discord.content_intent = False
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        with pytest.raises(PlatformError, match="message content intent") as refused:
            await platform.run(CollectingInbox())
        assert refused.value.permanent
        with pytest.raises(PlatformError, match="message content intent") as refused:
            await platform.check()
        assert refused.value.permanent
        discord.content_intent = True
        assert await platform.check() == "logged in as tailrace"
        await platform.close()


async def test_a_bot_that_the_gateway_refused_goes_back_there_only_once_that_can_help() -> None:
    async with FakeDiscord() as discord:
        discord.content_intent = False
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        for _ in range(3):
            assert "message content intent" in await _ends(platform, CollectingInbox())
        assert len(discord.identified) == 1, "Discord resets the token of a bot that does that too often"
        discord.content_intent = True
        async with running(platform):
            assert len(discord.identified) == 2


async def test_a_bot_that_is_in_no_server_is_told_with_its_invitation() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        discord.in_server = False
        told = await platform.check()
        assert told == (
            "logged in as tailrace, which is in no server yet: invite it with "
            "https://discord.com/oauth2/authorize?client_id=43&scope=bot+applications.commands&permissions=274878008320"
        )
        discord.fail("guilds", Fault(502, b"<html>"))
        assert await platform.check() == "logged in as tailrace"


async def test_an_address_without_discords_api_is_named() -> None:
    async with FakeDiscord() as discord:
        platform = DiscordPlatform(discord.token, base_url=f"{discord.url}/api/v9")
        with pytest.raises(PlatformError, match="no REST API of Discord"):
            await platform.check()
        await platform.close()


async def test_a_gateway_that_cannot_be_reached_is_said_by_the_check_too() -> None:
    async with FakeDiscord() as gone:
        address = gone.gateway_url
    async with FakeDiscord() as discord:
        elsewhere = f"{discord.gateway_url}/none"
        for wrong, words in ((address, "no connection"), (elsewhere, f"no gateway of Discord at {elsewhere} .404")):
            platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=wrong)
            with pytest.raises(PlatformError, match=words) as refused:
                await platform.run(CollectingInbox())
            assert not refused.value.permanent
            with pytest.raises(PlatformError, match=words):
                await platform.check()
            await platform.close()
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        assert await platform.check() == "logged in as tailrace"
        await platform.close()


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("Bot MTk4", "DISCORD_BOT_TOKEN has a blank or a line end"),
        ("MTk4\nNjIy", "DISCORD_BOT_TOKEN holds a line break"),
        ("MTk4\x00", "DISCORD_BOT_TOKEN holds a line break or another control character"),
    ],
)
def test_a_token_that_cannot_be_one_is_told_and_not_shown(token: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("platforms: {discord: {enabled: true}}")
    with pytest.raises(ConfigError, match=told) as refused:
        make(load({"DISCORD_BOT_TOKEN": token}, tmp_path))
    assert "MTk4" not in str(refused.value)


async def test_G88_what_an_inbox_did_not_take_is_heard_again_by_the_next_run() -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        inbox = CollectingInbox()
        inbox.closed = True
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(_ends(platform, inbox))
            await inbox.wait_connected()
            await discord.write(ada, "hello")
            assert "no new work" in await run
        async with running(platform) as later:
            [update] = await later.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.text, discord.resumes) == ("hello", 1)


async def test_G88_what_is_heard_while_a_run_ends_does_not_take_the_place_of_what_was_not_taken() -> None:
    class Refusing(CollectingInbox):
        async def put(self, update: Update) -> None:
            asyncio.get_running_loop().call_soon(hear_another)
            raise PlatformError("no new work")

    def hear_another() -> None:
        """As `listen` does in the last moment before it is cancelled."""
        platform._session.sequence = (platform._session.sequence or 0) + 1

    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        inbox = Refusing()
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(_ends(platform, inbox))
            await inbox.wait_connected()
            await discord.write(ada, "one")
            await run
        async with running(platform) as later:
            await discord.write(ada, "two")
            heard = await later.wait_for(2)
            assert [update.text for update in heard if isinstance(update, MessageReceived)] == ["one", "two"]


async def test_G85_a_resumed_session_knows_channels_and_threads_as_before() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        thread = discord.thread(51, general)
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        inbox = CollectingInbox()
        inbox.closed = True
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(_ends(platform, inbox))
            await inbox.wait_connected()
            await discord.write(thread, "<@42> hello", user=7)
            await run
        async with running(platform) as later:
            await discord.write(general, "just talking", user=7)
            heard = [update for update in await later.wait_for(2) if isinstance(update, MessageReceived)]
            assert discord.resumes == 1
            assert [(update.text, update.addressed, update.place) for update in heard] == [
                ("hello", True, THREAD),
                ("just talking", False, GENERAL),
            ]


async def test_G88_an_event_in_whose_handling_the_run_was_cancelled_is_heard_again() -> None:
    class Slow(CollectingInbox):
        async def put(self, update: Update) -> None:
            await super().put(update)
            await asyncio.Event().wait()

    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        slow = Slow()
        run = asyncio.ensure_future(platform.run(slow))
        await slow.wait_connected()
        await discord.write(ada, "one")
        await discord.write(ada, "two")
        await slow.wait_for(1)
        run.cancel()
        await asyncio.wait([run])
        async with running(platform) as later:
            heard = await later.wait_for(2)
            assert [update.text for update in heard if isinstance(update, MessageReceived)] == ["one", "two"]


async def _ends(platform: DiscordPlatform, inbox: CollectingInbox) -> str:
    with pytest.raises(PlatformError) as ended:
        await platform.run(inbox)
    return str(ended.value)
