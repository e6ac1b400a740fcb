"""What a Matrix sync says: messages for us, and what became of ours."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

import nio
from msgspec.structs import replace

from tailrace.app.slash_commands import command_in, command_meant, is_unknown_command
from tailrace.delivery.port import MessageReceived, Place, Sender, Update
from tailrace.errors import PlatformError
from tailrace.gateway.connection_errors import NO_ANSWER
from tailrace.integrations.matrix import event_fields
from tailrace.integrations.matrix.invitations import Serves
from tailrace.integrations.matrix.notices import ENCRYPTED_FILE, ENCRYPTED_ROOM, RoomNotices
from tailrace.messages import JsonObject

log = logging.getLogger("tailrace.integrations.matrix")
_TEXTS = ("m.text", "m.emote")
_ENCRYPTED = ("m.room.encrypted", "m.room.encryption")  # what is written, and the room from now on
MAX_MISSED = 1000  # events of a room that are read after a gap; what is older is not
_PAGE = 100
MAX_PAGES = 50  # that are read of a room after a gap: a filtered page has fewer events, or none
_ASKED_FOR = [*("m.room.message", "m.room.encrypted", "m.room.redaction", "m.room.member")]
LATE_S = 86_400.0  # what is older is not answered any more when a connection begins; Telegram keeps messages as long
MAX_ASKED = 50  # messages of a sync whose authors are asked for: no update is put meanwhile
REMEMBERED = 10_000  # events: enough for every answer that may still get a reply

_MARK = re.compile(r"(?:!|//)(?=[A-Za-z])")  # clients keep "/…" for themselves, or take one "/" of two off

_BOT_COMMAND = re.compile(r"![A-Za-z]")
_USER_ID = re.compile(r"@[^\s:@]+:[^\s]")  # at the beginning of a text: whom it is for


class BotNames:
    """What people call the bot in one room: its id, the first part of it, and the name that clients show."""

    def __init__(self, user_id: str, shown: str = "") -> None:
        local = user_id.removeprefix("@").partition(":")[0]
        self._user_id = user_id.lower()
        called = [f"{user_id}{ending}" for ending in (":", ",", " ")]
        called += [f"@{local}{ending}" for ending in (": ", ",", " ")]  # not another server's
        names = [name for name in (local, shown) if name]
        called += [f"{name}{ending}" for name in names for ending in (":", ",")]
        self._called = _any_of(called)
        self._mentioned = _any_of([*called, *(f"{name} " for name in names)])

    def without_name(self, text: str, *, mentioned: bool) -> str:
        """The text after a name that it begins with. A name without a colon or a comma may be a word of the sentence,
        unless the client says that the bot is `mentioned`."""
        name = (self._mentioned if mentioned else self._called).match(f"{text} ")
        return text[name.end() :].lstrip() if name else text

    def named_in(self, text: str) -> bool:
        """Whether the text begins with a name, or has the id in it."""
        return self.without_name(text, mentioned=False) != text or self._user_id in text.lower()

    def speaks_to_others(self, text: str, content: JsonObject) -> bool:
        """Whether the client says that another person or everybody is mentioned, or the text begins with another id."""
        mentions = content.get("m.mentions")
        mentions = mentions if isinstance(mentions, dict) else {}
        users = mentions.get("user_ids")
        others = isinstance(users, list) and any(str(user).lower() != self._user_id for user in users)
        return others or mentions.get("room") is True or _USER_ID.match(text) is not None


def _any_of(beginnings: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, beginnings)), re.IGNORECASE)


def with_slash(text: str, *, to_us: bool) -> str:
    """A command as it is written elsewhere: "!Stop" and "//stop" as "/stop". What is no command of ours, nor mistypes
    one, stays as it is: another bot's, or a sentence. `to_us`: no other bot can be meant."""
    typed = _MARK.sub("/", text.strip(), count=1) if _MARK.match(text.strip()) else text.strip()
    return typed if is_command(typed) or command_meant(typed) or (to_us and is_unknown_command(typed)) else text


def is_others_command(text: str) -> bool:
    """Whether a text that `with_slash` has read is a command of another bot, `!weather`."""
    return _BOT_COMMAND.match(text.strip()) is not None


def is_command(text: str) -> bool:
    return command_in(text) is not None


