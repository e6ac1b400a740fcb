"""What a person's message says, in words for the model: names in place of numbers, and what it replies to or forwards.

Pure: no I/O. Knows nothing of updates and places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from tailrace.delivery.cards import card_words
from tailrace.delivery.planning.presenter import preview_line, quotation, shortened
from tailrace.delivery.port import ChatKind
from tailrace.delivery.speakers import MAX_NAME, author_name, one_line_name, typed_text
from tailrace.gateway.inbound import is_command_or_answer
from tailrace.integrations.discord.library import discord

KnownName: TypeAlias = Callable[[str, int], str]  # the kind ("#", "@&", "@") and the id; empty: it is not known
_REFERENCE = re.compile(
    r"<(?P<kind>@[!&]?|#)(?P<id>\d{1,20})>|<a?(?P<emoji>:\w{2,32}:)\d{15,20}>"
    r"|<(?P<command>/[-\w ]{1,100}):\d{15,20}>|<t:(?P<time>-?\d{1,13})(?::[a-zA-Z])?>"
)
_CODE = re.compile(r"(```.*?```|``[^`]+``|`[^`]+`)", re.DOTALL)
MAX_EMBED = 6000  # characters, the most that Discord takes
_NAMELESS: Final = {"#": "a channel", "@&": "a role", "@": "somebody"}


class MessageText:
    """`text` is without the mention of the bot where that only calls it; `calls_bot` says that there is one."""

    def __init__(self, message: discord.Message, me: discord.ClientUser, kind: ChatKind, known_name: KnownName) -> None:
        self._message = message
        self._known_name = known_name
        own_role = message.guild.self_role if message.guild is not None else None
        self._names = _names_in(message)
        mentions = [f"<@{me.id}>", f"<@!{me.id}>"] if f"@{me.id}" in self._names else []
        if own_role is not None and own_role in message.role_mentions:
            mentions.append(f"<@&{own_role.id}>")
        self.calls_bot = bool(mentions)
        called = _uncalled(message.content, mentions) if mentions else message.content
        typed = typed_text(self._readable(called, self._names), kind)
        self.text = "\n".join(filter(None, (*_cards(message), typed)))
        replied = message.reference.resolved if message.reference is not None else None
        self._replied = replied if isinstance(replied, discord.Message) else None
        self.replies_to_bot = self._replied is not None and self._replied.author.id == me.id

    @property
    def text_with_quotes(self) -> str:
        """With the message that it replies to, and those that it forwards. The model may not have seen them: one of the
        bot's own may be of another conversation."""
        if self._is_plain:
            return self.text
        forwarded = [_quote("forwarded", self.said(snapshot)) for snapshot in self._message.message_snapshots]
        replied = [self._quoted_reply(self._replied)] if self._replied is not None else []
        return "\n\n".join(part for part in (*replied, *forwarded, self.text) if part)

    def _quoted_reply(self, replied: discord.Message) -> str:
        author = "you" if self.replies_to_bot else author_of(replied)
        return _quote(f"in reply to {author}", shortened(self.said(replied)))

    def said(self, other: discord.Message | discord.MessageSnapshot) -> str:
        """What another message says, which stands near this one."""
        names = _names_in(other) if isinstance(other, discord.Message) else {}
        embeds = (_embed_words(embed) for embed in other.embeds if embed.type == "rich")  # others are previews of links
        return "\n".join(filter(None, (*_cards(other), self._readable(other.content, names), *embeds)))

    @property
    def files(self) -> list[discord.Attachment]:
        """The files of what is quoted, then its own."""
        if self._is_plain:
            return self._message.attachments
        others: Iterable[discord.Message | discord.MessageSnapshot] = (
            *self._quoted,
            *self._message.message_snapshots,
        )
        return [file for other in others for file in other.attachments] + self._message.attachments

    @property
    def _is_plain(self) -> bool:
        """A command stays a command, and a yes or no an answer to the bot's question: nothing is added to them."""
        return is_command_or_answer(self.text)

    @property
    def _quoted(self) -> list[discord.Message]:
        return [self._replied] if self._replied is not None and not self.replies_to_bot else []

    def _readable(self, text: str, names: Mapping[str, str]) -> str:
        """As clients show it. In code a number is a number."""

        def words(found: re.Match[str]) -> str:
            if found["id"] is None:
                return found["emoji"] or found["command"] or _time(int(found["time"]))
            kind = found["kind"].replace("!", "")
            name = names.get(f"{kind}{found['id']}")
            if name is None and (known := one_line_name(self._known_name(kind, int(found["id"])))):
                name = f"{kind[0]}{known}"
            return name or _NAMELESS[kind]

        parts = _CODE.split(text)  # text, code, text, …
        return "".join(part if at % 2 else _REFERENCE.sub(words, part) for at, part in enumerate(parts))


def numbers_in(message: discord.Message) -> list[tuple[str, int]]:
    """The kind and the number of each channel, role and person that it names, or what it replies to or forwards, and
    that Discord gives no name for."""
    replied = message.reference.resolved if message.reference is not None else None
    texts: list[discord.Message | discord.MessageSnapshot] = [message, *message.message_snapshots]
    texts += [replied] if isinstance(replied, discord.Message) else []
    found: dict[tuple[str, int], None] = {}
    for said in texts:
        names = _names_in(said) if isinstance(said, discord.Message) else {}
        for part in _CODE.split(said.content)[::2]:
            for reference in _REFERENCE.finditer(part):
                kind = (reference["kind"] or "").replace("!", "")
                if kind and f"{kind}{reference['id']}" not in names:
                    found[kind, int(reference["id"])] = None
    return list(found)


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


def author_of(message: discord.Message) -> str:
    return author_name(message.author.display_name) or "somebody"


def _quote(of: str, text: str) -> str:
    return f"[{of}]\n{quotation(text)}" if text else ""


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
