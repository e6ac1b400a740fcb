"""Chats that are named in `approvals.notify` are asked about runs that began elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.fake_gateways import DANGEROUS, Town, town
from tailrace.agent.turn_spec import TurnSpec
from tailrace.app import open_app
from tailrace.config.load import load
from tailrace.errors import ConfigError
from tailrace.events import ApprovalAnswered
from tailrace.messages import user
from tailrace.testing.clock import driven
from tailrace.testing.provider import reply


async def begin(here: Town, *, requester: str = "app") -> str:
    spec = TurnSpec(user("Clean up."), requester=requester, reachable=True)
    return (await here.app.agents.submit(spec)).id


async def answers(here: Town, run_id: str) -> list[ApprovalAnswered]:
    facts = await here.app.journal.facts(run_id)
    return [entry.event for entry in facts if isinstance(entry.event, ApprovalAnswered)]


@driven
async def test_N168_a_named_chat_is_asked_and_answers_for_the_run_of_another(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done."), approvals="notify: ['telegram:42']") as here:
        run_id = await begin(here)
        await asyncio.sleep(5)
        [question] = here.chat.visible
        assert "rm -rf build" in question.text
        assert "for app" in question.text
        assert "Answer within 15 min." in question.text
        await here.press(question.buttons[0].value, user="2")
        await asyncio.sleep(5)
        assert question.buttons == ()
        assert question.text.endswith("✅ Approved once")
        assert [message.text for message in here.chat.visible] == [question.text], "the answer is for the client alone"
        assert [(one.decision, one.by) for one in await answers(here, run_id)] == [("once", "telegram:2")]


@driven
async def test_N168_the_question_is_taken_away_when_another_surface_has_answered(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done."), approvals="notify: ['telegram:42']") as here:
        run_id = await begin(here)
        await asyncio.sleep(5)
        [question] = here.chat.visible
        value = question.buttons[0].value
        await here.app.agents.answer(run_id, value.partition(":")[0], "deny", by="app")
        await asyncio.sleep(5)
        assert question.buttons == ()
        assert question.text.endswith("🚫 Denied")
        await here.press(value)
        await asyncio.sleep(5)
        assert [(one.decision, one.by) for one in await answers(here, run_id)] == [("deny", "app")], "once"


@driven
async def test_a_command_in_the_named_chat_answers_too(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done."), approvals="notify: ['telegram:42']") as here:
        run_id = await begin(here)
        await asyncio.sleep(5)
        await here.write("/deny not today", user="2")
        await asyncio.sleep(5)
        [answer] = await answers(here, run_id)
        assert (answer.decision, answer.by, answer.reason) == ("deny", "telegram:2", "not today")


@driven
async def test_a_chat_that_asked_itself_is_asked_once(tmp_path: Path) -> None:
    async with town(tmp_path, DANGEROUS, reply("Done."), approvals="notify: ['telegram:42']") as here:
        await here.write("Clean up.")
        await asyncio.sleep(5)
        assert len([message for message in here.chat.visible if "rm -rf build" in message.text]) == 1


@pytest.mark.parametrize("chat", ["telegram", "slack:C1", "nowhere:1"])
async def test_a_chat_of_no_enabled_platform_is_a_mistake_in_the_config(tmp_path: Path, chat: str) -> None:
    text = (
        f"model: {{provider: local}}\nplatforms: {{telegram: {{enabled: true}}}}\napprovals: {{notify: ['{chat}']}}\n"
    )
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="names no chat of an enabled platform"):
        async with open_app(load({}, tmp_path), directory=tmp_path):
            pass
