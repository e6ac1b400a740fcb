"""A room that is upgraded names another room in its place: the bot goes there, and says so."""

from __future__ import annotations

import pytest

from integrations.matrix.matrix_bot import bot_of
from integrations.matrix.synapse import Homeserver, Person, people
from tailrace.delivery.port import MessageReceived
from tailrace.integrations.matrix.notices import REPLACED_ROOM
from tailrace.testing.platforms.collecting_inbox import running


def said(ada: Person, room: str, account: Person) -> list[str]:
    return [seen.text for seen in ada.from_(room, account.user_id)]


async def test_the_bot_follows_into_the_room_that_replaces_one_and_says_that_it_begins_anew(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        old = await ada.room(account.user_id, preset="public_chat")
        async with running(bot_of(server, account, allow=(ada.user_id,))) as inbox:
            inbox.strangers.add(ada.user_id)  # `allow` alone names her
            await ada.until(lambda: (old, account.user_id) in ada.joined)
            new = await ada.upgrade(old)
            await ada.until(lambda: said(ada, new, account) == [REPLACED_ROOM])
            await ada.write(new, "hello again")
            [heard] = await inbox.wait_for(1)
            assert isinstance(heard, MessageReceived)
            assert (heard.place.chat, heard.text) == (new, "hello again")


async def test_where_the_new_room_is_for_the_invited_it_is_entered_with_the_invitation(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        old = await ada.room(account.user_id)
        async with running(bot_of(server, account)):
            await ada.until(lambda: (old, account.user_id) in ada.joined)
            new = await ada.upgrade(old)
            await ada.ask("POST", f"client/v3/rooms/{new}/invite", {"user_id": account.user_id})
            await ada.until(lambda: said(ada, new, account) == [REPLACED_ROOM])


async def test_the_notice_comes_once_where_the_invitation_comes_after_a_restart(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        old = await ada.room(account.user_id)
        async with running(bot_of(server, account)):
            await ada.until(lambda: (old, account.user_id) in ada.joined)
        new = await ada.upgrade(old)
        async with running(bot_of(server, account)) as inbox:
            position = inbox.kept_position
            await ada.ask("POST", f"client/v3/rooms/{new}/invite", {"user_id": account.user_id})
            await ada.until(lambda: said(ada, new, account) == [REPLACED_ROOM])
        async with running(bot_of(server, account), position) as inbox:  # which hears of its entry again
            await ada.write(new, "hello again")
            await inbox.wait_for(1)
        assert said(ada, new, account) == [REPLACED_ROOM]


async def test_a_room_that_replaces_one_in_which_the_bot_never_was_needs_no_notice(server: Homeserver) -> None:
    async with people(server, "ada", "bot") as (ada, account):
        new = await ada.upgrade(await ada.room())
        async with running(bot_of(server, account)) as inbox:
            await ada.ask("POST", f"client/v3/rooms/{new}/invite", {"user_id": account.user_id})
            await ada.until(lambda: (new, account.user_id) in ada.joined)
            await ada.write(new, "hello")
            await inbox.wait_for(1)
        assert said(ada, new, account) == []


async def test_J110_a_stranger_who_upgrades_a_room_is_not_followed(
    server: Homeserver, caplog: pytest.LogCaptureFixture
) -> None:
    async with people(server, "ada", "eve", "bot") as (ada, eve, account):
        old = await eve.room(account.user_id, ada.user_id, preset="public_chat")
        for person in (account, ada):
            await person.ask("POST", f"client/v3/join/{old}", {})
        async with running(bot_of(server, account, allow=(ada.user_id,))) as inbox:
            inbox.strangers.add(eve.user_id)
            new = await eve.upgrade(old)
            after = await ada.room(account.user_id)
            await ada.until(lambda: (after, account.user_id) in ada.joined)
            rooms = await account.ask("GET", "client/v3/joined_rooms")
            assert set(rooms["joined_rooms"]) == {old, after}
    told = f"matrix: {eve.user_id} is not served: {new}, which replaces {old}, is not entered"
    assert [record.getMessage() for record in caplog.records if "replaces" in record.getMessage()] == [told]
