"""Telegram against the suite that every adapter passes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proof.platforms.telegram import FakeTelegram, flood
from proof.platforms.telegram_chats import TelegramChat

from tailrace.delivery.port import Place
from tailrace.integrations.telegram.adapter import TelegramPlatform
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

ADA = Place("telegram", "7")
GROUP = Place("telegram", "-100", kind="group")


class Rig(PlatformRig):
    def __init__(self, platform: TelegramPlatform, place: Place, inbox: CollectingInbox, fake: FakeTelegram) -> None:
        super().__init__(platform, place, inbox, fake)
        self._telegram = fake
        self._chat: TelegramChat = fake.private(7) if place == ADA else fake.group(-100)

    def answers(self) -> list[list[str]]:
        return [[state.text for state in message.states] for message in self._chat.answers]

    def update_count(self) -> int:
        return super().update_count() + sum(len(draft.states) for draft in self._chat.drafts)

    async def files(self) -> list[bytes]:
        return [content for _, _, content in self._chat.files]

    async def write(self, text: str) -> None:
        self._telegram.write(self._chat, f"@tailrace_bot {text}" if self.place == GROUP else text, user=7)

    async def write_twice(self, text: str) -> None:
        update_id = self._telegram.write(self._chat, text, user=7)
        await self.inbox.wait_for(1)
        self._telegram.deliver_again(update_id)

    async def attach(self, name: str, content: bytes) -> None:
        self._telegram.send_file(self._chat, name, content, "text/plain")

    def flood(self, retry_after_s: int) -> Fault:
        return flood(retry_after_s)

    def unreachable(self) -> TelegramPlatform:
        return TelegramPlatform(self._telegram.token, base_url=NOWHERE)

    def stranger(self) -> TelegramPlatform:
        return TelegramPlatform(WRONG_TOKEN, base_url=self._telegram.url)

    def check_long_text(self) -> None:
        states = [message.states[-1] for message in self._chat.answers]
        in_code = [styled.text for state in states for styled in state.styled if styled.kind == "pre"]
        assert sum(text.count("def f") for text in in_code) == 500
        assert len(states) >= 8
        assert not any("```" in state.text for state in states)


def rigs(place: Place) -> OpenRig:
    @asynccontextmanager
    async def open_rig(*, listening: bool) -> AsyncIterator[Rig]:
        async with FakeTelegram() as telegram:
            platform = TelegramPlatform(telegram.token, base_url=telegram.url, answer_s=5.0)
            async with connected(platform, listening=listening) as inbox:
                yield Rig(platform, place, inbox, telegram)

    return open_rig


class TestInAPrivateChat(PlatformConformance):
    steps = ("sendMessage",)
    typing_step = "sendChatAction"

    @pytest.fixture
    def open_rig(self) -> OpenRig:
        return rigs(ADA)


class TestInAGroup(PlatformConformance):
    steps = ("sendMessage", "editMessageText")
    typing_step = "sendChatAction"

    @pytest.fixture
    def open_rig(self) -> OpenRig:
        return rigs(GROUP)
