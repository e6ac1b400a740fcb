"""The Discord adapter against the fake: each action and its reply."""

from __future__ import annotations

import asyncio

import pytest
from proof.platforms.discord import FakeDiscord, flood, refusal

from integrations.discord.discord_bot import ADA, GENERAL, SEND, THREAD, bot
from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Button,
    Delete,
    Draft,
    Edit,
    Flood,
    Gone,
    Place,
    Refused,
    Send,
    Sent,
    TooLong,
    Typing,
)
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault

# ── actions ──────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_a_message_grows_in_place_in_discords_markdown_and_rings_for_nobody() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        reply = await platform.perform(GENERAL, Send("k", "**Once** ▌", final=False))
        assert reply == Sent("101")
        text = "**Once** upon @everyone\n\n#### deep\n\n| a | b |\n|---|---|\n| 1 | 2 |"
        assert await platform.perform(GENERAL, Edit("101", text)) == Accepted()
        shown = "**Once** upon @everyone\n\n**deep**\n\n```\na  b\n-  -\n1  2\n```"
        assert [state.text for state in general.answers[0].states] == ["**Once** ▌", shown]
        assert [call.params["allowed_mentions"] for call in discord.calls] == [{"parse": []}, {"parse": []}]


@driven
async def test_without_markup_the_marks_are_escaped() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        await platform.perform(GENERAL, Send("k", "**not bold**", markup=False))
        assert general.texts == [r"\*\*not bold\*\*"]


@driven
async def test_a_table_that_needs_more_than_a_message_asks_for_smaller_parts() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        discord.channel(5)
        rows = "\n".join(f"| {number} | no | some words |" for number in range(75))
        text = f"| number | it is supported | notes |\n|---|---|---|\n{rows}"
        assert len(text) < 2000
        assert await platform.perform(GENERAL, Send("k", text)) == TooLong()
        assert await platform.perform(GENERAL, Edit("101", text)) == TooLong()
        assert discord.calls == []


@driven
async def test_a_small_table_with_a_huge_cell_is_sent_as_it_stands() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        rows = "\n".join("| 1 | 2 |" for _ in range(50))
        text = f"| {'b' * 300} | a |\n|---|---|\n{rows}"
        assert isinstance(await platform.perform(GENERAL, Send("k", text)), Sent)
        assert general.texts == [text]


@driven
async def test_buttons_are_shown_and_taken_away_and_deleting_twice_is_fine() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        buttons = tuple(Button(f"B{n}", f"v{n}") for n in range(6))
        await platform.perform(GENERAL, Send("k", "Run it?", buttons=buttons))
        await platform.perform(GENERAL, Edit("101", "Done."))
        asked, done = general.answers[0].states
        assert (asked.buttons, done.buttons) == (tuple((f"B{n}", f"v{n}") for n in range(6)), ())
        assert await platform.perform(GENERAL, Delete("101")) == Accepted()
        assert await platform.perform(GENERAL, Delete("101")) == Accepted()
        assert general.texts == []


@driven
async def test_G85_threads_are_kept_and_typing_shows_there() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        thread = discord.thread(51, discord.channel(5))
        assert await platform.perform(THREAD, Typing()) == Accepted()
        await platform.perform(THREAD, SEND)
        assert (thread.texts, len(thread.typing)) == (["hello"], 1)


# ── replies ──────────────────────────────────────────────────────────────────────────────────────────────────

TOO_LONG = (
    b'{"code": 50035, "message": "Invalid Form Body", '
    b'"errors": {"content": {"_errors": [{"code": "BASE_TYPE_MAX_LENGTH", "message": "-"}]}}}'
)


