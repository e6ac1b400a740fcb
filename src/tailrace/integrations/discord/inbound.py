"""discord.py's objects as updates. Pure: no I/O."""

from __future__ import annotations

from typing import Any

from tailrace.delivery.port import ButtonPressed, MessageReceived, Place, Sender, Update
from tailrace.integrations.discord.library import discord
from tailrace.integrations.discord.message_text import MessageText, files_of, is_private

MESSAGE_LIMIT = 2000
_THREADS = (discord.ChannelType.public_thread, discord.ChannelType.private_thread, discord.ChannelType.news_thread)


def parse_message(message: discord.Message, me: discord.ClientUser) -> MessageReceived | None:
    """The message as an update; None for one that no person wrote: of a bot, a webhook, a join, a pin."""
    if message.author.bot or message.webhook_id is not None:
        return None
    if message.type not in (discord.MessageType.default, discord.MessageType.reply):
        return None
    private = is_private(message)
    said, attachments = MessageText(message, me), files_of(message)
    quoted = said.quoted
    if not (said.text or attachments or quoted or (said.calls_bot and message.content)):
        return None
    return MessageReceived(
        update_id=f"message:{message.id}",
        place=place_of(message.channel, private=private),
        sender=sender_of(message.author),
        text=said.text,
        attachments=attachments,
        addressed=private or said.calls_bot or said.replies_to_bot,
        at_limit=len(message.content) >= MESSAGE_LIMIT or bool(message.message_snapshots),
        message_id=str(message.id),
        quoted=quoted,
        reply_to=str(message.reference.message_id or "") if message.reference is not None else "",
    )


def parse_interaction(interaction: discord.Interaction) -> Update | None:
    """A pressed button, or a slash command as the text of a message."""
    data: Any = interaction.data or {}
    if interaction.channel is None:
        return None
    place = place_of(interaction.channel, private=interaction.guild_id is None)
    sender = sender_of(interaction.user)
    update_id = f"interaction:{interaction.id}"
    match interaction.type, data:
        case discord.InteractionType.component, {"custom_id": str(value)}:
            message_id = str(interaction.message.id) if interaction.message is not None else ""
            return ButtonPressed(update_id, place, sender, value, message_id)
        case discord.InteractionType.application_command, {"name": str(name)}:
            given = [str(option.get("value", "")) for option in data.get("options", ())]
            return MessageReceived(update_id, place, sender, " ".join([f"/{name}", *given]).strip())
        case _:
            return None


def may_write(interaction: discord.Interaction) -> bool:
    """Whether the bot has the right to write where the command was used. True where Discord does not say."""
    rights = interaction.app_permissions
    in_thread = getattr(interaction.channel, "type", None) in _THREADS
    return not rights.value or (rights.send_messages_in_threads if in_thread else rights.send_messages)


def place_of(channel: Any, *, private: bool) -> Place:
    """A thread is a channel of its own; the chat around it is the channel that it hangs from."""
    parent = getattr(channel, "parent_id", None)  # channels of every kind come here, also ones not known to us
    if parent is not None and getattr(channel, "type", None) in _THREADS:
        return Place("discord", str(parent), str(channel.id), "group")
    return Place("discord", str(channel.id), kind="private" if private else "group")


def sender_of(user: discord.User | discord.Member) -> Sender:
    return Sender(str(user.id), user.display_name)
