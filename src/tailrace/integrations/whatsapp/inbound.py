"""What WhatsApp's webhook says, and whether it is WhatsApp that says it (J120). Pure: bytes in, updates out.

A call counts when its raw body is signed with the app's secret. A signed body that was kept and is sent again is
harmless: its messages have the ids they had, and what is older than the reply window is not taken at all.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from tailrace.delivery.cards import card_of_fields
from tailrace.delivery.planning.presenter import preview_line, shortened
from tailrace.delivery.port import Attachment, MessageLost, MessageReceived, Place, Quoted, Refused, Sender, Sent
from tailrace.integrations.whatsapp.meta_errors import WINDOW_CLOSED, Trouble, explained, lets_others_through
from tailrace.integrations.whatsapp.statuses import Outcome
from tailrace.values.validation_words import decoding_problem

log = logging.getLogger("tailrace.integrations.whatsapp")
SIGNATURE_HEADER = "x-hub-signature-256"
# Meta delivers a message again for days; one that is older than this could not be answered any more (error 131047).
REPLAY_WINDOW_S = 24 * 3600.0
DOWNTIME_S = 300.0  # before its start a process was surely not about to hear what was written
MAX_TEXT_CHARS = 4096
_NO_MESSAGES = frozenset({"system", "reaction"})  # no answer to them is expected
# Several that are sent at once come one by one, and nothing says that they belong together.
_IN_ALBUMS = frozenset({"image", "video", "document"})
_UNREADABLE = frozenset({"unsupported", "unknown"})
# Unreadable kinds that ask for no answer: a message that was changed, deleted, pinned or kept, a vote.
_NO_QUESTIONS = frozenset({"edit", "keep_in_chat", "pin", "poll_update", "reaction", "revoke"})
_MAX_WORD = 40  # characters of a timestamp or a kind

MAX_REMEMBERED = 2048  # texts; the oldest are forgotten first


class RecentTexts:
    """The newest texts, by their chats and the ids of their messages: an id of another chat shows nothing of it.
    A process knows what it sent or received itself."""

    def __init__(self, *, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._quotes: OrderedDict[tuple[str, str], Quoted] = OrderedDict()
        self._unreadable: OrderedDict[str, None] = OrderedDict()  # chats whose last message could not be read

    def add(self, chat: str, message_id: str, text: str, *, is_ours: bool) -> None:
        what = "" if is_ours else "a message of their own"
        self._quotes[chat, message_id] = Quoted(text=shortened(text), is_ours=is_ours, what=what)
        while len(self._quotes) > self._limit:
            self._quotes.popitem(last=False)

    def is_first_unreadable(self, chat: str) -> bool:
        """Whether this unreadable message is the chat's first since a readable one: the first alone is answered.
        All messages of another business's number are unreadable: two bots would answer each other without end."""
        is_first = chat not in self._unreadable
        self._unreadable[chat] = None
        while len(self._unreadable) > self._limit:
            self._unreadable.popitem(last=False)
        return is_first

    def read(self, chat: str) -> None:
        """A message of the chat could be read."""
        self._unreadable.pop(chat, None)

    def quoted(self, chat: str, message_id: str) -> Quoted:
        return self._quotes.get((chat, message_id)) or Quoted(what="an earlier message")


class _Words(msgspec.Struct):
    """What a person wrote, pressed or chose: `body` of a text, `text` of a button, `title` of a reply."""

    body: str = ""
    text: str = ""
    title: str = ""


class _Media(msgspec.Struct):
    id: str
    mime_type: str = ""
    filename: str = ""
    caption: str = ""


class _Interactive(msgspec.Struct):
    button_reply: _Words | None = None
    list_reply: _Words | None = None
    nfm_reply: object = None  # a form that was filled in


class _Context(msgspec.Struct):
    """`id` is that of the message that is replied to."""

    id: str = ""
    forwarded: bool = False
    frequently_forwarded: bool = False
    referred_product: object = None


class _Sticker(msgspec.Struct):
    id: str = ""
    mime_type: str = ""
    animated: bool = False


class _Unsupported(msgspec.Struct):
    """A message that WhatsApp shows to no business. `type` is WhatsApp's word for it, where it has one."""

    type: str = "message"


