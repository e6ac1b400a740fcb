"""What is read of a call that is taken: who writes, what the model reads of it, and what is passed over."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from integrations.whatsapp.whatsapp_number import ADA, deliver, fake, number
from tailrace.delivery.port import Attachment, MessageReceived, Send, Sender, Sent
from tailrace.errors import PlatformError
from tailrace.gateway.inbound.quotations import with_quotations
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox


@driven
async def test_a_person_whose_username_hides_the_number_is_heard_and_answered() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("", "Ada", user_id="US.13491208655302741918"), CollectingInbox()
        assert await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "hello")) == 200
        [message] = inbox.updates
        assert (message.sender, message.place.key) == (Sender(ada.user_id, "Ada"), f"whatsapp:{ada.user_id}")
        assert isinstance(await platform.perform(message.place, Send("k", "Hello, Ada.")), Sent)
        assert ada.texts == ["Hello, Ada."]


@driven
async def test_who_has_a_number_and_an_id_is_known_by_the_number() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001", "Ada", user_id="US.13491208655302741918"), CollectingInbox()
        await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "hello"))
        assert [(update.sender, update.place.key) for update in inbox.updates] == [(Sender("15550001", "Ada"), ADA.key)]


def test_a_message_that_was_not_delivered_names_who_has_no_number_by_the_id(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            ada = whatsapp.person("", user_id="US.134912")
            body = whatsapp.not_delivered(ada, 131021, "Message undeliverable")
            assert await deliver(whatsapp, platform, CollectingInbox(), body) == 200

    with caplog.at_level(logging.WARNING, "tailrace.integrations.whatsapp"):
        ask()
    [record] = caplog.records
    assert record.getMessage() == "a message to US.134912 was not delivered: Message undeliverable (131021)"


@pytest.mark.parametrize(
    ("items", "odd", "said"),
    [
        ("messages", {"id": "wamid.odd", "type": 7}, "a message could not be read: type: must be text, not a number"),
        ("contacts", {"wa_id": 7}, "a contact could not be read: wa_id: must be text, not a number"),
        ("contacts", 7, "a contact could not be read: must be an object, not a number"),
        ("statuses", {"status": "sent"}, "a status could not be read: id: is missing"),
    ],
)
def test_what_makes_no_sense_takes_nothing_else_of_the_call_with_it(
    items: str, odd: object, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            ada, inbox = whatsapp.person("15550001"), CollectingInbox()
            good = msgspec.json.decode(whatsapp.message(ada, "hello"))
            good["entry"][0]["changes"][0]["value"].setdefault(items, []).insert(0, odd)
            assert await deliver(whatsapp, platform, inbox, msgspec.json.encode(good)) == 200
            assert [(update.update_id, update.sender.name) for update in inbox.updates] == [("wamid.in-1", "Ada")]

    with caplog.at_level(logging.WARNING, "tailrace.integrations.whatsapp"):
        ask()
    assert [record.getMessage() for record in caplog.records] == [said]


@driven
async def test_a_text_in_no_utf_8_takes_no_other_with_it() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        both = msgspec.json.decode(whatsapp.message(ada, "broken"))
        good = msgspec.json.decode(whatsapp.message(ada, "hello"))
        of_both = both["entry"][0]["changes"][0]["value"]["messages"]
        of_both += good["entry"][0]["changes"][0]["value"]["messages"]
        body = msgspec.json.encode(both).replace(b"broken", b"\xff")
        assert await deliver(whatsapp, platform, inbox, body) == 200
        assert [update.update_id for update in inbox.updates] == ["wamid.in-2"]


@pytest.mark.parametrize(
    "fields",
    [
        {"context": None},
        {"context": {"id": None}},
        {"context": {"id": None, "forwarded": None}},
        {"group_id": None, "image": None, "contacts": None},
    ],
)
def test_a_field_of_a_message_that_is_null_is_one_that_is_not_there(fields: dict[str, object]) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            inbox = CollectingInbox()
            body = msgspec.json.decode(whatsapp.message(whatsapp.person("15550001"), "hello", **fields))
            body["entry"][0]["changes"][0]["value"]["statuses"] = None
            assert await deliver(whatsapp, platform, inbox, msgspec.json.encode(body)) == 200
            [update] = inbox.updates
            assert isinstance(update, MessageReceived)
            assert update.text == "hello"

    ask()


@driven
async def test_the_model_is_told_what_a_message_replies_to_and_that_it_is_forwarded() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "which rivers?"))
        sent = await platform.perform(ADA, Send("k", "**Rhine**\nand Elbe"))
        assert isinstance(sent, Sent)
        messages: list[tuple[str, dict[str, object]]] = [
            ("how long?", {"id": sent.message_id}),
            ("I meant lakes", {"id": "wamid.in-1"}),
            ("and this?", {"id": "wamid.before-the-restart"}),
            ("/stop", {"id": sent.message_id}),
            ("yes", {"id": sent.message_id}),
            ("/yolo", {"forwarded": True}),
            ("chain letter\n\nPass it on.", {"frequently_forwarded": True}),
        ]
        for text, context in messages:
            await deliver(whatsapp, platform, inbox, whatsapp.message(ada, text, context=context))
        assert [with_quotations(update) for update in inbox.updates if isinstance(update, MessageReceived)][1:] == [
            "[in reply to you]\n> **Rhine**\n> and Elbe\n\nhow long?",
            "[in reply to a message of their own]\n> which rivers?\n\nI meant lakes",
            "[in reply to an earlier message]\n\nand this?",
            "[in reply to you]\n> **Rhine**\n> and Elbe\n\n/stop",
            "[in reply to you]\n> **Rhine**\n> and Elbe\n\nyes",
            "[forwarded]\n> /yolo",
            "[forwarded]\n> chain letter\n>\n> Pass it on.",
        ]
        assert [update.text for update in inbox.updates if isinstance(update, MessageReceived)][-4:] == [
            *("/stop", "yes", "", "")
        ], "what is typed is a command or an answer, and what is forwarded is neither"


@driven
async def test_a_reply_to_an_id_of_another_chat_shows_nothing_of_it() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, eve, inbox = whatsapp.person("15550001"), whatsapp.person("15550002"), CollectingInbox()
        await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "my secret"))
        sent = await platform.perform(ADA, Send("k", "I keep it"))
        assert isinstance(sent, Sent)
        for message_id in ("wamid.in-1", sent.message_id):
            await deliver(whatsapp, platform, inbox, whatsapp.message(eve, "what?", context={"id": message_id}))
        texts = [with_quotations(update) for update in inbox.updates if isinstance(update, MessageReceived)]
        assert texts == ["my secret", *["[in reply to an earlier message]\n\nwhat?"] * 2]


@driven
async def test_places_and_contact_cards_reach_the_model_as_text() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        place = {"latitude": 52.52, "longitude": 13.405}
        named = place | {"name": "Café\nMühle", "address": "Some Street 1"}
        bob = {"name": {"formatted_name": "Bob"}, "phones": [{"phone": "+1 555"}], "emails": [{"email": "b@x.org"}]}
        eve = {"name": {"formatted_name": "Eve"}}
        contents = (("location", place), ("location", named), ("contacts", [bob, eve]))
        for kind, content in contents:
            await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "", type=kind, **{kind: content}))
        assert [update.text for update in inbox.updates if isinstance(update, MessageReceived)] == [
            "[location: latitude 52.52, longitude 13.405]",
            "[location: latitude 52.52, longitude 13.405, name Café Mühle, address Some Street 1]",
            "[contact: formatted_name Bob, phone +1 555, email b@x.org, formatted_name Eve]",
        ]


@driven
async def test_messages_to_another_number_or_a_group_and_reactions_are_no_concern_of_ours() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        foreign = whatsapp.message(ada, "hello").replace(whatsapp.phone_number_id.encode(), b"999")
        assert await deliver(whatsapp, platform, inbox, foreign) == 200
        in_group = whatsapp.message(ada, "hello all", group_id="Y2FwaV9ncm91cA")
        assert await deliver(whatsapp, platform, inbox, in_group) == 200
        reaction = {"message_id": "wamid.x", "emoji": "👍"}
        body = whatsapp.message(ada, type="reaction", reaction=reaction)
        assert await deliver(whatsapp, platform, inbox, body) == 200
        assert inbox.updates == []


@driven
async def test_files_arrive_and_are_fetched_with_the_token_up_to_a_size() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        photo = whatsapp.media(b"\xff\xd8 a cat", "image/jpeg", caption="what is it?")
        await deliver(whatsapp, platform, inbox, whatsapp.message(ada, type="image", image=photo))
        notes = whatsapp.media(b"some notes", "text/plain; charset=utf-8", filename="notes.txt")
        await deliver(whatsapp, platform, inbox, whatsapp.message(ada, type="document", document=notes))
        first, second = inbox.updates
        assert isinstance(first, MessageReceived)
        assert isinstance(second, MessageReceived)
        assert (first.text, first.attachments) == ("what is it?", (Attachment(photo["id"], "image", "image/jpeg"),))
        assert second.attachments == (Attachment(notes["id"], "notes.txt", "text/plain"),)
        assert await platform.fetch(first.attachments[0], max_bytes=8) == b"\xff\xd8 a cat"
        with pytest.raises(PlatformError, match="larger than 9 bytes"):
            await platform.fetch(second.attachments[0], max_bytes=9)
        with pytest.raises(PlatformError, match="Unsupported get request"):
            await platform.fetch(Attachment("gone", "x"), max_bytes=9)


@driven
async def test_G89_the_call_with_a_held_part_is_answered_when_its_paste_is_whole() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        inbox.held = {"wamid.in-1"}
        answered = asyncio.ensure_future(deliver(whatsapp, platform, inbox, whatsapp.message(ada, "the first part")))
        await inbox.wait_for(1)
        await asyncio.sleep(1)
        assert not answered.done()
        inbox.held = set()
        inbox.changed()
        await answered
