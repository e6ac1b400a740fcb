"""Who looks at a run reads that its answer is not in its chat, in which one, and why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from proof.memory_platform import Fault, MemoryPlatform

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import Town, town
from gateway.run_deliveries import undelivered_words
from tailrace.agent.turn_spec import TurnSpec
from tailrace.delivery.port import AnyAction, Failed, Gone, MessageReceived, Place, Refused, Send, Sender, Unknown
from tailrace.messages import Message, Text
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply


async def words_for(here: Town, chat: str) -> str:
    runs = await here.app.journal.runs(session=f"telegram:{chat}", kind="agent")
    return await undelivered_words(here.app.journal, runs[0])


async def ask(here: Town, chat: str) -> None:
    update_id = f"u{next(here.updates)}"
    await here.platform.receive(MessageReceived(update_id, Place("telegram", chat), Sender("1"), "Hello.", (), True))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            Gone("chat"),
            "not delivered to telegram 42: the chat is gone (deleted or archived, or the bot was put out of it)",
        ),
        (Refused("no rights"), "not delivered to telegram 42: a part could not be shown: no rights"),
        (Failed("the token was refused", needs_operator=True), "not delivered to telegram 42 yet"),
        (Unknown(), "no reply came to a message in telegram 42: it may be missing there"),
        (None, ""),
    ],
)
def test_an_answer_that_is_not_in_its_chat_is_told_with_the_place_and_the_reason(
    tmp_path: Path, fault: Fault, told: str
) -> None:
    def fails(place: Place, action: AnyAction) -> Fault:
        return fault if place.chat == "42" and isinstance(action, Send) else None

    @driven
    async def scenario() -> None:
        platform = MemoryPlatform(EDITING, fault=fails)
        replies = [reply(f"Answer {number}.") for number in range(5)]
        async with town(tmp_path, *replies, platform=platform, streaming=False, drain_s=0.1) as here:
            for chat in ("1", "42", "2"):
                await ask(here, chat)
            await asyncio.sleep(300)
            assert [await words_for(here, chat) for chat in ("1", "42", "2")] == ["", told, ""]

    scenario()


@driven
async def test_a_run_that_is_shown_in_no_chat_has_nothing_to_tell(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Answer 1."), reply("Answer 2."), reply("Answer 3.")) as here:
        asked = TurnSpec(Message("user", (Text("Hello."),)))
        before = await here.app.agents.submit(asked, session="page-1")
        await here.app.agents.finished(before.id)
        await here.write("Hello.")
        await asyncio.sleep(20)
        after = await here.app.agents.submit(asked, session="page-1")
        await here.app.agents.finished(after.id)
        [delivery] = await here.app.journal.runs(kind="delivery")
        runs = [await here.app.journal.get(run.id) for run in (before, after, delivery)]
        assert [await undelivered_words(here.app.journal, run) for run in runs] == ["", "", ""]
