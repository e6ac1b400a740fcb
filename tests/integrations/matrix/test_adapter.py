"""The Matrix adapter through matrix-nio against a real Synapse with its default rate limits, in real time."""

from __future__ import annotations

import asyncio

import pytest

from integrations.matrix.matrix_bot import bot, bot_of, meet
from integrations.matrix.synapse import Homeserver, people
from tailrace.delivery.consumer import ChatLines
from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Capabilities,
    Delete,
    Draft,
    Edit,
    Failed,
    Flood,
    Gone,
    Place,
    Refused,
    Send,
    Sent,
    TooLong,
    Typing,
    Upload,
)
from tailrace.errors import PlatformError
from tailrace.gateway.base import BasePlatform
from tailrace.integrations.matrix.adapter import MatrixPlatform
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import PATIENCE_S
from tailrace.testing.platforms.played_runs import Scene, chunks, show

TEXT = " ".join(f"word{number}" for number in range(60))
CURSOR = "▌"


# ── actions ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_grows_in_place_with_its_html_and_is_redacted(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account), bot(server, account) as platform:
        place = await meet(ada, account)
        assert await platform.perform(place, Typing()) == Accepted()
        await ada.until(lambda: account.user_id in ada.typing)
        reply = await platform.perform(place, Send("k", "**Once**", final=False))
        assert isinstance(reply, Sent)
        assert await platform.perform(place, Edit(reply.message_id, "**Once** <upon>")) == Accepted()
        assert await platform.perform(place, Edit(reply.message_id, "**Once**", markup=False)) == Accepted()
        await ada.until(lambda: [len(seen.states) for seen in ada.from_(place.chat, account.user_id)] == [3])
        states = ada.rooms[place.chat][reply.message_id].states
        assert [(state["body"], state.get("formatted_body")) for state in states] == [
            ("**Once**", "<p><strong>Once</strong></p>"),
            ("**Once** <upon>", "<p><strong>Once</strong> &lt;upon&gt;</p>"),
            ("**Once**", None),
        ]
        assert await platform.perform(place, Delete(reply.message_id)) == Accepted()
        assert await platform.perform(place, Delete(reply.message_id)) == Accepted()
        await ada.until(lambda: not ada.from_(place.chat, account.user_id))


async def test_a_name_in_an_answer_or_in_its_edits_mentions_nobody(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account), bot(server, account) as platform:
        place = await meet(ada, account)
        name = ada.user_id.removeprefix("@").partition(":")[0]
        reply = await platform.perform(place, Send("k", f"Dear {name},", final=False))
        assert isinstance(reply, Sent)
        await platform.perform(place, Edit(reply.message_id, f"Dear {name}, @room"))
        await platform.perform(place, Upload("k2", f"{name}.txt", "text/plain", b"x"))
        await ada.until(lambda: [len(seen.states) for seen in ada.from_(place.chat, account.user_id)] == [2, 1])
        assert ada.highlights[place.chat] == 0
        await account.write(place.chat, f"Dear {name}, as a client of old has it")
        await ada.until(lambda: ada.highlights[place.chat] == 1)


async def test_a_message_ends_the_typing_indicator(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account), bot(server, account) as platform:
        place = await meet(ada, account)
        await platform.perform(place, Typing())
        await ada.until(lambda: ada.typing_now.get(place.chat) == {account.user_id})
        await platform.perform(place, Send("k", "hello"))
        later = await ada.write(place.chat, "what is shown with this has happened before it")
        await ada.until(lambda: later in ada.rooms[place.chat])
        assert ada.typing_now[place.chat] == set()


