"""What a person forwards and says to it reaches the model, in whichever order their client sends them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.fake_gateways import Town, town
from tailrace.gateway.inbound.pastes import PASTE_GAP_S
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, reply

THINKING = Scenario(reply=reply("Of what?"), headers_after_s=30.0)
LETTER = "[forwarded from Ben]\n> Meet at six."


async def forward(here: Town, text: str = LETTER) -> None:
    await here.write(text, at_limit=True)


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


@driven
async def test_what_is_forwarded_in_a_group_without_a_mention_is_not_heard(tmp_path: Path) -> None:
    async with town(tmp_path, reply("When is what?")) as here:
        await here.write(LETTER, kind="group", addressed=False, at_limit=True)
        await asyncio.sleep(PASTE_GAP_S + 0.1)
        assert await here.runs() == []
        await here.write("When is that?", kind="group")
        await asyncio.sleep(20)
        assert here.said == ['[from 1 "user 1"]\n| When is that?']
