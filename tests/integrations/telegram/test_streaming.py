"""An answer growing in Telegram: consumer, planner, adapter, client library and fake together, on a driven clock."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from proof.platforms.telegram import FakeTelegram, refusal
from proof.platforms.telegram_chats import TelegramChat, TelegramState

from integrations.telegram.telegram_bot import ADA, GROUP, TOPIC, bot
from tailrace.delivery.planning.presenter import CUT_OFF
from tailrace.events import MessageStop, ToolCallChunk, ToolCallFinished
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault, cut, silence
from tailrace.testing.platforms.played_runs import Scene, Timed, chunks, play, show

TEXT = " ".join(f"word{number}" for number in range(300))
CURSOR = "▌"


def grows(states: list[TelegramState]) -> bool:
    """Every state goes on from the one before it."""
    texts = [state.text.removesuffix(CURSOR).rstrip() for state in states]
    return all(later.startswith(earlier) for earlier, later in pairwise(texts))


@driven
async def test_in_a_private_chat_a_draft_grows_and_one_message_stays() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        await show(platform, ADA, TEXT)
        assert ada.texts == [TEXT]
        assert len(ada.answers[0].states) == 1
        assert len(ada.drafts[0].states) > 3
        assert grows(ada.drafts[0].states)
        assert not any(CURSOR in state.text for state in ada.drafts[0].states)
        assert ada.drafts[0].replaced_by == ada.answers[0].id
        assert all(call.status == 200 for call in telegram.calls)


@driven
async def test_a_tool_stands_between_what_was_said_before_and_after_it() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        before, after = "I will look at the files in that directory first. " * 3, "There are three of them. " * 20
        events = chunks(before, pace_s=0.3)
        events += [Timed(0.1, MessageStop()), Timed(0.1, ToolCallChunk("terminal", "ls -l", index=0))]
        events += [Timed(5.0, ToolCallFinished("terminal", 5.0, ok=True, index=0))]
        await play(platform, ADA, [*events, *chunks(after, pace_s=0.3)], after)
        first, tool, second = ada.answers
        assert (first.text, second.text) == (before.strip(), after.strip())
        assert [state.text.split()[0] for state in tool.states] == ["⏳", "✓"]
        assert ("code", "ls -l") in [(styled.kind, styled.text) for styled in tool.states[-1].styled]


@driven
async def test_without_streaming_there_is_typing_and_one_message() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        await show(platform, ADA, TEXT, streaming=False)
        assert (ada.texts, ada.drafts) == ([TEXT], [])
        assert len(ada.answers[0].states) == 1
        assert len(ada.typing) >= 2


@pytest.mark.parametrize("streaming", [True, False])
def test_every_address_of_an_answer_with_many_links_is_shown(streaming: bool) -> None:
    urls = [f"https://e.org/{number}" for number in range(150)]
    text = "\n".join(f"[{number}]({url})" for number, url in enumerate(urls))

    @driven
    async def scenario() -> None:
        async with FakeTelegram() as telegram, bot(telegram) as platform:
            ada = telegram.private(7)
            await show(platform, ADA, text, streaming=streaming)
            [answer] = ada.answers
            assert [styled.detail for styled in answer.state.styled] == urls[:100]
            assert all(f" ({url})" in answer.state.text for url in urls[100:]), "Telegram takes no more entities"

    assert len(text) < 4096
    scenario()


# ── bad days ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", [silence(), cut()], ids=["silence", "cut"])
def test_G80_a_first_partial_send_without_a_reply_leaves_one_final_message(fault: Fault) -> None:
    @driven
    async def scenario() -> None:
        async with FakeTelegram() as telegram, bot(telegram) as platform:
            group = telegram.group(-100)
            telegram.fail("sendMessage", fault)
            await show(platform, GROUP, TEXT)
            assert group.texts.count(TEXT) == 1
            assert len(group.texts) == 2  # and the stray beginning that nobody knew of

    scenario()


@driven
async def test_G80_a_process_that_dies_before_it_hears_of_its_send_does_not_send_again() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        telegram.fail("sendMessage", silence())
        scene = Scene(platform, ADA)
        await scene.run(chunks(TEXT, pace_s=0), TEXT)
        dying = asyncio.ensure_future(scene.deliver())
        await telegram.until(lambda: ada.texts == [TEXT])
        await die(dying)
        await scene.deliver()
        assert ada.texts == [TEXT, CUT_OFF]


@driven
async def test_G79_a_final_edit_that_was_made_before_a_death_is_not_modified_and_that_is_fine() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        group = telegram.group(-100)
        scene = Scene(platform, GROUP)
        await scene.start()
        dying = asyncio.ensure_future(scene.deliver())
        await scene.write(chunks(TEXT))
        telegram.fail("editMessageText", *[silence()] * 3)
        await scene.end(TEXT)
        await telegram.until(lambda: group.texts == [TEXT])
        await die(dying)
        telegram.recover()
        await scene.deliver()
        assert group.texts == [TEXT]
        assert (await scene.facts())[-1].state == "confirmed"
        assert telegram.called("editMessageText")[-1].status == 400


@driven
async def test_G83_refused_markup_is_shown_plain() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        text = "**bold** " + TEXT
        telegram.fail("sendMessage", refusal(400, "Bad Request: can't parse entities: nobody knows why"))
        await show(platform, ADA, text)
        assert ada.texts == [text]
        assert ada.answers[0].states[0].entities == ()


@driven
async def test_G85_a_topic_deleted_under_way_moves_the_answer_to_the_chat() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        forum = telegram.group(-200, topics=(11,))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(show(platform, TOPIC, TEXT, pace_s=0.5))
            await telegram.until(lambda: len(forum.answers) == 1 and len(forum.answers[0].states) == 3)
            delete_topic(forum, 11)
        assert {message.thread for message in forum.answers} == {0}
        assert [text == TEXT for text in forum.texts].count(True) == 1
        assert any("thread is gone" in text for text in forum.texts)


def delete_topic(chat: TelegramChat, topic: int) -> None:
    chat.topics.discard(topic)
    for message in chat.messages:
        message.deleted = message.deleted or message.thread == topic


@driven
async def test_a_server_without_drafts_gets_edits() -> None:
    async with FakeTelegram() as telegram, bot(telegram) as platform:
        ada = telegram.private(7)
        telegram.fail("sendMessageDraft", *[refusal(404, "Not Found")] * 50)
        await show(platform, ADA, TEXT)
        [message] = ada.answers
        assert message.text == TEXT
        assert len(message.states) > 3
        assert len(telegram.called("sendMessageDraft")) == 1


async def die(delivery: asyncio.Future[None]) -> None:
    delivery.cancel()
    await asyncio.wait([delivery])