@pytest.mark.parametrize(
    ("place", "fault", "reply"),
    [
        pytest.param(GENERAL, flood(7.25), Flood(7.25), id="G78-flood"),
        pytest.param(GENERAL, Fault(429, b"slow down", {"Retry-After": "9"}), Flood(9.0), id="G78-proxy"),
        pytest.param(GENERAL, Fault(429, b"slow down"), Flood(5.0), id="G78-without-a-time"),
        pytest.param(GENERAL, refusal(429, 30046, "Try again later"), Refused("Try again later (30046)"), id="G78-old"),
        pytest.param(GENERAL, Fault(400, TOO_LONG), TooLong(), id="G82"),
        pytest.param(GENERAL, refusal(404, 10003, "Unknown Channel"), Gone("chat"), id="no-channel"),
        pytest.param(THREAD, refusal(404, 10003, "Unknown Channel"), Gone("thread"), id="G85-no-thread"),
        pytest.param(THREAD, refusal(400, 160005, "Thread is locked"), Gone("thread"), id="G85-locked"),
        pytest.param(GENERAL, refusal(403, 50001, "Missing Access"), Gone("chat"), id="put-out"),
        pytest.param(GENERAL, refusal(400, 50008, "Cannot send messages in a …"), Gone("chat"), id="a-forum"),
        pytest.param(ADA, refusal(403, 50007, "Cannot send messages to this user"), Gone("chat"), id="blocked"),
        pytest.param(
            GENERAL, refusal(403, 50013, "Missing Permissions"), Refused("Missing Permissions (50013)"), id="rights"
        ),
    ],
)
def test_replies(place: Place, fault: Fault, reply: AnyReply) -> None:
    @driven
    async def ask() -> AnyReply:
        async with FakeDiscord() as discord, bot(discord) as platform:
            discord.thread(51, discord.channel(5))
            discord.direct(70, 7)
            discord.fail("send", fault)
            return await platform.perform(place, SEND)

    assert ask() == reply


@pytest.mark.parametrize(("code", "words"), [(50001, "Missing Access"), (50007, "Cannot send messages to this user")])
def test_the_log_says_where_nothing_can_be_written_and_why(
    code: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    @driven
    async def ask() -> AnyReply:
        async with FakeDiscord() as discord, bot(discord) as platform:
            discord.direct(70, 7)
            discord.fail("send", refusal(403, code, words))
            return await platform.perform(ADA, SEND)

    assert ask() == Gone("chat")
    assert f"discord:70: nothing can be written there: {words} ({code})" in caplog.text


@driven
async def test_what_is_not_there_or_not_possible_is_said() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        parent = discord.channel(5)
        thread = discord.thread(51, parent)
        assert await platform.perform(GENERAL, Edit("999", "hello")) == Gone("message")
        assert await platform.perform(GENERAL, Send("k", "x" * 2001)) == TooLong()
        thread.archived = thread.locked = True
        assert await platform.perform(THREAD, SEND) == Gone("thread")
        del discord.channels[51]
        assert await platform.perform(THREAD, SEND) == Gone("thread")
        asked = len(discord.calls)
        assert isinstance(await platform.perform(GENERAL, Draft(1, "hello")), Refused)
        assert len(discord.calls) == asked


@driven
async def test_G78_the_headers_say_when_to_pause_and_who_does_not_is_flooded_at_once() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        general = discord.channel(5)
        await platform.perform(GENERAL, SEND)
        actions: list[AnyAction] = [Edit("101", f"text {n}") for n in range(5)]
        replies = [await platform.perform(GENERAL, action) for action in actions]
        assert replies[:4] == [Accepted()] * 4
        last = replies[4]
        assert isinstance(last, Accepted)
        assert 4.9 < last.pause_s <= 5.0
        asked_at = asyncio.get_running_loop().time()
        flooded = await platform.perform(GENERAL, Edit("101", "too soon"))
        assert isinstance(flooded, Flood)
        assert asyncio.get_running_loop().time() - asked_at < 1.0
        await asyncio.sleep(flooded.retry_after_s)
        assert await platform.perform(GENERAL, Edit("101", "in time")) == Accepted()
        assert general.texts == ["in time"]
