"""Commands in a chat: what stops, what begins anew, and what is switched, with the words that confirm it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from proof.memory_platform import MemoryPlatform

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import LONG, SLOW, asked_of_model, town
from tailrace.agent.session import TURN_KIND
from tailrace.app.slash_commands import CHAT_COMMANDS
from tailrace.delivery.port import Capabilities, Failed, Place, Sender, StopPressed, Window
from tailrace.delivery.text.split import CURSOR
from tailrace.testing.clock import driven
from tailrace.testing.provider import call, reply

ANEW = "A new conversation begins."
ANEW_STOPPED = f"{ANEW} The answer under way was stopped."


@driven
async def test_every_command_of_the_table_is_answered(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        for number, name in enumerate(CHAT_COMMANDS, 1):
            await here.write(f"/{name}")
            await asyncio.sleep(5)
            assert len(here.chat.texts) == number, name
        assert not any(text.startswith("⚠️ Something") for text in here.chat.texts)


@driven
async def test_cost_says_what_the_conversation_of_this_chat_has_used(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Four.")) as here:
        await here.write("/cost")
        await here.write("Two and two?")
        await asyncio.sleep(2)
        await here.write("/cost")
        await asyncio.sleep(2)
        before, _, after = here.chat.texts[-3:]
        assert "nothing yet" in before
        assert "1 call · " in after


@driven
async def test_status_says_what_runs_and_how_many_wait(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, SLOW, SLOW, more=", busy: queue") as here:
        await here.write("Count.")
        await asyncio.sleep(2)
        [first] = await here.app.journal.runs(kind=TURN_KIND)
        await here.write("And then?")
        await here.write("And then?")
        await here.write("/status")
        await asyncio.sleep(2)
        assert here.chat.texts[-1].endswith(f"- running: {first.id}\n- waiting: 2")


@driven
@pytest.mark.parametrize(
    ("command", "waiting", "told"),
    [
        ("/stop", 1, "⏹ Stopped. The question that waited is not answered either."),
        ("/stop", 2, "⏹ Stopped. The 2 questions that waited are not answered either."),
        ("/new", 1, f"{ANEW_STOPPED} The question that waited is not answered either."),
    ],
)
async def test_questions_that_are_dropped_with_the_one_that_ran_are_told(
    tmp_path: Path, command: str, waiting: int, told: str
) -> None:
    async with town(tmp_path, SLOW, SLOW, SLOW, more=", busy: queue") as here:
        await here.write("Count.")
        await asyncio.sleep(2)
        for _ in range(waiting):
            await here.write("And then?")
        await here.write(command)
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == told


@driven
async def test_stop_stops_and_says_so(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        await here.write("/stop@our_bot", kind="private")
        await asyncio.sleep(20)
        assert [text for text in here.chat.texts if text in LONG] != []
        assert "⏹ Stopped." in here.chat.texts
        assert not any(CURSOR in text for text in here.chat.texts)
        await here.write("/stop")
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == "Nothing is running."


@pytest.mark.parametrize(("command", "told"), [("/stop", "⏹ Stopped."), ("/new", ANEW_STOPPED)])
@driven
async def test_what_there_is_of_an_answer_stands_above_the_word_that_it_was_stopped(
    tmp_path: Path, command: str, told: str
) -> None:
    """Where nothing is shown before it is whole, too."""
    async with town(tmp_path, SLOW, capabilities=Capabilities(windows=(Window(1, 3.0),))) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        await here.write(command)
        await asyncio.sleep(30)
        partial, last = here.chat.texts
        assert LONG.startswith(partial)
        assert last == told


@driven
async def test_a_stop_is_confirmed_though_its_answer_cannot_be_shown(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW, capabilities=Capabilities(windows=(Window(1, 3.0),))) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        here.platform.fault = lambda _, action: Failed("away") if "word" in getattr(action, "text", "") else None
        await here.write("/stop")
        await asyncio.sleep(20)
        assert here.chat.texts == ("⏹ Stopped.",)


@driven
async def test_the_platforms_own_stop_button_stops_too(tmp_path: Path) -> None:
    async with town(tmp_path, SLOW) as here:
        await here.write("Count.")
        await asyncio.sleep(6)
        await here.platform.receive(StopPressed("s1", Place("telegram", "42"), Sender("1")))
        await asyncio.sleep(20)
        [run] = await here.app.journal.runs(kind="agent")
        assert run.state == "stopped"


@driven
async def test_new_begins_a_conversation_that_knows_nothing_of_the_last(tmp_path: Path) -> None:
    async with town(tmp_path, reply("One."), reply("Two."), reply("Three.")) as here:
        await here.write("first")
        await asyncio.sleep(10)
        await here.write("second")
        await asyncio.sleep(10)
        assert len(asked_of_model(here)) == 3
        await here.write("/new")
        await here.write("third")
        await asyncio.sleep(10)
        assert [message["content"] for message in asked_of_model(here)] == ["third"]


@driven
async def test_new_with_a_question_begins_with_that_question(tmp_path: Path) -> None:
    async with town(tmp_path, reply("One."), reply("Two.")) as here:
        await here.write("first")
        await asyncio.sleep(10)
        await here.write("/new second")
        await asyncio.sleep(10)
        assert [message["content"] for message in asked_of_model(here)] == ["second"]
        assert here.chat.texts == ("One.", ANEW, "Two.")


@driven
async def test_the_way_back_to_the_configured_model_is_told_and_works(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        for text in (
            "/model faulty/other",
            "/model",
            "/model default",
            "/model",
            "/model tailrace",
            "/model faulty/a b",
        ):
            await here.write(text)
            await asyncio.sleep(5)
        _, shown, back, again, bare, blank = here.chat.texts
    assert shown == "The model is `faulty/other`. /model default goes back to `faulty/ok`."
    assert back == "The model is `faulty/ok` from now on."
    assert again == "The model is `faulty/ok`."
    assert bare == blank == "⚠️ Write /model <provider>/<model>; /model default goes back to `faulty/ok`."


@driven
async def test_switches_are_shown_and_changed(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        for text in ("/model", "/model nowhere/x", "/model faulty/other", "/yolo on", "/status", "/help"):
            await here.write(text)
            await asyncio.sleep(5)
        model, wrong, changed, yolo, status, usage = here.chat.texts
        assert model == "The model is `faulty/ok`."
        assert "no such provider" in wrong
        assert changed == "The model is `faulty/other` from now on."
        assert "without asking" in yolo
        assert "faulty/other" in status
        assert "approvals: off" in status
        assert "/approve" in usage


@driven
async def test_a_switch_that_is_told_on_or_off_is_never_reversed(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        for text in ("/yolo off", "/yolo", "/yolo on", "/yolo ON", "/yolo", "/yolo maybe", "/status"):
            await here.write(text)
            await asyncio.sleep(5)
        off, still_off, on, again, still_on, unclear, status = here.chat.texts
    assert off == still_off == "Dangerous commands ask, from the next one on. /yolo on ends that."
    assert on == again == still_on
    assert "without asking" in on
    assert unclear == "/yolo, /yolo on or /yolo off."
    assert "approvals: off" in status


@driven
async def test_tools_are_shown_in_full_until_that_is_switched_off(tmp_path: Path) -> None:
    listing = reply(call("terminal", {"command": "ls"}))
    async with town(tmp_path, listing, reply("One."), listing, reply("Two.")) as here:
        for text in ("/verbose", "look", "/verbose maybe", "/verbose off", "look again"):
            await here.write(text)
            await asyncio.sleep(10)
        on, full, one, unclear, off, brief, two = here.chat.texts
    assert on == "Tools are shown in full from now on."
    assert "command: ls" in full
    assert unclear == "/verbose, /verbose on or /verbose off."
    assert off == "Tools are no longer shown in full."
    assert "terminal" in brief
    assert "command: ls" not in brief
    assert (one, two) == ("One.", "Two.")


async def test_switches_are_kept_after_a_restart(tmp_path: Path) -> None:
    platform = MemoryPlatform(EDITING)
    for text in ("/model faulty/other", "/model"):
        async with town(tmp_path, store="sqlite:///t.db", platform=platform) as here:
            await here.write(text)
            here.gateway.take_no_more()
    assert platform.chat("42").texts == (
        "The model is `faulty/other` from now on.",
        "The model is `faulty/other`. /model default goes back to `faulty/ok`.",
    )
