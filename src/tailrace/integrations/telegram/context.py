"""What a message refers to: the message that it replies to, or the author that it is forwarded from. Pure: no I/O.

A client shows both beside the message. Without them "translate this" has no this.
"""

from __future__ import annotations

import telegram

from tailrace.delivery.port import Attachment, Quoted
from tailrace.integrations.telegram.cards import card_of


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
