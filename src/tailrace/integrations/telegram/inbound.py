"""The Bot API's updates as ours. Pure: no I/O.

Messages that are neither text nor a file (places, contacts, polls, stickers) are said in words for the model; one
of another kind, such as a service message, is no message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import telegram
from telegram.constants import ChatType, MessageEntityType

from tailrace.delivery import port
from tailrace.delivery.cards import card_words
from tailrace.delivery.port import Attachment, Quoted
from tailrace.delivery.text.markup import BOXES
from tailrace.delivery.text.split import units
from tailrace.gateway.inbound.incoming import is_yes_or_no

# Sent when the stop button of a draft is pressed (Bot API 10.3); the library may not know it by name.
STOPPED = "stopped_message_generation"
KINDS = ["message", "callback_query", STOPPED]
# Telegram Desktop cuts a long paste at the best break between half of the 4096 units and all of them.
MAY_CONTINUE_UNITS = 2048
_COMMAND = re.compile(r"/\w+(?:@(?P<bot>\w+))?(?!\S)", re.ASCII)


UNREAD: Final = {  # kinds of which the bot has no content, and what the model is told
    "story": "a story",
    "paid_media": "paid media",
    "giveaway": "a giveaway",
    "giveaway_winners": "the winners of a giveaway",
}


def card_of(message: telegram.Message | telegram.ExternalReplyInfo) -> str:
    """The card in words; empty where the message has none."""
    return next(_cards(message), "")


def _cards(message: telegram.Message | telegram.ExternalReplyInfo) -> Iterator[str]:
    if (venue := message.venue) is not None:  # it has a location too
        yield card_words("location", venue.title, venue.address, _point(venue.location))
    if message.location is not None:
        yield card_words("location", _point(message.location))
    if (contact := message.contact) is not None:
        name = f"{contact.first_name} {contact.last_name or ''}"
        yield card_words("contact", name, contact.phone_number)
    if (poll := message.poll) is not None:
        yield card_words("poll", poll.question, *(option.text for option in poll.options))
    if (checklist := _content(message, "checklist")) is not None:
        tasks = (f"{BOXES[task.completion_date is not None]} {task.text}" for task in checklist.tasks)
        yield card_words("checklist", checklist.title, *tasks)
    if (dice := message.dice) is not None:
        yield card_words("dice", f"{dice.emoji} {dice.value}")
    if (sticker := message.sticker) is not None:
        yield _sticker(sticker.emoji or "")
    if (game := message.game) is not None:
        yield card_words("game", game.title, game.description)
    if (invoice := message.invoice) is not None:
        yield card_words("invoice", invoice.title, invoice.description)
    for kind, words in UNREAD.items():
        if _content(message, kind) is not None:
            yield f"[{words}; this bot cannot read it]"


def _content(message: telegram.Message | telegram.ExternalReplyInfo, kind: str) -> Any:
    """None where the installed release of the library is older than this kind: it has the fields that it does not know
    in `api_kwargs`, unread."""
    return getattr(message, kind, None)


def _point(location: telegram.Location) -> str:
    return f"{location.latitude}, {location.longitude}"


def _sticker(emoji: str) -> str:
    """A thumb as a sticker is the answer that a typed one is."""
    return emoji if is_yes_or_no(emoji) else card_words("sticker", emoji)


def replied_message(message: telegram.Message) -> telegram.Message | None:
    """The message that a person chose to reply to. In a forum every message replies to the one that opened its topic:
    that one does not count."""
    replied = message.reply_to_message
    return None if replied is None or replied.forum_topic_created is not None else replied


def quoted_in(message: telegram.Message, me: telegram.User) -> tuple[Quoted, ...]:
    """What the message replies to."""
    replied, elsewhere, chosen = replied_message(message), message.external_reply, message.quote
    if message.reply_to_story is not None:
        return (Quoted(what="a story; this bot cannot read it"),)
    if elsewhere is not None:
        text = chosen.text if chosen is not None else card_of(elsewhere)
        files = tuple(attachments_of(elsewhere))
        return (Quoted(_origin(elsewhere.origin), text, files, what="a message elsewhere"),)
    if replied is None:
        return (Quoted(text=chosen.text, what="a message elsewhere"),) if chosen is not None else ()
    text = chosen.text if chosen is not None else replied.text or replied.caption or card_of(replied)
    is_ours = replied.sender_chat is None and replied.from_user == me
    files = () if is_ours else tuple(attachments_of(replied))
    return (Quoted(_author(replied), text, files, is_ours=is_ours),) if text.strip() or files else ()


def forwarded_in(message: telegram.Message, text: str) -> Quoted | None:
    """The whole message, where it is forwarded. Its files are its own."""
    origin = message.forward_origin
    return Quoted(_origin(origin), text, kind="forward") if origin is not None else None


def _author(replied: telegram.Message) -> str:
    if replied.sender_chat is not None:
        return replied.sender_chat.title or ""
    return replied.from_user.full_name if replied.from_user is not None else ""


def _origin(origin: telegram.MessageOrigin) -> str:
    match origin:
        case telegram.MessageOriginUser():
            return origin.sender_user.full_name
        case telegram.MessageOriginHiddenUser():
            return origin.sender_user_name
        case telegram.MessageOriginChat():
            return origin.sender_chat.title or ""
        case telegram.MessageOriginChannel():
            return origin.chat.title or ""
        case _:
            return ""


def attachments_of(message: telegram.Message | telegram.ExternalReplyInfo) -> list[Attachment]:
    found: list[Attachment] = []
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        found.append(Attachment(largest.file_id, "photo.jpg", "image/jpeg", largest.file_size))
    for file, name, media_type in (
        (message.document, "document", "application/octet-stream"),
        (message.audio, "audio", "audio/mpeg"),
        (message.video, "video", "video/mp4"),
    ):
        if file is not None:
            found.append(Attachment(file.file_id, file.file_name or name, file.mime_type or media_type, file.file_size))
    if (note := message.video_note) is not None:
        found.append(Attachment(note.file_id, "video-message.mp4", "video/mp4", note.file_size))
    if (voice := message.voice) is not None:
        found.append(Attachment(voice.file_id, "voice.ogg", voice.mime_type or "audio/ogg", voice.file_size))
    return found


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


def seconds_before(update: telegram.Update, at_s: float) -> float:
    """How long before this time a message was written, by the server's clock; 0 for other updates."""
    return at_s - update.message.date.timestamp() if update.message is not None else 0.0


