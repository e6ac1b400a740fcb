"""What a message from a chat is: a repetition, part of a paste, a command, from an allowed user, addressed to the bot.

Pure: every method that needs the time takes it as a parameter. Knows no platform and starts nothing.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from tailrace.app.slash_commands import command_in, is_unknown_command
from tailrace.delivery.port import MessageReceived

PASTE_GAP_S = 1.5
EVERYONE = "*"

_WORDS = re.compile(r"[^\W_]+")
_YES_OR_NO = re.compile(
    r"(y|yes|yeah|yep|ok|okay|sure|ja|oui|s[ií]|da|да|はい|是)( please)?|do it|go ahead|always|allow|"
    r"approved?( once| session| always)?|(n|no|nope|nein|non|нет|いいえ|不)( thanks)?|don t|deny|denied|cancel"
)
_THUMBS = frozenset("👍👎✅❌")


def is_yes_or_no(text: str) -> bool:
    """Whether the text is nothing but a word that agrees or refuses. It is too little to approve a command, since it
    may be about anything, and no question to the model while one for an approval is open."""
    return bool(_YES_OR_NO.fullmatch(" ".join(_WORDS.findall(text.lower())))) or text.strip() in _THUMBS


def is_command_or_answer(text: str) -> bool:
    """Whether it is a command, one that there is none of, or a word that answers a question. An adapter adds nothing of
    what the message refers to: with a quotation above it, it would be a question to the model."""
    return command_in(text) is not None or is_unknown_command(text) or is_yes_or_no(text)


def is_allowed(allow: Sequence[str], user_id: str) -> bool:
    """Whether the allow-list names this user. Ids are compared as text, phone numbers with or without the `+`."""
    wanted = user_id.removeprefix("+")
    return any(entry == EVERYONE or entry.removeprefix("+") == wanted for entry in allow)


def is_for_us(message: MessageReceived, respond: Literal["mentions", "all"]) -> bool:
    """Whether the bot answers: in a group only what is addressed to it, unless `respond` is "all"."""
    return message.place.kind == "private" or respond == "all" or message.addressed


class RecentIds:
    """The newest ids of updates, for finding repetitions (G88). Bounded: the oldest are dropped first."""

    def __init__(self, limit: int = 4096) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._limit = limit

    def add(self, key: str) -> bool:
        """Whether the id is new."""
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        return True

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)


class AskedAlready(NamedTuple):
    """A message that was taken as a question of its own, and the run of it."""

    message: MessageReceived
    run_id: str
    until: float  # that something forwarded right after it belongs to it


class Pastes:
    """Joins the parts of a paste that the sender's client has split (G89). A message at the size limit is held for
    `PASTE_GAP_S`; the sender's next message in the same place within that time is appended to it.

    What is forwarded with a comment comes as two messages. Where the comment is the first one it does not wait: it is
    joined afterwards, by `comment_on`. Where it is the second and alone addresses the bot, what was forwarded has been
    `set_aside`."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[MessageReceived, float]] = {}
        self._aside: dict[tuple[str, str], tuple[MessageReceived, float]] = {}
        self._asked: dict[tuple[str, str], AskedAlready] = {}

    @property
    def due_at(self) -> float | None:
        """When the next held message is complete, if no other part arrives."""
        return min((until for _, until in self._held.values()), default=None)

    def continues(self, message: MessageReceived, now: float) -> bool:
        """Whether a part of the same paste is held, or the comment on it was asked right now. Then the message belongs
        to it, whoever it is addressed to: one photo of an album alone has the caption that names the bot."""
        key = _of_sender(message)
        asked = self._asked.get(key)
        return key in self._held or (message.forwarded and asked is not None and now <= asked.until)

    def note_asked(self, message: MessageReceived, run_id: str, now: float) -> None:
        """The message has become a question. A later one of the sender takes its place."""
        self._asked = {key: one for key, one in self._asked.items() if now <= one.until}
        self._asked[_of_sender(message)] = AskedAlready(message, run_id, now + PASTE_GAP_S)

    def comment_on(self, message: MessageReceived, now: float) -> AskedAlready | None:
        """The comment that the sender's client has sent right before what it forwards. None for any other message."""
        asked = self._asked.pop(_of_sender(message), None)
        return asked if asked is not None and message.forwarded and now <= asked.until else None

    def set_aside(self, message: MessageReceived, now: float) -> None:
        """Forwarded, and not to the bot: a comment that names the bot may follow."""
        self._aside = {key: one for key, one in self._aside.items() if now <= one[1]}
        if message.forwarded:
            self._aside[_of_sender(message)] = (message, now + PASTE_GAP_S)

    def take_of_sender(self, message: MessageReceived) -> MessageReceived | None:
        """What is held of whoever has sent this message, as it is."""
        held = self._held.pop(_of_sender(message), None)
        return held[0] if held is not None else None

    def add(self, message: MessageReceived, now: float) -> MessageReceived | None:
        """The complete message, or None while another part may arrive."""
        key = _of_sender(message)
        aside = self._aside.pop(key, None)
        held = self._held.pop(key, None) or (aside if aside is not None and now <= aside[1] else None)
        whole = joined_message(held[0], message) if held is not None else message
        if not message.at_limit:
            return whole
        self._held[key] = (whole, now + PASTE_GAP_S)
        return None

    def take_complete(self, now: float) -> list[MessageReceived]:
        """Held messages whose time has passed."""
        due = [key for key, (_, until) in self._held.items() if until <= now]
        return [self._held.pop(key)[0] for key in due]

    def hold_again(self, messages: Iterable[MessageReceived]) -> None:
        """What was taken and has not become a question. It is due at once; what its sender has written since stands
        below it."""
        for message in messages:
            key = _of_sender(message)
            later = self._held.get(key)
            self._held[key] = (message if later is None else joined_message(message, later[0]), 0.0)

    def take_all(self) -> list[MessageReceived]:
        held = [message for message, _ in self._held.values()]
        self._held.clear()
        return held


def _of_sender(message: MessageReceived) -> tuple[str, str]:
    """A message that begins a thread of its own is in none yet: the next part of the paste begins another one."""
    place = message.place
    thread = place.thread if place.thread != message.message_id else ""
    return msgspec.structs.replace(place, thread=thread).key, message.sender.id


def joined_message(first: MessageReceived, second: MessageReceived) -> MessageReceived:
    """One message with the first one's id. Clients cut at a space or a line end and drop it; a line end replaces it."""
    return msgspec.structs.replace(
        first,
        text="\n".join(text for text in (first.text, second.text) if text),
        attachments=first.attachments + second.attachments,
        addressed=first.addressed or second.addressed,
        at_limit=second.at_limit,
        parts=part_ids(first) + part_ids(second),
    )


def part_ids(message: MessageReceived) -> tuple[str, ...]:
    """The updates that brought it."""
    return message.parts or (message.update_id,)
