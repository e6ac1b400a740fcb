"""Where a process goes on that another one has read before it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integrations.matrix.test_gaps import ADA, BOT, BROKEN, LIMITED, Silent, message, silent, talk, texts
from tailrace.delivery.port import MessageReceived
from tailrace.errors import PlatformError
from tailrace.integrations.matrix.inbound import LATE_S
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running

OLD = {"unsigned": {"age": int(LATE_S * 1000) * 3}}


def written(homeserver: Silent, *events: dict[str, Any]) -> None:
    homeserver.events, homeserver.limited = list(events), False


def late_texts(inbox: CollectingInbox) -> list[str]:
    """Of what came while nobody was there."""
    heard = [update for update in inbox.updates if isinstance(update, MessageReceived)]
    return [update.text for update in heard if update.late_s is not None]


async def test_a_new_process_goes_on_where_the_one_before_it_ended() -> None:
    async with silent() as (homeserver, platform):
        homeserver.until = "today"
        written(homeserver, message("m", "while you were away"))
        async with running(platform, position="then") as inbox:
            await inbox.wait_for(1)
            await inbox.until(lambda: inbox.kept_position == "now")
        assert texts(inbox) == ["while you were away"]
        assert homeserver.syncs[:4] == ["", "then", "then", "now"]


async def test_the_first_start_begins_now_and_keeps_that_for_the_next() -> None:
    async with silent() as (homeserver, platform):
        written(homeserver)
        homeserver.before = [message("m", "!yolo on"), message("n", "before the first start")]
        homeserver.again = [message("o", "hello")]
        homeserver.until = "now"
        async with running(platform) as inbox:
            assert inbox.kept_position == "now"
            await inbox.wait_for(1)
        assert texts(inbox) == ["hello"]


async def test_after_a_restart_what_is_older_than_a_day_is_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with silent() as (homeserver, platform):
        homeserver.until = "today"
        old = message("old", "long ago") | {"unsigned": {"age": int(LATE_S * 1000) + 1}}
        written(homeserver, old, message("new", "just now") | {"unsigned": {"age": int(LATE_S * 1000) - 1}})
        homeserver.again = [old | {"event_id": "$late"}]  # a homeserver with a wrong clock, in a connection that lasts
        async with running(platform, position="then") as inbox:
            await inbox.wait_for(2)
        assert texts(inbox) == ["just now", "long ago"]
    assert "is older than a day: it is not answered" in caplog.text


@pytest.mark.parametrize("answer", ["refused", "stuck"])
async def test_a_position_that_the_homeserver_does_not_have_is_left_for_now(
    answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another state of its database: a restored one holds such a sync open for ever, and has nothing to tell."""
    async with silent() as (homeserver, platform):
        homeserver.unknown = {"lost": answer}
        written(homeserver, message("m", "hello"))
        async with running(platform, position="lost") as inbox:
            await inbox.wait_for(1)
        assert texts(inbox) == ["hello"]
        assert homeserver.syncs[:3] == ["", "lost", "then"]
    assert "what was written since the last connection cannot be read" in caplog.text


async def test_a_homeserver_that_does_not_answer_for_now_does_not_cost_the_position() -> None:
    async with silent() as (homeserver, platform):
        homeserver.until = "today"
        homeserver.sync_refusals = {"then": [LIMITED]}
        written(homeserver, message("m", "while you were away"))
        early = CollectingInbox()
        early.kept_position = "then"
        with pytest.raises(PlatformError):
            await platform.run(early)
        assert early.kept_position == "then"
        async with running(platform, position="then") as inbox:
            await inbox.wait_for(1)
        assert texts(inbox) == ["while you were away"]


async def test_a_process_whose_place_another_one_had_taken_does_not_hear_again_what_that_heard() -> None:
    async with silent() as (homeserver, platform):
        written(homeserver, message("m", "!new"))
        homeserver.again = [message("n", "and now?")]
        first = CollectingInbox()
        first.closed = True
        with pytest.raises(PlatformError):
            await platform.run(first)
        async with running(platform, position="now") as inbox:
            await inbox.wait_for(1)
        assert texts(inbox) == ["and now?"]


