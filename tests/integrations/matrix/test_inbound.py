"""Messages in rooms of a real Synapse: who is spoken to, and what the model reads of them."""

from __future__ import annotations

import pytest

from integrations.matrix.matrix_bot import bot_of, meet
from integrations.matrix.synapse import Homeserver, people
from tailrace.delivery.port import Attachment, MessageReceived, Place, Send, Sent
from tailrace.errors import PlatformError
from tailrace.integrations.matrix.notices import ENCRYPTED_FILE
from tailrace.testing.platforms.collecting_inbox import running


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


async def test_a_reply_to_an_answer_is_addressed_and_has_its_own_text_alone(server: Homeserver) -> None:
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
            assert (update.text, update.addressed) == ("and then?", True)


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
