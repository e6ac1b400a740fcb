"""What WhatsApp takes no more, a day after the person's last message, is sent when they write again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from proof.platforms.whatsapp import FakeWhatsApp, Person

from integrations.whatsapp.test_gateway import served
from tailrace.delivery.undelivered import SENT_AGAIN
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
        assert ada.texts == [SENT_AGAIN, "It was *Ada*.", "You are welcome."]
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
        assert ada.texts == [SENT_AGAIN, "It was Ada.", "You are welcome."]


def long_answer() -> str:
    """Three messages long."""
    return "\n\n".join(f"{number}. {'word ' * 150}".strip() for number in range(1, 15))


async def shown_whole(whatsapp: FakeWhatsApp, ada: Person) -> list[str]:
    """A long answer has arrived; its messages."""
    await whatsapp.write(ada, "tell me")
    await whatsapp.until(lambda: len(ada.texts) == 3)
    await asyncio.sleep(20)
    return ada.texts


def keys_of(whatsapp: FakeWhatsApp) -> list[str]:
    return [called.params["biz_opaque_callback_data"] for called in whatsapp.called("messages")]


async def lose(whatsapp: FakeWhatsApp, ada: Person, key: str) -> None:
    assert await whatsapp.call_webhook(whatsapp.not_delivered(ada, 131047, "Re-engagement message", key=key)) == 200


@driven
async def test_an_answer_of_which_parts_were_refused_is_sent_whole(tmp_path: Path) -> None:
    async with served(tmp_path, reply(long_answer()), reply("You are welcome.")) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "tell me")
        await whatsapp.until(lambda: ada.texts)
        ada.window_open = False
        await asyncio.sleep(60)
        [first] = ada.texts
        await whatsapp.write(ada, "thanks")
        await asyncio.sleep(60)
        assert [text[:3] for text in ada.texts] == [first[:3], SENT_AGAIN[:3], "1. ", "6. ", "11.", "You"]
        assert "\n\n".join(ada.texts[2:5]).split() == long_answer().split()


@driven
async def test_an_answer_of_which_parts_were_not_delivered_is_sent_whole_once(tmp_path: Path) -> None:
    async with served(tmp_path, reply(long_answer()), *map(reply, ("A.", "B.", "C."))) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        parts = await shown_whole(whatsapp, ada)
        keys = keys_of(whatsapp)
        ada.bubbles.clear()
        for key in (keys[1], keys[1], keys[2]):
            await lose(whatsapp, ada, key)
        await whatsapp.write(ada, "a")
        await asyncio.sleep(60)
        assert ada.texts == [SENT_AGAIN, *parts, "A."]
        again = keys_of(whatsapp)[5]

        ada.bubbles.clear()
        await lose(whatsapp, ada, keys[0])  # reported after the answer was sent again
        await whatsapp.write(ada, "b")
        await asyncio.sleep(60)
        assert ada.texts == ["B."]

        ada.bubbles.clear()
        await lose(whatsapp, ada, again)
        await whatsapp.write(ada, "c")
        await asyncio.sleep(60)
        assert ada.texts == [SENT_AGAIN, *parts, "C."], "what was sent again and lost is another delivery"
