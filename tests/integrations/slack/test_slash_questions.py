"""A question behind a slash command: shown in its channel once, and only where it is taken."""

from __future__ import annotations

import asyncio

import pytest
from proof.platforms.slack import FakeSlack

from integrations.slack.slack_app import app, listening
from tailrace.delivery.port import MessageReceived, Update
from tailrace.errors import PlatformError
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import silence


@driven
async def test_G88_a_command_that_comes_again_shows_its_question_once() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        general = slack.channel("C1")
        payload = {"command": "/tailrace", "text": "why?", "channel_id": "C1", "user_id": "U9", "trigger_id": "1"}
        for _ in range(2):
            await slack.deliver("slash_commands", payload)
        first, again = await inbox.wait_for(2)
        assert first == again
        [shown] = general.answers
        assert (shown.text, first.place.thread) == ("U9: why?", shown.ts)


class EndingInbox(CollectingInbox):
    """Refuses an update, and has the adapter cancelled at once: the process ends."""

    adapter: asyncio.Future[None]

    async def put(self, _update: Update) -> None:
        await asyncio.sleep(4000)  # no idle connection is kept so long: the next request waits for one
        self.adapter.cancel()
        raise PlatformError("no new work")


class HangingInbox(CollectingInbox):
    """Takes no update to its end."""

    async def put(self, update: Update) -> None:
        await super().put(update)
        await asyncio.Event().wait()


@driven
async def test_G88_a_question_that_is_not_taken_is_not_shown_and_may_come_again() -> None:
    async with FakeSlack() as slack:
        platform, general = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url), slack.channel("C1")
        closing = CollectingInbox()
        closing.closed = True
        await slack.command(general, "/tailrace", "why?")
        with pytest.raises(PlatformError, match="no new work"):
            await platform.run(closing)
        assert (general.texts, slack.acknowledged) == ([], [])
        async with running(platform) as inbox:
            [update] = await inbox.wait_for(1)
            [shown] = general.answers
            assert (shown.text, update.place.thread) == ("name of U7: why?", shown.ts)


@driven
async def test_a_question_that_is_not_taken_goes_though_the_process_ends_at_once() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "why?")
        inbox = EndingInbox()
        run = inbox.adapter = asyncio.ensure_future(platform.run(inbox))
        await asyncio.wait([run])
        assert run.cancelled()
        assert (general.texts, len(slack.called("chat.postMessage"))) == ([], 1)


@driven
async def test_G88_a_question_that_a_killed_process_has_shown_is_shown_once() -> None:
    async with FakeSlack() as slack, app(slack) as killed:
        general, hanging = slack.channel("C1"), HangingInbox()
        await slack.command(general, "/tailrace", "why?")
        run = asyncio.ensure_future(killed.run(hanging))
        await hanging.wait_for(1)
        run.cancel()
        await asyncio.wait([run])
        async with listening(slack) as (_, inbox):
            [update] = await inbox.wait_for(1)
            [shown] = general.answers
            assert (shown.text, update.place.thread) == ("name of U7: why?", shown.ts)


@driven
async def test_a_question_waits_a_second_at_most_to_be_found_shown_before() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        slack.fail("conversations.history", silence())
        began = asyncio.get_running_loop().time()
        await slack.command(slack.channel("C1"), "/tailrace", "why?")
        await inbox.wait_for(1)
        assert asyncio.get_running_loop().time() - began < 3


@driven
async def test_G88_a_question_that_was_taken_stays_when_it_comes_again_to_a_process_that_ends() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        general, inbox = slack.channel("C1"), CollectingInbox()
        run = asyncio.ensure_future(platform.run(inbox))
        payload = {"command": "/tailrace", "text": "why?", "channel_id": "C1", "user_id": "U9", "trigger_id": "1"}
        await slack.deliver("slash_commands", payload)
        await inbox.wait_for(1)
        inbox.closed = True
        await slack.deliver("slash_commands", payload)
        with pytest.raises(PlatformError, match="no new work"):
            await run
        assert general.texts == ["U9: why?"]


@driven
async def test_a_question_that_is_too_long_to_be_shown_is_shown_in_part() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        general = slack.channel("C1")
        question = "why? " * 3000 + "because"
        await slack.command(general, "/tailrace", question)
        [update] = await inbox.wait_for(1)
        assert isinstance(update, MessageReceived)
        assert update.text == question
        assert general.texts == [f"name of U7: {question}"[:2999] + "…"]
