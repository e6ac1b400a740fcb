"""Reads the thread that somebody calls the bot into, once: Discord sends the message alone that calls it.

Later the conversation has what is said to it. What others wrote is a quotation, line by line.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from tailrace.delivery.port import MessageReceived
from tailrace.delivery.thread_quotations import UNREAD, first_and_newest, left_out_words, quoted_message
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection
from tailrace.gateway.inbound import is_command_or_answer
from tailrace.integrations.discord.library import discord
from tailrace.integrations.discord.message_text import KnownName, MessageText, author_of

log = logging.getLogger("tailrace.integrations.discord")
PAGE = 100  # messages, the most that Discord gives at a time; the newest
READ_S = 2.0  # everybody waits for it
_SPOKEN = (
    discord.MessageType.default,
    discord.MessageType.reply,
    discord.MessageType.chat_input_command,
    discord.MessageType.context_menu_command,
)


def may_call_into_thread(message: MessageReceived) -> bool:
    """Whether it is for the bot, and in a thread. The first message of a post has nothing above it."""
    is_below = message.place.thread not in ("", message.message_id)
    return is_below and message.addressed and not is_command_or_answer(message.text)


async def below_its_thread(
    message: MessageReceived, event: discord.Message, me: discord.ClientUser, known_name: KnownName
) -> MessageReceived:
    """The message below what was said in its thread before it. `event` is the message as Discord has sent it."""
    if not isinstance(event.channel, discord.Thread):
        return message
    said = MessageText(event, me, message.place.kind, known_name)
    quoted = await _quoted_thread(event.channel, event, said, me)
    return replace(message, text=f"{quoted}\n\n{message.text}".rstrip()) if quoted else message


async def _quoted_thread(
    thread: discord.Thread, event: discord.Message, said: MessageText, me: discord.ClientUser
) -> str:
    try:
        async with asyncio.timeout(READ_S):
            above, is_whole = await _read(thread, event)
    except (discord.DiscordException, *NO_ANSWER) as exc:
        reason = str(exc) if isinstance(exc, discord.DiscordException) else no_connection(exc)
        log.warning("discord: the thread %d could not be read: %s", thread.id, reason)
        return UNREAD
    if not above and thread.message_count > 1:  # Discord gives nothing where the right to read is missing
        log.warning("discord: nothing of the thread %d can be read: Read Message History is missing", thread.id)
        return UNREAD
    replied = event.reference.message_id if event.reference is not None else None  # it is quoted already
    told = [(one, said.said(one)) for one in above if one.id != replied]
    told = [(one, text) for one, text in told if (text and not _only_calls(one, me)) or one.attachments]
    shown = first_and_newest(told)
    quotations = [_quoted(one, text, me) for one, text in shown]
    left_out = len(told) - len(shown) if is_whole else None
    if left_out != 0:
        quotations.insert(1, left_out_words(left_out))
    return "\n\n".join(quotations)


def _only_calls(message: discord.Message, me: discord.ClientUser) -> bool:
    """Whether it has the bot's name and nothing else."""
    return message.content.strip() in (f"<@{me.id}>", f"<@!{me.id}>")


def _quoted(message: discord.Message, text: str, me: discord.ClientUser) -> str:
    author = "you" if message.author.id == me.id else author_of(message)
    return quoted_message(author, text, [file.filename for file in message.attachments])


async def _read(thread: discord.Thread, event: discord.Message) -> tuple[list[discord.Message], bool]:
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