def remember_event(events: OrderedDict[str, bool], event_id: str) -> None:
    """One more; the oldest are forgotten."""
    events.setdefault(event_id, True)
    while len(events) > REMEMBERED:
        events.popitem(last=False)


class Rooms:
    """What is said in the rooms that the bot is in."""

    def __init__(
        self,
        client: nio.AsyncClient,
        user_id: str,
        sent: OrderedDict[str, bool],
        of_others: OrderedDict[str, bool],
        notices: RoomNotices,
    ) -> None:
        """`sent` are events of ours, and whether they are still there; what is redacted is noted in it. `of_others` are
        rooms and events in them that are known not to be ours."""
        self._client = client
        self._user_id = user_id
        self._sent = sent
        self._of_others = of_others
        self._notices = notices

    def note_encrypted(self, answer: nio.SyncResponse) -> None:
        """Queues one notice for each room with encrypted messages or files: the bot cannot read them."""
        for room_id, event in self._events(answer):
            if event.get("sender") == self._user_id:
                continue
            if event.get("type") in _ENCRYPTED and self._notices.add(room_id, ENCRYPTED_ROOM):
                log.warning("matrix: %s is encrypted: what is written there cannot be read", room_id)
            file = self._message(room_id, event) if _is_encrypted_file(event_fields.content_of(event)) else None
            if file is not None and file.addressed:
                self._notices.add(room_id, ENCRYPTED_FILE)

    def _events(self, answer: nio.SyncResponse) -> Iterator[tuple[str, JsonObject]]:
        for room_id, room in answer.rooms.join.items():
            for event in event_fields.since_invitation([event.source for event in room.timeline.events], self._user_id):
                yield room_id, event

    async def note_authors(self, answer: nio.SyncResponse, serves: Serves, *, give_up: bool = False) -> None:
        """Asks whose message a person replies to, where it is none of those that this process has sent: an
        answer from before a restart is ours too. What is for us anyway, or from a person who is not served, needs no
        such question. Of many the newest `MAX_ASKED` are asked for. Raises `PlatformError` as `fill_gaps` does."""
        undecided = await self._all_undecided(answer, serves)
        if len(undecided) > MAX_ASKED:
            log.warning(
                "matrix: too many messages were replied to: whether the oldest %d are ours is not asked",
                len(undecided) - MAX_ASKED,
            )
        for room_id, event_id in undecided[-MAX_ASKED:]:
            try:
                await self._note_author(room_id, event_id)
            except (PlatformError, *NO_ANSWER) as exc:
                why = str(exc) or type(exc).__name__
                reason = f"whether a reply in {room_id} is for us could not be asked: {why}"
                if not give_up:
                    raise PlatformError(reason, platform="matrix") from exc
                log.warning("matrix: %s", reason)
                return  # each of the others might wait as long

    async def _all_undecided(self, answer: nio.SyncResponse, serves: Serves) -> list[tuple[str, str]]:
        """Rooms and messages, each once."""
        served, undecided = dict[str, bool](), dict[tuple[str, str], None]()
        for room_id, event in self._events(answer):
            unknown = [one for one in self._undecided(room_id, event) if f"{room_id} {one}" not in self._of_others]
            if not unknown:
                continue
            sender = self._sender(room_id, event)
            if sender.id not in served:
                served[sender.id] = await serves(sender)
            if served[sender.id]:
                undecided |= {(room_id, one): None for one in unknown}
        return list(undecided)

    def _undecided(self, room_id: str, event: JsonObject) -> list[str]:
        """The messages on whose authors it depends whether the event is for us: what it replies to, and the one that
        its thread hangs from. None where that is known."""
        relation = event_fields.relation_of(event_fields.content_of(event))
        about = [
            one
            for one in (event_fields.replied_to(relation), event_fields.thread_of(relation))
            if event_fields.EVENT_ID.fullmatch(one)
        ]
        update = self._message(room_id, event) if about else None
        return about if update is not None and not update.addressed else []

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
            if not room.timeline.limited or any(event_fields.is_entry(event.source, self._user_id) for event in events):
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

    def updates(self, answer: nio.SyncResponse, *, first: bool = False, late: bool = False) -> Iterator[Update]:
        """`first`: the sync begins a connection, and may tell of days. `late`: it tells what happened while no process
        was there. What was written in a room before the bot came in is both."""
        early = self._before_joining(answer)
        for room_id, event in self._events(answer):
            self._note_redaction(event)
            update = self._message(room_id, event)
            if update is None:
                continue
            is_early = update.update_id in early
            if (first or is_early) and event_fields.age_s(event) > LATE_S:
                log.warning("matrix: a message in %s is older than a day: it is not answered", room_id)
                continue
            if late or is_early:
                update = replace(update, late_s=max(0.0, event_fields.age_s(event)))
            yield update

    def _before_joining(self, answer: nio.SyncResponse) -> set[str]:
        """The events of rooms from before the bot came in."""
        rooms = [[event.source for event in room.timeline.events] for room in answer.rooms.join.values()]
        return {
            str(event.get("event_id"))
            for events in rooms
            for event in event_fields.before_joining(events, self._user_id)
        }

    def _note_redaction(self, event: JsonObject) -> None:
        content: Any = event.get("content")
        redacted = event.get("redacts") or (content.get("redacts") if isinstance(content, dict) else None)
        if event.get("type") == "m.room.redaction" and isinstance(redacted, str) and redacted in self._sent:
            self._sent[redacted] = False

    def _place(self, room_id: str, thread: str) -> Place:
        room = self._client.rooms.get(room_id)
        private = room is None or room.joined_count <= 2  # who is only invited reads nothing yet
        return Place(platform="matrix", chat=room_id, thread=thread, kind="private" if private else "group")

    def _sender(self, room_id: str, event: JsonObject) -> Sender:
        sender = str(event.get("sender"))
        return Sender(sender, event_fields.shown_name(self._client.rooms.get(room_id), sender))

    def _message(self, room_id: str, event: JsonObject) -> MessageReceived | None:
        content: Any = event.get("content")
        if event.get("type") != "m.room.message" or event.get("sender") == self._user_id:
            return None
        # Notices are bots' talk: answering them is how two bots never stop. Places and verifications say nothing.
        if not isinstance(content, dict) or content.get("msgtype") not in (*_TEXTS, *event_fields.FILES):
            return None
        relation = event_fields.relation_of(content)
        if relation.get("rel_type") == "m.replace":
            return None
        place = self._place(room_id, event_fields.thread_of(relation))
        names = BotNames(self._user_id, event_fields.shown_name(self._client.rooms.get(room_id), self._user_id))
        mentioned = self._is_mentioned(content)
        written = event_fields.without_quote(str(content.get("body") or ""), relation)
        to_us = place.kind == "private" or mentioned or names.named_in(written)
        text = with_slash(names.without_name(written, mentioned=mentioned), to_us=to_us)
        named = (
            mentioned or event_fields.replied_to(relation) in self._sent or names.named_in(written) or is_command(text)
        )
        to_others = not named and (names.speaks_to_others(written, content) or is_others_command(text))
        attachment = event_fields.attachment_in(content)
        is_name = content.get("msgtype") in event_fields.FILES and not _is_caption(content)
        return MessageReceived(
            update_id=str(event.get("event_id")),
            place=place,
            sender=self._sender(room_id, event),
            text="" if is_name else text,
            attachments=(attachment,) if attachment else (),
            addressed=place.kind == "private" or named or (place.thread in self._sent and not to_others),
            message_id=str(event.get("event_id")),
            to_others=to_others,
            reply_to=event_fields.replied_to(relation),
        )

    def _is_mentioned(self, content: JsonObject) -> bool:
        mentions = content.get("m.mentions")
        users = mentions.get("user_ids") if isinstance(mentions, dict) else None
        return isinstance(users, list) and self._user_id in users


def _passes(error: nio.ErrorResponse) -> bool:
    """Whether a later try may be answered: a limit, an ended session, a homeserver that is not there for now."""
    status = error.transport_response.status if error.transport_response is not None else 0
    lasting = status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.TOO_MANY_REQUESTS
    return not lasting or error.status_code in ("M_LIMIT_EXCEEDED", "M_UNKNOWN_TOKEN")


def _is_encrypted_file(content: JsonObject) -> bool:
    """A file with a key of its own, in place of an address."""
    return (
        content.get("msgtype") in event_fields.FILES and isinstance(content.get("file"), dict) and "url" not in content
    )


def _is_caption(content: JsonObject) -> bool:
    """The body of a file is its name, unless the name stands elsewhere."""
    return bool(content.get("filename")) and content.get("filename") != content.get("body")
