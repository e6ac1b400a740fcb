"""The Slack adapter through slack_sdk against the fake: each action and its reply, and the files that are fetched."""

from __future__ import annotations

import asyncio

import pytest
from proof.platforms.slack import FakeSlack, flood, refusal

from integrations.slack.slack_app import PERSON, SEND, app, asked, listening
from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Append,
    Attachment,
    Button,
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
    Sent,
    TooLong,
    Typing,
    Unknown,
)
from tailrace.errors import PlatformError
from tailrace.integrations.slack.adapter import EDIT, OUTSIDE, OUTSIDE_IN_CHANNEL, STATUS, STREAM, SlackPlatform
from tailrace.testing.clock import driven
from tailrace.testing.platforms.loopback import Fault, bad_gateway, cut, silence

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


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────


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
