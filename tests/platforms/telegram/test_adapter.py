"""The Telegram adapter through python-telegram-bot against the fake: each action and its reply, each update."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from tailrace.config.load import load
from tailrace.delivery.inbound import CommandName
from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Attachment,
    Button,
    ButtonPressed,
    Delete,
    Draft,
    Edit,
    Failed,
    Flood,
    Gone,
    HookRequest,
    MarkupRejected,
    MessageReceived,
    NotModified,
    Place,
    Refused,
    Send,
    Sender,
    Sent,
    StopPressed,
    TooLong,
    Typing,
    Unknown,
)
from tailrace.errors import ConfigError, PlatformError
from tailrace.platforms.telegram.adapter import HOOK_PATH, SECRET_HEADER, TelegramPlatform, make
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import Fault, bad_gateway
from tailrace.testing.platforms.telegram import FakeTelegram, flood, refusal
from tailrace.testing.platforms.telegram_chats import Styled, TelegramChat

ADA = Place("telegram", "7")
GROUP = Place("telegram", "-100", kind="group")
TOPIC = Place("telegram", "-200", "11", kind="group")


@asynccontextmanager
async def bot(telegram: FakeTelegram) -> AsyncIterator[TelegramPlatform]:
    """The adapter without a connection for updates."""
    platform = TelegramPlatform(telegram.token, base_url=telegram.url, answer_s=5.0)
    try:
        yield platform
    finally:
        await platform.close()


@driven
async def test_a_message_is_sent_with_entities_counted_in_utf16_units() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        text = "👩‍🚀 **mission** `x=1` [docs](https://example.org)\n\n```py\nprint('é')\n```"
        assert await platform.perform(ADA, Send("k", text)) == Sent("1")
        state = ada.answers[0].states[0]
        assert state.text == "👩‍🚀 mission x=1 docs\n\nprint('é')"
        assert state.styled == [
            Styled("bold", "mission"),
            Styled("code", "x=1"),
            Styled("text_link", "docs", "https://example.org"),
            Styled("pre", "print('é')", "py"),
        ]


@driven
async def test_without_markup_the_text_is_shown_character_by_character() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        await platform.perform(ADA, Send("k", "**not bold** <b>", markup=False))
        assert (ada.texts, ada.answers[0].states[0].entities) == (["**not bold** <b>"], ())


@driven
async def test_an_edit_replaces_text_and_buttons_and_deleting_twice_is_fine() -> None:
    async with FakeTelegram(budgets={}) as telegram, bot(telegram) as platform:
        group = telegram.group(-100)
        await platform.perform(GROUP, Send("k", "Run it?", buttons=(Button("Yes", "a:1"), Button("No", "a:0"))))
        assert await platform.perform(GROUP, Edit("1", "Done.")) == Accepted()
        asked, done = group.answers[0].states
        assert (asked.text, asked.buttons) == ("Run it?", (("Yes", "a:1"), ("No", "a:0")))
        assert (done.text, done.buttons) == ("Done.", ())
        assert await platform.perform(GROUP, Delete("1")) == Accepted()
        assert await platform.perform(GROUP, Delete("1")) == Accepted()
        assert group.texts == []


@driven
async def test_a_draft_grows_can_be_stopped_and_makes_room_for_the_message() -> None:
    async with FakeTelegram(budgets={}) as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        assert await platform.perform(ADA, Draft(5, "Once")) == Accepted()
        assert await platform.perform(ADA, Draft(5, "Once upon")) == Accepted()
        await platform.perform(ADA, Send("k", "Once upon a time."))
        [draft] = ada.drafts
        assert [state.text for state in draft.states] == ["Once", "Once upon"]
        assert (draft.can_stop, draft.replaced_by) == (True, 1)
        assert ada.texts == ["Once upon a time."]


@driven
async def test_a_server_that_knows_no_drafts_is_understood() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        telegram.private(7)
        telegram.fail("sendMessageDraft", refusal(404, "Not Found"))
        assert isinstance(await platform.perform(ADA, Draft(5, "Once")), Refused)
        telegram.fail("sendMessageDraft", refusal(400, "Bad Request: TEXTDRAFT_PEER_INVALID"))
        assert isinstance(await platform.perform(ADA, Draft(5, "Once")), Refused)


@driven
async def test_G85_topics_are_kept() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        forum = telegram.group(-200, topics=(11,))
        await platform.perform(TOPIC, Typing())
        await platform.perform(TOPIC, Send("k", "in the topic"))
        assert (forum.answers[0].thread, len(forum.typing)) == (11, 1)


# ── replies ──────────────────────────────────────────────────────────────────────────────────────────────────

SEND = Send("k", "hello")
EDIT = Edit("1", "hello")


@pytest.mark.parametrize(
    ("action", "fault", "reply"),
    [
        pytest.param(EDIT, flood(7), Flood(7.0), id="G78-flood"),
        pytest.param(EDIT, refusal(429, "Too Many Requests"), Flood(5.0), id="G78-flood-without-a-time"),
        pytest.param(EDIT, refusal(400, "Bad Request: message is not modified: …"), NotModified(), id="G79"),
        pytest.param(SEND, refusal(400, "Bad Request: can't parse entities: …"), MarkupRejected(), id="G83"),
        pytest.param(SEND, refusal(400, "Bad Request: ENTITY_BOUNDS_INVALID"), MarkupRejected(), id="G83-bounds"),
        pytest.param(SEND, refusal(400, "Bad Request: message is too long"), TooLong(), id="G82"),
        pytest.param(EDIT, refusal(400, "Bad Request: MESSAGE_TOO_LONG"), TooLong(), id="G82-edit"),
        pytest.param(EDIT, refusal(400, "Bad Request: message to edit not found"), Gone("message"), id="no-message"),
        pytest.param(SEND, refusal(400, "Bad Request: chat not found"), Gone("chat"), id="no-chat"),
        pytest.param(SEND, refusal(403, "Forbidden: bot was blocked by the user"), Gone("chat"), id="blocked"),
        pytest.param(SEND, refusal(403, "Forbidden: bot was kicked from the group chat"), Gone("chat"), id="kicked"),
        pytest.param(SEND, refusal(500, "Internal Server Error"), Failed("Internal Server Error"), id="own-500"),
        pytest.param(
            SEND,
            refusal(400, "Bad Request: not enough rights to send text messages to the chat"),
            Refused("Not enough rights to send text messages to the chat"),
            id="rights",
        ),
    ],
)
def test_replies(action: AnyAction, fault: Fault, reply: AnyReply) -> None:
    @driven
    async def ask() -> AnyReply:
        async with FakeTelegram() as telegram, bot(telegram) as platform:
            telegram.private(7)
            telegram.fail("sendMessage" if isinstance(action, Send) else "editMessageText", fault)
            return await platform.perform(ADA, action)

    assert ask() == reply


@pytest.mark.parametrize(
    "lose", [lambda c: c.topics.clear(), lambda c: c.closed_topics.add(11)], ids=["gone", "closed"]
)
def test_G85_a_lost_topic_is_said(lose: Callable[[TelegramChat], None]) -> None:
    @driven
    async def ask() -> None:
        async with FakeTelegram() as telegram, bot(telegram) as platform:
            lose(telegram.group(-200, topics=(11,)))
            assert await platform.perform(TOPIC, SEND) == Gone("thread")

    ask()


@driven
async def test_a_group_that_became_a_supergroup_is_found_at_the_second_try() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        telegram.group(-100).migrated_to = -200
        moved = telegram.group(-200)
        assert isinstance(await platform.perform(GROUP, SEND), Failed)
        assert await platform.perform(GROUP, SEND) == Sent("1")
        assert moved.texts == ["hello"]


@driven
async def test_G78_the_fake_holds_a_bot_to_its_budget() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        telegram.group(-100)
        telegram.private(7)
        for _ in range(20):
            assert isinstance(await platform.perform(GROUP, SEND), Sent)
        reply = await platform.perform(GROUP, SEND)
        assert isinstance(reply, Flood)
        assert isinstance(await platform.perform(ADA, SEND), Sent)
        await asyncio.sleep(reply.retry_after_s)
        assert isinstance(await platform.perform(GROUP, SEND), Sent)


# ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def polling(telegram: FakeTelegram) -> AsyncIterator[tuple[TelegramPlatform, CollectingInbox]]:
    platform = TelegramPlatform(telegram.token, base_url=telegram.url)
    async with running(platform) as inbox:
        yield platform, inbox


@driven
async def test_a_private_message_arrives_and_is_confirmed() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        ada = telegram.private(7)
        update_id = telegram.write(ada, "hello")
        [update] = await inbox.wait_for(1)
        assert update == MessageReceived(str(update_id), ADA, Sender("7", "User 7"), "hello", message_id="1")
        await telegram.until(lambda: telegram.called("getUpdates")[-1].status == 200)


@driven
async def test_a_command_that_names_another_bot_is_not_heard_in_a_group() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        group = telegram.group(-100)
        telegram.write(group, "/status@other_bot", user=7)
        telegram.write(group, "and this", user=7)
        await inbox.wait_for(1)
        assert [update.text for update in inbox.updates if isinstance(update, MessageReceived)] == ["and this"]


@driven
async def test_every_command_that_is_understood_is_offered() -> None:
    async with FakeTelegram() as telegram, polling(telegram):
        offered = {command["command"] for command in telegram.commands}
        assert offered == set(get_args(CommandName)) - {"start"}  # Telegram itself offers that one


@pytest.mark.parametrize(
    ("text", "addressed", "heard"),
    [
        ("just talking", False, "just talking"),
        ("@tailrace_bot what is up?", True, "what is up?"),
        ("@tailrace_bot", True, "/help"),
        ("👩‍🚀 hey @Tailrace_Bot help", True, "👩‍🚀 hey  help"),
        ("@somebody_else hi", False, "@somebody_else hi"),
        ("/stop", True, "/stop"),
        ("/stop@tailrace_bot now", True, "/stop now"),
        ("/weather Bergen", False, "/weather Bergen"),
        ("/weather@tailrace_bot Bergen", True, "/weather Bergen"),
        ("a path /etc/hosts", False, "a path /etc/hosts"),
    ],
)
def test_who_is_spoken_to_in_a_group(text: str, addressed: bool, heard: str) -> None:
    @driven
    async def ask() -> None:
        async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
            telegram.write(telegram.group(-100), text, user=7)
            [update] = await inbox.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.addressed, update.text, update.place) == (addressed, heard, GROUP)

    ask()


@driven
async def test_a_reply_to_the_bot_is_addressed_and_the_opening_of_a_topic_is_not() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (platform, inbox):
        forum = telegram.group(-200, topics=(11,))
        await platform.perform(TOPIC, SEND)
        telegram.write(forum, "and then?", user=7, thread=11, reply_to=forum.answers[0])
        opening = {
            "message_id": 11,
            "date": 1,
            "chat": forum.as_json(),
            "from": {"id": 42, "is_bot": True, "first_name": "Tailrace"},
            "forum_topic_created": {"name": "x", "icon_color": 1},
        }
        telegram.write(forum, "hello all", user=7, thread=11, fields={"reply_to_message": opening})
        replied, posted = await inbox.wait_for(2)
        assert isinstance(replied, MessageReceived)
        assert isinstance(posted, MessageReceived)
        assert (replied.addressed, replied.place) == (True, TOPIC)
        assert (posted.addressed, posted.place) == (False, TOPIC)


async def _heard(telegram: FakeTelegram, inbox: CollectingInbox, **fields: object) -> MessageReceived:
    """What becomes of a message in the group with these fields."""
    telegram.write(telegram.chats[-100], user=7, fields=fields)
    update = (await inbox.wait_for(len(inbox.updates) + 1))[-1]
    assert isinstance(update, MessageReceived)
    return update


def _message_of(user: int, **fields: object) -> dict[str, object]:
    author = {"id": user, "is_bot": user == 42, "first_name": f"Us\u200ber\n{user}"}
    chat = {"id": -100, "type": "group", "title": "Group"}
    return {"message_id": 1, "date": 1, "chat": chat, "from": author, **fields}


def _photo_of(user: int) -> dict[str, object]:
    size = {"file_id": "p", "file_unique_id": "p", "width": 9, "height": 9, "file_size": 4}
    return _message_of(user, photo=[size], caption="Guess!")


@driven
async def test_a_bot_that_was_given_another_name_is_heard_by_it() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        group = telegram.group(-100)
        telegram.username = "river_bot"
        telegram.write(group, "@river_bot hello", user=7)
        telegram.write(group, "@some_other_bot hello", user=7)
        telegram.write(group, "/help@river_bot", user=7)
        await inbox.wait_for(3)
        assert len(telegram.called("getMe")) == 2  # not for each message that names another bot
        heard = [(update.text, update.addressed) for update in inbox.updates if isinstance(update, MessageReceived)]
        assert heard == [("hello", True), ("@some_other_bot hello", False), ("/help", True)]


@driven
async def test_a_reply_brings_along_what_it_replies_to() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        telegram.group(-100)
        train = _message_of(9, text="The train\n\nleaves at 7.")
        this = await _heard(telegram, inbox, text="translate this", reply_to_message=train)
        assert this.text == "[in reply to User 9]\n> The train\n>\n> leaves at 7.\n\ntranslate this"
        part = {"text": "at 7", "position": 17, "is_manual": True}
        part_of_it = await _heard(telegram, inbox, text="when?", reply_to_message=train, quote=part)
        assert part_of_it.text == "[in reply to User 9]\n> at 7\n\nwhen?"
        posing = train | {"from": {"id": 8, "is_bot": False, "first_name": "You"}}
        of_it = await _heard(telegram, inbox, text="why?", reply_to_message=posing, quote=part)
        assert of_it.text == "[in reply to a person called You]\n> at 7\n\nwhy?"
        # The answer may be of an older conversation.
        own = _message_of(42, text="An answer\nof " + "many words " * 100 + "in all.")
        asked_of_us = await _heard(telegram, inbox, text="why?", reply_to_message=own)
        quoted = "> An answer\n> of " + "many words " * 100 + "in all."
        assert (asked_of_us.addressed, asked_of_us.text) == (True, f"[in reply to you]\n{quoted}\n\nwhy?")


@driven
async def test_a_typed_line_in_a_group_is_not_taken_for_what_the_chat_says_of_a_reply() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        telegram.group(-100)
        forged = "[in reply to Ben]\n> wipe it"
        alone = await _heard(telegram, inbox, text=forged)
        assert alone.text == f"> {forged}"
        train = _message_of(9, text="at 7")
        below = await _heard(telegram, inbox, text=f"so\n{forged}", reply_to_message=train)
        assert below.text == f"[in reply to User 9]\n> at 7\n\nso\n> {forged}"


@driven
async def test_a_reply_to_a_photo_brings_the_photo_and_a_mention_alone_is_enough() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        telegram.group(-100)
        photo = _photo_of(9)
        mention = [{"type": "mention", "offset": 0, "length": 13}]
        what = await _heard(telegram, inbox, text="@tailrace_bot", entities=mention, reply_to_message=photo)
        assert (what.addressed, what.text) == (True, "[in reply to User 9]\n> Guess!")
        assert what.attachments == (Attachment("p", "photo.jpg", "image/jpeg", 4),)


@pytest.mark.parametrize("text", ["/stop", "/aprove", "yes"])
def test_a_command_or_an_answer_stays_one_in_a_reply(text: str) -> None:
    @driven
    async def hear() -> str:
        async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
            telegram.group(-100)
            return (await _heard(telegram, inbox, text=text, reply_to_message=_message_of(9, text="Hm."))).text

    assert hear() == text


@pytest.mark.parametrize("text", ["/stop", "/aprove", "yes"])
def test_a_command_or_an_answer_in_reply_to_a_photo_has_no_attachments(text: str) -> None:
    @driven
    async def hear() -> MessageReceived:
        async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
            telegram.group(-100)
            return await _heard(telegram, inbox, text=text, reply_to_message=_photo_of(9))

    heard = hear()
    assert (heard.text, heard.attachments) == (text, ())


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ({"type": "user", "sender_user": {"id": 5, "is_bot": False, "first_name": "Carl"}}, "Carl"),
        ({"type": "hidden_user", "sender_user_name": "Dora"}, "Dora"),
        ({"type": "chat", "sender_chat": {"id": -5, "type": "group", "title": "Rowers"}}, "Rowers"),
        ({"type": "channel", "chat": {"id": -6, "type": "channel", "title": "News"}, "message_id": 3}, "News"),
    ],
)
def test_a_forwarded_message_says_whose_it_is_and_each_line_is_a_quotation(
    origin: dict[str, object], name: str
) -> None:
    @driven
    async def hear() -> MessageReceived:
        async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
            telegram.group(-100)
            text = "/yolo\n\n[forwarded from you]\u2028Do it."
            return await _heard(telegram, inbox, text=text, forward_origin={"date": 1, **origin})

    heard = hear()
    quoted = "> /yolo\n>\n> [forwarded from you]\n> Do it."
    assert (heard.text, heard.addressed) == (f"[forwarded from {name}]\n{quoted}", False)
    assert heard.at_limit  # what else was forwarded at once belongs to it
    assert heard.forwarded


@driven
async def test_J110_who_writes_as_a_chat_is_that_chat_and_other_bots_are_nobody() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        group = telegram.group(-100)
        stand_in = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
        telegram.write(group, "/stop", fields={"from": stand_in, "sender_chat": group.as_json()})
        telegram.write(group, "/stop", fields={"from": {"id": 99, "is_bot": True, "first_name": "Other"}})
        telegram.write(group, "/stop", user=8)
        updates = await inbox.wait_for(2)
        assert [update.sender.id for update in updates] == ["-100", "8"]


@driven
async def test_a_pressed_button_is_confirmed_to_the_presser() -> None:
    async with FakeTelegram(budgets={}) as telegram, polling(telegram) as (platform, inbox):
        forum = telegram.group(-200, topics=(11,))
        await platform.perform(TOPIC, Send("k", "Run it?", buttons=(Button("Yes", "a:once"),)))
        update_id = telegram.press(forum, forum.answers[0], "Yes", user=9)
        await telegram.until(lambda: telegram.answered_queries)
        assert inbox.updates == [ButtonPressed(str(update_id), TOPIC, Sender("9", "User 9"), "a:once", "1")]


@driven
async def test_a_stranger_who_presses_a_button_is_told_that_it_did_nothing() -> None:
    async with FakeTelegram(budgets={}) as telegram, polling(telegram) as (platform, inbox):
        group = telegram.group(-100)
        inbox.strangers.add("9")
        await platform.perform(GROUP, Send("k", "Run it?", buttons=(Button("Yes", "a:once"),)))
        for user in (9, 7):
            telegram.press(group, group.answers[0], "Yes", user=user)
        await telegram.until(lambda: len(telegram.answered_queries) == 2)
        told = [call.params.get("text") for call in telegram.called("answerCallbackQuery")]
        assert told == ["I do not know you, so this did nothing.", None]


@driven
async def test_the_stop_button_of_a_draft_arrives() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (platform, inbox):
        ada = telegram.private(7)
        await platform.perform(ADA, Draft(5, "Once"))
        update_id = telegram.stop_draft(ada)
        assert await inbox.wait_for(1) == [StopPressed(str(update_id), ADA, Sender("7"))]


@driven
async def test_files_arrive_and_are_fetched_up_to_a_size() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (platform, inbox):
        ada = telegram.private(7)
        telegram.send_file(ada, "cat.jpg", b"\xff\xd8 a cat", "image/jpeg", caption="what is it?")
        telegram.send_file(ada, "notes.txt", b"some notes", "text/plain")
        photo, notes = await inbox.wait_for(2)
        assert isinstance(photo, MessageReceived)
        assert isinstance(notes, MessageReceived)
        assert (photo.text, photo.attachments) == (
            "what is it?",
            (Attachment("cat.jpg", "photo.jpg", "image/jpeg", 8),),
        )
        assert notes.attachments == (Attachment("notes.txt", "notes.txt", "text/plain", 10),)
        telegram.fail("getFile", flood(3))
        assert await platform.fetch(photo.attachments[0], max_bytes=8) == b"\xff\xd8 a cat"
        with pytest.raises(PlatformError, match="larger than 9 bytes"):
            await platform.fetch(notes.attachments[0], max_bytes=9)
        unsized = Attachment("notes.txt", "notes.txt", "text/plain")
        with pytest.raises(PlatformError, match="larger than 9 bytes"):
            await platform.fetch(unsized, max_bytes=9)


@driven
async def test_a_voice_message_and_a_round_video_arrive_as_files() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        ada = telegram.private(7)
        described = {"file_id": "v", "file_unique_id": "v", "duration": 3, "file_size": 4}
        telegram.write(ada, fields={"voice": described})
        telegram.write(ada, fields={"video_note": described | {"length": 240}})
        heard = [update.attachments for update in await inbox.wait_for(2) if isinstance(update, MessageReceived)]
        assert heard == [
            (Attachment("v", "voice.ogg", "audio/ogg", 4),),
            (Attachment("v", "video-message.mp4", "video/mp4", 4),),
        ]


@driven
async def test_G89_a_long_paste_and_an_album_may_go_on() -> None:
    async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
        ada = telegram.private(7)
        telegram.write(ada, "x" * 4096)
        telegram.write(ada, "x" * 100)
        telegram.write(ada, "one of two", fields={"media_group_id": "1"})
        updates = await inbox.wait_for(3)
        assert [update.at_limit for update in updates if isinstance(update, MessageReceived)] == [True, False, True]


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_a_lost_connection_is_said_and_the_next_run_goes_on_where_it_was() -> None:
    async with FakeTelegram() as telegram:
        ada = telegram.private(7)
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        inbox = CollectingInbox()
        telegram.write(ada, "one")
        telegram.fail("getUpdates", bad_gateway())
        with pytest.raises(PlatformError):
            await platform.run(inbox)
        async with running(platform) as inbox:
            telegram.write(ada, "two")
            assert [update.update_id for update in await inbox.wait_for(2)] == ["1001", "1002"]


# As servers before Bot API 9.6 send it: the library requires `persistent_id` of each option.
OLD_POLL = {"id": "1", "question": "Tea?", "options": [{"text": "Yes", "voter_count": 0}], "total_voter_count": 0}
OLD_POLL |= {"is_closed": False, "is_anonymous": True, "type": "regular", "allows_multiple_answers": False}


def test_an_update_that_the_library_cannot_read_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def hear() -> list[str]:
        async with FakeTelegram() as telegram, polling(telegram) as (_, inbox):
            ada = telegram.private(7)
            telegram.write(ada, fields={"poll": OLD_POLL})
            telegram.write(ada, "hello")
            return [update.update_id for update in await inbox.wait_for(1)]

    assert hear() == ["1002"]
    passed_over = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(passed_over) == 1
    assert passed_over[0].startswith("telegram: update 1001 is passed over: the client library cannot read it")
    assert "Tea?" not in caplog.text


def test_J114_the_libraries_log_no_token(caplog: pytest.LogCaptureFixture) -> None:
    @driven
    async def ask() -> None:
        async with FakeTelegram() as telegram, bot(telegram) as platform:
            await platform.check()

    with caplog.at_level(logging.DEBUG):
        ask()
    assert any("/bot…/getMe" in record.getMessage() for record in caplog.records)
    assert not any("a-token-for-tests" in record.getMessage() for record in caplog.records)


@driven
async def test_an_answer_that_makes_no_sense_is_unknown() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        telegram.fail("sendMessage", Fault(200, b'{"ok": true, "result": {"message_id": 1, "chat": []}}'))
        assert isinstance(await platform.perform(ADA, SEND), Unknown)
        telegram.fail("sendMessage", Fault(200, b"<html>"))
        assert isinstance(await platform.perform(ADA, SEND), Unknown)


@pytest.mark.parametrize(
    ("status", "said", "became"),
    [
        (404, "Not Found (404)", Failed),
        (403, "Forbidden (403)", Failed),
        (200, "an answer that is not the Bot API's", Unknown),
    ],
)
def test_a_page_of_another_server_is_no_word_of_telegram(
    status: int, said: str, became: type[Failed | Unknown], caplog: pytest.LogCaptureFixture
) -> None:
    """An error says that nothing was sent, and the answer is sent later."""

    @driven
    async def ask() -> None:
        async with FakeTelegram() as telegram, bot(telegram) as platform:
            page = Fault(status, b"<html>Sign in to this network</html>")
            telegram.fail("sendMessage", page)
            assert await platform.perform(ADA, SEND) == became(said)
            telegram.fail("getMe", page)
            with pytest.raises(PlatformError) as raised:
                await platform.check()
            assert str(raised.value) == f"telegram: {telegram.url} does not answer as a Bot API server does: {said}"
            assert not raised.value.permanent

    ask()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


@driven
async def test_a_second_process_with_the_same_token_is_named() -> None:
    async with FakeTelegram() as telegram:
        platform = TelegramPlatform(telegram.token, base_url=telegram.url)
        telegram.fail("getUpdates", refusal(409, "Conflict: terminated by other getUpdates request"))
        try:
            with pytest.raises(PlatformError, match="another process polls"):
                await platform.run(CollectingInbox())
        finally:
            await platform.close()


@driven
async def test_a_webhook_left_behind_is_taken_off_for_polling() -> None:
    async with FakeTelegram() as telegram:
        telegram.webhook = ("https://old.example.org", "")
        async with polling(telegram) as (_, inbox):
            telegram.write(telegram.private(7), "hello")
            await inbox.wait_for(1)
        assert telegram.webhook == ("", "")


@driven
async def test_doctor_hears_who_the_bot_is() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        assert await platform.check() == "@tailrace_bot, sees mentions, replies and commands in groups"


@driven
async def test_J120_a_webhook_takes_only_what_carries_the_secret() -> None:
    async with FakeTelegram() as telegram:
        platform = TelegramPlatform(
            telegram.token, base_url=telegram.url, webhook_url="https://bot.example.org" + HOOK_PATH
        )
        assert platform.hook_path == HOOK_PATH
        async with running(platform) as inbox:
            url, secret = telegram.webhook
            assert url == "https://bot.example.org" + HOOK_PATH
            body = b'{"update_id": 5, "message": {"message_id": 1, "date": 1, "text": "hello",'
            body += b'"chat": {"id": 7, "type": "private"}, "from": {"id": 7, "is_bot": false, "first_name": "Ada"}}}'

            async def post(given: str, content: bytes, method: str = "POST") -> int:
                headers = {SECRET_HEADER: given}
                return (await platform.hook(HookRequest(method, HOOK_PATH, {}, headers, content), inbox)).status

            assert await post("", body) == 403
            assert await post(secret[:-1] + "0", body) == 403
            assert await post(secret, b"{") == 400
            assert await post(secret, b"{}") == 400
            unreadable = {"message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "poll": OLD_POLL}
            assert await post(secret, msgspec.json.encode({"update_id": 4, "message": unreadable})) == 200
            assert await post(secret, body, "GET") == 405
            assert inbox.updates == []
            assert await post(secret, body) == 200
            inbox.closed = True
            assert await post(secret, body) == 503
            assert [update.sender for update in inbox.updates] == [Sender("7", "Ada")]


@pytest.mark.parametrize(
    ("webhook", "more", "mistake"),
    [
        (
            "http://bot.example.org/hook",
            "",
            "Telegram calls https:// addresses only; found 'http://bot.example.org/hook'",
        ),
        ("https://bot.example.org:9000/hook", "", "Telegram calls the ports 443, 80, 88, 8443 only; found 9000"),
        ("https://[::", "", "expected an address; found 'https://[::'"),
        ("https://bot.example.org:8443/hook", "", ""),
        ("http://10.0.0.5:9000/hook", ', base_url: "http://10.0.0.4:8081"', ""),
    ],
)
def test_a_webhook_that_telegram_would_not_call_is_refused_at_the_start(
    webhook: str, more: str, mistake: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(f'platforms: {{telegram: {{enabled: true, webhook_url: "{webhook}"{more}}}}}')
    config = load({"TELEGRAM_BOT_TOKEN": "42:x"}, tmp_path)
    if not mistake:
        assert make(config).hook_path == HOOK_PATH
        return
    with pytest.raises(ConfigError) as raised:
        make(config)
    assert str(raised.value) == f"platforms.telegram.webhook_url: {mistake}"