class _Message(msgspec.Struct, rename={"number": "from"}):
    id: str
    type: str
    timestamp: str
    number: str = ""  # empty where the person has a username and Meta does not show their number
    from_user_id: str = ""
    group_id: str = ""
    text: _Words | None = None
    image: _Media | None = None
    document: _Media | None = None
    audio: _Media | None = None
    video: _Media | None = None
    sticker: _Sticker | None = None
    unsupported: _Unsupported = msgspec.field(default_factory=_Unsupported)
    button: _Words | None = None
    interactive: _Interactive | None = None
    location: object = None
    contacts: list[object] = []
    order: object = None
    referral: object = None
    context: _Context = msgspec.field(default_factory=_Context)

    @property
    def sender(self) -> str:
        """The number where Meta tells it: it is what `allow` has, and what the conversation had before a username."""
        return self.number or self.from_user_id

    @property
    def origin(self) -> str:
        """What the person looked at when they wrote: an advertisement, a product of the catalogue."""
        seen = {"by an advertisement": self.referral, "about the product": self.context.referred_product}
        return "\n".join(card_of_fields(kind, card) for kind, card in seen.items() if card is not None)


class Status(msgspec.Struct):
    id: str
    status: str
    recipient_id: str = ""
    recipient_user_id: str = ""
    biz_opaque_callback_data: str = ""  # the key that the message was sent with
    errors: list[Trouble] = []

    @property
    def recipient(self) -> str:
        return self.recipient_id or self.recipient_user_id

    @property
    def until_heard(self) -> bool:
        """Whether WhatsApp takes the message once the person has written again."""
        return any(error.code == WINDOW_CLOSED for error in self.errors)

    @property
    def failures(self) -> list[str]:
        """Why the message could not be delivered; empty where it could."""
        return [explained(error) for error in self.errors] or ["no reason given"] * (self.status == "failed")


class _Profile(msgspec.Struct):
    name: str = ""


class _Contact(msgspec.Struct):
    wa_id: str = ""
    user_id: str = ""
    profile: _Profile = msgspec.field(default_factory=_Profile)


class _Metadata(msgspec.Struct):
    phone_number_id: str = ""


class _Value(msgspec.Struct):
    """Each of the items is read on its own: one that makes no sense takes no other with it."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    contacts: list[msgspec.Raw] | None = None
    messages: list[msgspec.Raw] | None = None
    statuses: list[msgspec.Raw] | None = None


class _Change(msgspec.Struct):
    value: _Value
    field: str = ""


class _Entry(msgspec.Struct):
    changes: list[_Change] = []


class Notification(msgspec.Struct):
    """One call of the webhook: messages and statuses, of this number and perhaps of others."""

    entry: list[_Entry] = []

    def values(self, phone_number_id: str) -> Iterator[_Value]:
        for entry in self.entry:
            for change in entry.changes:
                if change.field == "messages" and change.value.metadata.phone_number_id == phone_number_id:
                    yield change.value


MAKES_NO_SENSE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # that decoding raises
NOTIFICATIONS = msgspec.json.Decoder(Notification)
_T = TypeVar("_T")


def is_signed(body: bytes, header: str, secret: str) -> bool:
    """Whether the raw body carries the signature that only Meta and we can make; compared in constant time."""
    if not secret.strip():
        return False  # a signature by an empty secret can be made without knowing anything (M151)
    expected = "sha256=" + hmac.digest(secret.encode(), body, hashlib.sha256).hex()
    return hmac.compare_digest(expected.encode(), header.encode("utf-8", "replace"))


def statuses_in(notification: Notification, phone_number_id: str) -> list[Status]:
    values = notification.values(phone_number_id)
    return [status for value in values for status in _readable(value.statuses, Status, "status")]


def told_of(statuses: Iterable[Status]) -> Iterator[tuple[str, Outcome]]:
    """What became of messages of ours, each by its key."""
    for status in statuses:
        if key := status.biz_opaque_callback_data:
            failed = status.status == "failed"
            yield key, Refused(status.failures[0], until_heard=status.until_heard) if failed else Sent(status.id)


def lost(statuses: Iterable[Status]) -> Iterator[tuple[str, MessageLost]]:
    """The messages of answers that Meta accepted and did not deliver, each with its key, which begins with the id of
    the answer's delivery. Several of one answer are one update, unless the answer is sent again. Notices of the bot
    itself (`say.…`) are left out: a notice about a lost notice would be lost too, without end."""
    for status in statuses:
        key, who = status.biz_opaque_callback_data, status.recipient
        if status.status != "failed" or not (key and who) or key.startswith("say."):
            continue
        delivery, place = key.partition(".")[0], Place("whatsapp", who)
        if status.until_heard:
            yield key, MessageLost(f"{key}.window", place, Sender(who), undelivered=delivery)
        elif all(lets_others_through(error) for error in status.errors):
            yield key, MessageLost(f"{delivery}.undelivered", place, Sender(who))


def received(
    notification: Notification, phone_number_id: str, now_s: float, recent: RecentTexts, *, started_s: float = 0.0
) -> Iterator[MessageReceived]:
    """The messages that came, but for those outside of the replay window. `now_s` is the time of day, `started_s` that
    of the process's start."""
    for value in notification.values(phone_number_id):
        contacts = _readable(value.contacts, _Contact, "contact")
        names = {contact.wa_id or contact.user_id: contact.profile.name for contact in contacts}
        for message in _readable(value.messages, _Message, "message"):
            if not message.sender or message.type in _NO_MESSAGES or not _is_timely(message, now_s):
                continue
            if message.group_id:
                log.info("a message in the group %s is passed over: groups are not served", message.group_id)
                continue
            said, attachments = _content(message)
            if message.type in _UNREADABLE:
                if not said or not recent.is_first_unreadable(message.sender):
                    continue
            elif said or attachments:
                recent.read(message.sender)
            else:
                continue
            context = message.context
            forwarded = context.forwarded or context.frequently_forwarded
            quoted = [Quoted(text=message.origin, what="an advertisement or a product")] if message.origin else []
            quoted += [recent.quoted(message.sender, context.id)] if context.id else []
            recent.add(message.sender, message.id, said, is_ours=False)
            yield MessageReceived(
                update_id=message.id,
                # the message's id lets it be marked as read while the answer is made
                place=Place("whatsapp", message.sender, extra={"message": message.id}),
                sender=Sender(message.sender, names.get(message.sender, "")),
                text="" if forwarded else said,
                quoted=(Quoted(text=said, kind="forward"),) if forwarded else tuple(quoted),
                attachments=attachments,
                at_limit=len(said) >= MAX_TEXT_CHARS or forwarded or message.type in _IN_ALBUMS,
                message_id=message.id,
                late_s=now_s - written_s if (written_s := int(message.timestamp)) < started_s - DOWNTIME_S else None,
            )


