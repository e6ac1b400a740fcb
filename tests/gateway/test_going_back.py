"""`/new` and `/back`: the conversations of one chat, and the way between them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from proof.memory_platform import MemoryPlatform

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import Town, town
from tailrace.delivery.port import Capabilities
from tailrace.gateway.chat_settings import ChatSettings
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, call, reply, say

BACK_ALONE = "Back in the conversation that began with `{}`"
BACK = f"{BACK_ALONE}\n/back returns to the other one."
NONE = "There is no conversation before this one."
SLOW = Scenario(reply=reply(" ".join(f"word{number}" for number in range(60))), pace_s=0.2)


async def write(here: Town, *texts: str) -> str:
    """Each of them is answered before the next; the last line that the chat shows then."""
    for text in texts:
        await here.write(text)
        await asyncio.sleep(20)
    return here.chat.texts[-1]


@driven
async def test_back_returns_to_the_conversation_before_and_again_to_the_newer_one(tmp_path: Path) -> None:
    async with town(tmp_path, *(reply(f"Answer {number}.") for number in range(1, 5))) as here:
        await write(here, "Mills?", "/new", "Rivers?")
        assert here.said == ["Rivers?"]
        assert await write(here, "/back") == BACK.format("Mills?")
        await write(here, "More of it.")
        assert here.said == ["Mills?", "Answer 1.", "More of it."]
        assert await write(here, "/back") == BACK.format("Rivers?")
        await write(here, "More of it.")
        assert here.said == ["Rivers?", "Answer 2.", "More of it."]


@driven
async def test_a_new_conversation_after_going_back_is_none_that_there_was(tmp_path: Path) -> None:
    async with town(tmp_path, *(reply(f"Answer {number}.") for number in range(1, 4))) as here:
        await write(here, "Mills?", "/new", "Rivers?", "/back", "/new", "Lakes?")
        assert here.said == ["Lakes?"]
        assert await write(here, "/back") == BACK.format("Mills?"), "where /new was said"


@driven
async def test_a_conversation_in_which_nothing_was_said_is_passed_over(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Answer.")) as here:
        assert await write(here, "/back") == NONE
        assert await write(here, "/new") == "A new conversation begins."
        assert await write(here, "/back") == NONE
        await write(here, "Mills?", "/new", "/new")
        assert await write(here, "/back") == BACK_ALONE.format("Mills?")


@driven
async def test_back_with_a_question_asks_it_there_and_ends_what_runs(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Answer 1."), SLOW, reply("Answer 3.")) as here:
        await write(here, "Mills?", "/new")
        await here.write("Rivers?")
        await asyncio.sleep(3)
        await write(here, "/back And then?")
        told = f"{BACK.format('Mills?')} The answer under way was stopped."
        assert here.chat.texts[-2:] == (told, "Answer 3."), "the answer stands below the word about its conversation"
        assert here.said == ["Mills?", "Answer 1.", "And then?"]
        statuses = [(await here.app.agents.finished(run_id)).status for run_id in await here.runs()]
        assert statuses == ["completed", "stopped", "completed"]


@driven
async def test_the_answer_to_new_with_a_question_stands_below_the_word_about_it(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, reply("Answer 2.")) as here:
        await here.write("Rivers?")
        await asyncio.sleep(3)
        await write(here, "/new And mills?")
        told = "A new conversation begins. /back returns to the one before. The answer under way was stopped."
        assert here.chat.texts[-2:] == (told, "Answer 2.")


@driven
@pytest.mark.parametrize("command", ["/back", "/new"])
async def test_a_question_for_approval_in_a_conversation_that_is_left_is_withdrawn_and_said_so(
    tmp_path: Path, command: str
) -> None:
    asks = reply(say("I will."), call("terminal", {"command": "rm -rf build/"}))
    async with town(tmp_path, reply("Answer 1."), asks) as here:
        await write(here, "Mills?", "/new")
        await here.write("Clean up.")
        await asyncio.sleep(5)
        told = await write(here, command)
        question = here.chat.texts[-2]
    assert told.endswith(" The answer under way was stopped, and its question for approval is withdrawn.")
    assert question.endswith("Not executed: the run ended before an answer came")


@driven
async def test_everything_is_asked_for_again_after_going_back(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Answer 1."), reply("Answer 2.")) as here:
        await write(here, "Mills?", "/new", "Rivers?", "/yolo on")
        await write(here, "/back")
        assert "- approvals: on" in await write(here, "/status")
        await write(here, "/back")
        assert "- approvals: on" in await write(here, "/status")


@driven
async def test_where_every_question_has_a_thread_there_is_nothing_to_go_back_to(tmp_path: Path) -> None:
    threaded = msgspec.structs.replace(EDITING, threaded=True)
    async with town(tmp_path, capabilities=threaded) as here:
        assert await write(here, "/back") == "Here every question begins a conversation of its own."


@driven
async def test_G88_going_back_twice_by_one_update_after_a_death_is_going_back_once(tmp_path: Path) -> None:
    platform = MemoryPlatform(EDITING)
    async with town(tmp_path, reply("Answer 1."), store="sqlite:///t.db", platform=platform) as here:
        await write(here, "Mills?", "/new", "/new")
        await here.write("/back", update_id="u77")
        await asyncio.sleep(20)
    async with town(tmp_path, reply("Answer 2."), store="sqlite:///t.db", platform=platform) as here:
        await here.write("/back", update_id="u77")
        await asyncio.sleep(20)
        assert here.chat.texts[-1] == BACK_ALONE.format("Mills?")
        await here.write("More of it.", update_id="u78")
        await asyncio.sleep(20)
        assert here.said == ["Mills?", "Answer 1.", "More of it."]


@driven
async def test_G88_a_new_conversation_whose_question_comes_again_after_a_death_is_answered(
    tmp_path: Path,
) -> None:
    platform = MemoryPlatform(EDITING)
    async with town(tmp_path, Scenario(headers_after_s=600.0), store="sqlite:///t.db", platform=platform) as here:
        await here.write("/new What now?", update_id="u77")
        await asyncio.sleep(5)
    async with town(tmp_path, reply("This."), reply("This."), store="sqlite:///t.db", platform=platform) as here:
        await here.write("/new What now?", update_id="u77")
        await asyncio.sleep(60)
        assert here.chat.texts[-1] == "This."
        assert here.chat.texts.count("A new conversation begins.") == 1


def test_back_and_back_again_is_where_one_was_and_a_new_conversation_has_a_number_of_its_own() -> None:
    third = ChatSettings(generation=3, newest=3, before=2)
    assert third.gone_back("u1").gone_back("u2").generation == 3
    assert third.gone_back("u1").begun_anew("u2", is_empty=False).generation == 4


@pytest.mark.parametrize(("mark", "told"), [("/", "/back"), ("!", "!back")])
@driven
async def test_the_way_back_is_told_as_it_is_typed_there(tmp_path: Path, mark: str, told: str) -> None:
    capabilities: Capabilities = msgspec.structs.replace(EDITING, command_mark=mark)
    async with town(tmp_path, reply("Answer."), capabilities=capabilities) as here:
        assert await write(here, "Mills?", "/new") == f"A new conversation begins. {told} returns to the one before."
        assert f"\n{told}: return to the conversation before" in await write(here, "/help")
