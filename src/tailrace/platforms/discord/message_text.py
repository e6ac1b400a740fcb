"""What a person's message says, in words for the model: names in place of numbers, and what it replies to or forwards.

Pure: no I/O. Knows nothing of updates and places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import discord

from tailrace.delivery.inbound import is_yes_or_no
from tailrace.delivery.planning.presenter import preview_line, quotation, shortened
from tailrace.delivery.port import ChatKind
from tailrace.delivery.speakers import MAX_NAME, one_line_name, typed_text

_REFERENCE = re.compile(r"<(?P<kind>@[!&]?|#)(?P<id>\d{1,20})>|<a?(?P<emoji>:\w{2,32}:)\d{15,20}>")


class MessageText:
    """`text` is without the mention of the bot where that only calls it; `calls_bot` says that there is one."""

    def __init__(self, message: discord.Message, me: discord.ClientUser, kind: ChatKind) -> None:
        self._message = message
        own_role = message.guild.self_role if message.guild is not None else None
        self._names = _names_in(message)
        mentions = [f"<@{me.id}>", f"<@!{me.id}>"] if f"@{me.id}" in self._names else []
        if own_role is not None and own_role in message.role_mentions:
            mentions.append(f"<@&{own_role.id}>")
        self.calls_bot = bool(mentions)
        called = _uncalled(message.content, mentions) if mentions else message.content
        self.text = typed_text(self._readable(called), kind)
        replied = message.reference.resolved if message.reference is not None else None
        self._replied = replied if isinstance(replied, discord.Message) else None
        self.replies_to_bot = self._replied is not None and self._replied.author.id == me.id

    @property
    def text_with_quotes(self) -> str:
        """With the message that it replies to, and those that it forwards. The model may not have seen them: one of the
        bot's own may be of another conversation."""
        if self._is_plain:
            return self.text
        forwarded = [_quote("forwarded", snapshot.content) for snapshot in self._message.message_snapshots]
        replied = [self._quoted_reply(self._replied)] if self._replied is not None else []
        quotes = [*replied, *forwarded]
        return "\n\n".join(part for part in (*quotes, self.text) if part)

    def _quoted_reply(self, replied: discord.Message) -> str:
        author = "you" if self.replies_to_bot else _author(replied)
        return _quote(f"in reply to {author}", shortened(replied.content))

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
        return self.text.startswith("/") or is_yes_or_no(self.text)

    @property
    def _quoted(self) -> list[discord.Message]:
        return [self._replied] if self._replied is not None and not self.replies_to_bot else []

    def _readable(self, text: str) -> str:
        def name(found: re.Match[str]) -> str:
            return found["emoji"] or self._names.get(f"{found['kind'].replace('!', '')}{found['id']}", found[0])

        return _REFERENCE.sub(name, text)


def _names_in(message: discord.Message) -> Mapping[str, str]:
    """What clients show for each person, role and channel that the message mentions. A mention in code is none."""
    people = {f"@{user.id}": f"@{one_line_name(user.display_name)}" for user in message.mentions}
    others = {f"@&{role.id}": f"@{role.name}" for role in message.role_mentions}
    others |= {f"#{channel.id}": f"#{channel.name}" for channel in message.channel_mentions}
    return people | {mention: preview_line(name, MAX_NAME) for mention, name in others.items()}


def _uncalled(text: str, mentions: Iterable[str]) -> str:
    """The text without the mentions at its ends: within a sentence they are words of it."""
    mention = "|".join(map(re.escape, mentions))
    return re.sub(rf"^(?:\s*(?:{mention})[\s,:]*)+|(?:\s*(?:{mention}))+\s*$", "", text).strip()


def _author(message: discord.Message) -> str:
    return one_line_name(message.author.display_name) or "somebody"


def _quote(of: str, text: str) -> str:
    return f"[{of}]\n{quotation(text)}" if text else ""
