"""One slot's messages: which part of its text each of them shows, and what is known of each on the platform.

Pure. Owns the state of a message. The planner compares what a message shows with what it should show and hands out one
action; an action in flight changes no state. `replies` reads the reply as an `Outcome`; `TRANSITIONS` lists the
outcomes that a state allows, and `LEADS_TO` says where each leads. Any other outcome raises: it is a bug of ours.

A message begins `absent`. A reply that means "certainly not done" leaves the state as it is. `Unknown` after `Send` or
`Open` is the hard case (G80): the message may be in the chat, and its id is not known. `Capabilities.resend` decides:

- "look_up": `LookUp` asks for the key. `Sent` finds the message; `NotFound` leads back to `absent`.
- "idempotent": the same key is sent again until there is a reply.
- "never", or when the tries of the other two are used up: a final text is `unresolved` and never sent again. A partial
  text may stay in the chat as a stray; the message is `absent` again, and only its final text will be sent.

A final text can still change; then the next edit that succeeds decides between `posted` and `confirmed` again. A
message that could not be edited stays as a stray and is deleted after its replacement is confirmed (G87).

Two things set a state without the table: the ledger (`ChatMessage.restore`), and the loss of a thread, where new
messages take the keys of the old ones (`Chain.restart`). Apart from the state are `plain` (the platform refused the
markup), `final_only` (no partial text is shown any more) and the retries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, Literal, NamedTuple

from tailrace.delivery.port import Button, Capabilities, Card, Resend, Unit
from tailrace.delivery.text.split import MIN_LIMIT, Part, carried, part_from
from tailrace.events import Delivered, DeliveredState

MessageState = Literal[
    "absent", "look_up", "resend", "streaming", "posted", "confirmed", "failed", "removed", "unresolved"
]
Outcome = Literal[
    "opened",
    "posted",
    "confirmed",
    "must_look_up",
    "must_resend",
    "not_found",
    "stray",
    "unresolved",
    "lost",
    "removed",
    "failed",
]

LEADS_TO: Final[dict[Outcome, MessageState]] = {
    "opened": "streaming",  # it is there, and a native stream
    "posted": "posted",  # it is there, with a partial text or one that is not known
    "confirmed": "confirmed",  # it is there, with the final text
    "must_look_up": "look_up",  # a send got no reply
    "must_resend": "resend",  # a send got no reply
    "not_found": "absent",  # the lookup says that it was not sent
    "stray": "absent",  # whether a partial text was sent will never be known
    "unresolved": "unresolved",  # whether the final text was sent will never be known
    "lost": "absent",  # it is not there any more, or its final text cannot be edited in
    "removed": "removed",  # it was deleted because its text is no longer needed
    "failed": "failed",  # the tries are used up, or the final text was refused
}
TRANSITIONS: Final[dict[MessageState, frozenset[Outcome]]] = {
    "absent": frozenset(
        {"opened", "posted", "confirmed", "must_look_up", "must_resend", "stray", "unresolved", "failed"}
    ),
    "look_up": frozenset({"opened", "posted", "confirmed", "not_found", "stray", "unresolved", "failed"}),
    "resend": frozenset({"opened", "posted", "confirmed", "must_resend", "stray", "unresolved", "failed"}),
    "streaming": frozenset({"posted", "confirmed", "lost", "failed"}),
    "posted": frozenset({"posted", "confirmed", "lost", "removed", "failed"}),
    "confirmed": frozenset({"posted", "confirmed", "lost", "removed", "failed"}),
    "failed": frozenset(),
    "removed": frozenset(),
    "unresolved": frozenset(),
}
TERMINAL: Final = frozenset(state for state, outcomes in TRANSITIONS.items() if not outcomes)


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
class NativeStream:
    """What an open native stream has been given. `text` None: not known, so that it can only be closed."""

    opened_at: float = 0.0
    text: str | None = None
    cards: tuple[Card, ...] = ()


@dataclass(slots=True)
class ChatMessage:
    """One message of a chain; `key` is its name in the ledger."""

    key: str
    limit: int
    state: MessageState = "absent"
    message_id: str = ""  # the platform's; empty where there is no message, or its id is not known
    shown: Shown | None = None  # None: not known
    digest: str = ""  # of the final text that the platform confirmed
    stream: NativeStream | None = None  # while it is `streaming`
    end: int | None = None  # in the text, where something else than the limit ends this part
    sends: int = 0  # how many messages have had this key: part of the key that the platform is given
    sent_final: bool = False  # the newest send had a final text
    sent_native: bool = False  # the newest send opened a native stream
    plain: bool = False  # the platform refused its markup
    named: bool = False  # the platform refused the file: its name is sent instead
    final_only: bool = False  # no partial text is sent or edited in any more
    tries: int = 0  # in a row without success
    not_before: float = float("-inf")
    strays: list[str] = field(default_factory=list)  # ids of messages to delete once this one is confirmed

    @property
    def in_doubt(self) -> bool:
        return self.state in ("look_up", "resend")

    @property
    def closed(self) -> bool:
        """Nothing more is to be done about it, unless its text changes."""
        return self.state in TERMINAL or (self.state == "confirmed" and not self.strays)

    def move(self, outcome: Outcome) -> None:
        """Raises `RuntimeError` where the table has no such transition."""
        if outcome not in TRANSITIONS[self.state]:
            raise RuntimeError(f"message {self.key} cannot be {outcome!r} while it is {self.state!r}")
        self.state = LEADS_TO[outcome]
        if self.state != "streaming":
            self.stream = None
        if self.state in ("absent", "removed"):
            self.message_id, self.shown, self.digest = "", None, ""

    def show(self, wanted: Wanted) -> None:
        """The platform shows this now."""
        lasting = wanted.final and wanted.lasting
        self.move("confirmed" if lasting else "posted")
        self.shown = Shown(wanted.text, not self.plain, wanted.buttons)
        self.digest = digest_of(wanted.text) if lasting else ""

    def shows(self, wanted: Wanted) -> bool:
        return self.shown == Shown(wanted.text, not self.plain, wanted.buttons)

    def confirmed_by_another(self, wanted: Wanted) -> bool:
        """Another process saw the platform confirm this text."""
        return self.state == "confirmed" and self.shown is None and self.digest == digest_of(wanted.text)

    def fact(self, state: DeliveredState, own_limit: int) -> Delivered:
        """What the ledger must know. `own_limit` is the platform's."""
        return Delivered(
            self.key,
            state,
            self.message_id,
            self.sends,
            final=self.sent_final,
            native=self.sent_native if state == "unknown" else self.state == "streaming",
            limit=self.limit if self.limit != own_limit else 0,
            end=self.end,
            digest=self.digest if state == "confirmed" else "",
        )

    def restore(self, fact: Delivered, resend: Resend) -> None:
        """Continues from what another process has put on record; what the message shows is not known."""
        self.message_id, self.sends, self.end, self.digest = fact.message_id, fact.number, fact.end, fact.digest
        self.limit = fact.limit or self.limit
        self.sent_final, self.sent_native = fact.final, fact.native
        self.shown, self.final_only = None, False
        match fact.state:
            case "confirmed" | "failed":
                self.state = fact.state
            case "sent":
                self.state = "streaming" if fact.native else "posted"
            case "unknown" if resend != "never":
                self.state = "look_up" if resend == "look_up" else "resend"
            case "unknown":
                self.sends += 1
                self.state, self.final_only = "unresolved" if fact.final else "absent", not fact.final
            case _:
                self.state = "absent"
        self.stream = NativeStream() if self.state == "streaming" else None


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
        self._texts: dict[int, tuple[Part, str]] = {}  # of parts that a cut has ended, which are asked for often

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
        return [message for message in self.messages[kept:] if message.state in ("streaming", "posted", "confirmed")]

    def restart(self) -> None:
        """The thread is gone: new messages take the names of the old ones, and every text is sent anew."""
        self.messages = [
            replace(message, state="absent", message_id="", shown=None, digest="", stream=None, final_only=False)
            for message in self.messages
        ]
