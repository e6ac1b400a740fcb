"""Slack against the suite that every adapter passes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proof.platforms.slack import FakeSlack, flood

from tailrace.delivery.port import Place
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.testing.conformance.platform import (
    NOWHERE,
    WRONG_TOKEN,
    OpenRig,
    PlatformConformance,
    PlatformRig,
    connected,
)
from tailrace.testing.platforms.collecting_inbox import CollectingInbox
from tailrace.testing.platforms.loopback import Fault


class Rig(PlatformRig):
    def __init__(self, platform: SlackPlatform, thread: str, inbox: CollectingInbox, fake: FakeSlack) -> None:
        super().__init__(platform, Place("slack", "D1", thread, extra={"user": "U7", "team": "T0TEAM"}), inbox, fake)
        self._slack, self._direct = fake, fake.channel("D1")

    def answers(self) -> list[list[str]]:
        return [[state.text for state in message.states] for message in self._direct.answers]

    async def files(self) -> list[bytes]:
        return [content for _, _, content in self._direct.files]

    async def write(self, text: str) -> None:
        await self._slack.write(self._direct, text)

    async def attach(self, name: str, content: bytes) -> None:
        await self._slack.write(self._direct, "", files={name: content})

    def flood(self, retry_after_s: int) -> Fault:
        return flood(retry_after_s)

    def unreachable(self) -> SlackPlatform:
        return SlackPlatform(self._slack.token, self._slack.app_token, base_url=f"{NOWHERE}/")

    def stranger(self) -> SlackPlatform:
        return SlackPlatform(WRONG_TOKEN, self._slack.app_token, base_url=self._slack.api_url)

    def check_long_text(self) -> None:
        assert len(self.texts) >= 3
        assert not any(message.state.streaming for message in self._direct.answers)


class TestSlack(PlatformConformance):
    steps = ("chat.startStream", "chat.appendStream", "chat.stopStream")
    send_step = "chat.postMessage"
    typing_step = "assistant.threads.setStatus"

    @pytest.fixture
    def open_rig(self) -> OpenRig:
        @asynccontextmanager
        async def rig(*, listening: bool) -> AsyncIterator[Rig]:
            async with FakeSlack() as slack:
                # A stream is an answer: there is a question already, unless the test waits for one.
                question = "" if listening else await slack.write(slack.channel("D1"), "hello")
                platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url, answer_s=5.0)
                async with connected(platform, listening=listening) as inbox:
                    yield Rig(platform, question, inbox, slack)

        return rig
