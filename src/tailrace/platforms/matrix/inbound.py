"""What a Matrix sync says: messages for us, what became of ours, and rooms that we are invited to."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

import nio

from tailrace.delivery.port import Attachment, ChatKind, MessageReceived, Place, Sender, Update
from tailrace.delivery.speakers import typed_text
from tailrace.errors import PlatformError
from tailrace.messages import JsonObject
from tailrace.platforms.matrix.addressing import BotNames, is_command, with_slash
from tailrace.platforms.runtime.connection_errors import NO_ANSWER

log = logging.getLogger("tailrace.platforms.matrix")

_TEXTS = ("m.text", "m.emote")
_FILES = ("m.image", "m.file", "m.audio", "m.video")
# Without it a homeserver takes every name in a text for a mention, and rings again at each edit.
NO_MENTIONS: Final[JsonObject] = {"m.mentions": {}}
MAX_MISSED = 1000  # events of a room that are read after a gap; what is older is not
_PAGE = 100
MAX_PAGES = 50  # that are read of a room after a gap: a filtered page has fewer events, or none
_ASKED_FOR = ["m.room.message", "m.room.encrypted", "m.room.redaction", "m.room.member"]
_EVENT_ID = re.compile(r"\$[!-~]{1,254}")  # as homeservers make them: what a client writes may be anything
REMEMBERED = 10_000  # events: enough for every answer that may still get a reply
ENCRYPTED = (
    "I cannot read this room: it is encrypted, and that cannot be switched off. Make another room with end-to-end "
    "encryption off, and invite me there."
)


def remember_event(events: OrderedDict[str, bool], event_id: str) -> None:
    """One more; the oldest are forgotten."""
    events.setdefault(event_id, True)
    while len(events) > REMEMBERED:
        events.popitem(last=False)


class Rooms:
    """The rooms that the bot is in. It joins a room when a user invites it who is served."""

    def __init__(
        self, client: nio.AsyncClient, user_id: str, allow: frozenset[str], sent: OrderedDict[str, bool]
    ) -> None:
        """`sent` are events of ours, and whether they are still there; what is redacted is noted in it."""
        self._client = client
        self._user_id = user_id
        self._allow = allow
        self._sent = sent
        self._of_others: OrderedDict[str, bool] = OrderedDict()  # rooms and events in them that are not ours
        self._invited: set[str] = set()
        self._encrypted: dict[str, bool] = {}  # rooms in which we were written to in vain; whether they were told

    async def join_invited(self, answer: nio.SyncResponse, serves: Callable[[Sender], Awaitable[bool]]) -> None:
        """Follows whom `allow` names and who was paired. An invitation is told once; one that could not be followed yet
        is tried again with the next news."""
        for room_id, invite in answer.rooms.invite.items():
            inviters = _inviters(invite, self._user_id)
            if "*" in self._allow or any([user in self._allow or await serves(Sender(user)) for user in inviters]):
                self._invited.add(room_id)
                continue
            who = ", ".join(inviters) or "somebody"
            log.warning("matrix: %s is not served: the invitation to %s is not followed", who, room_id)
        for room_id in sorted(self._invited):
            joined = await self._client.join(room_id)
            if isinstance(joined, nio.JoinError) and joined.status_code == "M_LIMIT_EXCEEDED":
                continue
            self._invited.discard(room_id)
            if isinstance(joined, nio.JoinError):
                log.warning("an invitation could not be followed: %s", joined)

    async def tell_encrypted(self, answer: nio.SyncResponse) -> None:
        """Whoever writes in an encrypted room is told, once, that nothing there can be read."""
        for room_id, room in answer.rooms.join.items():
            events = self._since_invitation([event.source for event in room.timeline.events])
            others = (event for event in events if event.get("sender") != self._user_id)
            if any(event.get("type") == "m.room.encrypted" for event in others):
                self._encrypted.setdefault(room_id, False)
        for room_id in [room_id for room_id, told in self._encrypted.items() if not told]:
            content = {"msgtype": "m.notice", "body": ENCRYPTED, **NO_MENTIONS}
            transaction = hashlib.sha256(f"encrypted\0{room_id}".encode()).hexdigest()[:32]
            reply = await self._client.room_send(room_id, "m.room.message", content, tx_id=transaction)
            if isinstance(reply, nio.RoomSendError) and reply.status_code == "M_LIMIT_EXCEEDED":
                continue  # with the next news
            self._encrypted[room_id] = True
            log.warning("matrix: %s is encrypted: what is written there cannot be read", room_id)

    async def note_replies(self, answer: nio.SyncResponse) -> None:
        """Asks whose message somebody replies to, where it is none of those that this process has sent: an answer from
        before a restart is ours too. What is for us anyway needs no such question, and no error ends the connection."""
        for room_id, room in answer.rooms.join.items():
            for event in self._since_invitation([event.source for event in room.timeline.events]):
                replied = _replied_to(_relation(event))
                if not _EVENT_ID.fullmatch(replied) or f"{room_id} {replied}" in self._of_others:
                    continue
                update = self._update(room_id, event)
                if update is None or update.addressed:
                    continue
                try:
                    await self._note_author(room_id, replied)
                except (PlatformError, *NO_ANSWER) as exc:
                    why = str(exc) or type(exc).__name__
                    log.warning("matrix: whether a reply in %s is for us could not be asked: %s", room_id, why)
                    return  # each of the others might wait as long

    async def _note_author(self, room_id: str, event_id: str) -> None:
        found = await self._client.room_get_event(room_id, event_id)
        if isinstance(found, nio.RoomGetEventResponse) and found.event.sender == self._user_id:
            remember_event(self._sent, event_id)
        elif isinstance(found, nio.ErrorResponse) and _passes(found):
            raise PlatformError(str(found))
        else:
            remember_event(self._of_others, f"{room_id} {event_id}")

    async def fill_gaps(self, answer: nio.SyncResponse, since: str, *, give_up: bool = False) -> None:
        """After a long silence a sync has the newest events of a room alone; those before them are asked for, back to
        `since`. A room that was just entered has nothing there that is for us. Raises `PlatformError` where the
        homeserver does not answer for now, so that the same sync is asked for again; not with `give_up`."""
        for room_id, room in answer.rooms.join.items():
            events, start = room.timeline.events, room.timeline.prev_batch
            if not room.timeline.limited or any(_is_entry(event.source, self._user_id) for event in events):
                continue
            if start:
                missed = await self._missed(room_id, start, since, give_up=give_up)
                room.timeline.events = [*reversed(missed), *events]

    async def _missed(self, room_id: str, start: str, since: str, *, give_up: bool) -> list[nio.Event]:
        """From the newest to the oldest. A page may be empty though others follow: the homeserver filters it."""
        missed = list[nio.Event]()
        for _ in range(MAX_PAGES):
            page = await self._client.room_messages(
                room_id, start, since, limit=_PAGE, message_filter={"types": _ASKED_FOR}
            )
            if not isinstance(page, nio.RoomMessagesResponse):
                if _passes(page) and not give_up:
                    reason = f"what was written in {room_id} meanwhile could not be read yet ({page})"
                    raise PlatformError(reason, platform="matrix")
                log.warning("matrix: what was written in %s meanwhile could not be read: %s", room_id, page)
                return missed
            missed += page.chunk
            if not page.end or page.end in (start, since):
                return missed
            if len(missed) >= MAX_MISSED:
                break
            start = page.end
        log.warning("matrix: too much was written in %s meanwhile: the oldest of it is not read", room_id)
        return missed

    def updates(self, answer: nio.SyncResponse) -> Iterator[Update]:
        for room_id, room in answer.rooms.join.items():
            for event in self._since_invitation([event.source for event in room.timeline.events]):
                self._note_redaction(event)
                if update := self._update(room_id, event):
                    yield update

    def _since_invitation(self, events: list[JsonObject]) -> list[JsonObject]:
        """A room that was just entered comes with what was said there before. What is older than the invitation is
        not for us: a command in it may have been carried out when we were there the last time."""
        steps = [event for event in events if _is_entry(event, self._user_id)]
        invitations = [event for event in steps if event["content"]["membership"] == "invite"]
        if not steps:
            return events
        return events[events.index((invitations or steps)[-1]) + 1 :]

    def _note_redaction(self, event: JsonObject) -> None:
        content: Any = event.get("content")
        redacted = event.get("redacts") or (content.get("redacts") if isinstance(content, dict) else None)
        if event.get("type") == "m.room.redaction" and isinstance(redacted, str) and redacted in self._sent:
            self._sent[redacted] = False

    def _update(self, room_id: str, event: JsonObject) -> MessageReceived | None:
        content: Any = event.get("content")
        if event.get("type") != "m.room.message" or event.get("sender") == self._user_id:
            return None
        # Notices are bots' talk: answering them is how two bots never stop. Places and verifications say nothing.
        if not isinstance(content, dict) or content.get("msgtype") not in (*_TEXTS, *_FILES):
            return None
        relation = _relation(event)
        if relation.get("rel_type") == "m.replace":
            return None
        room = self._client.rooms.get(room_id)
        private = room is None or room.joined_count <= 2  # who is only invited reads nothing yet
        names, mentioned = BotNames(self._user_id, _shown_name(room, self._user_id)), self._is_mentioned(content)
        written = _without_quote(str(content.get("body") or ""), relation)
        kind: ChatKind = "private" if private else "group"
        text = typed_text(with_slash(names.without_name(written, mentioned=mentioned)), kind)
        addressed = mentioned or self._is_reply_to_us(relation) or names.named_in(written) or is_command(text)
        attachment, sender = _attachment(content), str(event.get("sender"))
        return MessageReceived(
            update_id=str(event.get("event_id")),
            place=Place(
                platform="matrix",
                chat=room_id,
                thread=str(relation.get("event_id", "")) if relation.get("rel_type") == "m.thread" else "",
                kind=kind,
            ),
            sender=Sender(sender, _shown_name(room, sender)),
            text="" if attachment and not _is_caption(content) else text,
            attachments=(attachment,) if attachment else (),
            addressed=private or addressed,
            message_id=str(event.get("event_id")),
        )

    def _is_mentioned(self, content: JsonObject) -> bool:
        mentions = content.get("m.mentions")
        users = mentions.get("user_ids") if isinstance(mentions, dict) else None
        return isinstance(users, list) and self._user_id in users

    def _is_reply_to_us(self, relation: JsonObject) -> bool:
        return _replied_to(relation) in self._sent


def _passes(error: nio.ErrorResponse) -> bool:
    """Whether a later try may be answered: a limit, an ended session, a homeserver that is not there for now."""
    status = error.transport_response.status if error.transport_response is not None else 0
    lasting = status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.TOO_MANY_REQUESTS
    return not lasting or error.status_code in ("M_LIMIT_EXCEEDED", "M_UNKNOWN_TOKEN")


def _relation(event: JsonObject) -> JsonObject:
    content = event.get("content")
    relation = content.get("m.relates_to") if isinstance(content, dict) else None
    return relation if isinstance(relation, dict) else {}


def _replied_to(relation: JsonObject) -> str:
    """The event that a message replies to; empty where it replies to none."""
    replied = relation.get("m.in_reply_to")
    if not isinstance(replied, dict) or relation.get("is_falling_back"):
        return ""
    return str(replied.get("event_id", ""))


def _shown_name(room: nio.MatrixRoom | None, user_id: str) -> str:
    """The name that clients show for a user of the room; empty where there is none."""
    member = room.users.get(user_id) if room is not None else None
    name = str(member.display_name or "") if member is not None else ""
    return "".join(character for character in name if character.isprintable()).strip()  # terminals show it


def _inviters(invite: nio.InviteInfo, user_id: str) -> list[str]:
    members = [event for event in invite.invite_state if isinstance(event, nio.InviteMemberEvent)]
    return sorted({event.sender for event in members if event.state_key == user_id and event.membership == "invite"})


def _is_entry(event: JsonObject, user_id: str) -> bool:
    """Whether the user is invited or comes in here. A new name or picture is a "join" too, after another one."""
    content, unsigned = event.get("content"), event.get("unsigned")
    if event.get("type") != "m.room.member" or event.get("state_key") != user_id or not isinstance(content, dict):
        return False
    before = unsigned.get("prev_content") if isinstance(unsigned, dict) else None
    was_in = isinstance(before, dict) and before.get("membership") == "join"
    return content.get("membership") == "invite" or (content.get("membership") == "join" and not was_in)


def _is_caption(content: JsonObject) -> bool:
    """The body of a file is its name, unless the name stands elsewhere."""
    return bool(content.get("filename")) and content.get("filename") != content.get("body")


def _without_quote(text: str, relation: JsonObject) -> str:
    """Older clients repeat what a message replies to, in lines that begin with "> "."""
    if "m.in_reply_to" not in relation or not text.startswith("> "):
        return text
    lines = text.split("\n")
    while lines and lines[0].startswith(">"):
        lines.pop(0)
    return "\n".join(lines).strip()


def _attachment(content: JsonObject) -> Attachment | None:
    if content.get("msgtype") not in _FILES or not str(content.get("url", "")).startswith("mxc://"):
        return None
    info = content.get("info")
    info = info if isinstance(info, dict) else {}
    size = info.get("size")
    return Attachment(
        ref=str(content["url"]),
        name=str(content.get("filename") or content.get("body") or "file"),
        media_type=str(info.get("mimetype") or ""),
        size_bytes=size if isinstance(size, int) else None,
    )
