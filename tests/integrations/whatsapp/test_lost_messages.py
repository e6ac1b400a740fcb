"""Messages that Meta takes and does not deliver after all: the chat is told, where a word can reach it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from proof.platforms.whatsapp import FakeWhatsApp

from integrations.whatsapp.test_gateway import served
from tailrace.delivery.planning.presenter import UNSHOWN
from tailrace.delivery.port import MessageLost, Place, Sender
from tailrace.integrations.whatsapp.inbound import NOTIFICATIONS, lost, statuses_in
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply

KEY = "run_1.t0.0.0"
LOST = MessageLost("run_1.undelivered", Place("whatsapp", "15550001"), Sender("15550001"))
REFUSED = MessageLost(f"{KEY}.window", LOST.place, LOST.sender, undelivered="run_1")


@pytest.mark.parametrize(
    ("code", "key", "found"),
    [
        (131000, KEY, [(KEY, LOST)]),
        (131053, KEY, [(KEY, LOST)]),
        (None, KEY, [(KEY, LOST)]),
        (131026, KEY, []),
        (131047, KEY, [(KEY, REFUSED)]),
        (190, KEY, []),
        (131000, "say.run_1.unshown", []),
        (131000, "", []),
    ],
)
def test_a_part_of_an_answer_is_lost_where_the_next_message_may_come_through(
    code: int | None, key: str, found: list[tuple[str, MessageLost]]
) -> None:
    whatsapp = FakeWhatsApp()
    body = whatsapp.not_delivered(whatsapp.person("15550001"), code, "Something went wrong", key=key)
    assert list(lost(statuses_in(NOTIFICATIONS.decode(body), whatsapp.phone_number_id))) == found


@driven
async def test_the_chat_is_told_once_of_parts_that_were_taken_and_not_delivered(tmp_path: Path) -> None:
    async with served(tmp_path, reply("Hello, Ada.")) as (whatsapp, _):
        ada = whatsapp.person("15550001")
        await whatsapp.write(ada, "hello")
        await whatsapp.until(lambda: ada.texts)
        await asyncio.sleep(5)
        key = whatsapp.called("messages")[-1].params["biz_opaque_callback_data"]
        for _ in range(2):
            assert await whatsapp.call_webhook(whatsapp.not_delivered(ada, 131000, "went wrong", key=key)) == 200
        await asyncio.sleep(5)
        assert ada.texts == ["Hello, Ada.", UNSHOWN]
        told = whatsapp.called("messages")[-1].params["biz_opaque_callback_data"]
        assert await whatsapp.call_webhook(whatsapp.not_delivered(ada, 131000, "went wrong", key=told)) == 200
        await asyncio.sleep(5)
        assert ada.texts == ["Hello, Ada.", UNSHOWN]
