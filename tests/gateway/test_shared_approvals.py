"""A question for an approval in a shared chat: it says whose it is, and nobody else can answer or end it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from proof.memory_platform import MemoryPlatform, SeenMessage

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import DANGEROUS, Town, town
from tailrace.agent.turn_spec import TurnSpec
from tailrace.delivery.port import Sender
from tailrace.events import ApprovalAsked
from tailrace.messages import user
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply


def question_in(here: Town) -> SeenMessage:
    [question] = [message for message in here.chat.visible if message.buttons]
    return question


async def ask(here: Town, *, user: str = "1", name: str = "Anna") -> SeenMessage:
    await here.write("Clean up.", kind="group", user=user, name=name)
    await asyncio.sleep(5)
    return question_in(here)


@driven
async def test_a_question_says_for_whom_it_is_by_the_name_that_people_know(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS) as here:
        question = await ask(here, name="Anna\n*K.*")
        assert f"`in {tmp_path}, for Anna *K.*, session telegram:42`" in question.text
        [run_id] = await here.runs()
        facts = [entry.event for entry in await here.app.journal.facts(run_id)]
        [asked] = [fact for fact in facts if isinstance(fact, ApprovalAsked)]
        assert (asked.requester, asked.requester_name) == ("telegram:1", "Anna *K.*")


class Registry(MemoryPlatform):
    """Its updates have ids alone, as Slack's."""

    async def display_name(self, sender: Sender) -> str:
        return {"1": "Anna"}.get(sender.id, "")


@pytest.mark.parametrize(("asker", "who"), [("1", "Anna"), ("2", "the person who asked for it")])
@driven
async def test_the_platform_is_asked_for_a_name_that_is_not_known(tmp_path: Path, asker: str, who: str) -> None:
    platform = Registry(EDITING)
    async with town(tmp_path, DANGEROUS, platform=platform) as here:
        question = await ask(here, user=asker, name=" ")
        assert (f"for {who}" if asker == "1" else "for telegram:2") in question.text
        await here.press(question.buttons[0].value, user="2" if asker == "1" else "1")
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == f"Only {who} may answer that question. It stays open."


@pytest.mark.parametrize(("asker", "who"), [("1", "Anna"), ("2", "")])
@driven
async def test_a_question_in_private_has_the_name_on_record_for_the_page_and_the_terminal(
    tmp_path: Path, asker: str, who: str
) -> None:
    async with town(tmp_path, DANGEROUS, platform=Registry(EDITING)) as here:
        await here.write("Clean up.", user=asker, name=" ")
        await asyncio.sleep(5)
        [run_id] = await here.runs()
        facts = [entry.event for entry in await here.app.journal.facts(run_id)]
        [asked] = [fact for fact in facts if isinstance(fact, ApprovalAsked)]
        assert (asked.requester, asked.requester_name) == (f"telegram:{asker}", who)
        assert f"for {who or 'telegram:2'}" in question_in(here).text


@pytest.mark.parametrize("answer", ["a button", "/approve", "/deny", "yes", "👍"])
@driven
async def test_J110_somebody_else_is_told_who_alone_may_answer_and_the_question_stays_open(
    tmp_path: Path, answer: str
) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done.")) as here:
        question = await ask(here)
        if answer == "a button":
            await here.press(question.buttons[0].value, user="2")
        else:
            await here.write(answer, user="2", name="Ben", kind="group")
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == "Only Anna may answer that question. It stays open."
        assert question.buttons != ()
        await here.press(question.buttons[0].value, user="1")
        await asyncio.sleep(20)
        assert here.chat.texts[-1] == "Done."
        assert "Approved once" in question.text


@pytest.mark.parametrize(("sender", "whose"), [("1", "for your approval"), ("2", "for approval by Anna")])
@driven
async def test_the_status_says_whose_approval_is_waited_for(tmp_path: Path, sender: str, whose: str) -> None:
    async with town(tmp_path, DANGEROUS) as here:
        await ask(here)
        await here.write("/status", user=sender, kind="group")
        await asyncio.sleep(5)
        assert here.chat.texts[-1].splitlines()[-1] == f"- waiting {whose}: terminal"