def _message(update_id: str, message: telegram.Message, me: telegram.User) -> port.MessageReceived | None:
    sender = _sender(message)
    written, attachments = message.text or message.caption or "", tuple(attachments_of(message))
    card = card_of(message)
    if sender is None or not (written or attachments or card):
        return None  # a service message, a channel's post, another bot
    named, said = _without_mentions(message, written, me)
    private = message.chat.type == ChatType.PRIVATE
    if not (private or named) and _names_other_bot(said):
        return None  # also where every message is answered
    text = "\n".join(filter(None, (card, said)))
    forwarded = forwarded_in(message, text)
    return port.MessageReceived(
        update_id=update_id,
        place=_place(message),
        sender=sender,
        text=text if forwarded is None else "",
        attachments=attachments,
        addressed=private or named or _replies_to(message, me),
        at_limit=_may_go_on(message, said),
        message_id=str(message.message_id),
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


def _names_other_bot(text: str) -> bool:
    """Whether it is a command with a bot's name; our own name was taken out before."""
    found = _COMMAND.match(text)
    return found is not None and found["bot"] is not None


def _replies_to(message: telegram.Message, me: telegram.User) -> bool:
    replied = replied_message(message)
    return replied is not None and replied.from_user is not None and replied.from_user.id == me.id


def _may_go_on(message: telegram.Message, said: str) -> bool:
    """Whether more of the same may follow: the rest of a paste, of an album, of what was forwarded at once."""
    is_long = units(said, "utf16") >= MAY_CONTINUE_UNITS
    return is_long or message.media_group_id is not None or message.forward_origin is not None
