"""The newest texts of the chats, for quoting what a message replies to; and whose last message could not be read.

WhatsApp names the message that is replied to by its id alone, so the newest texts are kept, those of both sides. Pure.
"""

from __future__ import annotations

from collections import OrderedDict

from tailrace.delivery.planning.presenter import shortened
from tailrace.delivery.port import Quoted

MAX_REMEMBERED = 4096  # texts; the oldest are forgotten first
MAX_REMEMBERED_CHARS = 4_000_000  # of them all


class RecentTexts:
    """The newest texts, by their chats and the ids of their messages: an id of another chat shows nothing of it.
    A process knows what it sent or received itself."""

    def __init__(self, *, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._quotes: OrderedDict[tuple[str, str], Quoted] = OrderedDict()
        self._chars = 0
        self._unreadable: OrderedDict[str, None] = OrderedDict()  # chats whose last message could not be read

    def add(self, chat: str, message_id: str, text: str, *, is_ours: bool) -> None:
        if (former := self._quotes.pop((chat, message_id), None)) is not None:
            self._chars -= len(former.text)
        self._quotes[chat, message_id] = quote = Quoted(
            text=shortened(text), is_ours=is_ours, what="" if is_ours else "a message of their own"
        )
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

    def quoted(self, chat: str, message_id: str) -> Quoted:
        return self._quotes.get((chat, message_id)) or Quoted(what="an earlier message")
