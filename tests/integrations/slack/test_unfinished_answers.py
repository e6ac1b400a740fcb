"""Who is told, and how, that an answer stays unfinished where nothing can be written any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.gateways import running_gateway
from tailrace.delivery.port import Gone, Place, Send
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.slack import FakeSlack, refusal
from tailrace.testing.provider import Scenario, reply

SLOW = Scenario(reply=reply(" ".join(f"word{number}" for number in range(60))), pace_s=0.2)


@pytest.mark.parametrize(
    ("archived", "told"),
    [
        (False, "I am no longer in that channel. Ask me here, or type `/invite @tailrace` there and ask again."),
        (True, "the channel is archived. Ask me here."),
    ],
)
def test_who_asked_is_told_in_private_that_the_bot_was_put_out_in_mid_answer(
    tmp_path: Path, archived: bool, told: str
) -> None:
    @driven
    async def ask() -> None:
        async with FakeSlack() as slack:
            slack.names = {"U7": "Anna"}
            served = f'slack: {{enabled: true, allow: ["U7"], base_url: "{slack.api_url}"}}'
            tokens = {"SLACK_BOT_TOKEN": slack.token, "SLACK_APP_TOKEN": slack.app_token}
            async with running_gateway(tmp_path, [SLOW], served, tokens):
                general = slack.channel("C1")
                await slack.write(general, "<@U0BOT> count")
                await slack.until(lambda: general.answers)
                general.joined, general.archived = archived, archived
                await asyncio.sleep(60)
                assert slack.direct("U7").texts == [f"I could not finish my answer in <#C1>: {told}"]

    ask()


@driven
async def test_a_person_is_told_once_of_each_thread_and_never_of_a_direct_conversation() -> None:
    async with FakeSlack() as slack:
        slack.names = {"U7": "Anna"}
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        places = [
            *[Place("slack", "C1", "1.1", "group", {"user": "U7"})] * 2,
            Place("slack", "C1", "1.2", "group", {"user": "U7"}),
            Place("slack", "C1", "1.3", "group"),
            Place("slack", "D9", "1.4", "private", {"user": "U7"}),
        ]
        try:
            for place in places:
                assert await platform.perform(place, Send("k", "Hello.")) == Gone("chat")
        finally:
            await platform.close()
        assert len(slack.direct("U7").texts) == 2


@driven
async def test_who_cannot_be_told_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeSlack() as slack:
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        slack.fail("chat.postMessage", refusal("not_in_channel"), refusal("messages_tab_disabled"))
        place = Place("slack", "C1", "1.1", "group", {"user": "U7"})
        try:
            assert await platform.perform(place, Send("k", "Hello.")) == Gone("chat")
        finally:
            await platform.close()
        assert "slack: U7 could not be told so (messages_tab_disabled)" in caplog.text