def _readable(items: Iterable[msgspec.Raw] | None, kind: type[_T], name: str) -> Iterator[_T]:
    for item in items or ():
        try:
            yield msgspec.convert(_without_nulls(msgspec.json.decode(item)), kind)
        except MAKES_NO_SENSE as exc:
            log.warning("a %s could not be read: %s", name, decoding_problem(exc))


def _without_nulls(value: object) -> object:
    """A field that is null is one that is not there."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def _is_timely(message: _Message, now_s: float) -> bool:
    is_number = message.timestamp.isascii() and message.timestamp.isdigit() and len(message.timestamp) <= _MAX_WORD
    if not is_number:
        told = preview_line(message.timestamp, _MAX_WORD)
        log.warning("a message of %s is passed over: its timestamp is no number: '%s'", message.sender, told)
    elif now_s - int(message.timestamp) > REPLAY_WINDOW_S:
        log.warning("a message of %s is passed over: it is older than 24 hours, too old to answer", message.sender)
    else:
        return True
    return False


def _content(message: _Message) -> tuple[str, tuple[Attachment, ...]]:
    chosen = message.interactive or _Interactive()
    if words := message.text or message.button or chosen.button_reply or chosen.list_reply:
        return words.body or words.text or words.title, ()
    cards = {"location": message.location, "order": message.order, "form": chosen.nfm_reply}
    for kind, card in (cards | {"contact": message.contacts}).items():
        if card:
            return card_of_fields(kind, card), ()
    if message.type in _UNREADABLE:
        what = preview_line(message.unsupported.type, _MAX_WORD)
        return "" if what in _NO_QUESTIONS else f"[a {what} that WhatsApp does not show to this bot]", ()
    if (sticker := message.sticker) is not None:
        image = Attachment(sticker.id, "sticker", sticker.mime_type.partition(";")[0].strip())
        return ("[animated sticker]", ()) if sticker.animated else ("[sticker]", (image,))
    files = {"image": message.image, "document": message.document, "audio": message.audio, "video": message.video}
    for kind, media in files.items():
        if media is not None:
            media_type = media.mime_type.partition(";")[0].strip()
            return media.caption, (Attachment(media.id, media.filename or kind, media_type),)
    return "", ()
