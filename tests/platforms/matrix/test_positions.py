"""Where a process goes on that another one has read before it."""

from __future__ import annotations

from typing import Any

import pytest

from platforms.matrix.test_gaps import LIMITED, Silent, message, silent, texts
from tailrace.errors import PlatformError
from tailrace.platforms.matrix.inbound import LATE_S
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running


def written(homeserver: Silent, *events: dict[str, Any]) -> None:
    homeserver.events, homeserver.limited = list(events), False


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
        homeserver.until = "now"
        async with running(platform) as inbox:
            assert inbox.kept_position == "now"


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
