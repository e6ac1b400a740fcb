"""Home Assistant against the suite that every adapter passes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proof.platforms.homeassistant import FakeHomeAssistant

from tailrace.delivery.port import Place
from tailrace.integrations.homeassistant.adapter import HomeAssistantPlatform
from tailrace.testing.conformance.platform import (
    NOWHERE,
    WRONG_TOKEN,
    Loss,
    OpenRig,
    PlatformConformance,
    PlatformRig,
    connected,
)
from tailrace.testing.platforms.collecting_inbox import CollectingInbox


class Rig(PlatformRig):
    def __init__(self, platform: HomeAssistantPlatform, inbox: CollectingInbox, fake: FakeHomeAssistant) -> None:
        super().__init__(platform, Place("homeassistant", "kitchen"), inbox, fake)
        self._home = fake

    def answers(self) -> list[list[str]]:
        shown = [notification for notification in self._home.notifications.values() if not notification.dismissed]
        return [[state.message for state in notification.states] for notification in shown]

    async def write(self, text: str) -> None:
        await self._home.fire("tailrace_message", {"text": text, "conversation_id": "kitchen"}, user="u1")

    def lose_answer(self, _step: str, loss: Loss) -> None:
        if loss != "silence":
            pytest.skip("a cut connection ends the run of the adapter, which has tests of its own")
        self._home.lose("silence")

    def unreachable(self) -> HomeAssistantPlatform:
        return HomeAssistantPlatform(NOWHERE, self._home.token)

    def stranger(self) -> HomeAssistantPlatform:
        return HomeAssistantPlatform(self._home.url, WRONG_TOKEN)

    def check_long_text(self) -> None:
        assert all(len(text.encode()) <= 14_000 for text in self.texts)


class TestHomeAssistant(PlatformConformance):
    redelivers = False  # an event is fired once

    @pytest.fixture
    def open_rig(self) -> OpenRig:
        @asynccontextmanager
        async def rig(*, listening: bool) -> AsyncIterator[Rig]:
            async with FakeHomeAssistant() as home:
                platform = HomeAssistantPlatform(home.url, home.token, answer_s=5.0)
                async with connected(platform, listening=True) as inbox:  # it sends over the socket that it hears by
                    yield Rig(platform, inbox, home)

        return rig
