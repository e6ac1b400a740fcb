"""What the model reads of a message that somebody replies to, or that a thread hangs from."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from integrations.matrix.test_gaps import BOB, BOT, BROKEN, ROOM, Silent, in_thread, message, reply, silent, talk, texts
from tailrace.delivery.port import Attachment, MessageReceived
from tailrace.gateway.inbound.quotations import with_quotations
from tailrace.integrations.matrix.adapter import MatrixPlatform
from tailrace.testing.platforms.collecting_inbox import running

MENTION = {"m.mentions": {"user_ids": [BOT]}}


async def heard(platform: MatrixPlatform, count: int, *, in_conversation: bool = False) -> list[MessageReceived]:
    """The messages, with what the gateway would ask the platform for."""
    async with running(platform) as inbox:
        messages = [one for one in await inbox.wait_for(count) if isinstance(one, MessageReceived)]
        return [replace(one, quoted=await platform.quoted(one, in_conversation=in_conversation)) for one in messages]


async def read(platform: MatrixPlatform, count: int, *, in_conversation: bool = False) -> list[str]:
    return [with_quotations(one) for one in await heard(platform, count, in_conversation=in_conversation)]


def has(homeserver: Silent, **said: dict[str, Any]) -> None:
    homeserver.found = {f"${name}": event for name, event in said.items()}


@pytest.mark.parametrize("joined", [2, 3])
async def test_a_reply_brings_what_it_replies_to(joined: int) -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, reply("r1", "$bobs", "why?", **MENTION), reply("r2", "$ours"), joined=joined)
        edited = {"unsigned": {"m.relations": {"m.replace": {"content": {"m.new_content": {"body": "It is\ngreen."}}}}}}
        has(homeserver, bobs=message("x", "The build is red."), ours=message("y", "It is ▌") | edited)
        assert await read(platform, 2) == [
            f'[in reply to "{BOB}"]\n> The build is red.\n\nwhy?',
            "[in reply to you]\n> It is\n> green.\n\nand then?",
        ]


async def test_a_message_in_a_thread_that_the_bot_is_called_into_brings_the_root_of_the_thread() -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, in_thread("t1", "$ours"), in_thread("t2", "$bobs", **MENTION))
        has(homeserver, ours=message("x", "It is green."), bobs=message("y", "It is red."))
        assert await read(platform, 2) == [
            "[in reply to you]\n> It is green.\n\nand then?",
            f'[in reply to "{BOB}"]\n> It is red.\n\nand then?',
        ]


async def test_in_a_thread_that_is_a_conversation_the_root_is_not_quoted_again() -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, in_thread("t1", "$ours"), in_thread("t2", "$bobs", **MENTION))
        has(homeserver, ours=message("x", "It is green."), bobs=message("y", "It is red."))
        assert await read(platform, 2, in_conversation=True) == ["and then?"] * 2


async def test_a_reply_to_a_picture_brings_the_picture() -> None:
    info = {"mimetype": "image/png", "size": 9}
    picture = message("x", "mill.png") | {
        "content": {"msgtype": "m.image", "body": "mill.png", "url": "mxc://localhost/a", "info": info}
    }
    async with silent() as (homeserver, platform):
        talk(homeserver, reply("r1", "$bobs", "what is this?", **MENTION))
        has(homeserver, bobs=picture)
        [update] = await heard(platform, 1)
        assert with_quotations(update) == f'[in reply to "{BOB}"]\n> mill.png\n\nwhat is this?'
        assert update.quoted[0].files == (Attachment("mxc://localhost/a", "mill.png", "image/png", 9),)


async def test_a_message_whose_reference_cannot_be_read_is_heard_without(caplog: pytest.LogCaptureFixture) -> None:
    async with silent() as (homeserver, platform):
        redacted = message("x", "") | {"content": {}}
        talk(homeserver, reply("r1", "$bobs", "why?"), reply("r2", "$none", "how?"), reply("r3", "$ours"), joined=2)
        homeserver.refusals = [BROKEN]
        has(homeserver, ours=redacted)
        assert await read(platform, 3) == ["why?", "how?", "and then?"]
    assert caplog.text.count(f"what a message in {ROOM} refers to could not be read") == 2


async def test_nothing_is_asked_for_people_who_are_not_served() -> None:
    async with silent() as (homeserver, platform):
        talk(homeserver, reply("r1", "$ours", "why?", **MENTION) | {"sender": BOB})
        async with running(platform, strangers=[BOB]) as inbox:
            await inbox.wait_for(1)
        assert (texts(inbox), homeserver.asked) == (["why?"], [])
