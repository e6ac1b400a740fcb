"""What a person's message says, in words for the model: names in place of numbers, and what it replies to or forwards.

Pure: no I/O. Knows nothing of updates and places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from tailrace.delivery.cards import card_words
from tailrace.delivery.planning.presenter import preview_line
from tailrace.delivery.port import Attachment, Quoted
from tailrace.events.speakers import MAX_NAME, one_line_name
from tailrace.integrations.discord.library import discord

_REFERENCE = re.compile(
    r"<(?P<kind>@[!&]?|#)(?P<id>\d{1,20})>|<a?(?P<emoji>:\w{2,32}:)\d{15,20}>"
    r"|<(?P<command>/[-\w ]{1,100}):\d{15,20}>|<t:(?P<time>-?\d{1,13})(?::[a-zA-Z])?>"
)
_CODE = re.compile(r"(```.*?```|``[^`]+``|`[^`]+`)", re.DOTALL)
MAX_EMBED = 6000  # characters, the most that Discord takes
_NAMELESS: Final = {"#": "a channel", "@&": "a role", "@": "a person"}


class MessageText:
    """`text` is without the mention of the bot where that only calls it; `calls_bot` says that there is one."""

    def __init__(self, message: discord.Message, me: discord.ClientUser) -> None:
        self._message = message
        self._me = me
        own_role = message.guild.self_role if message.guild is not None else None
        mentions = [f"<@{me.id}>", f"<@!{me.id}>"] if any(user.id == me.id for user in message.mentions) else []
        if own_role is not None and own_role in message.role_mentions:
            mentions.append(f"<@&{own_role.id}>")
        self.calls_bot = bool(mentions)
        called = _uncalled(message.content, mentions) if mentions else message.content
        readable = _readable(called, _names_in(message))
        self.text = "\n".join(filter(None, (*_cards(message), readable)))
        replied = message.reference.resolved if message.reference is not None else None
        self._replied = replied if isinstance(replied, discord.Message) else None
        self.replies_to_bot = self._replied is not None and self._replied.author.id == me.id

    @property
    def quoted(self) -> tuple[Quoted, ...]:
        """The message that it replies to, and those that it forwards. One of the bot's own may be of another
        conversation, which the model has not seen."""
        found = list[Quoted]()
        if self._replied is not None and (reply := quoted_message(self._replied, self._me)) is not None:
            found.append(replace(reply, files=()) if reply.is_ours else reply)
        for snapshot in self._message.message_snapshots:
            found.append(Quoted(text=said_in(snapshot), files=files_of(snapshot), kind="forward"))
        return tuple(found)


def quoted_message(message: discord.Message, me: discord.ClientUser) -> Quoted | None:
    """None for a message with nothing to quote."""
    text, files = said_in(message), files_of(message)
    is_ours = message.author.id == me.id
    return Quoted(message.author.display_name, text, files, is_ours=is_ours) if text or files else None


def said_in(message: discord.Message | discord.MessageSnapshot) -> str:
    names = _names_in(message) if isinstance(message, discord.Message) else {}
    embeds = (_embed_words(embed) for embed in message.embeds if embed.type == "rich")  # others are previews of links
    return "\n".join(filter(None, (*_cards(message), _readable(message.content, names), *embeds)))


def files_of(message: discord.Message | discord.MessageSnapshot) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(file.url, file.filename, (file.content_type or "").partition(";")[0], file.size)
        for file in message.attachments
    )


def _readable(text: str, names: Mapping[str, str]) -> str:
    """As clients show it. In code a number is a number."""

    def words(found: re.Match[str]) -> str:
        if found["id"] is None:
            return found["emoji"] or found["command"] or _time(int(found["time"]))
        kind = found["kind"].replace("!", "")
        return names.get(f"{kind}{found['id']}") or _NAMELESS[kind]

    parts = _CODE.split(text)  # text, code, text, …
    return "".join(part if at % 2 else _REFERENCE.sub(words, part) for at, part in enumerate(parts))


def is_private(message: discord.Message) -> bool:
    """A server that is not known (yet) has no `guild`."""
    return message.guild is None and getattr(message.channel, "guild_id", None) is None


def _names_in(message: discord.Message) -> Mapping[str, str]:
    """What clients show for each person, role and channel that the message mentions. A mention in code is none."""
    people = {f"@{user.id}": f"@{one_line_name(user.display_name)}" for user in message.mentions}
    others = {f"@&{role.id}": f"@{role.name}" for role in message.role_mentions}
    others |= {f"#{channel.id}": f"#{channel.name}" for channel in message.channel_mentions}
    return people | {mention: preview_line(name, MAX_NAME) for mention, name in others.items()}


def _uncalled(text: str, mentions: Iterable[str]) -> str:
    """The text without the mentions at its start, or where it has none there at its end: the others are words of it."""
    mention = "|".join(map(re.escape, mentions))
    called, count = re.subn(rf"^(?:\s*(?:{mention})[\s,:]*)+", "", text)
    return (called if count else re.sub(rf"(?:\s*(?:{mention}))+\s*$", "", text)).strip()


def _cards(message: discord.Message | discord.MessageSnapshot) -> list[str]:
    """What is neither text nor a file."""
    cards = [card_words("sticker", sticker.name) for sticker in message.stickers]
    if not isinstance(message, discord.Message):
        return cards
    if message.poll is not None:
        cards.append(card_words("poll", message.poll.question, *(answer.text for answer in message.poll.answers)))
    post = message.channel
    if isinstance(post, discord.Thread) and post.id == message.id and not isinstance(post.parent, discord.TextChannel):
        # the first message of a post in a forum
        cards.insert(0, card_words("post", post.name, *(tag.name for tag in post.applied_tags)))
    return cards


def _embed_words(embed: discord.Embed) -> str:
    """What a bot has written beside its text, a report of a build say."""
    fields = (f"{field.name}: {field.value}" for field in embed.fields)
    return "\n".join(filter(None, (embed.title, embed.description, *fields)))[:MAX_EMBED]


def _time(seconds: int) -> str:
    """Clients show it in the reader's own zone; the model has none."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return "a time"
