"""The WhatsApp adapter against the fake Cloud API: each action and its reply, and the signed webhook."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from tailrace.delivery.port import (
    Accepted,
    AnyReply,
    Attachment,
    Failed,
    Flood,
    HookAnswer,
    HookRequest,
    MessageReceived,
    Place,
    Refused,
    Send,
    Sender,
    Sent,
    TooLong,
    Typing,
    Unknown,
)
from tailrace.errors import PlatformError
from tailrace.platforms.whatsapp.adapter import HOOK_PATH, STATUS_S, WhatsAppPlatform
from tailrace.platforms.whatsapp.cards import MAX_DETAILS
from tailrace.platforms.whatsapp.inbound import CLOCK_SKEW_S, REPLAY_WINDOW_S, is_signed
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import Fault, bad_gateway, cut, json_fault, silence
from tailrace.testing.platforms.whatsapp import FakeWhatsApp, failure

NOW = 1_800_000_000.0
ADA = Place("whatsapp", "15550001")
UNDELIVERABLE = (
    "it cannot be delivered: the person has blocked this number, has no WhatsApp any more, or a very old one (131026)"
)


@asynccontextmanager
async def number(whatsapp: FakeWhatsApp, *, now_s: float = NOW) -> AsyncIterator[WhatsAppPlatform]:
    platform = WhatsAppPlatform(
        whatsapp.token,
        phone_number_id=whatsapp.phone_number_id,
        app_secret=whatsapp.app_secret,
        verify_token=whatsapp.verify_token,
        base_url=whatsapp.url,
        time_of_day=lambda: now_s,
    )
    try:
        yield platform
    finally:
        await platform.close()


def fake() -> FakeWhatsApp:
    return FakeWhatsApp(time_of_day=lambda: NOW)


async def post(platform: WhatsAppPlatform, inbox: CollectingInbox, body: bytes, headers: dict[str, str]) -> HookAnswer:
    return await platform.hook(HookRequest("POST", HOOK_PATH, {}, headers, body), inbox)


async def deliver(whatsapp: FakeWhatsApp, platform: WhatsAppPlatform, inbox: CollectingInbox, body: bytes) -> int:
    return (await post(platform, inbox, body, {"x-hub-signature-256": whatsapp.signature(body)})).status


# ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_an_answer_is_sent_in_whatsapps_markup() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada = whatsapp.person("15550001")
        ada.window_open = True
        reply = await platform.perform(ADA, Send("k", "**bold** and `code` 👩‍🚀"))
        assert reply == Sent(ada.bubbles[0].id)
        assert ada.texts == ["*bold* and `code` 👩‍🚀"]


@driven
async def test_one_request_marks_the_question_as_read_and_shows_typing() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "hello"))
        assert await platform.perform(inbox.updates[0].place, Typing()) == Accepted()
        assert (ada.read, len(ada.typing), len(whatsapp.calls)) == (["wamid.in-1"], 1, 1)
        assert await platform.perform(ADA, Typing()) == Accepted()  # no question is known: nothing to mark
        assert len(whatsapp.calls) == 1


@pytest.mark.parametrize(
    ("fault", "reply"),
    [
        pytest.param(failure(131056, "pair"), Flood(6.0), id="G78-pair"),
        pytest.param(failure(130429, "throughput", status=429), Flood(5.0), id="G78-throughput"),
        pytest.param(failure(999, "app", status=429), Flood(60.0), id="G78-by-status"),
        pytest.param(
            failure(100, "Param text['body'] must be at most 4096 characters long."), TooLong(), id="G82-too-long"
        ),
        pytest.param(failure(131000, "Something went wrong", status=500), Failed("Something went wrong (131000)")),
        pytest.param(failure(131021, "Message undeliverable"), Refused("Message undeliverable (131021)")),
        pytest.param(failure(131026, "Message undeliverable"), Refused(UNDELIVERABLE)),
    ],
)
def test_replies(fault: Fault, reply: AnyReply) -> None:
    @driven
    async def ask() -> AnyReply:
        async with fake() as whatsapp, number(whatsapp) as platform:
            whatsapp.fail("messages", fault)
            return await platform.perform(ADA, Send("k", "hello"))

    assert ask() == reply


@pytest.mark.parametrize("data", ["text", {"blame_field_specs": [["to"]]}, {"details": 7}, None])
def test_a_refusal_is_certain_whatever_data_comes_with_it(data: object) -> None:
    @driven
    async def ask() -> AnyReply:
        async with fake() as whatsapp, number(whatsapp) as platform:
            error = {"message": "(#131021) Undeliverable", "code": 131021, "error_data": data}
            whatsapp.fail("messages", json_fault(400, {"error": error}))
            return await platform.perform(ADA, Send("k", "hello"))

    assert ask() == Refused("(#131021) Undeliverable (131021)")


@driven
async def test_text_that_grows_past_the_limit_when_written_out_is_never_sent() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        table = "| a | b |\n|---|---|\n" + f"| {'x' * 100} | y |\n" + "| 1 | 2 |\n" * 200
        assert len(table) < 4096
        assert await platform.perform(ADA, Send("k", table)) == TooLong()
        assert whatsapp.calls == []


@pytest.mark.parametrize("fault", [silence(), cut(), bad_gateway(accepted=True)])
def test_G80_a_send_without_a_reply_is_known_by_its_status(fault: Fault) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform, asyncio.TaskGroup() as group:
            ada = whatsapp.person("15550001")
            ada.window_open = True
            whatsapp.fail("messages", fault)
            sending = group.create_task(platform.perform(ADA, Send("k", "hello")))
            await whatsapp.until(lambda: ada.bubbles)
            for key, message_id in (("another", "wamid.x"), ("k", ada.bubbles[0].id)):
                await deliver(whatsapp, platform, CollectingInbox(), whatsapp.taken(ada, message_id, key))
            assert await sending == Sent(ada.bubbles[0].id)

    ask()


def test_G80_a_send_that_no_status_tells_of_is_said_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask(*, told: bool) -> AnyReply:
        async with fake() as whatsapp, number(whatsapp) as platform:
            ada = whatsapp.person("15550001")
            ada.window_open = True
            for key in ("before", "just before"):
                before = await platform.perform(ADA, Send(key, "hello"))
                assert isinstance(before, Sent)
                status = whatsapp.taken(ada, before.message_id, key if told else f"of another process, {key}")
                await deliver(whatsapp, platform, CollectingInbox(), status)
            whatsapp.fail("messages", bad_gateway())
            return await platform.perform(ADA, Send("k", "hello"))

    why = "status 502, and no answer of WhatsApp's"
    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
        # Silence means something only where this process hears of the messages that were sent.
        assert (ask(told=True), ask(told=False)) == (Unknown(why, unlikely=True), Unknown(why))
    said = f"whether a message to 15550001 was sent is not known: {why}"
    assert [record.getMessage() for record in caplog.records] == [said, said]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (131047, "this person has not written for 24 hours: WhatsApp takes no answer until they write again (131047)"),
        (131021, "Undeliverable (131021)"),
        (None, "no reason given"),
    ],
)
def test_G80_a_send_without_a_reply_that_failed_is_refused_with_the_reason(
    code: int | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    @driven
    async def ask() -> AnyReply:
        async with fake() as whatsapp, number(whatsapp) as platform, asyncio.TaskGroup() as group:
            ada = whatsapp.person("15550001")
            whatsapp.fail("messages", bad_gateway())
            sending = group.create_task(platform.perform(ADA, Send("k", "hello")))
            await whatsapp.until(lambda: whatsapp.calls)
            body = whatsapp.not_delivered(ada, code, "Undeliverable", key="k")
            await deliver(whatsapp, platform, CollectingInbox(), body)
            return await sending

    assert ask() == Refused(reason, until_heard=code == 131047)
    assert [record.getMessage() for record in caplog.records] == [f"a message to 15550001 was not delivered: {reason}"]


@driven
async def test_G80_what_others_are_sent_while_a_status_is_waited_for_hides_no_loss() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform, asyncio.TaskGroup() as group:
        people = [whatsapp.person(f"1555000{last}") for last in (1, 2)]
        for ada in people:
            ada.window_open = True
            await platform.perform(Place("whatsapp", ada.number), Send(f"to-{ada.number}", "hello"))
        whatsapp.fail("messages", bad_gateway())
        sending = group.create_task(platform.perform(ADA, Send("k", "lost")))
        await asyncio.sleep(STATUS_S - 0.2)
        for ada in people:
            body = whatsapp.taken(ada, ada.bubbles[0].id, f"to-{ada.number}")
            await deliver(whatsapp, platform, CollectingInbox(), body)
        await platform.perform(Place("whatsapp", "15550002"), Send("its status is under way", "more"))
        assert not sending.done()
        assert await sending == Unknown("status 502, and no answer of WhatsApp's", unlikely=True)


def test_the_closed_24_hour_window_is_said_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            ada = whatsapp.person("15550001")
            reply = await platform.perform(ADA, Send("k", "hello"))
            assert isinstance(reply, Refused)
            assert "has not written for 24 hours" in reply.reason
            assert reply.until_heard
            inbox = CollectingInbox()
            body = whatsapp.not_delivered(ada, 131047, "Re-engagement message")
            assert await deliver(whatsapp, platform, inbox, body) == 200
            assert inbox.updates == []

    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
        ask()
    assert [record.getMessage().count("24 hours") for record in caplog.records] == [1, 1]
    assert all("15550001" in record.getMessage() for record in caplog.records)


@driven
async def test_the_pair_limit_is_a_burst_of_ten_and_ten_a_minute() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        whatsapp.person("15550001").window_open = True
        replies = [await platform.perform(ADA, Send("k", "hello")) for _ in range(11)]
        assert [type(reply) for reply in replies] == [Sent] * 10 + [Flood]


# ── the webhook ──────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_a_signed_message_arrives() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001", "Ada"), CollectingInbox()
        assert await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "hello")) == 200
        place = Place("whatsapp", "15550001", extra={"message": "wamid.in-1"})
        sender = Sender("15550001", "Ada")
        assert inbox.updates == [MessageReceived("wamid.in-1", place, sender, "hello", message_id="wamid.in-1")]
        assert place.key == ADA.key


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

    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
        ask()
    [record] = caplog.records
    assert record.getMessage() == "a message to US.134912 was not delivered: Message undeliverable (131021)"


@driven
async def test_J120_only_the_raw_body_with_its_own_signature_is_taken() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        body = whatsapp.message(ada, "hello")
        good = whatsapp.signature(body)
        for given in ("", good[:-1], good.removeprefix("sha256="), good.replace("sha256", "sha1"), "sha256=ü"):
            assert (await post(platform, inbox, body, {"x-hub-signature-256": given})).status == 401
        assert (await post(platform, inbox, body, {})).status == 401
        same_values = body.replace(b":", b": ", 1)  # the same JSON in other bytes
        assert (await post(platform, inbox, same_values, {"x-hub-signature-256": good})).status == 401
        assert inbox.updates == []
        assert (await post(platform, inbox, body, {"x-hub-signature-256": good})).status == 200
        assert len(inbox.updates) == 1


@pytest.mark.parametrize(
    ("age_s", "taken", "status", "said"),
    [
        (0, 1, 200, ""),
        (REPLAY_WINDOW_S - 60, 1, 200, ""),
        (REPLAY_WINDOW_S + 60, 0, 200, "a message of 15550001 is passed over: it is older than 24 hours"),
        (-CLOCK_SKEW_S + 60, 1, 200, ""),
        (-CLOCK_SKEW_S - 60, 0, 503, "set the clock"),  # ours is behind: WhatsApp delivers it again
    ],
)
def test_J120_a_kept_body_is_not_taken_outside_of_the_window(
    age_s: float, taken: int, status: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp, now_s=NOW + age_s) as platform:
            inbox = CollectingInbox()
            body = whatsapp.message(whatsapp.person("15550001"), "hello")
            assert await deliver(whatsapp, platform, inbox, body) == status
            assert len(inbox.updates) == taken

    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
        ask()
    assert [said in record.getMessage() for record in caplog.records] == [True] * bool(said)


@pytest.mark.parametrize("timestamp", ["soon", "", "1" * 5000])
def test_a_timestamp_that_is_no_number_is_told_as_that(timestamp: str, caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            inbox = CollectingInbox()
            body = whatsapp.message(whatsapp.person("15550001"), "hello", timestamp=timestamp)
            assert await deliver(whatsapp, platform, inbox, body) == 200
            assert inbox.updates == []

    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
        ask()
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"a message of 15550001 is passed over: its timestamp is no number: '{timestamp[:39]}")


def test_a_message_to_another_number_of_the_account_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            ada, inbox = whatsapp.person("15550001"), CollectingInbox()
            whatsapp.phone_number_id = "999"
            others = [whatsapp.message(ada, "hello"), whatsapp.message(ada, "anybody?")]
            tells_of_none = whatsapp.taken(ada, "wamid.out", "k")
            for body in (*others, tells_of_none):
                assert await deliver(whatsapp, platform, inbox, body) == 200
            assert inbox.updates == []

    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
        ask()
    said = "a message to 15550000 is passed over: its phone_number_id is 999, the config has 106540352242922"
    assert [record.getMessage() for record in caplog.records] == [said]


@driven
async def test_what_is_not_taken_is_asked_for_again() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        inbox = CollectingInbox()
        inbox.closed = True
        body = whatsapp.message(whatsapp.person("15550001"), "hello")
        assert await deliver(whatsapp, platform, inbox, body) == 503


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"entry": 1}',
        b'{"entry": [{"changes": [{}]}]}',
        b"\xff",
        b'{"entry": [{"changes": [{"value": {}, "field": "\xff"}]}]}',
        pytest.param(b'{"more": ' + b"[" * 100_000, id="deep"),
    ],
)
def test_a_signed_body_that_makes_no_sense_is_refused(body: bytes) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            inbox = CollectingInbox()
            assert await deliver(whatsapp, platform, inbox, body) == 400
            assert inbox.updates == []

    ask()


@pytest.mark.parametrize(
    ("items", "odd", "said"),
    [
        (
            "messages",
            {"id": "wamid.odd", "type": 7},
            "a message could not be read: type: must be text, not a number",
        ),
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

    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
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
        assert [update.text for update in inbox.updates if isinstance(update, MessageReceived)][1:] == [
            "[in reply to you]\n> **Rhine**\n> and Elbe\n\nhow long?",
            "[in reply to a message of their own]\n> which rivers?\n\nI meant lakes",
            "[in reply to an earlier message]\n\nand this?",
            "/stop",
            "yes",
            "[forwarded]\n> /yolo",
            "[forwarded]\n> chain letter\n>\n> Pass it on.",
        ]


@driven
async def test_a_reply_to_an_id_of_another_chat_shows_nothing_of_it() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, eve, inbox = whatsapp.person("15550001"), whatsapp.person("15550002"), CollectingInbox()
        await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "my secret"))
        sent = await platform.perform(ADA, Send("k", "I keep it"))
        assert isinstance(sent, Sent)
        for message_id in ("wamid.in-1", sent.message_id):
            await deliver(whatsapp, platform, inbox, whatsapp.message(eve, "what?", context={"id": message_id}))
        texts = [update.text for update in inbox.updates if isinstance(update, MessageReceived)]
        assert texts == ["my secret", *["[in reply to an earlier message]\n\nwhat?"] * 2]


@driven
async def test_places_and_contact_cards_reach_the_model_as_text() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        place = {"latitude": 52.52, "longitude": 13.405}
        named = place | {"name": "Café\nMühle", "address": "Some Street 1"}
        bob = {"name": {"formatted_name": "Bob"}, "phones": [{"phone": "+1 555"}], "emails": [{"email": "b@x.org"}]}
        eve = {"name": {"formatted_name": "Eve"}}
        all_over = {
            "phones": [{"phone": f"+{n}"} for n in range(MAX_DETAILS - 1)],
            "emails": [{"email": "e@x.org"}] * 3,
        }
        contents = (("location", place), ("location", named), ("contacts", [bob, eve]), ("contacts", [eve | all_over]))
        for kind, content in contents:
            await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "", type=kind, **{kind: content}))
        assert [update.text for update in inbox.updates if isinstance(update, MessageReceived)] == [
            "[location: 52.52, 13.405]",
            "[location: Café Mühle, Some Street 1, 52.52, 13.405]",
            "[contact: Bob, +1 555, b@x.org]\n[contact: Eve]",
            "[contact: Eve, +0, +1, +2, +3, +4, +5, +6, +7, +8, e@x.org, and 2 more]",
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
async def test_the_address_is_verified_with_the_token() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:

        async def ask(query: dict[str, str]) -> tuple[int, bytes]:
            answer = await platform.hook(HookRequest("GET", HOOK_PATH, query, {}, b""), CollectingInbox())
            return answer.status, answer.body

        good = {"hub.mode": "subscribe", "hub.verify_token": whatsapp.verify_token, "hub.challenge": "1158201444"}
        assert await ask(good) == (200, b"1158201444")
        assert await ask(good | {"hub.verify_token": "ü"}) == (403, b"")
        assert await ask(good | {"hub.mode": "unsubscribe"}) == (403, b"")
        assert await ask({}) == (403, b"")


def test_a_wrong_secret_or_verify_token_is_said_to_the_operator_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with fake() as whatsapp, number(whatsapp) as platform:
            for pause_s in (0, 0, 61):
                await asyncio.sleep(pause_s)
                for headers in ({}, {"x-hub-signature-256": "sha256=00"}):
                    assert (await post(platform, CollectingInbox(), b"{}", headers)).status == 401
                query = {"hub.mode": "subscribe", "hub.verify_token": "another"}
                request = HookRequest("GET", HOOK_PATH, query, {}, b"")
                assert (await platform.hook(request, CollectingInbox())).status == 403

    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
        ask()
    assert [record.getMessage() for record in caplog.records] == 2 * [
        "a call of WhatsApp's webhook has no signature: somebody else's, or a proxy drops X-Hub-Signature-256",
        "a call of WhatsApp's webhook is not signed with app_secret_env: is that secret this app's?",
        "WhatsApp's webhook was asked for with another verify token than verify_token_env holds",
    ]


def test_a_browser_or_a_probe_at_the_webhook_is_no_wrong_verify_token(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> int:
        async with fake() as whatsapp, number(whatsapp) as platform:
            return (await platform.hook(HookRequest("GET", HOOK_PATH, {}, {}, b""), CollectingInbox())).status

    with caplog.at_level(logging.WARNING, "tailrace.platforms.whatsapp"):
        assert ask() == 403
    assert caplog.records == []


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


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
async def test_doctor_hears_the_number_or_what_is_wrong_with_the_token() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        assert await platform.check() == "+1 555 0000 (Tailrace Test)"
        for subcode, told in ((0, "the access token is not valid: "), (463, "the access token has expired: ")):
            error = {"message": "Error validating access token", "code": 190, "error_subcode": subcode}
            whatsapp.fail("get", json_fault(401, {"error": error}))
            with pytest.raises(PlatformError, match=told) as refused:
                await platform.check()
            assert refused.value.permanent
        whatsapp.fail("get", failure(100, "Unsupported get request", status=404))
        told = rf"no number has the phone_number_id {whatsapp.phone_number_id}, .*Unsupported get request \(100\)"
        with pytest.raises(PlatformError, match=told):
            await platform.check()


@driven
async def test_a_wrong_token_is_said_at_the_start_and_a_right_one_is_connected() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        inbox = CollectingInbox()
        whatsapp.fail("get", failure(190, "Invalid OAuth access token", status=401))
        with pytest.raises(PlatformError, match="access token") as refused:
            await platform.run(inbox)
        assert (refused.value.permanent, inbox.connections) == (True, 0)
    async with fake() as whatsapp, number(whatsapp) as platform, running(platform) as inbox:
        assert inbox.connections == 1


@driven
async def test_an_address_where_nothing_listens_is_said_in_words_of_the_system() -> None:
    whatsapp = fake()
    await whatsapp.close()  # its port is 0
    async with number(whatsapp) as platform:
        with pytest.raises(PlatformError, match=r"no connection to 127\.0\.0\.1:0: "):
            await platform.check()


@pytest.mark.parametrize("secret", ["", " ", "\n"])
def test_M151_an_empty_app_secret_verifies_nothing(secret: str) -> None:
    signature = hmac.digest(secret.encode(), b"{}", hashlib.sha256).hex()
    assert not is_signed(b"{}", f"sha256={signature}", secret)


@driven
async def test_a_token_that_expires_later_ends_the_connection_and_not_the_webhook() -> None:
    async with fake() as whatsapp, number(whatsapp) as platform:
        ada, inbox = whatsapp.person("15550001"), CollectingInbox()
        run = asyncio.ensure_future(platform.run(inbox))
        await inbox.wait_connected()
        whatsapp.token = "another"
        assert isinstance(await platform.perform(ADA, Send("k", "hello")), Failed)
        with pytest.raises(PlatformError, match="the access token is not valid") as told:
            await run
        assert told.value.permanent
        assert await deliver(whatsapp, platform, inbox, whatsapp.message(ada, "hello")) == 200
        assert len(inbox.updates) == 1
