"""Mattermost against the suite that every platform of Tailrace passes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fake_mattermost import ADA, BOT, CHANNEL, FakeMattermost
from tailrace_mattermost.adapter import MattermostPlatform

from tailrace.delivery.port import MessageReceived, Place
from tailrace.testing.conformance.platform import (
    NOWHERE,
    WRONG_TOKEN,
    OpenRig,
    PlatformConformance,
    PlatformRig,
    connected,
)
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import Fault, json_fault


class Rig(PlatformRig):
    def __init__(self, platform: MattermostPlatform, inbox: CollectingInbox, fake: FakeMattermost) -> None:
        super().__init__(platform, Place("mattermost", CHANNEL), inbox, fake)
        self._server = fake

    def answers(self) -> list[list[str]]:
        return [post.states for post in self._server.posts.values() if post.user_id == BOT and not post.deleted]

    async def write(self, text: str) -> None:
        self._server.write(text)

    async def write_twice(self, text: str) -> None:
        self._server.write(text)
        self._server.repeat()

    async def attach(self, name: str, content: bytes) -> None:
        self._server.attach(name, content)

    def flood(self, retry_after_s: int) -> Fault:
        return json_fault(429, "limit exceeded", **{"X-Ratelimit-Reset": str(retry_after_s)})

    def unreachable(self) -> MattermostPlatform:
        return MattermostPlatform(NOWHERE, self._server.token)

    def stranger(self) -> MattermostPlatform:
        return MattermostPlatform(self._server.url, WRONG_TOKEN)


class TestMattermost(PlatformConformance):
    steps = ("create", "patch")
    typing_step = "typing"

    @pytest.fixture
    def open_rig(self) -> OpenRig:
        @asynccontextmanager
        async def rig(*, listening: bool) -> AsyncIterator[Rig]:
            async with FakeMattermost() as server:
                platform = MattermostPlatform(server.url, server.token, answer_s=5.0)
                async with connected(platform, listening=listening) as inbox:
                    yield Rig(platform, inbox, server)

        return rig


async def test_in_a_channel_a_mention_is_answered_in_a_thread() -> None:
    async with FakeMattermost() as server, running(MattermostPlatform(server.url, server.token)) as inbox:
        server.write("@tailrace: what is new?", channel_type="O", mentions=(BOT,))
        server.write("unrelated", channel_type="O")
        asked, unrelated = await inbox.wait_for(2)
        assert isinstance(asked, MessageReceived)
        assert isinstance(unrelated, MessageReceived)
        assert (asked.text, asked.addressed, unrelated.addressed) == ("what is new?", True, False)
        assert asked.sender.id == ADA
        assert asked.place == Place("mattermost", CHANNEL, thread=asked.message_id, kind="group")


async def test_posts_of_programs_and_of_the_server_are_left_alone() -> None:
    async with FakeMattermost() as server, running(MattermostPlatform(server.url, server.token)) as inbox:
        server.write("beep", props={"from_bot": "true"})
        server.write("ada joined", type="system_join_channel")
        server.write("hello")
        [update] = await inbox.wait_for(1)
        assert isinstance(update, MessageReceived)
        assert update.text == "hello"
