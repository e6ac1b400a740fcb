"""A number at the fake Cloud API, and calls of its webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proof.platforms.whatsapp import FakeWhatsApp

from tailrace.delivery.port import HookAnswer, HookRequest, Place
from tailrace.integrations.whatsapp.adapter import HOOK_PATH, WhatsAppPlatform
from tailrace.testing.platforms.collecting_inbox import CollectingInbox

NOW = 1_800_000_000.0
ADA = Place("whatsapp", "15550001")


@asynccontextmanager
async def number(whatsapp: FakeWhatsApp, *, now_s: float = NOW) -> AsyncIterator[WhatsAppPlatform]:
    platform = WhatsAppPlatform(
        whatsapp.token,
        phone_number_id=whatsapp.phone_number_id,
        app_secret=whatsapp.app_secret,
        verify_token=whatsapp.verify_token,
        base_url=whatsapp.url,
        time_of_day=lambda: now_s,
    )
    try:
        yield platform
    finally:
        await platform.close()


def fake() -> FakeWhatsApp:
    return FakeWhatsApp(time_of_day=lambda: NOW)


async def post(platform: WhatsAppPlatform, inbox: CollectingInbox, body: bytes, headers: dict[str, str]) -> HookAnswer:
    return await platform.hook(HookRequest("POST", HOOK_PATH, {}, headers, body), inbox)


async def deliver(whatsapp: FakeWhatsApp, platform: WhatsAppPlatform, inbox: CollectingInbox, body: bytes) -> int:
    return (await post(platform, inbox, body, {"x-hub-signature-256": whatsapp.signature(body)})).status
