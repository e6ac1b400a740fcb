"""Reads the thread that a message stands in: Discord sends the message alone."""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from tailrace.delivery.port import MessageReceived, Quoted
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection
from tailrace.gateway.inbound.quotations import UNREAD_THREAD, quoted_thread
from tailrace.integrations.discord.library import discord
from tailrace.integrations.discord.message_text import quoted_message

log = logging.getLogger("tailrace.integrations.discord")
PAGE = 100  # messages, the most that Discord gives at a time; the newest
READ_S = 2.0  # everybody waits for it
_SPOKEN = (
    discord.MessageType.default,
    discord.MessageType.reply,
    discord.MessageType.chat_input_command,
    discord.MessageType.context_menu_command,
)


async def read_thread(thread: discord.Thread, message: MessageReceived, me: discord.ClientUser) -> tuple[Quoted, ...]:
    """What was said in the thread before this message."""
    try:
        async with asyncio.timeout(READ_S):
            above, is_whole = await _read(thread, discord.Object(int(message.message_id)))
    except (discord.DiscordException, *NO_ANSWER) as exc:
        reason = str(exc) if isinstance(exc, discord.DiscordException) else no_connection(exc)
        log.warning("discord: the thread %d could not be read: %s", thread.id, reason)
        return (UNREAD_THREAD,)
    if not above and thread.message_count > 1:  # Discord gives nothing where the right to read is missing
        log.warning("discord: nothing of the thread %d can be read: Read Message History is missing", thread.id)
        return (UNREAD_THREAD,)
    others = (one for one in above if str(one.id) != message.reply_to and not _only_calls(one, me))
    quoted = [replace(said, kind="thread") for one in others if (said := quoted_message(one, me))]
    return quoted_thread(quoted, is_whole=is_whole)


def _only_calls(message: discord.Message, me: discord.ClientUser) -> bool:
    """Whether it has the bot's name and nothing else."""
    return message.content.strip() in (f"<@{me.id}>", f"<@!{me.id}>") and not message.attachments


async def _read(thread: discord.Thread, event: discord.Object) -> tuple[list[discord.Message], bool]:
    """What people and bots have written above the message, the oldest first, and whether that is all of it: of a long
    thread it is the first message and the newest. Raises what discord.py and aiohttp raise."""
    newest = [one async for one in thread.history(limit=PAGE, before=event)]
    spoken = [one for one in map(_spoken, reversed(newest)) if one is not None]
    if len(newest) < PAGE:
        return spoken, True
    first = await _first_message(thread)
    return ([first] if first is not None else []) + spoken, False


def _spoken(message: discord.Message) -> discord.Message | None:
    """A thread that hangs from a message begins with a line that only refers to it."""
    if message.type == discord.MessageType.thread_starter_message:
        resolved = message.reference.resolved if message.reference is not None else None
        return resolved if isinstance(resolved, discord.Message) else None
    return message if message.type in _SPOKEN else None


async def _first_message(thread: discord.Thread) -> discord.Message | None:
    """The first message of a post stands in it; other threads hang from a message of their channel. Both have the
    thread's id. None of a thread that hangs from nothing, or whose first message was deleted."""
    parent = thread.parent
    where = thread if not isinstance(parent, discord.TextChannel) else parent
    try:
        return await where.fetch_message(thread.id)
    except discord.NotFound:
        return None
