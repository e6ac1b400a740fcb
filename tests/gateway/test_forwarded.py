"""What somebody forwards and what they say to it are one question, in whichever order their client sends them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gateway.fake_gateways import Town, town
from tailrace.events.speakers import SpokenBy, marked_message
from tailrace.gateway.deliveries import Deliveries
from tailrace.gateway.inbound.pastes import PASTE_GAP_S
from tailrace.messages import user
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, call, reply

THINKING = Scenario(reply=reply("Of what?"), headers_after_s=30.0)
LETTER = "[forwarded from Ben]\n> Meet at six."


async def forward(here: Town, text: str = LETTER) -> None:
    await here.write(text, at_limit=True, forwarded=True)


@pytest.mark.parametrize("more", ["", ", busy: queue"])
@driven
async def test_a_comment_and_what_is_forwarded_after_it_are_one_question(tmp_path: Path, more: str) -> None:
    async with town(tmp_path, reply("Hello."), THINKING, reply("At six."), reply("Yes."), more=more) as here:
        await here.write("Hi.")
        await asyncio.sleep(10)
        await here.write("When is that?")
        await asyncio.sleep(1)
        await forward(here)
        await asyncio.sleep(0.1)
        await forward(here, "[forwarded from Ben]\n> At Anna's.")
        await asyncio.sleep(20)
        joined = f"When is that?\n{LETTER}\n[forwarded from Ben]\n> At Anna's."
        assert here.said == ["Hi.", "Hello.", joined]
        assert here.chat.texts == ("Hello.", "At six."), "nothing of an answer to the comment alone"
        await here.write("Sure?")
        await asyncio.sleep(20)
        assert here.said == ["Hi.", "Hello.", joined, "At six.", "Sure?"]


@driven
async def test_a_first_comment_has_nothing_before_it(tmp_path: Path) -> None:
    async with town(tmp_path, THINKING, reply("At six.")) as here:
        await here.write("When is that?")
        await asyncio.sleep(1)
        await forward(here)
        await asyncio.sleep(20)
        assert here.said == [f"When is that?\n{LETTER}"]


@driven
async def test_a_comment_that_was_answered_already_stays_a_question_of_its_own(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Of what?"), reply("At six.")) as here:
        await here.write("When is that?")
        [run_id] = await here.runs()
        await here.app.agents.finished(run_id)
        await forward(here)
        await asyncio.sleep(20)
        assert here.said == ["When is that?", "Of what?", LETTER]


@driven
async def test_a_comment_that_a_tool_has_acted_on_stays_in_the_conversation(tmp_path: Path) -> None:
    acts = reply(call("write_file", {"path": "log.txt", "content": "one line"}))
    async with town(tmp_path, acts, THINKING, reply("Noted."), more="") as here:
        await here.write("Append a line, and note this:")
        await here.provider.request(1)
        await forward(here)
        await asyncio.sleep(20)
        asked = json.loads(here.provider.requests[-1].body)["messages"]
        assert [message["role"] for message in asked if message["role"] != "system"] == [
            *("user", "assistant", "tool", "user")
        ], "what was done is known, and not done again"
        assert asked[-1]["content"] == LETTER


@pytest.mark.parametrize("more", ["", ", busy: queue"])
@driven
async def test_what_somebody_else_asked_in_between_stays_in_the_conversation(tmp_path: Path, more: str) -> None:
    script = (THINKING, reply("Paris."), reply("At six."), reply("Yes."))
    async with town(tmp_path, *script, more=more) as here:
        await here.write("When is that?", kind="group")
        await asyncio.sleep(0.3)
        await here.write("Capital of France?", kind="group", user="2")
        await asyncio.sleep(0.3)
        await here.write(LETTER, kind="group", at_limit=True, forwarded=True)
        await asyncio.sleep(60)
        assert any("Capital of France?" in text for text in here.said)


@driven
async def test_one_more_that_is_forwarded_does_not_repeat_the_comment(tmp_path: Path) -> None:
    async with town(tmp_path, THINKING, THINKING, reply("At six.")) as here:
        await here.write("When is that?")
        await asyncio.sleep(0.3)
        await here.write(LETTER, forwarded=True)
        await asyncio.sleep(1)
        await here.write("[forwarded from Ben]\n> At Anna's.", forwarded=True)
        await asyncio.sleep(20)
        assert sum("When is that?" in text for text in here.said) == 1


@driven
async def test_what_is_forwarded_later_is_a_question_of_its_own(tmp_path: Path) -> None:
    async with town(tmp_path, THINKING, reply("At six.")) as here:
        await here.write("When is that?")
        await asyncio.sleep(PASTE_GAP_S + 0.1)
        await forward(here)
        await asyncio.sleep(20)
        assert here.said == ["When is that?", LETTER]


@driven
async def test_two_messages_of_which_none_is_forwarded_are_two_questions(tmp_path: Path) -> None:
    async with town(tmp_path, THINKING, reply("Both.")) as here:
        await here.write("When is that?")
        await asyncio.sleep(1)
        await here.write("And where?")
        await asyncio.sleep(20)
        assert here.said == ["When is that?", "And where?"]


@driven
async def test_a_comment_after_what_is_forwarded_is_one_question_with_it(tmp_path: Path) -> None:
    async with town(tmp_path, reply("At six.")) as here:
        await forward(here)
        await asyncio.sleep(0.3)
        await here.write("When is that?")
        await asyncio.sleep(20)
        assert here.said == [f"{LETTER}\nWhen is that?"]
        assert len(await here.runs()) == 1


@pytest.mark.parametrize("comment_first", [True, False])
@driven
async def test_in_a_group_the_comment_alone_names_the_bot(tmp_path: Path, comment_first: bool) -> None:
    script = [THINKING, reply("At six.")] if comment_first else [reply("At six.")]
    async with town(tmp_path, *script) as here:
        if comment_first:
            await here.write("When is that?", kind="group")
            await asyncio.sleep(1)
        await here.write(LETTER, kind="group", addressed=False, at_limit=True, forwarded=True)
        if not comment_first:
            await here.write("Hm.", kind="group", addressed=False, user="2")
            await here.write("When is that?", kind="group")
        await asyncio.sleep(20)
        joined = f"When is that?\n{LETTER}" if comment_first else f"{LETTER}\nWhen is that?"
        assert here.said == [marked_message(user(joined), SpokenBy("1", "user 1")).text]


@driven
async def test_what_is_forwarded_in_a_group_is_not_heard_without_a_comment_to_the_bot_soon(tmp_path: Path) -> None:
    async with town(tmp_path, reply("When is what?")) as here:
        await here.write(LETTER, kind="group", addressed=False, at_limit=True, forwarded=True)
        await asyncio.sleep(PASTE_GAP_S + 0.1)
        assert await here.runs() == []
        await here.write("When is that?", kind="group")
        await asyncio.sleep(20)
        assert here.said == ['[from 1 "user 1"]\n| When is that?']


@driven
async def test_a_comment_and_a_forwarded_message_cancelled_while_shown_are_one_question_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town(tmp_path, THINKING, reply("At six.")) as here:
        await here.write("When is that?")
        await asyncio.sleep(1)
        deliver, stuck = Deliveries.deliver, asyncio.Event()

        async def hang(*_: object, **__: object) -> None:
            stuck.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(Deliveries, "deliver", hang)
        forwarding = asyncio.ensure_future(here.write(LETTER, forwarded=True))
        await stuck.wait()
        monkeypatch.setattr(Deliveries, "deliver", deliver)
        forwarding.cancel()
        await asyncio.sleep(20)
        assert here.said == [f"When is that?\n{LETTER}"]
        assert here.chat.texts == ("At six.",)
