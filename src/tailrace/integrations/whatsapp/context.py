"""What a message refers to, in words for the model: the message that it replies to, or that it is forwarded; and
whose last message could not be read.

WhatsApp names the message that is replied to by its id alone, so the newest texts are kept, those of both sides. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from tailrace.delivery.planning.presenter import quotation, shortened
from tailrace.gateway.inbound import is_command_or_answer

MAX_REMEMBERED = 4096  # texts; the oldest are forgotten first
MAX_REMEMBERED_CHARS = 4_000_000  # of them all


class Quote(NamedTuple):
    author: str
    text: str


class RecentTexts:
    """The newest texts, by their chats and the ids of their messages: an id of another chat shows nothing of it.
    A process knows what it sent or received itself."""

    def __init__(self, *, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._quotes: OrderedDict[tuple[str, str], Quote] = OrderedDict()
        self._chars = 0
        self._unreadable: OrderedDict[str, None] = OrderedDict()  # chats whose last message could not be read

    def add(self, chat: str, message_id: str, author: str, text: str) -> None:
        """`author` as the model is told: "you" is the model itself."""
        if (former := self._quotes.pop((chat, message_id), None)) is not None:
            self._chars -= len(former.text)
        self._quotes[chat, message_id] = quote = Quote(author, shortened(text))
        self._chars += len(quote.text)
        while len(self._quotes) > self._limit or self._chars > MAX_REMEMBERED_CHARS:
            _, oldest = self._quotes.popitem(last=False)
            self._chars -= len(oldest.text)

    def is_first_unreadable(self, chat: str) -> bool:
        """Whether this message, which cannot be read, follows one that could be. Another business's number is heard in
        no other form: two that answered each other's every message would never end."""
        is_first = chat not in self._unreadable
        self._unreadable[chat] = None
        while len(self._unreadable) > self._limit:
            self._unreadable.popitem(last=False)
        return is_first

    def read(self, chat: str) -> None:
        """A message of the chat could be read."""
        self._unreadable.pop(chat, None)

    def quote(self, chat: str, message_id: str) -> Quote:
        return self._quotes.get((chat, message_id)) or Quote("an earlier message", "")


def with_context(text: str, quote: Quote | None, *, forwarded: bool, origin: str = "") -> str:
    """The text below what it refers to, and below the `origin` that it came from. A command and an answer to a question
    stay as they are, unless the message is forwarded: then they are somebody else's."""
    if forwarded:
        return f"[forwarded]\n{quotation(text)}".rstrip()
    if is_command_or_answer(text):
        return text
    above = [origin] if origin else []
    if quote is not None:
        above.append(f"[in reply to {quote.author}]" + (f"\n{quotation(quote.text)}" if quote.text else ""))
    return "\n\n".join(["\n".join(above), text] if above else [text]).rstrip()
