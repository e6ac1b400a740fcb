"""What Telegram's users see: chats, topics, messages and drafts, with every state that each was in.

State and its rules alone; `telegram` puts it behind the Bot API. A broken rule raises `TelegramRefusal` in the words
of the real server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from proof.platforms.history import ShownChat, ShownMessage, ShownState

BOT_ID = 42
Kind = Literal["private", "group", "supergroup"]
MAX_TEXT_UNITS = 4096  # UTF-16 code units, after entities were applied
MAX_ENTITIES = 100  # what is beyond is dropped, as the real server does
CALLBACK_BYTES = 64
DRAFT_S = 30.0  # after its last change a draft is gone


class TelegramRefusal(Exception):
    """The server says no: `{"ok": false, "error_code": …, "description": …}`."""

    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.status = status
        self.body: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
        self.body |= {"parameters": parameters} if parameters else {}


class Styled(msgspec.Struct, frozen=True):
    """A stretch of text and how it is shown; `detail` is a link's address or a code block's language."""

    kind: str
    text: str
    detail: str = ""


@dataclass(frozen=True)
class TelegramState(ShownState):
    entities: tuple[dict[str, Any], ...] = ()

    @property
    def styled(self) -> list[Styled]:
        return [_styled(self.text, entity) for entity in self.entities]


@dataclass
class TelegramMessage(ShownMessage[TelegramState]):
    id: int
    thread: int
    states: list[TelegramState]
    author: int = BOT_ID
    deleted: bool = False
    silent: bool = False  # no device has rung


@dataclass
class Draft(ShownMessage[TelegramState]):
    """An ephemeral preview: gone when the bot sends a message, or 30 s after its last change."""

    id: int
    thread: int
    states: list[TelegramState]
    can_stop: bool = False
    replaced_by: int = 0  # the message that it made room for

    def is_shown(self, now: float) -> bool:
        return not self.replaced_by and now - self.state.at < DRAFT_S


@dataclass
class TelegramChat(ShownChat[TelegramMessage]):
    """One conversation. Topics are those of a forum; 0 is the chat itself."""

    BOT = BOT_ID
    id: int
    kind: Kind
    title: str
    forum: bool = False
    messages: list[TelegramMessage] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    typing: list[float] = field(default_factory=list)  # when it was shown that the bot is typing
    topics: set[int] = field(default_factory=set)
    closed_topics: set[int] = field(default_factory=set)
    blocked: str = ""  # the bot was put out: why, in the server's words
    migrated_to: int = 0

    @property
    def rung(self) -> list[str]:
        """The bot's texts that a device has rung for, as they are now."""
        return [message.text for message in self.messages if message.author == BOT_ID and not message.silent]

    @property
    def draft(self) -> Draft | None:
        """The newest preview, unless a message has taken its place; `is_shown` says whether it has faded."""
        return self.drafts[-1] if self.drafts and not self.drafts[-1].replaced_by else None

    def as_json(self) -> dict[str, Any]:
        if self.kind == "private":
            return {"id": self.id, "type": "private", "first_name": self.title}
        shown = {"id": self.id, "type": self.kind, "title": self.title}
        return {**shown, "is_forum": True} if self.forum else shown

    def check(self, thread: int) -> None:
        """Whether the bot may write there now."""
        if self.migrated_to:
            raise TelegramRefusal(
                400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=self.migrated_to
            )
        if self.blocked:
            raise TelegramRefusal(403, self.blocked)
        if thread and thread not in self.topics:
            raise TelegramRefusal(400, "Bad Request: message thread not found")
        if thread in self.closed_topics:
            raise TelegramRefusal(400, "Bad Request: TOPIC_CLOSED")

    def find(self, message_id: int, missing: str) -> TelegramMessage:
        for message in self.messages:
            if message.id == message_id and not message.deleted:
                return message
        raise TelegramRefusal(400, f"Bad Request: {missing}")

    def edit(self, message_id: int, state: TelegramState) -> TelegramMessage:
        message = self.find(message_id, "message to edit not found")
        if message.author != BOT_ID:
            raise TelegramRefusal(400, "Bad Request: message can't be edited")
        last = message.state
        if (last.text, last.entities, last.buttons) == (state.text, state.entities, state.buttons):
            raise TelegramRefusal(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup are exactly the "
                "same as a current content and reply markup of the message",
            )
        message.states.append(state)
        return message

    def preview(self, draft_id: int, thread: int, state: TelegramState, *, can_stop: bool) -> None:
        if self.kind != "private":
            raise TelegramRefusal(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        if draft_id == 0:
            raise TelegramRefusal(400, "Bad Request: draft_id must be non-zero")
        if (shown := self.draft) is not None and shown.id == draft_id and shown.is_shown(state.at):
            shown.states.append(state)
        else:
            self.drafts.append(Draft(draft_id, thread, [state], can_stop))

    def end_preview(self, message_id: int) -> None:
        if (shown := self.draft) is not None:
            shown.replaced_by = message_id


def state_of(text: str, entities: list[dict[str, Any]], markup: dict[str, Any] | None, at: float) -> TelegramState:
    """What the bot asked to be shown, as it is shown: blanks at both ends are cut. Raises `TelegramRefusal`.

    Stricter than the real server on one point: an entity out of bounds or across half a character is refused instead
    of dropped, since the sender has counted wrong.
    """
    units = len(text.encode("utf-16-le")) // 2
    if units > MAX_TEXT_UNITS:
        raise TelegramRefusal(400, "Bad Request: message is too long")
    for entity in entities:
        _check_entity(text, units, entity)
    buttons = tuple(_buttons(markup or {}))
    if any(not 1 <= len(data.encode()) <= CALLBACK_BYTES for _, data in buttons):
        raise TelegramRefusal(400, "Bad Request: BUTTON_DATA_INVALID")
    return TelegramState(text.rstrip(), buttons, at, tuple(entities[:MAX_ENTITIES]))


def _check_entity(text: str, units: int, entity: dict[str, Any]) -> None:
    offset, length = entity["offset"], entity["length"]
    if offset < 0 or length <= 0 or offset + length > units:
        raise TelegramRefusal(400, f"Bad Request: can't parse entities: entity at {offset} ends outside of the text")
    encoded = text.encode("utf-16-le")
    for edge in (offset, offset + length):
        if edge < units and 0xDC <= encoded[2 * edge + 1] <= 0xDF:
            raise TelegramRefusal(400, f"Bad Request: can't parse entities: {edge} is within a character")
    if entity["type"] == "text_link" and ":" not in entity.get("url", ""):
        raise TelegramRefusal(400, "Bad Request: can't parse entities: a link needs an address")


def _buttons(markup: dict[str, Any]) -> list[tuple[str, str]]:
    rows = markup.get("inline_keyboard", [])
    return [(button["text"], button.get("callback_data", "")) for row in rows for button in row]


def _styled(text: str, entity: dict[str, Any]) -> Styled:
    encoded = text.encode("utf-16-le")
    start, end = 2 * entity["offset"], 2 * (entity["offset"] + entity["length"])
    detail = str(entity.get("url") or entity.get("language") or "")
    return Styled(str(entity["type"]), encoded[start:end].decode("utf-16-le"), detail)
