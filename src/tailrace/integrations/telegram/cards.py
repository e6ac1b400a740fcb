"""Messages of Telegram that are neither text nor a file, in words for the model: places, contacts, polls, stickers.

Each kind of the Bot API is a card, a kind that the bot cannot read and the model is told of, or a service message,
which no person wrote. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import telegram

from tailrace.delivery.cards import card_words
from tailrace.delivery.text.markup import BOXES
from tailrace.gateway.inbound.incoming import is_yes_or_no

UNREAD: Final = {  # kinds of which the bot has no content, and what the model is told
    "story": "a story",
    "paid_media": "paid media",
    "giveaway": "a giveaway",
    "giveaway_winners": "the winners of a giveaway",
}
UNKNOWN: Final = "[a message of a kind that this bot does not know]"
# What a chat says of itself. Some are fields of a message that has content too.
SERVICE: Final = frozenset(
    {
        *("boost_added", "business_connection_id", "channel_chat_created", "chat_background_set", "chat_owner_changed"),
        *("chat_owner_left", "chat_shared", "checklist_tasks_added", "checklist_tasks_done", "connected_website"),
        *("delete_chat_photo", "direct_message_price_changed", "effect_id", "forum_topic_closed"),
        *("forum_topic_created", "forum_topic_edited", "forum_topic_reopened", "general_forum_topic_hidden"),
        *("general_forum_topic_unhidden", "gift", "gift_upgrade_sent", "giveaway_completed", "giveaway_created"),
        *("group_chat_created", "left_chat_member", "managed_bot_created", "message_auto_delete_timer_changed"),
        *("migrate_from_chat_id", "migrate_to_chat_id", "new_chat_members", "new_chat_photo", "new_chat_title"),
        *("paid_message_price_changed", "passport_data", "pinned_message", "poll_option_added"),
        *("poll_option_deleted", "proximity_alert_triggered", "refunded_payment", "reply_to_story"),
        *("sender_boost_count", "sender_business_bot", "successful_payment", "suggested_post_approval_failed"),
        *("suggested_post_approved", "suggested_post_declined", "suggested_post_info", "suggested_post_paid"),
        *("suggested_post_refunded", "supergroup_chat_created", "unique_gift", "users_shared", "video_chat_ended"),
        *("video_chat_participants_invited", "video_chat_scheduled", "video_chat_started", "web_app_data"),
        "write_access_allowed",
    }
)


def card_of(message: telegram.Message | telegram.ExternalReplyInfo) -> str:
    """The card in words; empty where the message has none."""
    return next(_cards(message), "")


def is_service(message: telegram.Message) -> bool:
    return any(_content(message, kind) or message.api_kwargs.get(kind) for kind in SERVICE)


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
