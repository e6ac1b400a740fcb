"""The Telegram adapter through python-telegram-bot against the fake: each action and its reply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from proof.platforms.telegram import FakeTelegram, flood, refusal
from proof.platforms.telegram_chats import Styled, TelegramChat

from integrations.telegram.telegram_bot import ADA, GROUP, SEND, TOPIC, bot
from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Button,
    Delete,
    Draft,
    Edit,
    Failed,
    Flood,
    Gone,
    MarkupRejected,
    NotModified,
    Refused,
    Send,
    Sent,
    TooLong,
    Typing,
    Unknown,
)
from tailrace.errors import PlatformError
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault


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
