"""The Slack adapter through slack_sdk against the fake: each action and its reply, each envelope, each reconnection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Append,
    Attachment,
    Button,
    ButtonPressed,
    Card,
    Close,
    Delete,
    Draft,
    Edit,
    Flood,
    Gone,
    LookUp,
    MarkupRejected,
    MessageReceived,
    NotFound,
    Open,
    Place,
    Refused,
    Send,
    Sender,
    Sent,
    TooLong,
    Typing,
    Unknown,
    Update,
)
from tailrace.errors import PlatformError
from tailrace.platforms.slack.adapter import EDIT, OUTSIDE, OUTSIDE_IN_CHANNEL, STATUS, STREAM, SlackPlatform
from tailrace.platforms.slack.inbound import BotAccount, parse_envelope
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import Fault, bad_gateway, cut, json_fault, silence
from tailrace.testing.platforms.slack import FakeSlack, flood, refusal
from tailrace.testing.platforms.slack_channels import SlackChannel

PERSON = {"user": "U7", "team": "T0TEAM"}


@asynccontextmanager
async def app(slack: FakeSlack) -> AsyncIterator[SlackPlatform]:
    """The adapter without a socket."""
    platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url, answer_s=5.0)
    try:
        yield platform
    finally:
        await platform.close()


@asynccontextmanager
async def listening(slack: FakeSlack) -> AsyncIterator[tuple[SlackPlatform, CollectingInbox]]:
    platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
    async with running(platform) as inbox:
        yield platform, inbox


async def asked(slack: FakeSlack, channel: str = "C1") -> tuple[SlackChannel, Place]:
    """Somebody has asked: the channel, and where the answer goes."""
    where = slack.channel(channel)
    ts = await slack.write(where, "hello")
    return where, Place("slack", channel, ts, "private" if where.private else "group", PERSON)


# ── actions ──────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_a_native_stream_grows_with_cards_for_tools_under_the_question() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        general, place = await asked(slack)
        assert platform.capabilities(place) == STREAM
        reply = await platform.perform(place, Open("k", "**Once** "))
        assert isinstance(reply, Sent)
        ts = reply.message_id
        assert await platform.perform(place, Append(ts, "upon ", (Card("t1", "terminal ls"),))) == Accepted()
        assert await platform.perform(place, Append(ts, "", (Card("t1", "terminal ls", "done"),))) == Accepted()
        last = Close(ts, "a time.", (Card("t2", "web", "failed"),))
        assert await platform.perform(place, last) == Accepted()
        [answer] = general.answers
        assert (answer.thread_ts, [state.text for state in answer.states[1:]]) == (
            place.thread,
            ["**Once** ", "**Once** upon ", "**Once** upon ", "**Once** upon a time."],
        )
        assert answer.states[2].cards == (("t1", "terminal ls", "in_progress"),)
        assert answer.state.cards == (("t1", "terminal ls", "complete"), ("t2", "web", "error"))
        assert not answer.state.streaming
        assert await platform.perform(place, Close(ts)) == Gone("stream")


@driven
async def test_a_message_is_sent_edited_and_deleted_with_buttons_coming_and_going() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        general, place = await asked(slack)
        buttons = (Button("Approve once", "a:once"), Button("Deny", "a:deny"))
        reply = await platform.perform(place, Send("k", "**Run it?**\n\n| a |\n|---|\n| 1 |", buttons=buttons))
        assert isinstance(reply, Sent)
        assert await platform.perform(place, Edit(reply.message_id, "Done.")) == Accepted()
        first, then = general.answers[0].states
        assert (first.text, first.buttons) == (
            "**Run it?**\n\n| a |\n|---|\n| 1 |",
            (("Approve once", "a:once"), ("Deny", "a:deny")),
        )
        assert (then.text, then.buttons) == ("Done.", ())
        assert await platform.perform(place, Delete(reply.message_id)) == Accepted()
        assert await platform.perform(place, Delete(reply.message_id)) == Accepted()
        assert general.texts == []


@driven
async def test_without_markup_the_text_is_shown_character_by_character() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        general, place = await asked(slack)
        await platform.perform(place, Send("k", "**not bold** <b> &", markup=False))
        state = general.answers[0].state
        assert (state.text, state.markup) == ("**not bold** <b> &", False)


@driven
async def test_the_status_is_the_typing_and_needs_a_thread() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        general, place = await asked(slack)
        assert await platform.perform(place, Typing()) == Accepted()
        assert general.statuses == [(place.thread, STATUS)]
        assert isinstance(await platform.perform(Place("slack", "C1"), Typing()), Refused)
        assert isinstance(await platform.perform(place, Draft(1, "x")), Refused)


def test_where_nobody_is_answered_there_is_no_stream() -> None:
    platform = SlackPlatform("xoxb", "xapp")
    assert platform.capabilities(Place("slack", "C1", kind="group", extra=PERSON)) == OUTSIDE_IN_CHANNEL
    assert platform.capabilities(Place("slack", "D1")) == OUTSIDE
    assert platform.capabilities(Place("slack", "C1", "1.2", kind="group")) == EDIT
    assert platform.capabilities(Place("slack", "D1", "1.2")) == STREAM


# ── replies ──────────────────────────────────────────────────────────────────────────────────────────────────

SEND = Send("k", "hello")
METHODS: dict[type[AnyAction], str] = {
    Send: "chat.postMessage",
    Edit: "chat.update",
    Append: "chat.appendStream",
    Open: "chat.startStream",
}


@pytest.mark.parametrize(
    ("action", "fault", "reply"),
    [
        pytest.param(SEND, flood(7), Flood(7.0), id="G78-flood"),
        pytest.param(Append("1.2", "x"), flood(3), Flood(3.0), id="G78-append"),
        pytest.param(SEND, Fault(429, b"", {"Content-Type": "text/html"}), Flood(30.0), id="G78-without-a-time"),
        pytest.param(SEND, refusal("msg_too_long"), TooLong(), id="G82"),
        pytest.param(Edit("1.2", "x"), refusal("msg_blocks_too_long"), TooLong(), id="G82-edit"),
        pytest.param(SEND, refusal("invalid_blocks"), MarkupRejected(), id="G83"),
        pytest.param(SEND, refusal("invalid_attachments"), MarkupRejected(), id="G83-tables"),
        pytest.param(Send("k", "x", markup=False), refusal("invalid_blocks"), Refused("invalid_blocks"), id="G83-last"),
        pytest.param(SEND, refusal("channel_not_found"), Gone("chat"), id="no-channel"),
        pytest.param(SEND, refusal("is_archived"), Gone("chat"), id="archived"),
        pytest.param(SEND, refusal("not_in_channel"), Gone("chat"), id="put-out"),
        pytest.param(SEND, refusal("thread_not_found"), Gone("thread"), id="G85"),
        pytest.param(Edit("1.2", "x"), refusal("message_not_found"), Gone("message"), id="no-message"),
        pytest.param(Edit("1.2", "x"), refusal("edit_window_closed"), Refused("edit_window_closed"), id="too-late"),
        pytest.param(Append("1.2", "x"), refusal("message_not_in_streaming_state"), Gone("stream"), id="G90"),
        pytest.param(Open("k"), refusal("missing_scope"), Refused("missing_scope"), id="rights"),
        pytest.param(SEND, refusal("fatal_error"), Unknown("fatal_error"), id="some-of-it"),
    ],
)
def test_replies(action: AnyAction, fault: Fault, reply: AnyReply) -> None:
    @driven
    async def ask() -> AnyReply:
        async with FakeSlack() as slack, app(slack) as platform:
            slack.fail(METHODS[type(action)], fault)
            return await platform.perform(Place("slack", "C1", "1.1", "group", PERSON), action)

    assert ask() == reply


@driven
async def test_G85_a_deleted_thread_and_an_archived_channel_are_said() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        general, place = await asked(slack)
        slack.delete_thread(general, place.thread)
        assert await platform.perform(place, SEND) == Gone("thread")
        assert await platform.perform(place, Open("k", "hello")) == Gone("thread")
        general.archived = True
        assert await platform.perform(place, SEND) == Gone("chat")


@driven
async def test_G90_an_expired_stream_is_said_and_the_message_can_be_edited() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        general, place = await asked(slack)
        reply = await platform.perform(place, Open("k", "Once"))
        assert isinstance(reply, Sent)
        await asyncio.sleep(301.0)
        assert await platform.perform(place, Append(reply.message_id, " upon")) == Gone("stream")
        assert await platform.perform(place, Edit(reply.message_id, "Once upon a time.")) == Accepted()
        assert general.texts == ["Once upon a time."]


@pytest.mark.parametrize("fault", [silence(), cut(), bad_gateway(accepted=True)], ids=["silence", "cut", "gateway"])
@pytest.mark.parametrize("action", [SEND, Open("k", "hello")], ids=["send", "open"])
def test_G80_what_got_no_reply_is_unknown_and_is_found_again(action: Send | Open, fault: Fault) -> None:
    @driven
    async def ask() -> None:
        async with FakeSlack() as slack, app(slack) as platform:
            general, place = await asked(slack)
            before = await platform.perform(place, Open("before", "an earlier answer"))
            assert isinstance(before, Sent)
            await platform.perform(place, Close(before.message_id))
            assert await platform.perform(place, LookUp("k", "hello")) == NotFound()
            slack.fail(METHODS[type(action)], fault)
            assert isinstance(await platform.perform(place, action), Unknown)
            assert await platform.perform(place, LookUp("k", "hello")) == Sent(general.answers[-1].ts)
            assert general.texts == ["an earlier answer", "hello"]

    ask()


@driven
async def test_G80_what_never_arrived_is_known_not_to_be_there() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        _, place = await asked(slack)
        slack.fail("chat.postMessage", silence(accepted=False))
        assert isinstance(await platform.perform(place, SEND), Unknown)
        assert await platform.perform(place, LookUp("k", "hello")) == NotFound()
        assert await platform.perform(Place("slack", "C1", kind="group"), LookUp("k", "hello")) == NotFound()


@driven
async def test_G78_the_fake_holds_an_app_to_slacks_tiers() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        _, place = await asked(slack)
        sent = await platform.perform(place, Send("k", "x"))
        assert isinstance(sent, Sent)
        for number in range(50):
            assert await platform.perform(place, Edit(sent.message_id, f"x{number}")) == Accepted()
        reply = await platform.perform(place, Edit(sent.message_id, "y"))
        assert isinstance(reply, Flood)
        await asyncio.sleep(reply.retry_after_s)
        assert await platform.perform(place, Edit(sent.message_id, "y")) == Accepted()


# ── envelopes ────────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_a_direct_message_arrives_and_is_acknowledged() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        ts = await slack.write(slack.channel("D1"), "a &lt; b, see <https://example.org|here> and <#C9|general>")
        [update] = await inbox.wait_for(1)
        await slack.until(lambda: slack.acknowledged)
        text = "a < b, see here (https://example.org) and #general"
        place = Place("slack", "D1", ts, extra=PERSON)
        assert update == MessageReceived(f"D1:{ts}", place, Sender("U7"), text, message_id=ts)


@driven
async def test_who_is_spoken_to_in_a_channel_and_G88_a_mention_is_one_update() -> None:
    async with FakeSlack() as slack, listening(slack) as (platform, inbox):
        general = slack.channel("C1")
        sent = await platform.perform(Place("slack", "C1", kind="group"), SEND)
        assert isinstance(sent, Sent)
        first = await slack.write(general, "just talking")
        named = await slack.write(general, "hey <@U0BOT> help", thread=first)
        replied = await slack.write(general, "and then?", thread=sent.message_id)
        heard = [update for update in await inbox.wait_for(4) if isinstance(update, MessageReceived)]
        read = "[in reply to U7]\n> just talking\n\nhey help"
        assert [(update.text, update.addressed, update.place.thread) for update in heard] == [
            ("just talking", False, first),
            (read, True, first),
            (read, True, first),
            ("and then?", True, sent.message_id),
        ]
        assert heard[1] == heard[2]
        assert [update.update_id for update in heard[1:]] == [f"C1:{named}", f"C1:{named}", f"C1:{replied}"]


@driven
async def test_J110_bots_edits_and_joins_are_nobody() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        general = slack.channel("D1")
        await slack.write(general, "/stop", user="U0BOT")
        await slack.write(general, "/stop", fields={"bot_id": "B9"})
        await slack.write(general, "/stop", fields={"subtype": "message_changed"})
        await slack.write(general, "/stop", fields={"subtype": "channel_join"})
        await slack.write(general, "/stop", user="U9")
        [update] = await inbox.wait_for(1)
        assert update.sender == Sender("U9")
        await slack.until(lambda: len(slack.acknowledged) == 5)


@driven
async def test_a_pressed_button_and_a_slash_command_arrive() -> None:
    async with FakeSlack() as slack, listening(slack) as (platform, inbox):
        general, place = await asked(slack)
        await platform.perform(place, Send("k", "Run it?", buttons=(Button("Yes", "a:once"),)))
        await slack.press(general, general.answers[0], "Yes", user="U9")
        await slack.command(general, "/tailrace", "stop", user="U9")
        await slack.command(general, "/model", "gpt", user="U9")
        _, pressed, stop, model = await inbox.wait_for(4)
        assert isinstance(pressed, ButtonPressed)
        assert (pressed.value, pressed.place.key, pressed.sender) == ("a:once", place.key, Sender("U9", "name of U9"))
        assert isinstance(stop, MessageReceived)
        assert isinstance(model, MessageReceived)
        assert (stop.text, model.text, stop.addressed) == ("/stop", "/model gpt", True)
        assert stop.update_id != model.update_id


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("what is a mill?", "what is a mill?"),
        ("stop words in German?", "stop words in German?"),
        ("model railways of the world", "model railways of the world"),
        ("deny", "/deny"),
        ("deny it is not safe", "/deny it is not safe"),
        ("approve session", "/approve session"),
        ("model fake/other", "/model fake/other"),
        ("/stop", "/stop"),
        ("stpo", "/stpo"),
        ("", "/help"),
        ("/", "/help"),
    ],
)
def test_what_follows_our_slash_command_is_a_command_or_else_a_question(typed: str, text: str) -> None:
    payload = {"command": "/tailrace", "text": typed, "channel_id": "D1", "user_id": "U9", "trigger_id": "1"}
    update = parse_envelope("slash_commands", payload, BotAccount("U1"))
    assert isinstance(update, MessageReceived)
    assert update.text == text


@pytest.mark.parametrize("fault", [silence(), silence(accepted=False), cut(), bad_gateway()])
@pytest.mark.parametrize("where", ["response_url", "chat.postEphemeral"])
@driven
async def test_G80_what_is_for_one_person_alone_and_may_have_been_shown_is_not_sent_again(
    where: str, fault: Fault
) -> None:
    async with FakeSlack() as slack, listening(slack) as (platform, inbox):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "help", user="U9")
        [update] = await inbox.wait_for(1)
        if where == "chat.postEphemeral":
            slack.fail("response_url", json_fault(404, {"ok": False, "error": "expired_url"}))
        slack.fail(where, fault)
        to_one = replace(update.place, only_for="U9")
        assert isinstance(await platform.perform(to_one, Send("k", "Nothing is running.")), Unknown)
        assert len(slack.called("chat.postEphemeral")) == (where == "chat.postEphemeral")
        assert isinstance(await platform.perform(to_one, LookUp("k", "Nothing is running.")), Unknown)
        in_thread = replace(to_one, thread="1.1")
        assert not isinstance(await platform.perform(in_thread, LookUp("k", "Nothing is running.")), Unknown)


@pytest.mark.parametrize("fault", [None, json_fault(404, {"ok": False, "error": "expired_url"})])
@driven
async def test_what_is_for_one_person_alone_is_sent_at_the_commands_address_or_as_their_message(
    fault: Fault | None,
) -> None:
    async with FakeSlack() as slack, listening(slack) as (platform, inbox):
        general = slack.channel("C1")
        await slack.command(general, "/tailrace", "help", user="U9")
        [update] = await inbox.wait_for(1)
        if fault is not None:
            slack.fail("response_url", fault)
        to_one = replace(update.place, only_for="U9")
        assert isinstance(await platform.perform(to_one, Send("k", "`/model <name>`")), Sent)
        assert (general.whispers, general.texts) == ([("U9", "`/model <name>`")], [])
        assert len(slack.called("chat.postEphemeral")) == (fault is not None)
        assert isinstance(await platform.perform(to_one, Send("l", "again")), Sent)
        assert general.whispers[1:] == [("U9", "again")], "the address is used once"


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


@driven
async def test_a_stop_that_waits_for_the_persons_own_thread_is_confirmed_soon_and_comes_after_it() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        general = slack.channel("C1")
        above = await slack.write(general, "down again", user="U8")
        slack.fail("conversations.replies", silence())
        await slack.write(general, "<@U0BOT> why?", user="U9", thread=above)
        await slack.command(general, "/tailrace", "stop", user="U9")
        began = asyncio.get_running_loop().time()
        await slack.until(lambda: len(slack.acknowledged) == 2)
        assert asyncio.get_running_loop().time() - began < 3
        *_, last = await inbox.wait_for(4)  # a mention comes twice
        assert isinstance(last, MessageReceived)
        assert last.text == "/stop"
        await slack.until(lambda: len(slack.acknowledged) == 4)


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


@driven
async def test_files_are_fetched_with_the_token_up_to_a_size() -> None:
    async with FakeSlack() as slack, listening(slack) as (platform, inbox):
        await slack.write(slack.channel("D1"), "what is it?", files={"cat.png": b"a cat", "notes.txt": b"some notes"})
        [update] = await inbox.wait_for(1)
        assert isinstance(update, MessageReceived)
        cat, notes = update.attachments
        assert cat == Attachment(f"{slack.url}/files/cat.png", "cat.png", "image/png", 5)
        assert await platform.fetch(cat, max_bytes=5) == b"a cat"
        with pytest.raises(PlatformError, match="larger than 9 bytes"):
            await platform.fetch(notes, max_bytes=9)
        with pytest.raises(PlatformError, match="larger than 9 bytes"):
            await platform.fetch(Attachment(notes.ref, "notes.txt"), max_bytes=9)
        with pytest.raises(PlatformError, match="answered 404"):
            await platform.fetch(Attachment(f"{slack.url}/files/gone", "gone"), max_bytes=9)


@driven
async def test_the_token_is_shown_to_no_other_host() -> None:
    async with FakeSlack() as slack, FakeSlack() as elsewhere, app(slack) as platform:
        for url in (
            f"{elsewhere.url}/files/cat.png",
            slack.url.replace("127.0.0.1", "localhost"),
            "https://x.slack.com",
        ):
            with pytest.raises(PlatformError, match="not on Slack's own servers"):
                await platform.fetch(Attachment(url, "cat.png"), max_bytes=9)


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────


@driven
async def test_a_socket_that_slack_wants_replaced_is_and_what_was_said_meanwhile_arrives() -> None:
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        direct = slack.channel("D1")
        await slack.write(direct, "one")
        await slack.until(lambda: len(slack.acknowledged) == 1)
        await asyncio.sleep(3600)
        await slack.ask_to_reconnect()
        await slack.until(lambda: slack.connections == 2)
        await slack.write(direct, "two")
        await slack.until(lambda: len(slack.acknowledged) == 2)
        assert [update.text for update in inbox.updates if isinstance(update, MessageReceived)] == ["one", "two"]


@driven
async def test_a_connection_that_is_lost_is_said_and_what_was_said_meanwhile_arrives() -> None:
    async with FakeSlack() as slack:
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        first = CollectingInbox()
        run = asyncio.ensure_future(platform.run(first))
        await first.wait_connected()
        await slack.close_sockets()
        with pytest.raises(PlatformError, match="the connection was lost") as lost:
            await run
        assert not lost.value.permanent
        ts = await slack.write(slack.channel("D1"), "meanwhile")
        async with running(platform) as inbox:
            assert [update.update_id for update in await inbox.wait_for(1)] == [f"D1:{ts}"]


@driven
async def test_a_socket_that_is_not_to_be_had_is_said_without_its_ticket() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        nowhere = json_fault(200, {"ok": True, "url": "ws://127.0.0.1:1/link?ticket=secret"})
        slack.fail("apps.connections.open", nowhere)
        with pytest.raises(PlatformError, match=r"no connection: 127\.0\.0\.1:1 does not answer") as said:
            await platform.run(CollectingInbox())
        assert "secret" not in str(said.value)


def test_J114_the_ticket_of_a_socket_that_is_refused_is_in_no_log_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @driven
    async def refuse() -> str:
        async with FakeSlack() as slack, app(slack) as platform:
            address = f"{slack.url.replace('http', 'ws', 1)}/refused?ticket=secret&app_id=A1"
            slack.fail("apps.connections.open", json_fault(200, {"ok": True, "url": address}))
            with pytest.raises(PlatformError) as said:
                await platform.run(CollectingInbox())
            return str(said.value)

    caplog.set_level(logging.DEBUG)
    told = refuse()
    assert "secret" not in caplog.text + told
    [refused, *_] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert refused.getMessage().startswith("Failed to connect (error: 404")
    assert "ticket=…&app_id=A1" in refused.getMessage()
    assert any("'url': 'ws://" in record.getMessage() for record in caplog.records), "the answer that brings the ticket"


@driven
async def test_J114_the_address_to_answer_a_command_at_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeSlack() as slack, listening(slack) as (_, inbox):
        await slack.command(slack.channel("C1"), "/tailrace", "what is a mill?")
        await inbox.wait_for(1)
    assert "response_url" in caplog.text, "the envelope"
    assert "/commands/C1/U7" not in caplog.text


@driven
async def test_G88_what_was_not_taken_is_not_acknowledged_and_comes_again() -> None:
    async with FakeSlack() as slack:
        platform = SlackPlatform(slack.token, slack.app_token, base_url=slack.api_url)
        closing = CollectingInbox()
        closing.closed = True
        ts = await slack.write(slack.channel("D1"), "hello")
        with pytest.raises(PlatformError, match="no new work"):
            await platform.run(closing)
        assert slack.acknowledged == []
        async with running(platform) as inbox:
            assert [update.update_id for update in await inbox.wait_for(1)] == [f"D1:{ts}"]


@driven
async def test_wrong_tokens_are_permanent_and_never_shown() -> None:
    async with FakeSlack() as slack:
        for bot, app_level, which in (("xoxb-wrong", slack.app_token, "bot"), (slack.token, "xapp-wrong", "app-level")):
            platform = SlackPlatform(bot, app_level, base_url=slack.api_url)
            for attempt in (platform.run(CollectingInbox()), platform.check()):
                with pytest.raises(PlatformError, match=f"the {which} token was refused") as refused:
                    await attempt
                assert refused.value.permanent
                assert "wrong" not in str(refused.value)
            await platform.close()
        async with app(slack) as platform:
            assert await platform.check() == "tailrace in Testers"


@driven
async def test_what_is_no_token_of_that_kind_is_said_and_never_shown() -> None:
    async with FakeSlack() as slack:
        swapped = SlackPlatform(slack.app_token, slack.token, base_url=slack.api_url)
        for attempt in (swapped.run(CollectingInbox()), swapped.check()):
            with pytest.raises(
                PlatformError, match=r"the bot token was refused \(invalid_auth\): it does not begin"
            ) as said:
                await attempt
            assert "for-tests" not in str(said.value)
        await swapped.close()
        half = SlackPlatform(slack.token, slack.token, base_url=slack.api_url)
        with pytest.raises(PlatformError, match=r"app-level token .* does not begin with xapp-"):
            await half.run(CollectingInbox())
        await half.close()


@driven
async def test_a_persons_token_is_not_taken_for_the_bots() -> None:
    person = json_fault(200, {"ok": True, "user_id": "U7", "team_id": "T0TEAM", "user": "ada", "team": "Testers"})
    async with FakeSlack() as slack, app(slack) as platform:
        slack.fail("auth.test", person, person)
        for attempt in (platform.check(), platform.run(CollectingInbox())):
            with pytest.raises(PlatformError, match="the bot token is a person's") as said:
                await attempt
            assert said.value.permanent


@driven
async def test_who_answers_in_slacks_place_is_named_with_its_status() -> None:
    async with FakeSlack() as slack, app(slack) as platform:
        slack.fail("auth.test", bad_gateway())
        with pytest.raises(PlatformError, match=r"127\.0\.0\.1:\d+ answered 502, and not as Slack does$"):
            await platform.check()
