"""What people send from a catalogue, a form or an advertisement, as the model reads it."""

from __future__ import annotations

from typing import Any

import pytest
from proof.platforms.whatsapp import FakeWhatsApp

from tailrace.delivery.cards import MAX_FIELDS
from tailrace.delivery.port import Attachment
from tailrace.integrations.whatsapp.inbound import NOTIFICATIONS, RecentTexts, received

NOW = 1_800_000_000.0


def texts_of(text: str = "", **fields: Any) -> list[str]:
    whatsapp = FakeWhatsApp(time_of_day=lambda: NOW)
    body = whatsapp.message(whatsapp.person("15550001"), text, **fields)
    notification = NOTIFICATIONS.decode(body)
    return [message.text for message in received(notification, whatsapp.phone_number_id, NOW, RecentTexts())]


def order_of(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "order", "order": {"catalog_id": "7", "product_items": list(items), **fields}}


def test_an_order_is_its_products_with_their_prices_and_what_was_written_with_it() -> None:
    boat = {"product_retailer_id": "BOAT-1", "quantity": 2, "item_price": 9.5, "currency": "EUR"}
    words = "product_retailer_id BOAT-1, quantity 2, item_price 9.5, currency EUR"
    assert texts_of(**order_of(boat, text="by\nFriday")) == [f"[order: catalog_id 7, {words}, text by Friday]"]
    [many] = texts_of(**order_of(*[boat] * 1000))
    assert len(many) == MAX_FIELDS + len("[order: ]")


def test_a_form_that_was_filled_in_is_its_fields() -> None:
    form = {"type": "nfm_reply", "nfm_reply": {"name": "flow", "body": "Sent", "response_json": '{"size": "L"}'}}
    assert texts_of(type="interactive", interactive=form) == [
        '[form: name flow, body Sent, response_json {"size": "L"}]'
    ]


@pytest.mark.parametrize(
    ("fields", "above"),
    [
        ({"context": {"from": "1", "id": "", "referred_product": {"product_retailer_id": "BOAT-1"}}}, "BOAT-1"),
        ({"referral": {"headline": "Boats", "body": "Half price", "source_url": "https://e.org/a"}}, "Half price"),
    ],
)
def test_what_the_person_looked_at_stands_above_the_question_and_above_no_command(
    fields: dict[str, Any], above: str
) -> None:
    whatsapp = FakeWhatsApp(time_of_day=lambda: NOW)
    notification = NOTIFICATIONS.decode(whatsapp.message(whatsapp.person("15550001"), "how much?", **fields))
    [message] = received(notification, whatsapp.phone_number_id, NOW, RecentTexts())
    [quoted] = message.quoted
    assert (message.text, quoted.what) == ("how much?", "an advertisement or a product")
    assert above in quoted.text
    assert texts_of("/stop", **fields) == ["/stop"]


def test_a_sticker_is_the_image_that_it_is() -> None:
    whatsapp = FakeWhatsApp(time_of_day=lambda: NOW)
    ada = whatsapp.person("15550001")
    sticker = {"id": "7", "mime_type": "image/webp", "sha256": "x"}
    told = []
    for content in (sticker, sticker | {"animated": True}):
        notification = NOTIFICATIONS.decode(whatsapp.message(ada, type="sticker", sticker=content))
        [message] = received(notification, whatsapp.phone_number_id, NOW, RecentTexts())
        told.append((message.text, message.attachments))
    assert told == [("[sticker]", (Attachment("7", "sticker", "image/webp"),)), ("[animated sticker]", ())]


@pytest.mark.parametrize(
    ("unsupported", "words"),
    [
        ({"unsupported": {"type": "poll_creation"}}, ["[a poll_creation that WhatsApp does not show to this bot]"]),
        ({"unsupported": {"type": "news"}}, ["[a news that WhatsApp does not show to this bot]"]),
        ({}, ["[a message that WhatsApp does not show to this bot]"]),
        ({"unsupported": {"type": "edit"}}, []),
        ({"unsupported": {"type": "poll_update"}}, []),
        ({"unsupported": {"type": "keep_in_chat"}}, []),
        ({"unsupported": {"type": "revoke"}}, []),
    ],
)
def test_what_whatsapp_shows_to_nobody_is_a_line(unsupported: dict[str, Any], words: list[str]) -> None:
    errors = [{"code": 131051, "title": "Message type unknown"}]
    assert texts_of(type="unsupported", errors=errors, **unsupported) == words


def test_two_bots_do_not_answer_each_other_for_ever() -> None:
    whatsapp, recent = FakeWhatsApp(time_of_day=lambda: NOW), RecentTexts()
    bot = whatsapp.person("15550009")
    unseen: dict[str, Any] = {"type": "unsupported"}
    told = []
    for fields in (unseen, unseen, {"text": "hello"}, unseen, unseen):
        notification = NOTIFICATIONS.decode(whatsapp.message(bot, **fields))
        told.append(len(list(received(notification, whatsapp.phone_number_id, NOW, recent))))
    assert told == [1, 0, 1, 1, 0]
