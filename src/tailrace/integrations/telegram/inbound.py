"""The Bot API's updates as ours. Pure: no I/O."""

from __future__ import annotations

import re

import telegram
from telegram.constants import ChatType, MessageEntityType

from tailrace.delivery import port
from tailrace.integrations.telegram.cards import UNKNOWN, card_of, is_service
from tailrace.integrations.telegram.context import attachments_of, forwarded_in, quoted_in, replied_message

# Sent when the stop button of a draft is pressed (Bot API 10.3); the library may not know it by name.
STOPPED = "stopped_message_generation"
KINDS = ["message", "callback_query", STOPPED]
# Telegram Desktop cuts a long paste at the best break between half of the 4096 units and all of them.
MAY_CONTINUE_UNITS = 2048
_COMMAND = re.compile(r"/\w+(?:@(?P<bot>\w+))?(?!\S)", re.ASCII)


def parse_update(update: telegram.Update, me: telegram.User) -> port.Update | None:
    """The update as one of ours; None for what is not a message, a button or a stop of a person. `me` is the bot."""
    update_id = str(update.update_id)
    if update.message is not None:
        return _message(update_id, update.message, me)
    if (query := update.callback_query) is not None:
        return _button(update_id, query)
    if isinstance(stopped := update.api_kwargs.get(STOPPED), dict):
        return _stopped(update_id, stopped)
    return None


def was_before(update: telegram.Update, at_s: float) -> bool:
    """Whether the update is a message from before this time, by the server's clock; in seconds since the epoch."""
    return update.message is not None and update.message.date.timestamp() < at_s


def _message(update_id: str, message: telegram.Message, me: telegram.User) -> port.MessageReceived | None:
    sender = _sender(message)
    written, attachments = message.text or message.caption or "", tuple(attachments_of(message))
    card = card_of(message)
    if sender is None or (is_service(message) and not (written or attachments or card)):
        return None  # a service message, a channel's post, another bot
    named, said = _without_mentions(message, written, me)
    private = message.chat.type == ChatType.PRIVATE
    if not (private or named) and _names_other_bot(said):
        return None  # also where every message is answered
    text = "\n".join(filter(None, (card, said)))
    forwarded = forwarded_in(message, text)
    if not (written or attachments or card):
        text = UNKNOWN
    return port.MessageReceived(
        update_id=update_id,
        place=_place(message),
        sender=sender,
        text=text if forwarded is None else "",
        attachments=attachments,
        addressed=private or named or _replies_to(message, me),
        at_limit=_may_go_on(message, said),
        message_id=str(message.message_id),
        forwarded=forwarded is not None,
        quoted=(forwarded,) if forwarded is not None else quoted_in(message, me),
    )


def _button(update_id: str, query: telegram.CallbackQuery) -> port.ButtonPressed | None:
    message = query.message
    if message is None or query.data is None:
        return None
    if isinstance(message, telegram.Message):
        place = _place(message)
    else:  # too old for the server to show it: where it was is all that is known
        place = port.Place("telegram", str(message.chat.id), kind=_kind(message.chat))
    sender = port.Sender(str(query.from_user.id), query.from_user.full_name)
    return port.ButtonPressed(update_id, place, sender, query.data, str(message.message_id))


def _stopped(update_id: str, stopped: dict[str, object]) -> port.StopPressed | None:
    match stopped:
        case {"chat": {"id": int(chat)}}:
            thread = stopped.get("message_thread_id")
            place = port.Place("telegram", str(chat), str(thread) if thread else "")
            # drafts are private: the chat is the person
            return port.StopPressed(update_id, place, port.Sender(str(chat)))
        case _:
            return None


def _place(message: telegram.Message) -> port.Place:
    """In a group that is no forum `message_thread_id` only says what replies to what: nothing can be sent there."""
    thread = str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else ""
    return port.Place("telegram", str(message.chat.id), thread, _kind(message.chat))


def _kind(chat: telegram.Chat) -> port.ChatKind:
    return "private" if chat.type == ChatType.PRIVATE else "group"


def _sender(message: telegram.Message) -> port.Sender | None:
    """A message that is written as a chat (an anonymous admin, a linked channel) has that chat as its sender: `from` is
    then a stand-in that all such messages share."""
    if (chat := message.sender_chat) is not None:
        return port.Sender(str(chat.id), chat.title or "")
    if (user := message.from_user) is not None and not user.is_bot:
        return port.Sender(str(user.id), user.full_name)
    return None


def _without_mentions(message: telegram.Message, text: str, me: telegram.User) -> tuple[bool, str]:
    """Whether the bot is named, and the text without its name. Offsets are in UTF-16 units."""
    entities = message.entities if message.text else message.caption_entities
    encoded = text.encode("utf-16-le")
    name = f"@{me.username or ''}".lower()
    named = False
    for entity in sorted(entities, key=lambda entity: entity.offset, reverse=True):
        start, end = 2 * entity.offset, 2 * (entity.offset + entity.length)
        covered = encoded[start:end].decode("utf-16-le", "replace").lower()
        to_user = entity.type == MessageEntityType.TEXT_MENTION and entity.user is not None and entity.user.id == me.id
        if to_user or (entity.type == MessageEntityType.MENTION and covered == name):
            named = True
            encoded = encoded[:start] + encoded[end:]
        elif entity.type == MessageEntityType.BOT_COMMAND and covered.endswith(name):
            named = True
            encoded = encoded[: end - 2 * len(name)] + encoded[end:]
    return named, encoded.decode("utf-16-le", "replace").strip() if named else text


def names_unknown_bot(message: telegram.Message, me: telegram.User) -> bool:
    """Whether a bot is named in a group that is not known to be ours: another one, or this one by a new name."""
    if message.chat.type == ChatType.PRIVATE:
        return False
    kinds: list[str | None] = [MessageEntityType.MENTION, MessageEntityType.BOT_COMMAND]
    texts = message.parse_entities(kinds) if message.text else message.parse_caption_entities(kinds)
    names = {text.rpartition("@")[2].lower() for text in texts.values() if "@" in text}
    return any(name.endswith("bot") and name != (me.username or "").lower() for name in names)


def _names_other_bot(text: str) -> bool:
    """Whether it is a command with a bot's name; our own name was taken out before."""
    found = _COMMAND.match(text)
    return found is not None and found["bot"] is not None


def _replies_to(message: telegram.Message, me: telegram.User) -> bool:
    replied = replied_message(message)
    return replied is not None and replied.from_user is not None and replied.from_user.id == me.id


def _may_go_on(message: telegram.Message, said: str) -> bool:
    """Whether more of the same may follow: the rest of a paste, of an album, of what was forwarded at once."""
    return (
        _units(said) >= MAY_CONTINUE_UNITS or message.media_group_id is not None or message.forward_origin is not None
    )


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "replace")) // 2
