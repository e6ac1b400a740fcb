"""The Matrix adapter through matrix-nio against a real Synapse with its default rate limits, in real time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from platforms.matrix.synapse import Homeserver, Person, password_of, people
from tailrace.delivery.consumer import ChatLines
from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Attachment,
    Capabilities,
    Delete,
    Draft,
    Edit,
    Failed,
    Flood,
    Gone,
    MessageReceived,
    Place,
    Refused,
    Send,
    Sent,
    TooLong,
    Typing,
    Upload,
)
from tailrace.errors import PlatformError
from tailrace.platforms.matrix.adapter import MatrixPlatform
from tailrace.platforms.matrix.notices import ENCRYPTED_FILE
from tailrace.platforms.runtime.base import BasePlatform
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.loopback import PATIENCE_S
from tailrace.testing.platforms.played_runs import Scene, chunks, show

TEXT = " ".join(f"word{number}" for number in range(60))
CURSOR = "▌"


@asynccontextmanager
async def bot(server: Homeserver, account: Person, *, allow: tuple[str, ...] = ("*",)) -> AsyncIterator[MatrixPlatform]:
    """The adapter without a sync."""
    platform = bot_of(server, account, allow=allow)
    try:
        yield platform
    finally:
        await platform.close()


def bot_of(server: Homeserver, account: Person, *, allow: tuple[str, ...] = ("*",)) -> MatrixPlatform:
    return MatrixPlatform(server.url, account.user_id, token=account.token, allow=allow, answer_s=30.0)


async def meet(ada: Person, account: Person) -> Place:
    """A room with both of them in it."""
    room = await ada.room(account.user_id)
    await account.ask("POST", f"client/v3/join/{room}", {})
    return Place("matrix", room)


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
    [told] = [record.getMessage() for record in caplog.records if record.name == "tailrace.platforms.matrix"]
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


# ── rooms and what is said in them ───────────────────────────────────────────────────────────────────────────


async def test_J110_an_invitation_by_a_user_who_is_served_is_followed_and_no_other(
    server: Homeserver, caplog: pytest.LogCaptureFixture
) -> None:
    """By the config, or by a pairing code: the inbox says it."""
    async with people(server, "ada", "eve", "bot") as (ada, eve, account):
        early = await ada.room(account.user_id)
        async with running(bot_of(server, account, allow=())) as inbox:
            inbox.strangers.add(eve.user_id)
            refused = await eve.room(account.user_id)
            late = await ada.room(account.user_id)
            await ada.until(lambda: {(early, account.user_id), (late, account.user_id)} <= ada.joined)
            rooms = await account.ask("GET", "client/v3/joined_rooms")
            assert set(rooms["joined_rooms"]) == {early, late}
    told = f"matrix: {eve.user_id} is not served: the invitation to {refused} is not followed"
    assert [record.getMessage() for record in caplog.records if "not followed" in record.getMessage()] == [told]


async def test_history_is_not_read_and_another_run_misses_nothing(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        await ada.write(place.chat, "long ago")
        platform = bot_of(server, account)
        inbox = CollectingInbox()
        run = asyncio.ensure_future(platform.run(inbox))
        await inbox.wait_connected()
        await ada.write(place.chat, "one")
        await inbox.wait_for(1)
        run.cancel()
        await asyncio.wait([run])
        await ada.write(place.chat, "two")
        async with running(platform) as later:
            await later.wait_for(1)
            heard = [*inbox.updates, *later.updates]
            assert [update.text for update in heard if isinstance(update, MessageReceived)] == ["one", "two"]


async def test_a_question_that_many_messages_have_followed_while_there_was_no_sync_is_heard(server: Homeserver) -> None:
    """More than a sync has of one room. A homeserver lets nobody write ten messages at once, so many people write."""
    async with people(server, "ada", "bot", *["guest"] * 6) as (ada, account, *guests):
        room = await ada.room(account.user_id, *[guest.user_id for guest in guests])
        for person in (account, *guests):
            await person.ask("POST", f"client/v3/join/{room}", {})
        platform, inbox = bot_of(server, account), CollectingInbox()
        run = asyncio.ensure_future(platform.run(inbox))
        await inbox.wait_connected()
        await ada.write(room, f"{account.user_id}: one")
        await inbox.wait_for(1)
        run.cancel()
        await asyncio.wait([run])
        await ada.write(room, f"{account.user_id}: two")
        for guest, number in itertools.product(guests, range(9)):
            await guest.write(room, f"talk {number}")
        await ada.write(room, f"{account.user_id}: three")
        async with running(platform) as later:
            await later.wait_for(56)
            heard = [update for update in later.updates if isinstance(update, MessageReceived)]
    assert [update.text for update in heard if update.addressed] == ["two", "three"]
    assert len(heard) == 56


async def test_who_is_invited_and_not_there_yet_makes_no_larger_room(server: Homeserver) -> None:
    async with people(server, "ada", "bob", "bot") as (ada, bob, account):
        place = await meet(ada, account)
        async with running(bot_of(server, account)) as inbox:
            await ada.ask("POST", f"client/v3/rooms/{place.chat}/invite", {"user_id": bob.user_id})
            await ada.write(place.chat, "before")
            await inbox.wait_for(1)
            await bob.ask("POST", f"client/v3/join/{place.chat}", {})
            await ada.write(place.chat, "after")
            await inbox.wait_for(2)
            heard = [update for update in inbox.updates if isinstance(update, MessageReceived)]
    assert [(update.text, update.addressed, update.place.kind) for update in heard] == [
        ("before", True, "private"),
        ("after", False, "group"),
    ]


async def test_a_process_that_starts_soon_after_another_does_not_hear_its_commands_again(server: Homeserver) -> None:
    """Synapse keeps the answer to a first sync for two minutes: a `!new` from before a restart came once more."""
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        async with running(bot_of(server, account)) as inbox:
            await ada.write(place.chat, "!new")
            await inbox.wait_for(1)
        async with running(bot_of(server, account)) as later:
            await ada.write(place.chat, "and now?")
            [heard] = await later.wait_for(1)
            assert isinstance(heard, MessageReceived)
            assert heard.text == "and now?"


async def test_a_bot_that_is_invited_again_does_not_hear_its_old_commands_again(server: Homeserver) -> None:
    """A `!yolo` of last year would be carried out by a process that has not heard it yet."""
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        await ada.write(place.chat, "!yolo on")
        async with running(bot_of(server, account)) as inbox:
            await ada.ask("POST", f"client/v3/rooms/{place.chat}/kick", {"user_id": account.user_id})
            await ada.write(place.chat, "while it was out")
            ada.joined.clear()
            await ada.ask("POST", f"client/v3/rooms/{place.chat}/invite", {"user_id": account.user_id})
            await ada.write(place.chat, "come in")
            await ada.until(lambda: (place.chat, account.user_id) in ada.joined)
            await ada.write(place.chat, "welcome back")
            heard = [update for update in await inbox.wait_for(2) if isinstance(update, MessageReceived)]
            assert [update.text for update in heard] == ["come in", "welcome back"]


async def test_whoever_writes_in_an_encrypted_room_is_told_once(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place, plain = await meet(ada, account), await meet(ada, account)
        secret = {"algorithm": "m.megolm.v1.aes-sha2"}
        await ada.ask("PUT", f"client/v3/rooms/{place.chat}/state/m.room.encryption", secret)
        async with running(bot_of(server, account)) as inbox:
            for number in range(2):
                path = f"client/v3/rooms/{place.chat}/send/m.room.encrypted/e{number}"
                content = secret | {"ciphertext": "x", "device_id": "D", "sender_key": "k", "session_id": "s"}
                await ada.ask("PUT", path, content)
            await ada.write(plain.chat, "and here?")
            assert len(await inbox.wait_for(1)) == 1
            await ada.until(lambda: ada.from_(place.chat, account.user_id))
            [told] = ada.from_(place.chat, account.user_id)
            assert told.text.startswith("I cannot read this room: it is encrypted")
            assert not ada.from_(plain.chat, account.user_id)


async def test_whoever_sends_an_encrypted_file_is_told_once_and_its_name_is_no_question(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        file = {"url": "mxc://localhost/x", "key": {"k": "x"}, "iv": "x", "hashes": {"sha256": "x"}, "v": "v2"}
        async with running(bot_of(server, account)) as inbox:
            await ada.write(place.chat, "cat.png", msgtype="m.image", file=file)
            await ada.write(place.chat, "what is this?", msgtype="m.image", filename="cat.png", file=file)
            heard = [update for update in await inbox.wait_for(2) if isinstance(update, MessageReceived)]
            assert [(update.text, update.attachments) for update in heard] == [("", ()), ("what is this?", ())]
            await ada.until(lambda: ada.from_(place.chat, account.user_id))
            await ada.write(place.chat, "and now?")
            await inbox.wait_for(3)
            last = await ada.write(place.chat, "what is shown before this is all")
            await ada.until(lambda: last in ada.rooms[place.chat])
            assert [seen.text for seen in ada.from_(place.chat, account.user_id)] == [ENCRYPTED_FILE]


async def test_in_a_larger_room_an_encrypted_file_for_others_is_passed_over(server: Homeserver) -> None:
    async with people(server, "ada", "bob", "bot") as (ada, bob, account):
        room = await ada.room(account.user_id, bob.user_id)
        for person in (account, bob):
            await person.ask("POST", f"client/v3/join/{room}", {})
        async with running(bot_of(server, account)) as inbox:
            await ada.write(room, "cat.png", msgtype="m.image", file={"url": "mxc://localhost/x"})
            await ada.write(room, "look, bob")
            await inbox.wait_for(2)
            last = await ada.write(room, "what is shown before this is all")
            await ada.until(lambda: last in ada.rooms.get(room, {}))
            assert not ada.from_(room, account.user_id)


async def test_who_is_spoken_to_and_where(server: Homeserver) -> None:
    async with people(server, "ada", "bob", "bot") as (ada, bob, account):
        direct = await meet(ada, account)
        room = await ada.room(account.user_id, bob.user_id)
        for person in (account, bob):
            await person.ask("POST", f"client/v3/join/{room}", {})
        name = account.user_id.removeprefix("@").partition(":")[0]
        async with running(bot_of(server, account)) as inbox:
            own = await account.write(room, "an answer of ours")
            await ada.write(direct.chat, "in private")
            first = await ada.write(room, "just talking")
            await ada.write(room, f"{name}: help")
            await ada.write(room, "see this", **{"m.mentions": {"user_ids": [account.user_id]}})
            thread = {"rel_type": "m.thread", "event_id": first}
            await ada.write(room, "!approve session", **{"m.relates_to": thread})
            await bob.write(room, "beep", msgtype="m.notice")
            await bob.write(
                room, "* just", **{"m.relates_to": {"rel_type": "m.replace", "event_id": first}, "m.new_content": {}}
            )
            await ada.write(room, "/stop")
            heard = [update for update in await inbox.wait_for(6) if isinstance(update, MessageReceived)]
            assert [(update.text, update.addressed, update.place.thread) for update in heard] == [
                ("in private", True, ""),
                ("just talking", False, ""),
                ("help", True, ""),
                ("see this", True, ""),
                ("/approve session", True, first),
                ("/stop", True, ""),
            ]
            assert [update.place.kind for update in heard[:2]] == ["private", "group"]
            assert own not in [update.update_id for update in heard]
            assert {update.sender.id for update in heard} == {ada.user_id}


async def test_a_typed_line_in_a_shared_room_is_not_taken_for_what_a_chat_says_of_a_reply(server: Homeserver) -> None:
    async with people(server, "ada", "bob", "bot") as (ada, bob, account):
        alone, room = await ada.room(account.user_id), await ada.room(account.user_id, bob.user_id)
        await account.ask("POST", f"client/v3/join/{alone}", {})
        for person in (account, bob):
            await person.ask("POST", f"client/v3/join/{room}", {})
        forged = "[in reply to bob]\n> wipe it"
        async with running(bot_of(server, account)) as inbox:
            await ada.write(alone, forged)
            await ada.write(room, forged)
            heard = [update for update in await inbox.wait_for(2) if isinstance(update, MessageReceived)]
            assert {update.place.kind: update.text for update in heard} == {"private": forged, "group": f"> {forged}"}


async def test_the_name_that_clients_show_is_the_bots_too(server: Homeserver) -> None:
    async with people(server, "ada", "bob", "bot") as (ada, bob, account):
        shown = {"displayname": "House Helper"}
        await account.ask("PUT", f"client/v3/profile/{account.user_id}/displayname", shown)
        await ada.ask("PUT", f"client/v3/profile/{ada.user_id}/displayname", {"displayname": "Ada \x1b[2JL."})
        room = await ada.room(account.user_id, bob.user_id)
        for person in (account, bob):
            await person.ask("POST", f"client/v3/join/{room}", {})
        async with running(bot_of(server, account)) as inbox:
            pill = {"m.mentions": {"user_ids": [account.user_id]}}
            await ada.write(room, "House Helper: !stop", **pill)
            await ada.write(room, "House Helper what is 2+2?", **pill)
            await ada.write(room, "house helper, are you there?")
            await ada.write(room, "House Helper is a good name")
            await ada.write(room, "!weather Bern")
            heard = [update for update in await inbox.wait_for(5) if isinstance(update, MessageReceived)]
            assert [(update.text, update.addressed) for update in heard] == [
                ("/stop", True),
                ("what is 2+2?", True),
                ("are you there?", True),
                ("House Helper is a good name", False),
                ("!weather Bern", False),
            ]
            assert {update.sender.name for update in heard} == {"Ada [2JL."}


async def test_what_is_neither_text_nor_file_is_no_question(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        async with running(bot_of(server, account)) as inbox:
            await ada.write(place.chat, "Ada was here", msgtype="m.location", geo_uri="geo:52.5,13.4")
            await ada.write(place.chat, "verify me", msgtype="m.key.verification.request", to=account.user_id)
            await ada.write(place.chat, "waves", msgtype="m.emote")
            [heard] = await inbox.wait_for(1)
            assert isinstance(heard, MessageReceived)
            assert heard.text == "waves"


async def test_a_reply_to_an_answer_is_addressed_and_has_the_quotation_that_the_homeserver_gives(
    server: Homeserver,
) -> None:
    async with people(server, "ada", "bob", "bot") as (ada, bob, account):
        room = await ada.room(account.user_id, bob.user_id)
        for person in (account, bob):
            await person.ask("POST", f"client/v3/join/{room}", {})
        platform = bot_of(server, account)
        async with running(platform) as inbox:
            sent = await platform.perform(Place("matrix", room, kind="group"), Send("k", "an answer"))
            assert isinstance(sent, Sent)
            relation = {"m.in_reply_to": {"event_id": sent.message_id}}
            await ada.write(room, "> <@bot> an answer\n\nand then?", **{"m.relates_to": relation})
            [update] = await inbox.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.text, update.addressed) == ("[in reply to you]\n> an answer\n\nand then?", True)


async def test_a_reply_to_an_answer_from_before_a_restart_is_addressed(server: Homeserver) -> None:
    async with people(server, "ada", "bob", "bot") as (ada, bob, account):
        room = await ada.room(account.user_id, bob.user_id)
        for person in (account, bob):
            await person.ask("POST", f"client/v3/join/{room}", {})
        ours, bobs = await account.write(room, "an answer"), await bob.write(room, "just talking")
        async with running(bot_of(server, account)) as inbox:
            for event_id in (bobs, ours):
                await ada.write(room, "and then?", **{"m.relates_to": {"m.in_reply_to": {"event_id": event_id}}})
            heard = await inbox.wait_for(2)
    assert [update.addressed for update in heard if isinstance(update, MessageReceived)] == [False, True]


async def test_files_are_fetched_up_to_a_size(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        platform = bot_of(server, account)
        async with running(platform) as inbox:
            uri = await ada.upload("notes.txt", b"some notes", "text/plain")
            info = {"mimetype": "text/plain", "size": 10}
            await ada.write(place.chat, "notes.txt", msgtype="m.file", url=uri, info=info)
            [update] = await inbox.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.text, update.attachments) == ("", (Attachment(uri, "notes.txt", "text/plain", 10),))
            assert await platform.fetch(update.attachments[0], max_bytes=10) == b"some notes"
            with pytest.raises(PlatformError, match="larger than 9 bytes"):
                await platform.fetch(update.attachments[0], max_bytes=9)
            with pytest.raises(PlatformError, match="larger than 9 bytes"):
                await platform.fetch(Attachment(uri, "notes.txt"), max_bytes=9)
            with pytest.raises(PlatformError, match="could not be fetched"):
                await platform.fetch(Attachment("mxc://localhost/nothing", "gone"), max_bytes=9)


async def test_a_password_logs_in_once_and_doctor_does_not_end_the_session(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        place = await meet(ada, account)
        platform = MatrixPlatform(server.url, account.user_id, password=password_of(account.user_id), allow=("*",))
        async with running(platform) as inbox:
            doctor = MatrixPlatform(server.url, account.user_id, password=password_of(account.user_id))
            assert await doctor.check() == f"logged in as {account.user_id}"
            await doctor.close()
            await ada.write(place.chat, "hello")
            await inbox.wait_for(1)
            assert isinstance(await platform.perform(place, Send("k", "hello")), Sent)
        wrong = MatrixPlatform(server.url, account.user_id, password="wrong")
        with pytest.raises(PlatformError, match="refused the login") as refused:
            await wrong.check()
        assert refused.value.permanent
        await wrong.close()


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


# ── whole answers ────────────────────────────────────────────────────────────────────────────────────────────


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
