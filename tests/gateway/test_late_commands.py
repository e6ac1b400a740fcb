"""Commands that were typed while no process was there: what may mean something else by now is told, and not done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from proof.memory_platform import MemoryPlatform

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import DANGEROUS, Town, town
from tailrace.testing.clock import driven
from tailrace.testing.provider import call, reply

AWAY = "I was away when {} came, and have not carried it out. Send it again if it is still meant."


def texts(here: Town) -> list[str]:
    return [message.text for message in here.chat.visible]


@pytest.mark.parametrize("command", ["/yolo on", "/model faulty/ok"])
@driven
async def test_J110_a_late_command_that_changes_something_is_told_and_not_carried_out(
    tmp_path: Path, command: str
) -> None:
    async with town(tmp_path) as here:
        await here.write(command, late_s=60.0)
        await asyncio.sleep(5)
        assert texts(here) == [AWAY.format(command.partition(" ")[0])]


@driven
async def test_late_commands_that_allow_nothing_are_carried_out_and_a_question_is_answered(tmp_path: Path) -> None:
    async with town(tmp_path, reply("Here I am, and all is well.")) as here:
        for text in ("/stop", "/new", "/help", "are you there?"):
            await here.write(text, late_s=60.0)
            await asyncio.sleep(5)
        stopped, begun, commands, answer = texts(here)
        assert (stopped, begun, answer) == (
            "Nothing is running.",
            "A new conversation begins.",
            "Here I am, and all is well.",
        )
        assert commands.startswith("/new: begin")


async def asked(home: Path, here: Town) -> None:
    (home / "build").mkdir()
    await here.write("Clean up.")
    await asyncio.sleep(5)
    assert any("asks for approval" in text for text in texts(here))


@pytest.mark.parametrize(("command", "gone"), [("/approve", True), ("/deny", False)])
@driven
async def test_J110_a_late_answer_to_the_question_that_was_open_when_it_was_typed_is_taken(
    tmp_path: Path, command: str, gone: bool
) -> None:
    async with town(tmp_path, DANGEROUS, reply("So be it, then.")) as here:
        await asked(tmp_path, here)
        await here.write(command, late_s=1e-6)  # more than that passes between the question and this, on any clock
        for run_id in await here.runs():
            await here.app.agents.finished(run_id)
        await asyncio.sleep(5)
        assert (tmp_path / "build").exists() is not gone
        assert texts(here)[-1] == "So be it, then."


@pytest.mark.parametrize("late_s", [3600.0, 0.0])
@driven
async def test_J110_a_late_answer_is_not_taken_for_a_question_that_was_asked_later_or_nobody_knows_when(
    tmp_path: Path, late_s: float
) -> None:
    async with town(tmp_path, DANGEROUS, reply("So be it, then.")) as here:
        await asked(tmp_path, here)
        await here.write("/approve always", late_s=late_s)
        await asyncio.sleep(5)
        assert (tmp_path / "build").exists()
        assert texts(here)[-1] == AWAY.format("/approve")
        await here.write("/approve")
        for run_id in await here.runs():
            await here.app.agents.finished(run_id)
        assert not (tmp_path / "build").exists()


@driven
async def test_a_late_answer_where_nothing_is_open_any_more_says_that(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        await here.write("/approve", late_s=60.0)
        await asyncio.sleep(5)
        assert texts(here) == ["There is nothing to approve."]


@pytest.mark.parametrize("again", [False, True])
@driven
async def test_J110_an_approval_from_a_downtime_counts_for_the_question_that_was_open_then_alone(
    tmp_path: Path, again: bool
) -> None:
    platform, store = MemoryPlatform(EDITING), "sqlite:///t.db"
    async with town(tmp_path, DANGEROUS, store=store, platform=platform, drain_s=0.1) as here:
        await asked(tmp_path, here)
    later = reply(call("terminal", {"command": "rm -rf src"})) if again else reply("So be it, then.")
    async with town(tmp_path, later, reply("As you like."), store=store, platform=platform, drain_s=0.1) as here:
        (tmp_path / "src").mkdir()
        await here.write("/approve", late_s=1e-6)
        await asyncio.sleep(5)
        assert not (tmp_path / "build").exists()
        await here.write("/approve", late_s=3600.0)
        await asyncio.sleep(5)
        assert (tmp_path / "src").exists(), "a question that nobody had seen"
        assert texts(here)[-1] == (AWAY.format("/approve") if again else "There is nothing to approve.")
