"""What WhatsApp takes no more, a day after the person's last message, is sent when they write again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from integrations.whatsapp.test_gateway import served
from tailrace.delivery.kept_back import KEPT_BACK
from tailrace.testing.clock import driven
from tailrace.testing.platforms.whatsapp import FakeWhatsApp, Person
from tailrace.testing.provider import Scenario, call, reply

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
async def test_parts_that_arrived_before_others_were_refused_do_not_come_again(tmp_path: Path) -> None:
    async with served(tmp_path, reply(long_answer()), reply("You are welcome.")) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "tell me")
        await whatsapp.until(lambda: ada.texts)
        ada.window_open = False
        await asyncio.sleep(60)
        [first] = ada.texts
        await whatsapp.write(ada, "thanks")
        await asyncio.sleep(60)
        assert [text[:3] for text in ada.texts] == [first[:3], KEPT_BACK[:3], "6. ", "11.", "You"]
        parts = [first, *ada.texts[2:4]]
        assert "\n\n".join(parts).split() == long_answer().split()


@driven
async def test_only_the_parts_that_were_not_delivered_come_again_each_once(tmp_path: Path) -> None:
    async with served(tmp_path, reply(long_answer()), *map(reply, ("A.", "B.", "C.", "D."))) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        parts = await shown_whole(whatsapp, ada)
        keys = keys_of(whatsapp)
        ada.bubbles.clear()
        await lose(whatsapp, ada, keys[1])
        await lose(whatsapp, ada, keys[1])
        await whatsapp.write(ada, "a")
        await asyncio.sleep(60)
        assert ada.texts == [KEPT_BACK, parts[1], "A."]
        again = keys_of(whatsapp)[4]

        ada.bubbles.clear()
        for key in (keys[2], keys[0], keys[1], again):  # two that come late, one again, and one of what came again
            await lose(whatsapp, ada, key)
        await whatsapp.write(ada, "b")
        await asyncio.sleep(60)
        assert ada.texts == [KEPT_BACK, parts[0], parts[2], "B."]

        ada.bubbles.clear()
        await whatsapp.write(ada, "c")
        await asyncio.sleep(60)
        assert ada.texts == [KEPT_BACK, parts[1], "C."], "what was lost of the one that another had replaced already"

        ada.bubbles.clear()
        await whatsapp.write(ada, "d")
        await asyncio.sleep(60)
        assert ada.texts == ["D."]


@driven
async def test_the_line_above_it_comes_again_with_a_part_and_never_alone(tmp_path: Path) -> None:
    async with served(tmp_path, *map(reply, ("It was Ada.", "A.", "B.", "C."))) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "who was it?")
        await whatsapp.until(lambda: ada.texts)
        await asyncio.sleep(20)
        await lose(whatsapp, ada, keys_of(whatsapp)[0])
        await whatsapp.write(ada, "a")
        await asyncio.sleep(30)
        _, line, part, _ = keys_of(whatsapp)
        for key in (line, part):
            await lose(whatsapp, ada, key)
        ada.bubbles.clear()
        await whatsapp.write(ada, "b")
        await asyncio.sleep(30)
        assert ada.texts == [KEPT_BACK, "It was Ada.", "B."]
        await lose(whatsapp, ada, keys_of(whatsapp)[4])
        ada.bubbles.clear()
        await whatsapp.write(ada, "c")
        await asyncio.sleep(30)
        assert ada.texts == ["C."]


@driven
async def test_a_line_about_a_tool_is_not_sent_again_and_neither_is_the_answer(tmp_path: Path) -> None:
    echo = reply(call("terminal", {"command": "echo one"}))
    async with served(tmp_path, echo, reply("Done."), reply("Bye.")) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "echo")
        await whatsapp.until(lambda: "Done." in ada.texts)
        await asyncio.sleep(20)
        [line, answer] = keys_of(whatsapp)
        assert (".x" in line, ".t" in answer) == (True, True)
        await lose(whatsapp, ada, line)
        ada.bubbles.clear()
        await whatsapp.write(ada, "bye")
        await asyncio.sleep(30)
        assert ada.texts == ["Bye."]
