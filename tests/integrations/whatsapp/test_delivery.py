"""An answer in WhatsApp: consumer, planner, adapter and fake together, on a driven clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proof.platforms.whatsapp import FakeWhatsApp, Person, failure

from tailrace.delivery.port import Place
from tailrace.integrations.whatsapp.adapter import WhatsAppPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.played_runs import show

TEXT = " ".join(f"word{number}" for number in range(300))


@asynccontextmanager
async def number(whatsapp: FakeWhatsApp) -> AsyncIterator[WhatsAppPlatform]:
    platform = WhatsAppPlatform(
        whatsapp.token,
        phone_number_id=whatsapp.phone_number_id,
        app_secret=whatsapp.app_secret,
        verify_token=whatsapp.verify_token,
        base_url=whatsapp.url,
        answer_s=5.0,
    )
    try:
        yield platform
    finally:
        await platform.close()


def asked(whatsapp: FakeWhatsApp) -> tuple[Person, Place]:
    """Somebody has written; where the answer goes."""
    ada = whatsapp.person("15550001")
    whatsapp.message(ada, "a question")
    return ada, Place("whatsapp", ada.number, extra={"message": "wamid.in-1"})


@driven
async def test_the_answer_comes_whole_though_streaming_is_on() -> None:
    async with FakeWhatsApp() as whatsapp, number(whatsapp) as platform:
        ada, place = asked(whatsapp)
        await show(platform, place, TEXT, pace_s=0.5)
        assert ada.texts == [TEXT]
        assert set(ada.read) == {"wamid.in-1"}
        assert len(ada.typing) > 1
        assert max(ada.typing) < ada.bubbles[0].at


@driven
async def test_G78_the_pair_limit_is_waited_out() -> None:
    async with FakeWhatsApp() as whatsapp, number(whatsapp) as platform:
        ada, place = asked(whatsapp)
        whatsapp.fail("messages", failure(131056, "pair"), failure(131056, "pair"))
        await show(platform, place, TEXT)
        assert ada.texts == [TEXT]
        first, second, third = (call.at for call in whatsapp.called("messages"))
        assert second - first >= 6.0
        assert third - second >= 6.0
