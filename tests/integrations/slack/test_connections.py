"""Socket Mode's connections: replaced, lost and refused, and the tokens that open them."""

from __future__ import annotations

import asyncio
import logging

import pytest
from proof.platforms.slack import FakeSlack

from integrations.slack.slack_app import app, listening
from tailrace.delivery.port import MessageReceived
from tailrace.errors import PlatformError
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import bad_gateway, json_fault


@driven
async def test_a_socket_that_slack_wants_replaced_is_and_what_was_said_meanwhile_arrives() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        direct = slack.channel("D1")
        await slack.write(direct, "one")
        await slack.until(lambda: len(slack.acknowledged) == 1)
        await asyncio.sleep(3600)
        await slack.ask_to_reconnect()
        await slack.until(lambda: slack.connections == 2)
        await slack.write(direct, "two")
        await slack.until(lambda: len(slack.acknowledged) == 2)
        assert [update.text for update in inbox.updates if isinstance(update, MessageReceived)] == ["one", "two"]


@driven
async def test_a_connection_that_is_lost_is_said_and_what_was_said_meanwhile_arrives() -> None:
    async with FakeSlack() as slack:
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        first = CollectingInbox()
        run = asyncio.ensure_future(platform.run(first))
        await first.wait_connected()
        await slack.close_sockets()
        with pytest.raises(PlatformError, match="the connection was lost") as lost:
            await run
        assert not lost.value.permanent
        ts = await slack.write(slack.channel("D1"), "meanwhile")
        async with running(platform) as inbox:
            assert [update.update_id for update in await inbox.wait_for(1)] == [f"D1:{ts}"]


@driven
async def test_a_socket_that_is_not_to_be_had_is_said_without_its_ticket() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        nowhere = json_fault(200, {"ok": True, "url": "ws://127.0.0.1:1/link?ticket=secret"})
        slack.fail("apps.connections.open", nowhere)
        with pytest.raises(PlatformError, match=r"no connection: 127\.0\.0\.1:1 does not answer") as said:
            await platform.run(CollectingInbox())
        assert "secret" not in str(said.value)


def test_J114_the_ticket_of_a_socket_that_is_refused_is_in_no_log_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @driven
    async def refuse() -> str:
        async with FakeSlack() as slack, app(slack) as platform:
            address = f"{slack.url.replace('http', 'ws', 1)}/refused?ticket=secret&app_id=A1"
            slack.fail("apps.connections.open", json_fault(200, {"ok": True, "url": address}))
            with pytest.raises(PlatformError) as said:
                await platform.run(CollectingInbox())
            return str(said.value)

    caplog.set_level(logging.DEBUG)
    told = refuse()
    assert "secret" not in caplog.text + told
    [refused, *_] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert refused.getMessage().startswith("Failed to connect (error: 404")
    assert "ticket=…&app_id=A1" in refused.getMessage()
    assert any("'url': 'ws://" in record.getMessage() for record in caplog.records), "the answer that brings the ticket"


@driven
async def test_J114_the_address_to_answer_a_command_at_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        await slack.command(slack.channel("C1"), "/tailrace", "status")
        await inbox.wait_for(1)
    assert "response_url" in caplog.text, "the envelope"
    assert "/commands/C1/U7" not in caplog.text


@driven
async def test_G88_what_was_not_taken_is_not_acknowledged_and_comes_again() -> None:
    async with FakeSlack() as slack:
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        closing = CollectingInbox()
        closing.closed = True
        ts = await slack.write(slack.channel("D1"), "hello")
        with pytest.raises(PlatformError, match="no new work"):
            await platform.run(closing)
        assert slack.acknowledged == []
        async with running(platform) as inbox:
            assert [update.update_id for update in await inbox.wait_for(1)] == [f"D1:{ts}"]


@driven
async def test_wrong_tokens_are_permanent_and_never_shown() -> None:
    async with FakeSlack() as slack:
        for bot, app_level, which in (("xoxb-wrong", slack.app_token, "bot"), (slack.token, "xapp-wrong", "app-level")):
            platform = SlackPlatform(bot, app_level, base_url=slack.api_url)
            for attempt in (platform.run(CollectingInbox()), platform.check()):
                with pytest.raises(PlatformError, match=f"the {which} token was refused") as refused:
                    await attempt
                assert refused.value.permanent
                assert "wrong" not in str(refused.value)
            await platform.close()
        async with app(slack) as platform:
            assert await platform.check() == "tailrace in Testers"


@driven
async def test_what_is_no_token_of_that_kind_is_said_and_never_shown() -> None:
    async with FakeSlack() as slack:
        swapped = SlackPlatform(slack.app_token, slack.token, base_url=slack.api_url)
        for attempt in (swapped.run(CollectingInbox()), swapped.check()):
            with pytest.raises(
                PlatformError, match=r"the bot token was refused \(invalid_auth\): it does not begin"
            ) as said:
                await attempt
            assert "for-tests" not in str(said.value)
        await swapped.close()
        half = SlackPlatform(slack.token, slack.token, base_url=slack.api_url)
        with pytest.raises(PlatformError, match=r"app-level token .* does not begin with xapp-"):
            await half.run(CollectingInbox())
        await half.close()


@driven
async def test_a_persons_token_is_not_taken_for_the_bots() -> None:
    person = json_fault(200, {"ok": True, "user_id": "U7", "team_id": "T0TEAM", "user": "ada", "team": "Testers"})
    async with FakeSlack() as slack, app(slack) as platform:
        slack.fail("auth.test", person, person)
        for attempt in (platform.check(), platform.run(CollectingInbox())):
            with pytest.raises(PlatformError, match="the bot token is a person's") as said:
                await attempt
            assert said.value.permanent


@driven
async def test_who_answers_in_slacks_place_is_named_with_its_status() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        slack.fail("auth.test", bad_gateway())
        with pytest.raises(PlatformError, match=r"127\.0\.0\.1:\d+ answered 502, and not as Slack does$"):
            await platform.check()


@driven
async def test_G89_a_held_part_is_acknowledged_when_its_paste_is_whole() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        direct = slack.channel("D1")
        inbox.held = {f"D1:{number}" for number in range(3)}
        ts = await slack.write(direct, "the first part")
        inbox.held = {f"D1:{ts}"}
        await slack.write(direct, "the second part")
        await inbox.wait_for(2)
        await slack.until(lambda: len(slack.acknowledged) == 1)
        inbox.held = set()
        inbox.changed()
        await slack.until(lambda: len(slack.acknowledged) == 2)
