"""The Discord adapter against the fake, events through discord.py: each action and its reply, each way to reconnect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tailrace.config.load import load
from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Attachment,
    Button,
    ButtonPressed,
    Delete,
    Draft,
    Edit,
    Flood,
    Gone,
    MessageReceived,
    Place,
    Refused,
    Send,
    Sender,
    Sent,
    TooLong,
    Typing,
    Update,
)
from tailrace.errors import ConfigError, PlatformError
from tailrace.platforms.discord.adapter import DiscordPlatform, make
from tailrace.testing.clock import driven
from tailrace.testing.platforms.collecting_inbox import CollectingInbox, running
from tailrace.testing.platforms.discord import FakeDiscord, flood, refusal
from tailrace.testing.platforms.loopback import Fault

ADA = Place("discord", "70")
GENERAL = Place("discord", "5", kind="group")
THREAD = Place("discord", "5", "51", kind="group")
BY_ADA = {"user": "7"}  # who asked there
GENERAL_BY_ADA, THREAD_BY_ADA = (msgspec.structs.replace(place, extra=BY_ADA) for place in (GENERAL, THREAD))
SEND = Send("k", "hello")


@asynccontextmanager
async def bot(discord: FakeDiscord) -> AsyncIterator[DiscordPlatform]:
    """The adapter without a gateway."""
    platform = DiscordPlatform(discord.token, base_url=discord.url, answer_s=5.0)
    try:
        yield platform
    finally:
        await platform.close()


@asynccontextmanager
async def listening(discord: FakeDiscord) -> AsyncIterator[tuple[DiscordPlatform, CollectingInbox]]:
    platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
    async with running(platform) as inbox:
        yield platform, inbox


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
            GENERAL,
            refusal(403, 50013, "Missing Permissions"),
            Refused("Missing Permissions (50013)"),
            id="rights",
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


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────


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
            assert [(update.text, update.addressed, update.place) for update in heard] == [
                ("just talking", False, GENERAL_BY_ADA),
                ("hey @tailrace, help", True, GENERAL_BY_ADA),
                ("", True, GENERAL_BY_ADA),
                ("[in reply to you]\n> hello\n\nand then?", True, GENERAL_BY_ADA),
                ("here", True, THREAD_BY_ADA),
                ("/stop", True, GENERAL_BY_ADA),
            ]


async def test_a_message_from_a_server_that_was_not_announced_is_no_direct_message() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with listening(discord) as (_, inbox):
            await discord.write(general, "just talking", user=7, fields={"guild_id": "9001"})
            [update] = await inbox.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.addressed, update.place) == (False, GENERAL_BY_ADA)


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
            await discord.until(lambda: len(discord.interaction_answers) == 2)
            person, place = Sender("9", "user9"), msgspec.structs.replace(THREAD, extra={"user": "9"})
            assert inbox.updates == [
                ButtonPressed(f"interaction:{pressed}", place, person, "a:once", str(thread.answers[0].id)),
                MessageReceived(f"interaction:{used}", place, person, "/model gpt"),
            ]
            assert discord.interaction_answers[pressed] == {"type": 6}
            told = discord.interaction_answers[used]["data"]
            assert (told["content"], told["flags"]) == ("👍", 64)  # only the asker sees it


@pytest.mark.parametrize("name", ["new", "back"])
async def test_a_question_behind_a_slash_command_is_shown_to_everybody_and_rings_for_nobody(name: str) -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with listening(discord) as (_, inbox):
            used = await discord.command(general, name, "Is @everyone there?", user=9)
            await discord.until(lambda: used in discord.interaction_answers)
            [update] = inbox.updates
            assert isinstance(update, MessageReceived)
            assert update.text == f"/{name} Is @everyone there?"
            told = {"content": "> Is @everyone there?", "flags": 4, "allowed_mentions": {"parse": []}}
            assert discord.interaction_answers[used] == {"type": 4, "data": told}
            inbox.strangers.add("9")
            refused = await discord.command(general, name, "And now?", user=9)
            await discord.until(lambda: refused in discord.interaction_answers)
            assert discord.interaction_answers[refused]["data"]["flags"] == 64


async def test_a_command_of_a_stranger_is_not_confirmed() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        async with listening(discord) as (_, inbox):
            inbox.strangers.add("9")
            used = await discord.command(general, "stop", "", user=9)
            await discord.until(lambda: used in discord.interaction_answers)
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
            await discord.until(lambda: pressed in discord.interaction_answers)
            told = "I do not know you yet, and have done nothing."
            answered = discord.interaction_answers[pressed]["data"]
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
            "back": [("question", [])],
            "model": [("model", [])],
            "verbose": [("switch", ["on", "off"])],
            "yolo": [("switch", ["on", "off"])],
            "approve": [("scope", ["session", "always"])],
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


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["asked", "dropped"])
async def test_a_connection_that_ends_is_resumed_and_what_was_said_meanwhile_arrives(how: str) -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        async with listening(discord) as (_, inbox):
            await discord.write(ada, "one")
            await inbox.wait_for(1)
            if how == "asked":
                await discord.ask_to_reconnect()
            else:
                discord.drop_connections()
            await discord.write(ada, "two")
            updates = await inbox.wait_for(2)
            await inbox.wait_connected(2)
            assert [update.text for update in updates if isinstance(update, MessageReceived)] == ["one", "two"]
            assert (discord.resumes, len(discord.identified)) == (1, 1)


async def test_an_event_that_cannot_be_read_is_left_out_and_what_follows_is_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        endless: dict[str, object] = {
            "question": {"text": "Tea?"},
            "answers": [],
            "expiry": None,
            "allow_multiselect": False,
        }
        async with listening(discord) as (_, inbox):
            await discord.write(ada, "vote", fields={"poll": endless})  # discord.py computes with its end
            await discord.write(ada, "hello")
            [update] = await inbox.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.text, discord.resumes) == ("hello", 0)
    assert "an event could not be read and is left out: MESSAGE_CREATE (TypeError)" in caplog.text


async def test_the_log_says_that_a_connection_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tailrace.platforms.discord")
    async with FakeDiscord() as discord, listening(discord) as (_, inbox):
        discord.drop_connections()
        await inbox.wait_connected(2)
        await discord.invalidate_sessions()
        await inbox.wait_connected(3)
    lines = [record.message for record in caplog.records if record.name == "tailrace.platforms.discord"]
    assert lines == [
        "discord: the connection was lost; its session is resumed",
        "discord: the session was ended; another one begins",
    ]


async def test_a_session_that_cannot_be_resumed_is_begun_anew() -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        async with listening(discord) as (_, inbox):
            await discord.invalidate_sessions()
            await inbox.wait_connected(2)
            await discord.write(ada, "hello")
            assert len(await inbox.wait_for(1)) == 1
            assert (discord.resumes, len(discord.identified)) == (0, 2)


async def test_a_wrong_token_and_a_missing_intent_are_permanent_and_the_token_is_never_shown() -> None:
    async with FakeDiscord() as discord:
        stranger = DiscordPlatform("wrong-token", base_url=discord.url, gateway_url=discord.gateway_url)
        with pytest.raises(PlatformError, match="token was refused") as refused:
            await stranger.run(CollectingInbox())
        assert refused.value.permanent
        assert "wrong-token" not in str(refused.value)
        with pytest.raises(PlatformError, match="token was refused"):
            await stranger.check()
        await stranger.close()
        discord.content_intent = False
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        with pytest.raises(PlatformError, match="message content intent") as refused:
            await platform.run(CollectingInbox())
        assert refused.value.permanent
        with pytest.raises(PlatformError, match="message content intent") as refused:
            await platform.check()
        assert refused.value.permanent
        discord.content_intent = True
        assert await platform.check() == "logged in as tailrace"
        await platform.close()


async def test_a_bot_that_the_gateway_refused_goes_back_there_only_once_that_can_help() -> None:
    async with FakeDiscord() as discord:
        discord.content_intent = False
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        for _ in range(3):
            assert "message content intent" in await _ends(platform, CollectingInbox())
        assert len(discord.identified) == 1, "Discord resets the token of a bot that does that too often"
        discord.content_intent = True
        async with running(platform):
            assert len(discord.identified) == 2


async def test_a_bot_that_is_in_no_server_is_told_with_its_invitation() -> None:
    async with FakeDiscord() as discord, bot(discord) as platform:
        discord.in_server = False
        told = await platform.check()
        assert told == (
            "logged in as tailrace, which is in no server yet: invite it with "
            "https://discord.com/oauth2/authorize?client_id=43&scope=bot+applications.commands&permissions=274878008320"
        )
        discord.fail("guilds", Fault(502, b"<html>"))
        assert await platform.check() == "logged in as tailrace"


async def test_an_address_without_discords_api_is_named() -> None:
    async with FakeDiscord() as discord:
        platform = DiscordPlatform(discord.token, base_url=f"{discord.url}/api/v9")
        with pytest.raises(PlatformError, match="no REST API of Discord"):
            await platform.check()
        await platform.close()


async def test_a_gateway_that_cannot_be_reached_is_said_by_the_check_too() -> None:
    async with FakeDiscord() as gone:
        address = gone.gateway_url
    async with FakeDiscord() as discord:
        elsewhere = f"{discord.gateway_url}/none"
        for wrong, words in ((address, "no connection"), (elsewhere, f"no gateway of Discord at {elsewhere} .404")):
            platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=wrong)
            with pytest.raises(PlatformError, match=words) as refused:
                await platform.run(CollectingInbox())
            assert not refused.value.permanent
            with pytest.raises(PlatformError, match=words):
                await platform.check()
            await platform.close()
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        assert await platform.check() == "logged in as tailrace"
        await platform.close()


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("Bot MTk4", "DISCORD_BOT_TOKEN has a blank or a line end"),
        ("MTk4\nNjIy", "DISCORD_BOT_TOKEN holds a line break"),
        ("MTk4\x00", "DISCORD_BOT_TOKEN holds a line break or another control character"),
    ],
)
def test_a_token_that_cannot_be_one_is_told_and_not_shown(token: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("platforms: {discord: {enabled: true}}")
    with pytest.raises(ConfigError, match=told) as refused:
        make(load({"DISCORD_BOT_TOKEN": token}, tmp_path))
    assert "MTk4" not in str(refused.value)


async def test_G88_what_an_inbox_did_not_take_is_heard_again_by_the_next_run() -> None:
    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        inbox = CollectingInbox()
        inbox.closed = True
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(_ends(platform, inbox))
            await inbox.wait_connected()
            await discord.write(ada, "hello")
            assert "no new work" in await run
        async with running(platform) as later:
            [update] = await later.wait_for(1)
            assert isinstance(update, MessageReceived)
            assert (update.text, discord.resumes) == ("hello", 1)


async def test_G88_what_is_heard_while_a_run_ends_does_not_take_the_place_of_what_was_not_taken() -> None:
    class Refusing(CollectingInbox):
        async def put(self, update: Update) -> None:
            asyncio.get_running_loop().call_soon(hear_another)
            raise PlatformError("no new work")

    def hear_another() -> None:
        """As `listen` does in the last moment before it is cancelled."""
        platform._session.sequence = (platform._session.sequence or 0) + 1

    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        inbox = Refusing()
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(_ends(platform, inbox))
            await inbox.wait_connected()
            await discord.write(ada, "one")
            await run
        async with running(platform) as later:
            await discord.write(ada, "two")
            heard = await later.wait_for(2)
            assert [update.text for update in heard if isinstance(update, MessageReceived)] == ["one", "two"]


async def test_G85_a_resumed_session_knows_channels_and_threads_as_before() -> None:
    async with FakeDiscord() as discord:
        general = discord.channel(5)
        thread = discord.thread(51, general)
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        inbox = CollectingInbox()
        inbox.closed = True
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(_ends(platform, inbox))
            await inbox.wait_connected()
            await discord.write(thread, "<@42> hello", user=7)
            await run
        async with running(platform) as later:
            await discord.write(general, "just talking", user=7)
            heard = [update for update in await later.wait_for(2) if isinstance(update, MessageReceived)]
            assert discord.resumes == 1
            assert [(update.text, update.addressed, update.place) for update in heard] == [
                ("hello", True, THREAD_BY_ADA),
                ("just talking", False, GENERAL_BY_ADA),
            ]


async def test_G88_an_event_in_whose_handling_the_run_was_cancelled_is_heard_again() -> None:
    class Slow(CollectingInbox):
        async def put(self, update: Update) -> None:
            await super().put(update)
            await asyncio.Event().wait()

    async with FakeDiscord() as discord:
        ada = discord.direct(70, 7)
        platform = DiscordPlatform(discord.token, base_url=discord.url, gateway_url=discord.gateway_url)
        slow = Slow()
        run = asyncio.ensure_future(platform.run(slow))
        await slow.wait_connected()
        await discord.write(ada, "one")
        await discord.write(ada, "two")
        await slow.wait_for(1)
        run.cancel()
        await asyncio.wait([run])
        async with running(platform) as later:
            heard = await later.wait_for(2)
            assert [update.text for update in heard if isinstance(update, MessageReceived)] == ["one", "two"]


async def _ends(platform: DiscordPlatform, inbox: CollectingInbox) -> str:
    with pytest.raises(PlatformError) as ended:
        await platform.run(inbox)
    return str(ended.value)
