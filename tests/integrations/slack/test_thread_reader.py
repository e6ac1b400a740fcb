"""A thread is read page by page, to its newest messages or as far as Slack lets it be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tailrace.delivery.port import Place
from tailrace.integrations.slack import thread_reader
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.integrations.slack.surroundings import ReadThread
from tailrace.integrations.slack.thread_reader import PAGE, READ_S, read_thread
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault, silence
from tailrace.testing.platforms.slack import FakeSlack, flood, refusal
from tailrace.testing.platforms.slack_channels import SlackMessage, SlackState

LENGTH = 2 * PAGE + 10


class Thread:
    """A thread of `LENGTH` messages, and the adapter that reads it."""

    def __init__(self, slack: FakeSlack, platform: SlackPlatform) -> None:
        self.slack, self._platform = slack, platform
        self.texts = [f"m{number}" for number in range(LENGTH)]
        stamps = [f"1600000000.{number:06d}" for number in range(LENGTH)]
        self._place = Place("slack", "C1", stamps[0], "group")
        slack.channel("C1").messages += [
            SlackMessage(ts, "U7", stamps[0] if ts != stamps[0] else "", [SlackState(text)])
            for ts, text in zip(stamps, self.texts, strict=True)
        ]

    async def read(self, *after_first_page: Fault) -> tuple[list[str], bool] | None:
        async def call(method: str, **body: Any) -> dict[str, Any]:
            page = await self._platform._call(method, **body)
            self.slack.fail(method, *after_first_page)
            return page

        match await read_thread(call, self._place):
            case ReadThread(messages, has_newest):
                return [message["text"] for message in messages], has_newest
            case None:
                return None


@asynccontextmanager
async def long_thread() -> AsyncIterator[Thread]:
    async with FakeSlack() as slack:
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        try:
            yield Thread(slack, platform)
        finally:
            await platform.close()


@driven
async def test_a_thread_of_many_pages_is_read_to_its_newest_message() -> None:
    async with long_thread() as thread:
        assert await thread.read() == (thread.texts, True)
        asked = [call.params.get("cursor") for call in thread.slack.called("conversations.replies")]
        assert asked == [None, str(PAGE), str(2 * PAGE)]


@driven
async def test_no_more_pages_are_read_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_reader, "MAX_PAGES", 2)
    async with long_thread() as thread:
        assert await thread.read() == (thread.texts[: 2 * PAGE], False)
        assert f"slack: of a thread in C1 the first {2 * PAGE} messages were read" in caplog.messages


@pytest.mark.parametrize("fault", [refusal("internal_error"), flood(30), silence()])
@driven
async def test_what_came_before_a_page_that_is_not_to_be_had_is_kept(fault: Fault) -> None:
    async with long_thread() as thread:
        began = thread.slack.now()
        assert await thread.read(fault) == (thread.texts[:PAGE], False)
        assert thread.slack.now() - began < READ_S + 1


@driven
async def test_nothing_is_told_apart_from_an_empty_thread() -> None:
    async with long_thread() as thread:
        thread.slack.fail("conversations.replies", refusal("missing_scope"))
        assert await thread.read() is None
