"""One slot's messages: which part of its text each of them shows, and what is known of it on the platform.

Pure. Owns the state of a message; what that state calls for is the planner's to decide, what a reply does to it is
`outcome`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, NamedTuple

from tailrace.delivery.port import Button, Capabilities, Card, Unit
from tailrace.delivery.text.split import MIN_LIMIT, Part, carried, part_from
from tailrace.events import Delivered

MessageState = Literal["unknown", "sent", "unsent", "confirmed", "failed"]
Doubt = Literal["", "look_up", "resend"]


class Wanted(NamedTuple):
    """What a message should show. `streamed` is the same for a native stream, to which text can only be added."""

    text: str
    final: bool
    buttons: tuple[Button, ...] = ()
    cards: tuple[Card, ...] = ()
    streamed: str = ""
    lasting: bool = True  # False: final for now, but another text will follow in the same message


class Shown(NamedTuple):
    """What a message shows, as far as the platform has confirmed it."""

    text: str
    markup: bool
    buttons: tuple[Button, ...] = ()


@dataclass(slots=True)
class ChatMessage:
    """One message of a chain; `key` is its name in the ledger."""

    key: str
    limit: int
    message_id: str = ""  # empty: it was not sent, as far as is known
    shown: Shown | None = None  # None: not known
    end: int | None = None  # in the text, where something else than the limit ends this part
    doubt: Doubt = ""  # a send got no reply, and this is how that is settled
    sends: int = 0  # how often a new message was asked for
    final_sent: bool = False  # of the newest send: the text was final
    native_sent: bool = False  # … and it opened a native stream
    plain: bool = False  # its markup was refused
    quiet: bool = False  # nothing partial is sent or edited any more: the next is the final text
    confirmed: bool = False  # it shows the final text
    digest: str = ""  # of the text that was confirmed
    given_up: bool = False
    native: bool = False  # it is a native stream, and open
    opened_at: float = 0.0
    streamed: str | None = ""  # the text of the native stream; None: not known
    cards: tuple[Card, ...] = ()
    tries: int = 0  # in a row that came to nothing
    not_before: float = float("-inf")
    strays: list[str] = field(default_factory=list)  # messages that this one replaces, once it is confirmed

    @property
    def closed(self) -> bool:
        """Nothing more is to be done about it, unless its text changes."""
        return self.given_up or (self.confirmed and not self.strays)

    def shows(self, wanted: Wanted) -> bool:
        shown = self.shown
        if shown is None:
            return False
        return shown.text == wanted.text and shown.buttons == wanted.buttons and shown.markup is not self.plain

    def confirmed_by_another(self, wanted: Wanted) -> bool:
        """Another process saw the platform confirm just this."""
        return self.confirmed and self.shown is None and self.digest == digest_of(wanted.text)

    def lose(self) -> None:
        """The message is not there any more: another takes its place."""
        self.message_id, self.shown, self.confirmed, self.native = "", None, False, False
        self.streamed, self.cards, self.doubt = "", (), ""

    def fact(self, state: MessageState, own_limit: int) -> Delivered:
        return Delivered(
            self.key,
            state,
            self.message_id,
            self.sends,
            final=self.final_sent,
            native=self.native_sent if state == "unknown" else self.native,
            limit=self.limit if self.limit != own_limit else 0,
            end=self.end,
            digest=self.digest if state == "confirmed" else "",
        )


def digest_of(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


class Chain:
    """The messages of one slot, in order."""

    def __init__(self, key: str, capabilities: Capabilities) -> None:
        self.key = key
        self.messages: list[ChatMessage] = []
        self._limit = capabilities.limit
        self._unit: Unit = capabilities.unit
        self._source = ""
        self._parts: list[Part] = []
        self._texts: dict[
            int, tuple[Part, str]
        ] = {}  # of parts that a cut has ended: they are looked at again and again

    def message(self, index: int) -> ChatMessage:
        while len(self.messages) <= index:
            limit = self.messages[-1].limit if self.messages else self._limit
            self.messages.append(ChatMessage(f"{self.key}.{len(self.messages)}", limit))
        return self.messages[index]

    def parts(self, source: str) -> list[Part]:
        """The text in parts. Those that a cut has ended stay as they are while the text grows."""
        if not source.startswith(self._source):
            self._parts = []
        elif self._parts and not self._parts[-1].whole:
            self._parts.pop()
        self._source = source
        while not self._parts or (self._parts[-1].whole and self._parts[-1].end < len(source)):
            self._parts.append(self._next_part(source))
        return self._parts

    def text_of(self, index: int, part: Part) -> str:
        """What the message at this place shows of the text, once it does not grow any more."""
        if not part.whole:
            return part.raw(self._source)
        known = self._texts.get(index)
        if known is None or known[0] is not part:
            known = self._texts[index] = (part, part.text(self._source))
        return known[1]

    def _next_part(self, source: str) -> Part:
        before = carried(self._parts[-1], source) if self._parts else ""
        start = self._parts[-1].end if self._parts else 0
        message = self.message(len(self._parts))
        part = part_from(source, start, before, message.limit, self._unit)
        if message.end is not None and start < message.end <= part.end:
            return Part(start, message.end, part.before, whole=True)
        return part

    def shrink(self, message: ChatMessage) -> bool:
        """The platform found it too long: from here on the parts are smaller. False where they cannot be."""
        if message.limit <= MIN_LIMIT:
            return False
        index = self.messages.index(message)
        for later in self.messages[index:]:
            later.limit = max(MIN_LIMIT, message.limit * 3 // 4) if later is message else message.limit
        del self._parts[index:]
        return True

    def end_at(self, message: ChatMessage, end: int) -> None:
        """This message ends there; what follows is the next one's."""
        message.end = end
        del self._parts[self.messages.index(message) :]

    def surplus(self, source: str) -> list[ChatMessage]:
        """Messages that the text has become too short for."""
        kept = len(self._parts) if source.strip() else 0
        return [message for message in self.messages[kept:] if message.message_id and not message.given_up]

    def restart(self) -> None:
        """Every message is to be sent anew."""
        for message in self.messages:
            message.lose()
            message.given_up = message.quiet = False
