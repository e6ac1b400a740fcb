"""A question for approval in a chat: who may answer it, in which words, and what it is not answered by."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.fake_gateways import DANGEROUS, town
from tailrace.delivery.port import Capabilities, Window
from tailrace.events import ApprovalAnswered
from tailrace.testing.clock import driven
from tailrace.testing.provider import call, reply


@driven
async def test_J110_an_approval_is_asked_in_the_chat_and_bound_to_whoever_asked(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done.")) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        question = next(message for message in here.chat.visible if message.buttons)
        assert "rm -rf build" in question.text
        await here.press(question.buttons[0].value, user="2")
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == "Only user 1 may answer that question. It stays open."
        assert question.buttons != ()
        await here.press(question.buttons[-1].value, user="1")
        await asyncio.sleep(20)
        assert question.text.endswith("🚫 Denied")
        assert question.buttons == ()
        assert here.chat.texts[-1] == "Done."
        [run_id] = await here.runs()
        facts = [entry.event for entry in await here.app.journal.facts(run_id)]
        [answered] = [fact for fact in facts if isinstance(fact, ApprovalAnswered)]
        assert (answered.decision, answered.by) == ("deny", "telegram:1")


@driven
async def test_an_approval_can_be_answered_by_command(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done."), capabilities=Capabilities(windows=(Window(1, 1.0),))) as here:
        await here.write("/approve")
        await asyncio.sleep(3)
        assert here.chat.messages[-1].text == "There is nothing to approve."
        await here.write("Clean up.")
        await asyncio.sleep(5)
        assert here.chat.texts[-1].endswith("or /deny.")
        await here.write("/approve once")
        await asyncio.sleep(20)
        assert here.chat.texts[-1] == "Done."


@driven
async def test_a_mistyped_command_is_no_question_and_leaves_the_open_one_alone(tmp_path: Path) -> None:
    script = [reply("Cleaning.", call("terminal", {"command": "rm -rf build"})), reply("It is gone.")]
    async with town(tmp_path, *script) as here:
        await here.write("Clean up.")
        await asyncio.sleep(30)
        await here.write("/aprove")
        await asyncio.sleep(10)
        assert here.chat.texts[-1] == "There is no such command. Did you mean /approve? See /help."
        await here.write("/approve")
        await asyncio.sleep(30)
        assert here.chat.texts[-1] == "It is gone."
        assert len(await here.runs()) == 1


@driven
async def test_in_a_group_a_mistyped_command_for_the_bot_leaves_the_open_question_alone(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("It is gone."), reply("Not mine.")) as here:
        await here.write("Clean up.", kind="group")
        await asyncio.sleep(30)
        await here.write("/aprove", kind="group")
        await here.write("/undo", kind="group")
        await here.write("/weather", kind="group", addressed=False)  # another bot's
        await asyncio.sleep(10)
        suggested = "There is no such command. Did you mean /approve? See /help."
        assert here.chat.texts[-2:] == (suggested, "There is no such command. See /help.")
        await here.write("/approve", kind="group")
        await asyncio.sleep(30)
        assert here.chat.texts[-1] == "It is gone."
        assert len(await here.runs()) == 1


@driven
async def test_where_all_is_answered_a_mistyped_command_is_told_too(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("It is gone."), more=", respond: all") as here:
        await here.write("Clean up.", kind="group", addressed=False)
        await asyncio.sleep(30)
        await here.write("/aprove", kind="group", addressed=False)
        await asyncio.sleep(10)
        assert here.chat.texts[-1] == "There is no such command. Did you mean /approve? See /help."
        assert len(await here.runs()) == 1


@driven
async def test_a_plain_yes_leaves_the_open_question_open_and_is_told_how_to_answer(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("It is gone."), reply("Yes what?")) as here:
        await here.write("Clean up.")
        await asyncio.sleep(30)
        for text in ("Yes!", "👍"):
            await here.write(text)
            await asyncio.sleep(10)
            assert here.chat.texts[-1] == "A question is open: answer it with /approve or /deny. See /help."
        await here.write("/approve")
        await asyncio.sleep(30)
        assert here.chat.texts[-1] == "It is gone."
        await here.write("yes")
        await asyncio.sleep(30)
        assert here.chat.texts[-1] == "Yes what?", "nothing is open: it is a message like any other"


@driven
async def test_a_message_that_comes_in_place_of_an_answer_is_said_to_have_ended_the_question(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Hello.")) as here:
        await here.write("Clean up.")
        await asyncio.sleep(30)
        await here.write("Something else.")
        await asyncio.sleep(30)
        [question] = [text for text in here.chat.texts if "rm -rf build" in text and "asks" in text]
        assert question.endswith("⌛ Not executed: another message came in place of an answer")


@driven
async def test_a_denial_by_command_says_why(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done.")) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        await here.write("/deny keep the build")
        await asyncio.sleep(20)
        assert any(text.endswith("🚫 Denied: `keep the build`") for text in here.chat.texts)


@driven
async def test_J108_an_approval_that_nobody_answers_is_denied(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done.")) as here:
        await here.write("Clean up.")
        await asyncio.sleep(890)
        assert not any("Not executed" in text for text in here.chat.texts)
        await asyncio.sleep(60)
        assert any("⌛ Not executed: no answer came within 900 s" in text for text in here.chat.texts)
