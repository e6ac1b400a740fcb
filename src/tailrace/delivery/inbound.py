"""What a message from a chat means: seen before, part of a paste, a command, from somebody who is served, meant for us.

Pure: every method that needs the time takes it. Knows no platform and starts nothing.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from tailrace.delivery.port import MessageReceived
from tailrace.messages import Value

PASTE_GAP_S = 1.5
EVERYONE = "*"
CommandName = Literal["new", "stop", "model", "verbose", "yolo", "approve", "deny", "status", "help", "start"]
_NAMES: frozenset[str] = frozenset(get_args(CommandName))
_COMMAND = re.compile(r"/([A-Za-z]+)(?:@\S+)?(?:\s+(.*))?\s*", re.DOTALL)


class ChatCommand(Value):
    """`/name argument`."""

    name: CommandName
    argument: str = ""


def command_in(text: str) -> ChatCommand | None:
    """The command that the text is; None where it is something to be answered. `/help@our_bot` is `/help`."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None or match[1].lower() not in _NAMES:
        return None
    return msgspec.convert({"name": match[1].lower(), "argument": (match[2] or "").strip()}, ChatCommand)


def is_allowed(allow: Sequence[str], user_id: str) -> bool:
    """Whether the allow-list names this user. Ids are compared as text, telephone numbers with or without their +."""
    wanted = user_id.removeprefix("+")
    return any(entry == EVERYONE or entry.removeprefix("+") == wanted for entry in allow)


def is_for_us(message: MessageReceived, respond: Literal["mentions", "all"]) -> bool:
    """In a group only what is addressed to the bot, unless it is to answer everything."""
    return message.place.kind == "private" or respond == "all" or message.addressed


class RecentIds:
    """Ids that were seen lately (G88). Bounded: the oldest are forgotten first."""

    def __init__(self, limit: int = 4096) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._limit = limit

    def add(self, key: str) -> bool:
        """Whether it is new."""
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        return True

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)


class Pastes:
    """Joins what a sender's client has split (G89): a message at the size limit is held for a moment, and what the same
    sender writes in the same place within it belongs to it."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[MessageReceived, float]] = {}

    @property
    def due_at(self) -> float | None:
        """When the next one is complete, if nothing more comes."""
        return min((until for _, until in self._held.values()), default=None)

    def add(self, message: MessageReceived, now: float) -> MessageReceived | None:
        """The whole message, or None while more of it may come."""
        key = (message.place.key, message.sender.id)
        held = self._held.pop(key, None)
        whole = joined_message(held[0], message) if held is not None else message
        if not message.at_limit:
            return whole
        self._held[key] = (whole, now + PASTE_GAP_S)
        return None

    def take_complete(self, now: float) -> list[MessageReceived]:
        """Those that nothing came after."""
        due = [key for key, (_, until) in self._held.items() if until <= now]
        return [self._held.pop(key)[0] for key in due]

    def take_all(self) -> list[MessageReceived]:
        held = [message for message, _ in self._held.values()]
        self._held.clear()
        return held


def joined_message(first: MessageReceived, second: MessageReceived) -> MessageReceived:
    """One message, with the first one's id. Clients cut at a space or a line end and drop it: a line end stands in."""
    return msgspec.structs.replace(
        first,
        text="\n".join(text for text in (first.text, second.text) if text),
        attachments=first.attachments + second.attachments,
        addressed=first.addressed or second.addressed,
        at_limit=second.at_limit,
    )
