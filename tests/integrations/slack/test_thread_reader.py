"""A thread is read page by page, to its newest messages or as far as Slack lets it be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from proof.platforms.slack import FakeSlack, flood, refusal
from proof.platforms.slack_channels import SlackMessage, SlackState

from tailrace.delivery.port import Attachment, MessageReceived, Place, Quoted, Sender
from tailrace.gateway.inbound.quotations import MAX_OF_THREAD, UNREAD_THREAD
from tailrace.integrations.slack import thread_reader
from tailrace.integrations.slack.adapter import SlackPlatform
from tailrace.integrations.slack.inbound import BotAccount
from tailrace.integrations.slack.thread_reader import PAGE, READ_S, read_thread
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault, silence

LENGTH = 2 * PAGE + 10
ME = BotAccount("U0")


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

    async def read(self, *after_first_page: Fault) -> tuple[Quoted, ...]:
        async def call(method: str, **body: Any) -> dict[str, Any]:
            page = await self._platform._call(method, **body)
            self.slack.fail(method, *after_first_page)
            return page

        return await read_thread(call, asked(self._place), ME, no_names)


def asked(place: Place = Place("slack", "C1", "1.0", "group"), ts: str = "1700000000.0") -> MessageReceived:  # noqa: B008
    return MessageReceived(f"C1:{ts}", place, Sender("U7"), "so?", message_id=ts)


async def no_names(_ids: Iterable[str]) -> dict[str, str]:
    return {}


def said(quoted: Iterable[Quoted]) -> list[str]:
    return [one.text or f"[{one.what}]" for one in quoted]


@asynccontextmanager
async def long_thread() -> AsyncIterator[Thread]:
    async with FakeSlack() as slack:
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        try:
            yield Thread(slack, platform)
        finally:
            await platform.close()


NEWEST_UNREAD = "[newer messages of the thread too, which could not be read]"


def first_and_newest(texts: list[str]) -> list[str]:
    left_out = f"[{len(texts) - MAX_OF_THREAD} more messages, which are left out here]"
    return [texts[0], left_out, *texts[-MAX_OF_THREAD + 1 :]]


@driven
async def test_a_thread_of_many_pages_is_read_to_its_newest_message() -> None:
    async with long_thread() as thread:
        assert said(await thread.read()) == first_and_newest(thread.texts)
        asked = [call.params.get("cursor") for call in thread.slack.called("conversations.replies")]
        assert asked == [None, str(PAGE), str(2 * PAGE)]


@driven
async def test_no_more_pages_are_read_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_reader, "MAX_PAGES", 2)
    async with long_thread() as thread:
        assert said(await thread.read()) == [*first_and_newest(thread.texts[: 2 * PAGE]), NEWEST_UNREAD]
        assert f"slack: of a thread in C1 the first {2 * PAGE} messages were read" in caplog.messages


@pytest.mark.parametrize("fault", [refusal("internal_error"), flood(30), silence()])
@driven
async def test_what_came_before_a_page_that_is_not_to_be_had_is_kept(fault: Fault) -> None:
    async with long_thread() as thread:
        began = thread.slack.now()
        assert said(await thread.read(fault)) == [*first_and_newest(thread.texts[:PAGE]), NEWEST_UNREAD]
        assert thread.slack.now() - began < READ_S + 1


@driven
async def test_nothing_is_told_apart_from_an_empty_thread() -> None:
    async with long_thread() as thread:
        thread.slack.fail("conversations.replies", refusal("missing_scope"))
        assert await thread.read() == (UNREAD_THREAD,)


async def test_people_apps_and_files_of_the_thread_are_quoted_and_replies_of_the_bot_are_not() -> None:
    async def call(_method: str, **_body: Any) -> dict[str, Any]:
        return {
            "messages": [
                {"ts": "100.0", "user": "U8", "text": "down, <@U7>"},
                {"ts": "200.0", "bot_id": "B1", "username": "Alerts", "attachments": [{"fallback": "disk 99%"}]},
                {"ts": "300.0", "user": "U5", "text": "", "files": [{"name": "a.png"}]},
                {"ts": "400.0", "user": "U7", "text": "<@U0> "},
                {"ts": "401.0", "user": "U0", "text": "Nothing is running."},
                {"ts": "900.0", "user": "U7", "text": "so?"},
                {"ts": "950.0", "user": "U8", "text": "written since"},
            ]
        }

    async def names_of(ids: Iterable[str]) -> dict[str, str]:
        assert set(ids) == {"U8", "U5", ""}
        return {"U8": "Ben", "U7": "Anna"}

    assert await read_thread(call, asked(ts="900.0"), ME, names_of) == (
        Quoted("Ben", "down, <@U7> (Anna)", kind="thread"),
        Quoted("Alerts", "disk 99%", kind="thread"),
        Quoted("U5", files=(Attachment("", "a.png"),), kind="thread"),
    )
