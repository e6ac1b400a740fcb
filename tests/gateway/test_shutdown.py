"""While a gateway ends it still listens: answers come to their end, now or after the restart, and wait for people."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from proof.memory_platform import MemoryPlatform

from delivery.planning.played_plans import EDITING
from gateway.fake_gateways import DANGEROUS, LONG, SLOW, Town, town
from tailrace.delivery.port import Capabilities, Window
from tailrace.events import ApprovalAsked
from tailrace.gateway.inbound import pastes
from tailrace.journal.fold import DELIVERY
from tailrace.ports import ENDED, Run
from tailrace.runs.recovery import finished as delivered
from tailrace.testing.clock import driven
from tailrace.testing.provider import Scenario, call, reply, scenario

WHOLE = "The mill wheel turns, and the tailrace carries the water on. Nothing is lost on the way."


async def approval_of(here: Town, run_id: str) -> ApprovalAsked:
    asked = [entry.event for entry in await here.app.journal.read(run_id) if isinstance(entry.event, ApprovalAsked)]
    assert len(asked) == 1, "it was put once"
    return asked[0]


async def until_delivered(here: Town) -> None:
    for delivery in await here.app.journal.runs(kind=DELIVERY):
        await delivered(here.app.journal, delivery.id)


async def test_a_question_while_it_ends_is_told_so_and_answered_by_the_next_process(tmp_path: Path) -> None:
    platform, store = MemoryPlatform(EDITING), "sqlite:///t.db"
    async with town(tmp_path, store=store, platform=platform) as here:
        here.gateway.take_no_more()
        await here.write("Are you there?", update_id="77")
        await here.write("Are you there?", update_id="77")
        assert here.provider.requests == []
    assert platform.chat("42").texts == ("⏸ Restarting; this goes on afterwards.",)
    async with town(tmp_path, reply("Here."), store=store, platform=platform) as here:
        await until_delivered(here)
        assert len(await here.runs()) == 1
    assert platform.chat("42").texts == ("Here.",)


async def test_yolo_ends_with_its_process_also_for_what_was_asked_at_its_end(tmp_path: Path) -> None:
    platform, store = MemoryPlatform(EDITING), "sqlite:///t.db"
    async with town(tmp_path, store=store, platform=platform) as here:
        await here.write("/yolo on")
        here.gateway.take_no_more()
        await here.write("Clean up.")
        [run] = await here.app.journal.runs(kind="agent")
        assert not run.new.input.get("yolo")


async def test_a_question_while_it_ends_cuts_no_answer_that_has_the_time_to_end(tmp_path: Path) -> None:
    platform, store = MemoryPlatform(EDITING), "sqlite:///t.db"
    slow = Scenario(reply=reply("The first answer, ", "to its end."), pace_s=0.5)
    async with town(tmp_path, slow, store=store, platform=platform) as here:
        await here.write("One?")
        await here.provider.request(0)
        here.gateway.take_no_more()
        await here.write("Two?")
    told = "⏸ Restarting; this goes on afterwards."
    assert sorted(platform.chat("42").texts) == ["The first answer, to its end.", told]
    async with town(tmp_path, reply("The second."), store=store, platform=platform) as here:
        await until_delivered(here)
    assert platform.chat("42").texts == ("The first answer, to its end.", "The second.")


@driven
async def test_where_nothing_is_kept_a_question_is_to_be_asked_again(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        here.gateway.take_no_more()
        await here.write("Are you there?")
        await asyncio.sleep(5)
        assert here.chat.texts == ("⏸ Restarting; please ask this again afterwards.",)
        assert await here.runs() == []


@driven
async def test_a_question_that_begins_a_new_conversation_is_to_be_asked_again_too(tmp_path: Path) -> None:
    """Where a platform takes two messages of one key for one, as Matrix and Discord do."""
    async with town(tmp_path, capabilities=replace(EDITING, resend="idempotent")) as here:
        here.gateway.take_no_more()
        await here.write("/new Are you there?")
        await asyncio.sleep(5)
        told = ["A new conversation begins.", "⏸ Restarting; please ask this again afterwards."]
        assert sorted(here.chat.texts) == sorted(told)


@driven
async def test_a_question_of_another_leaves_the_commands_heard_that_an_answer_waits_for(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done.")) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        leaving = asyncio.ensure_future(here.gateway.__aexit__(None, None, None))
        await asyncio.sleep(1)
        await here.write("And this?", user="2")
        await asyncio.sleep(1)
        async with asyncio.timeout(5):
            await here.write("/approve")
        await leaving
        assert here.chat.texts[-1] == "Done."
        assert "⏸ Restarting; please ask this again afterwards." in here.chat.texts


@pytest.mark.parametrize(("command", "told"), [("/deny", "🚫 Denied"), ("/stop", "⏹ Stopped.")])
@driven
async def test_deny_and_stop_end_what_is_waited_for(tmp_path: Path, command: str, told: str) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done."), drain_s=600) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        began = asyncio.get_running_loop().time()
        leaving = asyncio.ensure_future(here.gateway.__aexit__(None, None, None))
        await asyncio.sleep(1)
        async with asyncio.timeout(5):
            await here.write(command)
        await leaving
        assert any(text.endswith(told) for text in here.chat.texts)
        assert asyncio.get_running_loop().time() - began < 50, "before the question would have lapsed"


@pytest.mark.parametrize("answer", ["button", "command"])
async def test_a_question_to_a_person_is_not_waited_for_and_is_answered_after_the_restart(
    tmp_path: Path, answer: str
) -> None:
    platform, store = MemoryPlatform(EDITING), "sqlite:///t.db"
    command = "rm -rf build; echo ran >> ran.txt"
    script = reply(call("terminal", {"command": command}))
    async with town(tmp_path, script, store=store, platform=platform, drain_s=600) as here, asyncio.timeout(60):
        await here.write("Clean up.")
        await platform.first_message.wait()
        assert "rm -rf build" in platform.chat("42").texts[0]
        await here.gateway.hand_over()
        await here.app.hand_over()
        await here.gateway.drain()
        [run] = await here.app.journal.runs(kind="agent")
        [delivery] = await here.app.journal.runs(kind=DELIVERY)
        assert (run.owner, run.state in ENDED, delivery.owner) == ("", False, "")
    assert platform.chat("42").texts[-1] == "⏸ Restarting; this goes on afterwards."
    async with town(tmp_path, reply("Done."), store=store, platform=platform) as here, asyncio.timeout(60):
        asked = await approval_of(here, run.id)
        await (here.write("/approve") if answer == "command" else here.press(f"{asked.approval_id}:once"))
        await until_delivered(here)
    assert platform.chat("42").texts[-1] == "Done."
    assert not any("Restarting" in text for text in platform.chat("42").texts)
    assert (tmp_path / "ran.txt").read_text() == "ran\n"


@pytest.mark.parametrize("shown", ["ok+cut@50%", "status-503"])
async def test_an_answer_that_a_failing_provider_cuts_says_so_at_once_and_goes_on_afterwards(
    tmp_path: Path, shown: str
) -> None:
    platform, store = MemoryPlatform(EDITING), "sqlite:///t.db"
    script: list[str | Scenario] = [replace(scenario(shown), headers_after_s=0.5), *[shown] * 4]
    async with town(tmp_path, *script, store=store, platform=platform, drain_s=600) as here, asyncio.timeout(30):
        await here.write("Tell me.")
        await here.provider.request(0)
        await here.gateway.hand_over()
        await here.app.hand_over()
        await here.gateway.drain()
        [run] = await here.app.journal.runs(kind="agent")
        [delivery] = await here.app.journal.runs(kind=DELIVERY)
        assert (run.owner, run.state in ENDED, delivery.owner) == ("", False, "")
    assert platform.chat("42").texts[-1].endswith("; this goes on afterwards.")
    async with town(tmp_path, "ok", store=store, platform=platform) as here, asyncio.timeout(60):
        await until_delivered(here)
    assert platform.chat("42").texts == (WHOLE,)


async def test_a_paste_whose_run_was_just_being_begun_is_answered_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pastes, "PASTE_GAP_S", 0.0)
    platform, store = MemoryPlatform(EDITING), "sqlite:///t.db"
    async with town(tmp_path, store=store, platform=platform, drain_s=0.05) as here:
        begun, submit = asyncio.Event(), here.app.agents.submit

        async def stuck(*_: object, **__: object) -> Run:
            begun.set()
            monkeypatch.setattr(here.app.agents, "submit", submit)
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(here.app.agents, "submit", stuck)
        await here.write("a" * 4096, at_limit=True)
        await begun.wait()
    assert platform.chat("42").texts == ("⏸ Restarting; this goes on afterwards.",)
    async with town(tmp_path, reply("Read."), store=store, platform=platform) as here:
        await until_delivered(here)
        assert len(await here.runs()) == 1
    assert platform.chat("42").texts == ("Read.",)


@driven
async def test_a_shutdown_lets_answers_come_to_their_end(tmp_path: Path) -> None:
    platform = MemoryPlatform(EDITING)
    async with town(tmp_path, SLOW, platform=platform) as here:
        await here.write("Count.")
        await asyncio.sleep(3)
    assert platform.chat("42").texts == (LONG,)


async def test_what_a_shutdown_cuts_says_so_and_goes_on_after_the_restart(tmp_path: Path) -> None:
    platform = MemoryPlatform(Capabilities(mode="edit", edits=True, windows=(Window(100, 1.0),), edit_interval_s=0.01))
    slow = Scenario(reply=reply(LONG), pace_s=0.05)
    async with town(tmp_path, slow, store="sqlite:///t.db", drain_s=0.1, platform=platform) as here:
        await here.write("Count.")
        await here.platform.first_message.wait()
    [shown] = platform.chat("42").texts
    assert "Interrupted by a restart" in shown
    async with town(tmp_path, reply("and so on."), store="sqlite:///t.db", platform=platform) as here:
        [run_id] = await here.runs()
        finished = await here.app.agents.finished(run_id)
        for delivery in await here.app.journal.runs(kind=DELIVERY):
            await delivered(here.app.journal, delivery.id)
    assert platform.chat("42").texts == (finished.output,)
    assert finished.output.startswith("word0 word1")
    assert len(platform.chat("42").messages) == 1


@driven
async def test_while_it_ends_a_button_lets_the_answer_end_that_waits_for_it(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done.")) as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        question = next(message for message in here.chat.visible if message.buttons)
        here.gateway.take_no_more()
        await here.press(question.buttons[0].value)
        await asyncio.sleep(5)
        assert here.chat.texts[-1] == "Done."
