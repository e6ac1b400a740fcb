"""An answer in WhatsApp: consumer, planner, adapter and fake together, on a driven clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from platforms.played import LONG, chunks, play, show
from tailrace.delivery.port import Place
from tailrace.platforms.whatsapp.adapter import WhatsAppPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import silence
from tailrace.testing.platforms.whatsapp import FakeWhatsApp, Person, failure

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
async def test_G82_thirty_thousand_characters_arrive_in_order_within_the_pair_limit() -> None:
    async with FakeWhatsApp() as whatsapp, number(whatsapp) as platform:
        ada, place = asked(whatsapp)
        await play(platform, place, chunks(LONG, piece=500), LONG)
        shown = "\n".join(ada.texts)
        lines = [line for line in shown.splitlines() if line.startswith("def f")]
        assert lines == [f"def f{n}():" for n in range(250)] * 2
        assert shown.count("👩‍👩‍👧‍👦🏳️‍🌈") == shown.count("بالعالم") == 200
        assert all(text.count("```") % 2 == 0 for text in ada.texts)
        assert all(call.status == 200 for call in whatsapp.calls)


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


@driven
async def test_G80_an_answer_without_a_reply_is_never_sent_again() -> None:
    async with FakeWhatsApp() as whatsapp, number(whatsapp) as platform:
        ada, place = asked(whatsapp)
        whatsapp.fail("messages", silence())
        scene = await show(platform, place, TEXT)
        assert ada.texts == [TEXT]
        assert (await scene.facts())[-1].state == "unknown"
