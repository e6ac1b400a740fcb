"""A picture is sent as a picture, another file as a file with its name."""

from __future__ import annotations

from proof.platforms.telegram import FakeTelegram
from proof.platforms.whatsapp import FakeWhatsApp, failure

from tailrace.delivery.port import Place, Refused, Sent, Upload
from tailrace.integrations.telegram.adapter import TelegramPlatform
from tailrace.integrations.whatsapp.adapter import WhatsAppPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import json_fault
from tailrace.testing.platforms.played_runs import PNG

PICTURE = Upload("k1", "plot.png", "image/png", PNG)
REPORT = Upload("k2", "report.pdf", "application/pdf", b"%PDF-1.7")


@driven
async def test_telegram_has_photos_and_documents_also_in_a_topic() -> None:
    async with FakeTelegram(budgets={}) as fake:
        group = fake.group(-100, topics=(7,))
        platform = TelegramPlatform(fake.token, base_url=fake.url)
        place = Place("telegram", "-100", "7", "group")
        try:
            for action in (PICTURE, REPORT):
                assert isinstance(await platform.perform(place, action), Sent)
            assert group.files == [("photo", "plot.png", PNG), ("document", "report.pdf", b"%PDF-1.7")]
            assert {message.thread for message in group.messages} == {7}
            wrong = {"ok": False, "error_code": 400, "description": "Bad Request: PHOTO_INVALID_DIMENSIONS"}
            fake.fail("sendPhoto", json_fault(400, wrong))
            assert isinstance(await platform.perform(place, PICTURE), Refused)
        finally:
            await platform.close()


@driven
async def test_whatsapp_has_images_and_documents() -> None:
    async with FakeWhatsApp(pair=None) as fake:
        ada = fake.person("15550001")
        ada.window_open = True
        platform = WhatsAppPlatform(
            fake.token,
            phone_number_id=fake.phone_number_id,
            app_secret=fake.app_secret,
            verify_token=fake.verify_token,
            base_url=fake.url,
        )
        place = Place("whatsapp", ada.number)
        try:
            for action in (PICTURE, REPORT):
                assert isinstance(await platform.perform(place, action), Sent)
            assert ada.files == [("image", "", PNG), ("document", "report.pdf", b"%PDF-1.7")]
            fake.fail("media", failure(131053, "Media upload error"))
            assert isinstance(await platform.perform(place, REPORT), Refused)
        finally:
            await platform.close()
