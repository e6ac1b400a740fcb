"""Events through discord.py: who is spoken to, and what buttons, commands and files become."""

from __future__ import annotations

import pytest
from proof.platforms.discord import FakeDiscord

from integrations.discord.discord_bot import ADA, GENERAL, SEND, THREAD, listening
from tailrace.delivery.port import Attachment, Button, ButtonPressed, MessageReceived, Send, Sender
from tailrace.errors import PlatformError
from tailrace.gateway.inbound.quotations import with_quotations


async def test_a_direct_message_arrives_and_the_bot_has_said_who_it_is() -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        async with listening(discord) as (_, inbox):
            message = await discord.write(ada, "hello")
            [update] = await inbox.wait_for(1)
            assert update == MessageReceived(
                f"message:{message}", ADA, Sender("7", "user7"), "hello", message_id=str(message)
            )
            assert [command["name"] for command in discord.commands][:2] == ["new", "stop"]
            assert discord.identified[0]["intents"] == (1 << 0) | (1 << 9) | (1 << 12) | (1 << 15)


async def test_who_is_spoken_to_in_a_channel_and_in_a_thread() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        thread = discord.thread(51, general)
        async with listening(discord) as (platform, inbox):
            await platform.perform(GENERAL, SEND)
            await discord.write(general, "just talking", user=7)
            await discord.write(general, "hey <@42>, help", user=7)
            await discord.write(general, "<@!42>", user=7, files={"a.txt": b"x"})
            await discord.write(general, "and then?", user=7, reply_to=general.answers[0])
            await discord.write(thread, "<@42> here", user=7)
            await discord.write(general, "/stop", user=7)
            heard = [update for update in await inbox.wait_for(6) if isinstance(update, MessageReceived)]
            assert [(with_quotations(update), update.addressed, update.place) for update in heard] == [
                ("just talking", False, GENERAL),
                ("hey @tailrace, help", True, GENERAL),
                ("", True, GENERAL),
                ("[in reply to you]\n> hello\n\nand then?", True, GENERAL),
                ("here", True, THREAD),
                ("/stop", False, GENERAL),
            ]


async def test_a_message_from_a_server_that_was_not_announced_is_no_direct_message() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with listening(discord) as (_, inbox):
            await discord.write(general, "just talking", user=7, fields={"guild_id": "9001"})
            [update] = await inbox.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.addressed, update.place) == (False, GENERAL)


async def test_J110_bots_webhooks_and_the_servers_own_messages_are_nobody() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with listening(discord) as (_, inbox):
            await discord.write(general, "/stop", user=42)
            await discord.write(general, "/stop", user=8, fields={"webhook_id": "8"})
            await discord.write(general, "joined", user=8, fields={"type": 7})
            await discord.write(general, "/stop", user=9)
            [update] = await inbox.wait_for(1)
            assert update.sender == Sender("9", "user9")


async def test_a_pressed_button_and_a_slash_command_are_acknowledged() -> None:
    async with FakeDiscord() as discord:
        thread = discord.thread(51, discord.channel(5))
        async with listening(discord) as (platform, inbox):
            await platform.perform(THREAD, Send("k", "Run it?", buttons=(Button("Yes", "a:once"),)))
            pressed = await discord.press(thread, thread.answers[0], "Yes", user=9)
            used = await discord.command(thread, "model", "gpt", user=9)
            await discord.until(lambda: discord.called("original"))
            person, place = Sender("9", "user9"), THREAD
            assert inbox.updates == [
                ButtonPressed(f"interaction:{pressed}", place, person, "a:once", str(thread.answers[0].id)),
                MessageReceived(f"interaction:{used}", place, person, "/model gpt"),
            ]
            assert discord.interaction_answers[pressed] == {"type": 6}
            told = discord.interaction_answers[used]["data"]
            assert (told["content"], told["flags"]) == ("👍", 64)  # only the asker sees it


async def test_a_question_behind_a_slash_command_is_shown_to_everybody_and_rings_for_nobody() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with listening(discord) as (_, inbox):
            used = await discord.command(general, "new", "Is @everyone there?", user=9)
            await discord.until(lambda: discord.called("original"))
            [update] = inbox.updates
            assert isinstance(update, MessageReceived)
            assert update.text == "/new Is @everyone there?"
            told = {"content": "> Is @everyone there?", "flags": 4, "allowed_mentions": {"parse": []}}
            assert discord.interaction_answers[used] == {"type": 5, "data": told}


async def test_a_command_of_a_stranger_is_not_confirmed() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with listening(discord) as (_, inbox):
            inbox.strangers.add("9")
            used = await discord.command(general, "stop", "", user=9)
            await discord.until(lambda: discord.called("original"))
            [update] = inbox.updates
            told = "I do not know you yet, and have done nothing."
            assert update.sender == Sender("9", "user9")
            answered = discord.interaction_answers[used]["data"]
            assert (answered["content"], answered["flags"]) == (told, 64)


async def test_a_button_that_a_stranger_presses_tells_them_so() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with listening(discord) as (platform, inbox):
            inbox.strangers.add("9")
            await platform.perform(GENERAL, Send("k", "Run it?", buttons=(Button("Yes", "a:once"),)))
            pressed = await discord.press(general, general.answers[0], "Yes", user=9)
            await discord.until(lambda: discord.follow_ups)
            told = "I do not know you yet, and have done nothing."
            answered = discord.follow_ups[pressed]
            assert (answered["content"], answered["flags"]) == (told, 64)


async def test_a_client_is_told_what_may_follow_each_command() -> None:
    async with FakeDiscord() as discord, listening(discord):
        offered = {
            command["name"]: [(option["name"], [choice["value"] for choice in option.get("choices", ())])]
            for command in discord.commands
            for option in command["options"]
        }
        assert offered == {
            "new": [("question", [])],
            "steer": [("message", [])],
            "queue": [("message", [])],
            "model": [("model", [])],
            "verbose": [("switch", ["on", "off"])],
            "yolo": [("switch", ["on", "off"])],
            "approve": [("scope", ["once", "session", "always"])],
            "deny": [("reason", [])],
        }
        assert all(1 <= len(option["description"]) <= 100 for one in discord.commands for option in one["options"])


async def test_files_arrive_and_are_fetched_up_to_a_size_without_the_token() -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        async with listening(discord) as (platform, inbox):
            await discord.write(ada, "what is it?", files={"cat.png": b"a cat", "notes.txt": b"some notes"})
            [update] = await inbox.wait_for(1)
            assert isinstance(update, MessageReceived)
            cat, notes = update.attachments
            assert cat == Attachment(f"{discord.url}/files/cat.png", "cat.png", "image/png", 5)
            assert notes.media_type == "text/plain"
            assert await platform.fetch(cat, max_bytes=5) == b"a cat"
            with pytest.raises(PlatformError, match="larger than 9 bytes"):
                await platform.fetch(notes, max_bytes=9)
            with pytest.raises(PlatformError, match="larger than 9 bytes"):
                await platform.fetch(Attachment(notes.ref, "notes.txt"), max_bytes=9)
            with pytest.raises(PlatformError, match="could not be fetched"):
                await platform.fetch(Attachment(f"{discord.url}/files/gone", "gone"), max_bytes=9)
