"""The Slack adapter at a fake, with a socket and without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proof.platforms.slack import FakeSlack
from proof.platforms.slack_channels import SlackChannel

from tailrace.delivery.port import Place, Send
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running

PERSON = {"user": "U7", "team": "T0TEAM"}
SEND = Send("k", "hello")


@asynccontextmanager
async def app(slack: FakeSlack) -> AsyncIterator[SlackPlatform]:
    """The adapter without a socket."""
    platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url, answer_s=5.0)
    try:
        yield platform
    finally:
        await platform.close()


@asynccontextmanager
async def listening(slack: FakeSlack) -> AsyncIterator[tuple[SlackPlatform, CollectingInbox]]:
    platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
    async with running(platform) as inbox:
        yield platform, inbox


async def asked(slack: FakeSlack, channel: str = "C1") -> tuple[SlackChannel, Place]:
    """Somebody has asked: the channel, and where the answer goes."""
    where = slack.channel(channel)
    ts = await slack.write(where, "hello")
    return where, Place("slack", channel, ts, "private" if where.private else "group", PERSON)