@pytest.mark.parametrize("failure", ["of the homeserver", "of the inbox"])
async def test_what_was_late_still_is_after_a_connection_that_failed(failure: str) -> None:
    """A `!yolo on` of three days ago was carried out by the second connection."""
    async with silent() as (homeserver, platform):
        homeserver.until = "today"
        missed = [message("q", "question"), message("y", "!yolo on"), message("o", "long ago") | OLD]
        homeserver.pages = {"p0": {"chunk": missed, "end": "then"}}
        early = CollectingInbox()
        early.kept_position, early.closed = "then", failure == "of the inbox"
        homeserver.refusals = [] if early.closed else [BROKEN]
        with pytest.raises(PlatformError):
            await platform.run(early)
        async with running(platform, position="then") as inbox:
            await inbox.wait_for(3)
        assert late_texts(inbox) == ["/yolo on", "question", "newest"]


async def test_a_connection_that_begins_after_days_answers_nothing_that_is_older_than_a_day() -> None:
    """The process was there, and the network was not."""
    async with silent() as (homeserver, platform):
        homeserver.sync_refusals = {"then": [BROKEN]}
        written(homeserver, message("o", "!yolo on") | OLD, message("n", "!model faulty/ok"))
        with pytest.raises(PlatformError):
            await platform.run(CollectingInbox())
        async with running(platform, position="then") as inbox:
            await inbox.wait_for(1)
        assert texts(inbox) == ["/model faulty/ok"]


async def test_J110_what_came_while_nobody_was_there_says_so_and_how_long_ago_it_was() -> None:
    """Also where the homeserver has the answer of an earlier sync for the first one of this process."""
    async with silent() as (homeserver, platform):
        homeserver.until, homeserver.cached = "today", True
        late = [message("y", "!yolo on") | {"unsigned": {"age": 3_000}}, message("q", "and then?")]
        talk(homeserver, *late, joined=2)
        homeserver.again = [message("now", "!yolo on")]
        async with running(platform, position="then") as inbox:
            await inbox.wait_for(3)
        heard = [(update.text, update.late_s) for update in inbox.updates if isinstance(update, MessageReceived)]
        assert heard == [("/yolo on", 3.0), ("and then?", 0.0), ("/yolo on", None)]


def member(name: str, membership: str) -> dict[str, Any]:
    content = {"membership": membership}
    return message(name, "") | {"type": "m.room.member", "state_key": BOT, "sender": ADA, "content": content}


async def test_what_was_written_in_a_room_before_the_bot_came_in_is_as_late_as_what_came_before_a_start() -> None:
    """The invitation of days ago is followed by the first sync; the next one tells what was written after it."""
    async with silent() as (homeserver, platform):
        invited = [message("h", "history"), member("i", "invite"), message("o", "long ago") | OLD]
        invited += [
            message("y", "!yolo on"),
            message("q", "come in"),
            member("j", "join"),
            message("v", "!model faulty/ok"),
        ]
        written(homeserver, message("first", "one"))
        homeserver.again = invited
        async with running(platform) as inbox:
            await inbox.wait_for(4)
        assert texts(inbox) == ["one", "/yolo on", "come in", "/model faulty/ok"]
        assert late_texts(inbox) == ["/yolo on", "come in"]


async def test_a_position_that_storage_has_refused_is_not_taken_for_that_of_another_process() -> None:
    async with silent() as (homeserver, platform):
        written(homeserver, message("m", "!new"))
        inbox = CollectingInbox()
        inbox.kept_position, inbox.forgets = "then", True
        homeserver.again = [message("n", "and now?")]
        for times in (1, 2):
            run = asyncio.ensure_future(platform.run(inbox))
            await inbox.wait_connected(times)
            await inbox.wait_for(2)
            run.cancel()
            await asyncio.wait([run])
        assert inbox.kept_position == "then"
        assert homeserver.syncs.count("then") == 2, "whether it is known, and what came after it"
