"""What a homeserver does not answer at once: rooms with a gap after a silence, and replies to messages of others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tailrace.delivery.port import MessageReceived
from tailrace.errors import PlatformError
from tailrace.integrations.matrix.adapter import MAX_AUTHOR_FAILURES, MAX_GAP_FAILURES, MatrixPlatform
from tailrace.integrations.matrix.inbound import MAX_ASKED, MAX_PAGES, REMEMBERED, remember_event
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running

BOT, ADA, BOB = "@bot:localhost", "@ada:localhost", "@bob:localhost"
ROOM = "!room:localhost"
LIMITED = (429, {"errcode": "M_LIMIT_EXCEEDED", "error": "Too many requests", "retry_after_ms": 10})
BROKEN = (500, {"errcode": "M_UNKNOWN", "error": "Internal server error"})
PROXY = (502, "<html>Bad Gateway</html>")
FORBIDDEN = (403, {"errcode": "M_FORBIDDEN", "error": "not in the room"})


def message(name: str, text: str, **content: Any) -> dict[str, Any]:
    return {
        "type": "m.room.message",
        "event_id": f"${name}",
        "sender": ADA,
        "origin_server_ts": 1,
        "content": {"msgtype": "m.text", "body": text, **content},
    }


class Silent:
    """The part of a homeserver that has one sync after the first one. What it is told to refuse is refused first."""

    def __init__(self) -> None:
        self.events = [message("new", "newest")]
        self.limited = True
        self.joined = 2
        self.pages: dict[str, dict[str, Any]] = {}  # of the gap, by where they start
        self.refusals: list[tuple[int, Any]] = []
        self.asked: list[str] = []  # starts of pages, and events
        self.senders: dict[str, str] = {}  # by event
        self.found: dict[str, dict[str, Any]] = {}  # what events are, where that matters
        self.syncs: list[str] = []
        self.before: list[dict[str, Any]] = []  # events of the first sync
        self.again: list[dict[str, Any]] = []  # events of another sync
        self.cuts = False  # the connection, in place of an event
        self.until = "then"  # what the first sync ends with
        self.unknown: dict[str, str] = {}  # positions of another state of the database: "refused" or "stuck"
        self.cached = False  # as Synapse does it: a sync like an earlier one gets the answer of that, without the news
        self.sync_refusals: dict[str, list[tuple[int, Any]]] = {}  # by position

    def routes(self) -> list[web.RouteDef]:
        base = "/_matrix/client/{version}"
        return [
            web.get(f"{base}/account/whoami", self._who),
            web.get(f"{base}/sync", self._sync),
            web.get(f"{base}/rooms/{{room}}/messages", self._messages),
            web.get(f"{base}/rooms/{{room}}/event/{{event}}", self._event),
        ]

    async def _who(self, _request: web.Request) -> web.Response:
        return web.json_response({"user_id": BOT})

    async def _sync(self, request: web.Request) -> web.Response:
        self.syncs.append(request.query.get("since", ""))
        since = self.syncs[-1]
        if since == "":
            return self._news(self.before, self.until)
        if self.unknown.get(since) == "refused":
            return web.json_response({"errcode": "M_UNKNOWN", "error": "Invalid stream token"}, status=400)
        if since in self.unknown:
            return web.json_response({"next_batch": since})
        if refused := self._refused(self.sync_refusals.get(since)):
            return refused
        if self.cached and since == "then" and "not_types" not in request.query["filter"]:
            return web.json_response({"next_batch": "then, again"})
        if self.syncs[-1] == "later" or (self.syncs[-1] == "now" and not self.again):
            await asyncio.Event().wait()
        events, until = (self.events, "now") if since.startswith("then") else (self.again, "later")
        return self._news(events, until)

    def _news(self, events: list[dict[str, Any]], until: str) -> web.Response:
        timeline = {"events": events, "limited": self.limited, "prev_batch": "p0"}
        summary = {"m.heroes": [], "m.joined_member_count": self.joined, "m.invited_member_count": 0}
        room = {
            "timeline": timeline,
            "summary": summary,
            "state": {"events": []},
            "ephemeral": {"events": []},
            "account_data": {"events": []},
        }
        return web.json_response({"next_batch": until, "rooms": {"join": {ROOM: room}}})

    def _refused(self, refusals: list[tuple[int, Any]] | None) -> web.Response | None:
        if not refusals:
            return None
        status, body = refusals.pop(0)
        if isinstance(body, str):
            return web.Response(status=status, text=body, content_type="text/html")
        return web.json_response(body, status=status)

    async def _messages(self, request: web.Request) -> web.Response:
        self.asked.append(request.query["from"])
        return self._refused(self.refusals) or web.json_response({"start": self.asked[-1]} | self.pages[self.asked[-1]])

    async def _event(self, request: web.Request) -> web.Response:
        self.asked.append(request.match_info["event"])
        if self.cuts and request.transport is not None:
            request.transport.close()
        if refused := self._refused(self.refusals):
            return refused
        sender = self.senders.get(self.asked[-1])
        if sender is None:
            return web.json_response({"errcode": "M_NOT_FOUND", "error": "no such event"}, status=404)
        found = self.found.get(self.asked[-1], message("x", "said"))
        return web.json_response(found | {"event_id": self.asked[-1], "sender": sender})


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[Silent, MatrixPlatform]]:
    homeserver, application = Silent(), web.Application()
    application.router.add_routes(homeserver.routes())
    async with TestServer(application, shutdown_timeout=0.1) as server:
        platform = MatrixPlatform(str(server.make_url("")), BOT, token="t", answer_s=30.0)
        try:
            yield homeserver, platform
        finally:
            await platform.close()


def texts(inbox: CollectingInbox) -> list[str]:
    return [update.text for update in inbox.updates if isinstance(update, MessageReceived)]


# ── gaps ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("refusal", [LIMITED, BROKEN, PROXY])
async def test_a_question_in_a_gap_that_cannot_be_read_for_now_is_heard_once_by_the_next_connection(
    refusal: tuple[int, Any],
) -> None:
    async with silent() as (homeserver, platform):
        homeserver.pages = {"p0": {"chunk": [message("old", "question")], "end": "then"}}
        homeserver.refusals = [refusal]
        early = CollectingInbox()
        with pytest.raises(PlatformError, match="could not be read yet") as failed:
            await platform.run(early)
        assert not failed.value.permanent
        assert texts(early) == []
        async with running(platform) as later:
            await later.wait_for(2)
        assert texts(later) == ["question", "newest"]
        assert homeserver.syncs[:3] == ["", "then", "then"]


async def test_a_room_that_the_homeserver_can_never_read_does_not_keep_the_others_unheard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with silent() as (homeserver, platform):
        homeserver.refusals = [BROKEN] * (MAX_GAP_FAILURES + 1)
        for _ in range(MAX_GAP_FAILURES):
            with pytest.raises(PlatformError, match="could not be read yet"):
                await platform.run(CollectingInbox())
        async with running(platform) as inbox:
            await inbox.wait_for(1)
        assert texts(inbox) == ["newest"]
    assert "could not be read: RoomMessagesError: M_UNKNOWN Internal server error" in caplog.text


async def test_a_gap_that_is_refused_for_good_is_told_as_that_and_as_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with silent() as (homeserver, platform):
        homeserver.refusals = [FORBIDDEN]
        async with running(platform) as inbox:
            await inbox.wait_for(1)
        assert texts(inbox) == ["newest"]
    [told] = [record.getMessage() for record in caplog.records if record.name == "tailrace.integrations.matrix"]
    assert told.startswith(f"matrix: what was written in {ROOM} meanwhile could not be read: ")


async def test_a_page_of_a_gap_of_which_nothing_is_left_is_followed_by_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with silent() as (homeserver, platform):
        homeserver.pages = {
            "p0": {"chunk": [], "end": "p1"},
            "p1": {"chunk": [message("old", "question")], "end": "p2"},
            "p2": {"chunk": [], "end": "p2"},
        }
        async with running(platform) as inbox:
            await inbox.wait_for(2)
        assert texts(inbox) == ["question", "newest"]
        assert homeserver.asked == ["p0", "p1", "p2"]
    assert "too much was written" not in caplog.text


async def test_a_gap_without_end_is_left_after_so_many_pages(caplog: pytest.LogCaptureFixture) -> None:
    async with silent() as (homeserver, platform):
        homeserver.pages = {f"p{number}": {"chunk": [], "end": f"p{number + 1}"} for number in range(MAX_PAGES + 1)}
        async with running(platform) as inbox:
            await inbox.wait_for(1)
        assert len(homeserver.asked) == MAX_PAGES
    assert f"too much was written in {ROOM}" in caplog.text


# ── replies ──────────────────────────────────────────────────────────────────────────────────────────────────


def reply(name: str, to: object, text: str = "and then?", **content: Any) -> dict[str, Any]:
    return message(name, text, **{"m.relates_to": {"m.in_reply_to": {"event_id": to}}}, **content)


def talk(homeserver: Silent, *events: dict[str, Any], joined: int = 3) -> None:
    """In a room of so many, without a gap. `$ours` is the bot's, `$bobs` is Bob's."""
    homeserver.events, homeserver.limited, homeserver.joined = list(events), False, joined
    homeserver.senders = {"$ours": BOT, "$bobs": BOB}


async def addressed(platform: MatrixPlatform, count: int) -> list[bool]:
    async with running(platform) as inbox:
        heard = await inbox.wait_for(count)
    return [update.addressed for update in heard if isinstance(update, MessageReceived)]


async def test_whose_message_it_is_that_people_reply_to_is_asked_once() -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, *[reply(f"r{number}", to) for number, to in enumerate(["$bobs", "$ours", "$none"] * 2)])
        assert await addressed(platform, 6) == [False, True, False] * 2
        assert homeserver.asked == ["$bobs", "$ours", "$none"]


def in_thread(name: str, root: str, text: str = "and then?", /, **content: Any) -> dict[str, Any]:
    """As clients send it: the reply is for clients without threads, and says nothing."""
    fallback = {"is_falling_back": True, "m.in_reply_to": {"event_id": "$last"}}
    relation = {"rel_type": "m.thread", "event_id": root, **fallback}
    return message(name, text, **{"m.relates_to": relation}, **content)


async def test_what_is_written_in_a_thread_below_a_message_of_the_bot_is_for_it_unless_others_are_mentioned() -> None:
    to_bob = {"m.mentions": {"user_ids": [BOB]}}
    async with silent() as (homeserver, platform):
        talk(homeserver, in_thread("t1", "$ours"), in_thread("t2", "$ours", **to_bob), in_thread("t3", "$bobs"))
        homeserver.again = [in_thread("t4", "$bobs"), in_thread("t5", "$ours")]
        assert await addressed(platform, 5) == [True, False, False, False, True]
        assert homeserver.asked == ["$ours", "$bobs"], "what the thread hangs from was quoted already"


async def test_another_bots_command_in_a_thread_of_the_bot_is_not_for_it_and_a_mistyped_one_of_ours_is() -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, in_thread("t1", "$ours", "!weather Bern"), in_thread("t2", "$ours", "!aprove"))
        async with running(platform) as inbox:
            await inbox.wait_for(2)
        heard = [update for update in inbox.updates if isinstance(update, MessageReceived)]
        assert [(update.addressed, update.to_others) for update in heard] == [(False, True), (True, False)]


async def test_a_command_to_the_bot_brings_nothing_of_what_it_replies_to() -> None:
    async with silent() as (homeserver, platform):
        talk(
            homeserver,
            reply("r1", "$bobs", "!stop"),
            reply("r2", "$bobs", "yes", **{"m.mentions": {"user_ids": [BOT]}}),
        )
        assert await addressed(platform, 2) == [True, True]
        assert homeserver.asked == []


@pytest.mark.parametrize(("joined", "read"), [(2, "/undo"), (3, "!undo")])
async def test_a_command_that_there_is_none_of_is_the_bots_where_no_other_bot_can_be_meant(
    joined: int, read: str
) -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, message("m", "!undo"), message("n", f"{BOT}: !undo"), joined=joined)
        async with running(platform) as inbox:
            await inbox.wait_for(2)
        assert texts(inbox) == [read, "/undo"]


@pytest.mark.parametrize("joined", [2, 3])
async def test_the_name_of_the_bot_alone_is_an_empty_text_and_as_a_reply_it_is_about_that(joined: int) -> None:
    async with silent() as (homeserver, platform):
        mention = {"m.mentions": {"user_ids": [BOT]}}
        talk(homeserver, message("m", BOT, **mention), reply("r", "$bobs", f"{BOT}:", **mention), joined=joined)
        async with running(platform) as inbox:
            await inbox.wait_for(2)
        messages = [one for one in inbox.updates if isinstance(one, MessageReceived)]
        assert [(one.text, one.addressed, one.reply_to) for one in messages] == [("", True, ""), ("", True, "$bobs")]


async def test_what_is_no_event_id_is_not_asked_for() -> None:
    async with silent() as (homeserver, platform):
        wrong = ["..", "bobs", "$", "$" + "x" * 255, "$a\x00b", "$a b", "$bobs\n", 7, ["$bobs"]]
        talk(homeserver, *[reply(f"r{number}", to) for number, to in enumerate(wrong)])
        assert await addressed(platform, len(wrong)) == [False] * len(wrong)
        assert homeserver.asked == []


@pytest.mark.parametrize("refusal", [LIMITED, BROKEN, PROXY])
async def test_whose_a_message_is_that_cannot_be_asked_for_now_is_asked_by_the_next_connection(
    refusal: tuple[int, Any],
) -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, reply("r1", "$bobs"), reply("r2", "$ours"))
        homeserver.refusals = [(404, {"errcode": "M_NOT_FOUND", "error": "no such event"}), refusal]
        early = CollectingInbox()
        with pytest.raises(PlatformError, match="is for us could not be asked") as failed:
            await platform.run(early)
        assert not failed.value.permanent
        assert early.updates == []
        assert await addressed(platform, 2) == [False, True]
        assert homeserver.asked == ["$bobs", "$ours", "$ours"], "what is known is not asked again"


async def test_a_homeserver_that_never_says_whose_a_message_is_does_not_keep_the_others_unheard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, reply("r1", "$ours"), reply("r2", "$bobs"), message("m", "just talking"))
        homeserver.cuts = True
        for _ in range(MAX_AUTHOR_FAILURES):
            with pytest.raises(PlatformError, match="is for us could not be asked"):
                await platform.run(CollectingInbox())
        assert await addressed(platform, 3) == [False, False, False]
        assert set(homeserver.asked) == {"$ours"}, "the others might wait as long"
    assert f"whether a reply in {ROOM} is for us could not be asked" in caplog.text


async def test_what_people_who_are_not_served_reply_to_is_not_asked_for() -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, reply("r1", "$ours") | {"sender": BOB}, reply("r2", "$bobs"))
        async with running(platform, strangers=[BOB]) as inbox:
            await inbox.wait_for(2)
        assert homeserver.asked == ["$bobs"]


async def test_of_many_messages_that_people_reply_to_the_newest_are_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, *[reply(f"r{number}", f"${number}") for number in range(MAX_ASKED + 2)])
        await addressed(platform, MAX_ASKED + 2)
        assert homeserver.asked == [f"${number}" for number in range(2, MAX_ASKED + 2)]
    assert "whether the oldest 2 are ours is not asked" in caplog.text


def test_of_many_events_the_newest_are_remembered() -> None:
    events: OrderedDict[str, bool] = OrderedDict()
    for number in range(REMEMBERED + 2):
        remember_event(events, f"${number}")
    assert len(events) == REMEMBERED
    assert next(iter(events)) == "$2"


async def test_what_replies_tell_of_the_bots_events_is_bounded() -> None:
    async with silent() as (homeserver, platform):
        for number in range(REMEMBERED):
            remember_event(platform._sent, f"${number}")
        talk(homeserver, reply("r1", "$ours"))
        assert await addressed(platform, 1) == [True]
        assert len(platform._sent) == REMEMBERED
