"""What a message refers to, in words for the model: the message that it replies to, and whom it is forwarded from.

A client shows both beside the message. Without them "translate this" has no this. Pure: no I/O.
"""

from __future__ import annotations

import telegram

from tailrace.delivery.planning.presenter import quotation, shortened
from tailrace.delivery.speakers import author_name
from tailrace.gateway.inbound import is_command_or_answer
from tailrace.integrations.telegram.cards import card_of


def replied_message(message: telegram.Message) -> telegram.Message | None:
    """The message that a person chose to reply to. In a forum every message replies to the one that opened its topic:
    that one does not count."""
    replied = message.reply_to_message
    return None if replied is None or replied.forum_topic_created is not None else replied


def with_context(message: telegram.Message, text: str, me: telegram.User) -> str:
    """The text below what it refers to. A command and an answer to a question stay as they are, unless the message is
    forwarded: then they are somebody else's."""
    if message.forward_origin is not None:
        return f"[forwarded from {_named(_origin(message.forward_origin))}]\n{quotation(text)}".rstrip()
    if is_command_or_answer(text):
        return text
    if message.reply_to_story is not None:
        return f"[in reply to a story; this bot cannot read it]\n\n{text}".rstrip()
    replied, elsewhere = replied_message(message), message.external_reply
    quoted = _text(replied) if replied is not None else card_of(elsewhere) if elsewhere is not None else ""
    if message.quote is not None:
        quoted = message.quote.text
    if elsewhere is not None:
        whose = f"a message of {_named(_origin(elsewhere.origin))} elsewhere"
        return f"[in reply to {whose}]\n{quotation(shortened(quoted))}".rstrip() + f"\n\n{text}".rstrip()
    if not quoted.strip():
        return text
    return f"[in reply to {_author(replied, me)}]\n{quotation(shortened(quoted))}\n\n{text}".rstrip()


def _text(replied: telegram.Message) -> str:
    return replied.text or replied.caption or card_of(replied)


def _author(replied: telegram.Message | None, me: telegram.User) -> str:
    if replied is None:
        return "a message elsewhere"
    if replied.sender_chat is not None:
        return _named(replied.sender_chat.title or "")
    return "you" if replied.from_user == me else _named(replied.from_user.full_name if replied.from_user else "")


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


def _named(name: str) -> str:
    return author_name(name) or "somebody"
