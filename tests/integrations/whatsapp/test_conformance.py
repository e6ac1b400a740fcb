"""WhatsApp against the suite that every adapter passes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from proof.platforms.whatsapp import FakeWhatsApp, failure

from tailrace.delivery.port import HookRequest, Place
from tailrace.integrations.whatsapp.adapter import HOOK_PATH, WhatsAppPlatform
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

NOW = 1_800_000_000.0


def platform_of(fake: FakeWhatsApp, *, token: str = "", base_url: str = "") -> WhatsAppPlatform:
    return WhatsAppPlatform(
        token or fake.token,
        phone_number_id=fake.phone_number_id,
        app_secret=fake.app_secret,
        verify_token=fake.verify_token,
        base_url=base_url or fake.url,
        answer_s=5.0,
        time_of_day=lambda: NOW,
    )


class Rig(PlatformRig):
    def __init__(self, platform: WhatsAppPlatform, inbox: CollectingInbox, fake: FakeWhatsApp) -> None:
        super().__init__(platform, Place("whatsapp", "15550001"), inbox, fake)
        self._whatsapp, self._ada = fake, fake.person("15550001")
        self._ada.window_open = True

    def answers(self) -> list[list[str]]:
        return [[text] for text in self._ada.texts]

    async def files(self) -> list[bytes]:
        return [content for _, _, content in self._ada.files]

    async def write(self, text: str) -> None:
        await self._post(self._whatsapp.message(self._ada, text))

    async def write_twice(self, text: str) -> None:
        body = self._whatsapp.message(self._ada, text)
        for _ in range(2):
            await self._post(body)

    async def attach(self, name: str, content: bytes) -> None:
        document = self._whatsapp.media(content, "text/plain", filename=name)
        await self._post(self._whatsapp.message(self._ada, type="document", document=document))

    async def _post(self, body: bytes) -> None:
        headers = {"x-hub-signature-256": self._whatsapp.signature(body)}
        answer = await self.platform.hook(HookRequest("POST", HOOK_PATH, {}, headers, body), self.inbox)
        assert answer.status == 200

    def flood(self, _retry_after_s: int) -> Fault:
        return failure(131056, "pair")

    def unreachable(self) -> WhatsAppPlatform:
        return platform_of(self._whatsapp, base_url=NOWHERE)

    def stranger(self) -> WhatsAppPlatform:
        return platform_of(self._whatsapp, token=WRONG_TOKEN)


class TestWhatsApp(PlatformConformance):
    steps = ("messages",)
    typing_step = "read"
    flood_s = 6  # Meta names no time: the adapter knows how long the pair limit lasts
    redelivers = False  # Meta calls again after an answer other than 200

    @pytest.fixture
    def open_rig(self) -> OpenRig:
        @asynccontextmanager
        async def rig(*, listening: bool) -> AsyncIterator[Rig]:
            async with FakeWhatsApp(time_of_day=lambda: NOW) as whatsapp:
                platform = platform_of(whatsapp)
                async with connected(platform, listening=listening) as inbox:
                    yield Rig(platform, inbox, whatsapp)

        return rig
