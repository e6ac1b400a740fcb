"""Discord against the suite that every adapter passes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proof.platforms.discord import FakeDiscord, flood

from tailrace.delivery.port import Place
from tailrace.integrations.discord.adapter import DiscordPlatform
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
    def __init__(self, platform: DiscordPlatform, inbox: CollectingInbox, fake: FakeDiscord) -> None:
        super().__init__(platform, Place("discord", "70"), inbox, fake)
        self._discord, self._ada = fake, fake.direct(70, 7)

    def answers(self) -> list[list[str]]:
        return [[state.text for state in message.states] for message in self._ada.answers]

    async def files(self) -> list[bytes]:
        return [content for _, _, content in self._ada.files]

    async def write(self, text: str) -> None:
        await self._discord.write(self._ada, text)

    async def write_twice(self, text: str) -> None:
        await self.write(text)
        await self._discord.dispatch("MESSAGE_CREATE", self._ada.message_json(self._ada.messages[0]))

    async def attach(self, name: str, content: bytes) -> None:
        await self._discord.write(self._ada, "", files={name: content})

    def flood(self, retry_after_s: int) -> Fault:
        return flood(retry_after_s)

    def unreachable(self) -> DiscordPlatform:
        return DiscordPlatform(self._discord.token, base_url=NOWHERE)

    def stranger(self) -> DiscordPlatform:
        return DiscordPlatform(WRONG_TOKEN, base_url=self._discord.url, gateway_url=self._discord.gateway_url)

    def check_long_text(self) -> None:
        assert len(self.texts) >= 16


class TestDiscord(PlatformConformance):
    steps = ("send", "edit")
    typing_step = "typing"
    drives_updates = False  # discord.py keeps its heart beating in a thread

    @pytest.fixture
    def open_rig(self) -> OpenRig:
        @asynccontextmanager
        async def rig(*, listening: bool) -> AsyncIterator[Rig]:
            async with FakeDiscord() as discord:
                platform = DiscordPlatform(
                    discord.token, base_url=discord.url, gateway_url=discord.gateway_url, answer_s=5.0
                )
                async with connected(platform, listening=listening) as inbox:
                    yield Rig(platform, inbox, discord)

        return rig
