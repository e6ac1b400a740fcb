"""What WhatsApp takes no more, a day after the person's last message, is sent when they write again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from platforms.whatsapp.test_gateway import served
from tailrace.delivery.kept_back import KEPT_BACK
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, reply

SLOW = Scenario(reply=reply("It was **Ada**."), headers_after_s=30.0)


@driven
async def test_an_answer_that_is_refused_is_sent_above_the_next_one(tmp_path: Path) -> None:
    async with served(tmp_path, SLOW, reply("You are welcome."), reply("Bye.")) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "who was it?")
        ada.window_open = False
        await asyncio.sleep(60)
        assert ada.texts == []
        assert len(whatsapp.called("messages")) == 1, "a word about it would be refused too"
        await whatsapp.write(ada, "thanks")
        await asyncio.sleep(30)
        assert ada.texts == [KEPT_BACK, "It was *Ada*.", "You are welcome."]
        await whatsapp.write(ada, "bye")
        await asyncio.sleep(30)
        assert ada.texts[3:] == ["Bye."]


@driven
async def test_an_answer_that_is_taken_and_then_not_delivered_is_sent_again(tmp_path: Path) -> None:
    async with served(tmp_path, reply("It was Ada."), reply("You are welcome.")) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "who was it?")
        await whatsapp.until(lambda: ada.texts)
        await asyncio.sleep(5)
        key = whatsapp.called("messages")[-1].params["biz_opaque_callback_data"]
        ada.bubbles.clear()
        for _ in range(2):
            body = whatsapp.not_delivered(ada, 131047, "Re-engagement message", key=key)
            assert await whatsapp.call_webhook(body) == 200
        await asyncio.sleep(30)
        assert ada.texts == []
        await whatsapp.write(ada, "thanks")
        await asyncio.sleep(30)
        assert ada.texts == [KEPT_BACK, "It was Ada.", "You are welcome."]