async def test_G80_the_same_key_gives_the_same_event_also_to_another_process(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        async with bot(server, account) as platform:
            first = await platform.perform(place, Send("k", "hello"))
        async with bot(server, account) as heir:
            assert await heir.perform(place, Send("k", "hello")) == first
            other = await heir.perform(place, Send("k2", "hello"))
        assert isinstance(first, Sent)
        assert isinstance(other, Sent)
        assert other != first


async def test_replies_that_are_certain(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account), bot(server, account) as platform:
        place = await meet(ada, account)
        elsewhere = Place("matrix", await ada.room())
        assert await platform.perform(elsewhere, Send("k", "hello")) == Gone("chat")
        assert await platform.perform(place, Send("k", "x" * 70_000)) == TooLong()
        assert await platform.perform(place, Delete("$nothing")) == Accepted()
        assert isinstance(await platform.perform(place, Draft(1, "x")), Refused)
        stranger = MatrixPlatform(server.url, account.user_id, token="wrong")
        failed = await stranger.perform(place, Send("k", "hello"))
        assert isinstance(failed, Failed)
        assert failed.needs_operator
        with pytest.raises(PlatformError) as refused:
            await stranger.run(CollectingInbox())
        assert refused.value.permanent
        await stranger.close()


async def test_why_a_room_takes_nothing_from_a_muted_bot_is_in_the_log(
    server: Homeserver, caplog: pytest.LogCaptureFixture
) -> None:
    async with people(server, "ada", "bot") as (ada, account), bot(server, account) as platform:
        place = await meet(ada, account)
        levels = f"client/v3/rooms/{place.chat}/state/m.room.power_levels"
        await ada.ask("PUT", levels, await ada.ask("GET", levels) | {"events_default": 50})
        assert await platform.perform(place, Send("k", "hello")) == Gone("chat")
    [told] = [record.getMessage() for record in caplog.records if record.name == "tailrace.integrations.matrix"]
    assert told.startswith("matrix: a room takes nothing from us: You don't have permission to post that to the room.")


async def test_G78_the_homeservers_own_limit_is_told(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account), bot(server, account) as platform:
        place = await meet(ada, account)
        replies = [await platform.perform(place, Send("k0", "hello"))]
        while isinstance(replies[-1], Sent) and len(replies) < 50:  # a slow machine gets a few more through
            replies.append(await platform.perform(place, Send(f"k{len(replies)}", "hello")))
        assert len(replies) > 1
        flooded = replies[-1]
        assert isinstance(flooded, Flood)
        assert 0 < flooded.retry_after_s < 60


# ── whole answers ────────────────────────────────────────────────────────────────────────────────────────────


class Overheard(BasePlatform):
    """The adapter, and what it was told."""

    def __init__(self, platform: MatrixPlatform) -> None:
        self.name = platform.name
        self.heard: list[AnyReply] = []
        self._platform = platform

    def capabilities(self, place: Place) -> Capabilities:
        return self._platform.capabilities(place)

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        self.heard.append(await self._platform.perform(place, action))
        return self.heard[-1]


async def test_G78_a_streamed_answer_stays_one_message_through_the_homeservers_limits(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account), bot(server, account) as platform:
        place = await meet(ada, account)
        root = await ada.write(place.chat, "a question")
        place = Place("matrix", place.chat, root)
        elsewhere = await meet(ada, account)
        for number in range(7):  # of the ten that Synapse gives an account at once
            await platform.perform(elsewhere, Send(str(number), "hello"))
        replies = Overheard(platform)
        await show(replies, place, TEXT, pace_s=0.5)
        assert any(isinstance(reply, Flood) for reply in replies.heard)
        await ada.until(lambda: [seen.text for seen in ada.from_(place.chat, account.user_id)] == [TEXT])
        [answer] = ada.from_(place.chat, account.user_id)
        assert len(answer.states) >= 2
        assert all(state["body"].endswith(CURSOR) for state in answer.states[:-1])
        assert answer.thread == root


async def test_G77_after_a_death_in_mid_stream_the_same_message_is_completed(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        first, second = bot_of(server, account), bot_of(server, account)
        scene = Scene(first, place)
        await scene.start()
        dying = asyncio.ensure_future(scene.deliver())
        await scene.write(chunks(TEXT[:200], pace_s=0.05))
        await ada.until(lambda: ada.from_(place.chat, account.user_id))
        dying.cancel()
        await asyncio.wait([dying])
        await first.close()
        scene._platform, scene._lines = second, ChatLines(second)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(scene.deliver())
            await scene.write(chunks(TEXT[200:], pace_s=0.05))
            await scene.end(TEXT)
        await second.close()
        await ada.until(lambda: [seen.text for seen in ada.from_(place.chat, account.user_id)] == [TEXT])


async def test_a_redacted_answer_is_said_to_be_gone(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        platform = bot_of(server, account)
        async with running(platform) as inbox:
            reply = await platform.perform(place, Send("k", "hello"))
            assert isinstance(reply, Sent)
            await ada.redact(place.chat, reply.message_id)
            await ada.write(place.chat, "done")
            await inbox.wait_for(1)
            assert await platform.perform(place, Edit(reply.message_id, "hello again")) == Gone("message")