@driven
async def test_what_somebody_else_asks_meanwhile_waits_and_ends_no_question(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("It is gone."), reply("Rain.")) as here:
        question = await ask(here)
        await here.write("What about the weather?", user="2", name="Ben", kind="group")
        await asyncio.sleep(10)
        assert here.chat.texts[-1] == "A question to Anna is open. I answer this after it."
        assert question.buttons != ()
        await here.press(question.buttons[0].value, user="1")
        await asyncio.sleep(30)
        assert "Approved once" in question.text
        assert sorted(here.chat.texts[-2:]) == ["It is gone.", "Rain."]
        assert b"It is gone." in here.provider.requests[-1].body, "it was answered first"


@driven
async def test_what_waits_is_answered_though_the_question_before_it_is_not(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Rain."), reply("Hello.")) as here:
        question = await ask(here)
        await here.write("What about the weather?", user="2", name="Ben", kind="group")
        await asyncio.sleep(10)
        await here.write("Something else.", name="Anna", kind="group")
        await asyncio.sleep(30)
        assert question.text.endswith("⌛ Not executed: another message came in place of an answer")
        runs = reversed(await here.app.journal.runs(kind="agent"))
        ends = [(run.finished.status, run.finished.output) for run in runs if run.finished is not None]
        assert ends[1:] == [("completed", "Rain."), ("completed", "Hello.")]


@driven
async def test_a_new_conversation_does_not_wait_for_the_question_that_it_has_ended(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Rain.")) as here:
        question = await ask(here)
        await here.write("/new What about the weather?", user="2", name="Ben", kind="group")
        [newest, _] = await here.app.journal.runs(kind="agent")
        await asyncio.sleep(30)
        assert question.buttons == ()
        assert newest.new.input.get("busy") != "queue"
        told, answer = sorted(here.chat.texts[-2:])
        assert told.startswith("A new conversation begins. The answer under way was")
        assert answer == "Rain."


@driven
async def test_who_asked_may_ask_something_else_in_place_of_an_answer(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Hello.")) as here:
        question = await ask(here)
        await here.write("Something else.", name="Anna", kind="group")
        await asyncio.sleep(30)
        assert question.text.endswith("⌛ Not executed: another message came in place of an answer")
        assert here.chat.texts[-1] == "Hello."


@driven
async def test_a_question_from_the_page_is_answered_there(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Hi."), DANGEROUS, reply("Done.")) as here:
        await here.write("Hello.", name="Anna", kind="group")
        await asyncio.sleep(10)
        spec = TurnSpec(user("Clean up."), requester="local", reachable=True)
        await here.app.agents.submit(spec, session="telegram:42")
        await asyncio.sleep(5)
        await here.write("/approve", name="Anna", kind="group")
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == "Only a person on the page may answer that question. It stays open."


@pytest.mark.parametrize("thread", ["", "t"])
@driven
async def test_a_mistyped_answer_in_a_shared_chat_is_told_and_does_not_end_what_asks(
    tmp_path: Path, thread: str
) -> None:
    platform = replace(EDITING, joins_threads=True)
    told = "There is no such command. Did you mean /approve? See /help."
    async with town(tmp_path, DANGEROUS, reply("So be it."), capabilities=platform) as here:
        await here.write("/aprove", kind="group", thread=thread, addressed=False)  # another bot's, perhaps
        await here.write("Clean up.", kind="group", thread=thread)
        await asyncio.sleep(5)
        await here.write("/aprove", kind="group", thread=thread, addressed=False)
        await asyncio.sleep(5)
        assert [message.text for message in here.chat.visible].count(told) == 1
        await here.write("/approve", kind="group", thread=thread)
        await asyncio.sleep(5)
        assert here.chat.visible[-1].text == "So be it."


@driven
async def test_a_mistyped_command_of_a_shared_chat_is_told_where_it_is_for_the_bot(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await here.write("/statsu", kind="group", addressed=False)
        await here.write("/statsu", kind="group")
        await asyncio.sleep(5)
        told = "There is no such command. Did you mean /status? See /help."
        assert [message.text for message in here.chat.visible] == [told]
