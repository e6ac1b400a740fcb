"""What reaches the model of messages that are neither text nor a file, through python-telegram-bot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import telegram
from proof.platforms.telegram import FakeTelegram

from tailrace.delivery.port import MessageReceived
from tailrace.gateway.inbound.quotations import with_quotations
from tailrace.integrations.telegram.adapter import TelegramPlatform
from tailrace.integrations.telegram.inbound import card_of
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running

POINT = {"latitude": 47.37, "longitude": 8.54}
GROUP = {"id": -5, "type": "channel", "title": "News"}
USER = {"id": 7, "is_bot": False, "first_name": "Ada"}
STICKER = {"file_id": "s", "file_unique_id": "s", "type": "regular", "width": 1, "height": 1}
STICKER |= {"is_animated": False, "is_video": False}
POLL = {"id": "1", "question": "Lunch?", "total_voter_count": 0, "is_closed": False, "is_anonymous": True}
POLL |= {"type": "regular", "allows_multiple_answers": False, "allows_revoting": True, "members_only": False}
POLL |= {"options": [{"persistent_id": text, "text": text, "voter_count": 0} for text in ("Pizza", "Su\nshi")]}
TASKS = [{"id": 1, "text": "milk", "completed_by_user": USER, "completion_date": 9}, {"id": 2, "text": "bread"}]
INVOICE = {"title": "Boat", "description": "Red", "start_parameter": "", "currency": "EUR", "total_amount": 1}
CARDS: dict[str, tuple[Any, str]] = {
    "location": (POINT, "[location: 47.37, 8.54]"),
    "venue": (
        {"location": POINT, "title": "Café", "address": "Main Street 1"},
        "[location: Café, Main Street 1, 47.37, 8.54]",
    ),
    "contact": ({"phone_number": "+41", "first_name": "Ben", "last_name": "Miller"}, "[contact: Ben Miller, +41]"),
    "poll": (POLL, "[poll: Lunch?, Pizza, Su shi]"),
    "checklist": ({"title": "Groceries", "tasks": TASKS}, "[checklist: Groceries, ☑ milk, ☐ bread]"),
    "dice": ({"emoji": "🎲", "value": 4}, "[dice: 🎲 4]"),
    "sticker": (STICKER | {"emoji": "😂"}, "[sticker: 😂]"),
    "game": ({"title": "Chess", "description": "Mate.", "photo": []}, "[game: Chess, Mate.]"),
    "invoice": (INVOICE, "[invoice: Boat, Red]"),
    "story": ({"chat": GROUP, "id": 3}, "[a story; this bot cannot read it]"),
    "paid_media": ({"star_count": 3, "paid_media": []}, "[paid media; this bot cannot read it]"),
    "giveaway": (
        {"chats": [GROUP], "winners_selection_date": 9, "winner_count": 1},
        "[a giveaway; this bot cannot read it]",
    ),
    "giveaway_winners": (
        {"chat": GROUP, "giveaway_message_id": 1, "winners_selection_date": 9, "winner_count": 1, "winners": [USER]},
        "[the winners of a giveaway; this bot cannot read it]",
    ),
}


@asynccontextmanager
async def polling() -> AsyncIterator[tuple[FakeTelegram, CollectingInbox]]:
    async with FakeTelegram() as fake, running(TelegramPlatform(fake.token, base_url=fake.url, answer_s=5.0)) as inbox:
        yield fake, inbox


def texts(inbox: CollectingInbox) -> list[str]:
    return [with_quotations(update) for update in inbox.updates if isinstance(update, MessageReceived)]


@driven
async def test_what_is_neither_text_nor_a_file_is_told_in_words() -> None:
    async with polling() as (fake, inbox):
        ada = fake.private(7)
        for kind, (described, _) in CARDS.items():
            fake.write(ada, fields={kind: described})
        await inbox.wait_for(len(CARDS))
        assert texts(inbox) == [words for _, words in CARDS.values()]


@driven
async def test_what_a_chat_says_of_itself_is_no_question() -> None:
    async with polling() as (fake, inbox):
        ada = fake.private(7)
        fake.write(ada, fields={"pinned_message": {"message_id": 1, "date": 1, "chat": ada.as_json(), "text": "x"}})
        fake.write(ada, fields={"chat_background_set": {"type": {"type": "chat_theme", "theme_name": "🎲"}}})
        fake.write(ada, fields={"new_chat_members": [USER]})
        fake.write(ada, "hello")
        await inbox.wait_for(1)
        assert texts(inbox) == ["hello"]


def test_a_release_of_the_library_that_does_not_know_a_kind_yet_reads_the_others() -> None:
    """It keeps the fields that it does not know."""

    def heard(**fields: Any) -> telegram.Message:
        described = {"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, **fields}
        message = telegram.Message.de_json(described, None)
        for kind in ("checklist", "giveaway"):
            object.__delattr__(message, kind)  # as if the class had no such field
        return message

    assert card_of(heard(location=POINT)) == "[location: 47.37, 8.54]"
    assert card_of(heard(hologram={"id": 1})) == ""


@pytest.mark.parametrize(("emoji", "words"), [("👍", "👍"), (None, "[sticker]")])
def test_a_thumb_as_a_sticker_is_the_answer_that_a_typed_one_is(emoji: str | None, words: str) -> None:
    @driven
    async def hear() -> list[str]:
        async with polling() as (fake, inbox):
            fake.write(fake.private(7), fields={"sticker": STICKER | {"emoji": emoji}})
            await inbox.wait_for(1)
            return texts(inbox)

    assert hear() == [words]


@driven
async def test_a_card_stands_above_its_caption_in_a_quotation_and_in_what_is_forwarded() -> None:
    async with polling() as (fake, inbox):
        ada = fake.private(7)
        fake.write(ada, fields={"paid_media": CARDS["paid_media"][0], "caption": "look"})
        replied = {"message_id": 1, "date": 1, "chat": ada.as_json(), "from": USER, "location": POINT}
        fake.write(ada, "where is that?", fields={"reply_to_message": replied})
        origin = {"type": "hidden_user", "sender_user_name": "Dora", "date": 1}
        fake.write(ada, fields={"location": POINT, "forward_origin": origin})
        await inbox.wait_for(3)
        assert texts(inbox) == [
            "[paid media; this bot cannot read it]\nlook",
            '[in reply to "Ada"]\n> [location: 47.37, 8.54]\n\nwhere is that?',
            '[forwarded from "Dora"]\n> [location: 47.37, 8.54]',
        ]


@driven
async def test_a_reply_to_a_message_of_another_chat_brings_what_is_known_of_it() -> None:
    async with polling() as (fake, inbox):
        ada = fake.private(7)
        elsewhere = {"origin": {"type": "hidden_user", "sender_user_name": "Dora", "date": 1}}
        photo = [{"file_id": "p", "file_unique_id": "p", "width": 9, "height": 9}]
        fake.write(ada, "what is it?", fields={"external_reply": elsewhere | {"photo": photo}})
        fake.write(ada, "where?", fields={"external_reply": elsewhere | {"location": POINT}})
        quote = {"text": "Meet at six.", "position": 0}
        fake.write(ada, "when?", fields={"external_reply": elsewhere, "quote": quote})
        fake.write(ada, "/stop", fields={"external_reply": elsewhere | {"photo": photo}})
        fake.write(ada, "nice", fields={"reply_to_story": {"chat": GROUP, "id": 3}})
        updates = await inbox.wait_for(5)
        whose = '[in reply to a message elsewhere of "Dora"]'
        assert texts(inbox) == [
            f"{whose}\n\nwhat is it?",
            f"{whose}\n> [location: 47.37, 8.54]\n\nwhere?",
            f"{whose}\n> Meet at six.\n\nwhen?",
            f"{whose}\n\n/stop",
            "[in reply to a story; this bot cannot read it]\n\nnice",
        ]
        messages = [update for update in updates if isinstance(update, MessageReceived)]
        assert [[file.ref for file in one.quoted[0].files] for one in messages] == [["p"], [], [], ["p"], []]
        assert messages[3].text == "/stop", "a command, whatever it replies to"
