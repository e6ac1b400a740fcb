"""Rooms of a real Synapse: which invitations are followed, and which messages there are heard after a pause."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from integrations.matrix.matrix_bot import bot_of, meet
from integrations.matrix.synapse import Homeserver, people
from tailrace.delivery.port import MessageReceived
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running


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
