"""Matrix: `m.replace` edits in unencrypted rooms, threads, formatted bodies; rate limits are learned from its 429s.

One action is one request through matrix-nio. `inbound` says what a sync means. Never waits, retries or splits.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import logging
import secrets
from collections import OrderedDict
from http import HTTPStatus
from typing import Any

import nio

from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.errors import ConfigError, PlatformError
from tailrace.gateway.base import ANSWER_S, UPLOAD_S, BasePlatform
from tailrace.gateway.connection_errors import NO_ANSWER, no_connection, reply_without_answer
from tailrace.integrations.matrix import MatrixSettings
from tailrace.integrations.matrix.inbound import Rooms, remember_event
from tailrace.integrations.matrix.invitations import Invitations
from tailrace.integrations.matrix.markup import matrix_html
from tailrace.integrations.matrix.media import opened
from tailrace.integrations.matrix.notices import NO_MENTIONS, RoomNotices
from tailrace.integrations.matrix.quotations import quoted_event
from tailrace.integrations.matrix.session import Session, SessionFile
from tailrace.messages import JsonObject

# An event may have 64 KiB; an edit has its text three times: plain, as HTML, and plain again for old clients.
CAPABILITIES = port.Capabilities(
    mode="edit",
    limit=12_000,
    unit="bytes",
    edits=True,
    deletes=True,
    joins_threads=True,
    command_mark="!",  # clients keep "/" for commands of their own
    max_file_bytes=50 << 20,
    resend="idempotent",  # the transaction id: a second attempt gives the event of the first
    windows=(port.Window(10, 10.0),),  # a start; the homeserver's own limit is learned from what it refuses
    typing_s=20.0,
)
DEVICE = "TAILRACE"  # a device's transaction ids are known to the homeserver across our restarts; a new one has none
POLL_S = 30.0  # how long the homeserver holds a sync open when there is nothing to deliver
MAX_GAP_FAILURES = 10  # some minutes, with the pauses of the gateway
MAX_AUTHOR_FAILURES = 3  # some seconds: it is about one reply, and no update is put meanwhile
_TYPING_MS = 25_000
_END_TYPING_S = 3.0  # it ends by itself
_DEFAULT_PAUSE_S = 2.0  # where a 429 names no time
log = logging.getLogger("tailrace.integrations.matrix")


class MatrixPlatform(BasePlatform):
    """One account on one homeserver."""

    name = "matrix"
    same_everywhere = CAPABILITIES

    def __init__(
        self,
        homeserver: str,
        user: str,
        *,
        password: str = "",
        token: str = "",
        allow: tuple[str, ...] = (),
        answer_s: float = ANSWER_S,
        kept: SessionFile | None = None,
    ) -> None:
        """`allow` names users whose invitations the bot follows, beside those whom the inbox serves; "*" is all users.
        `kept` has the session of an earlier login by password."""
        self._quiet = logging.NullHandler()  # nio warns of what is reported here in words of its own
        logging.getLogger("nio").addHandler(self._quiet)
        self._kept = kept
        self._answer_s = answer_s
        self._homeserver, self._user, self._password = homeserver.rstrip("/"), user, password
        self._allow = frozenset(allow)
        self._client = self._new_client(DEVICE)
        self._logging_in = asyncio.Lock()
        self._login_refusal = ""  # why no login is tried again before the next `run`
        self._since = ""  # up to where the homeserver's news were taken
        self._kept_position = ""  # up to where the inbox knows that they were
        self._late = False  # whether the next sync tells what happened while no process was there
        self._read_failures = 0  # in a row, to read what belongs to a sync
        self._typing: set[str] = set()  # rooms in which we are said to type
        self._sent: OrderedDict[str, bool] = OrderedDict()  # events of ours, and whether they are still there
        self._of_others: OrderedDict[str, bool] = OrderedDict()  # rooms and events in them that are not ours
        self._notices = RoomNotices(self._client)
        if token:
            self._client.access_token = token
            self._client.user_id = user

    def _new_client(self, device: str) -> nio.AsyncClient:
        """A client that neither waits out a 429 nor repeats what timed out."""
        config = nio.AsyncClientConfig(
            max_limit_exceeded=0, max_timeouts=0, request_timeout=self._answer_s, encryption_enabled=False
        )
        return nio.AsyncClient(self._homeserver, self._user, device_id=device, config=config)

    # ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        try:
            await self._log_in()
            async with asyncio.timeout(UPLOAD_S if isinstance(action, port.Upload) else self._answer_s):
                reply = await self._perform(place, action)
        except PlatformError as exc:
            return port.Failed(str(exc), needs_operator=exc.permanent)
        except NO_ANSWER as exc:
            return reply_without_answer(exc)
        if isinstance(action, port.Typing):
            self._typing.add(place.chat)
        elif isinstance(reply, port.Sent) and place.chat in self._typing:
            await self._end_typing(place.chat)
        return reply

    async def _end_typing(self, room: str) -> None:
        """A message does not end it, as it does elsewhere: the bot would be said to type until the time is over."""
        self._typing.discard(room)
        with contextlib.suppress(*NO_ANSWER):
            async with asyncio.timeout(_END_TYPING_S):
                await self._client.room_typing(room, typing_state=False)

    async def _perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        match action:
            case port.Send(key=key, text=text, markup=markup, silent=silent):
                content = _message(text, markup=markup, thread=place.thread)
                if silent:
                    content["msgtype"] = "m.notice"  # clients do not ring for one (Matrix 1.13, 13.13.1.4)
                return self._remembered(await self._put(place, content, key))
            case port.Upload():
                return self._remembered(await self._upload(place, action))
            case port.Edit(message_id=message_id) if self._sent.get(message_id) is False:
                return port.Gone("message")  # the homeserver would accept the edit, and clients would not show it
            case port.Edit(message_id=message_id, text=text, markup=markup):
                edit: JsonObject = {
                    "msgtype": "m.text",
                    "body": f"* {text}",
                    **NO_MENTIONS,
                    "m.new_content": _message(text, markup=markup),
                    "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
                }
                reply = await self._put(place, edit, f"{message_id}\0{text}\0{markup}")
                return port.Accepted() if isinstance(reply, port.Sent) else reply
            case port.Delete(message_id=message_id):
                reply = self._reply_to(await self._client.room_redact(place.chat, message_id))
                return port.Accepted() if reply == port.Gone("message") else reply
            case port.Typing():
                typing = self._client.room_typing(place.chat, typing_state=True, timeout=_TYPING_MS)
                return self._reply_to(await typing)
            case _:
                return port.Refused(f"Matrix has no {type(action).__name__}")

    def _remembered(self, reply: port.AnyReply) -> port.AnyReply:
        if isinstance(reply, port.Sent):
            remember_event(self._sent, reply.message_id)
        return reply

    async def _upload(self, place: port.Place, file: port.Upload) -> port.AnyReply:
        """The content first, then the event that shows it. The transaction id makes the event one, however often the
        content is uploaded; content without an event is seen by no user."""
        size = len(file.data)
        answer, _ = await self._client.upload(
            io.BytesIO(file.data), content_type=file.media_type, filename=file.name, filesize=size
        )
        if not isinstance(answer, nio.UploadResponse):
            reply = self._reply_to(answer)
            return port.Failed(reply.reason) if isinstance(reply, port.Unknown) else reply
        content: JsonObject = {
            "msgtype": "m.image" if file.media_type.startswith("image/") else "m.file",
            "body": file.name,
            "filename": file.name,
            "url": answer.content_uri,
            "info": {"mimetype": file.media_type, "size": size},
            **NO_MENTIONS,
        }
        return await self._put(place, content | _in_thread(place.thread), file.key)

    async def _put(self, place: port.Place, content: JsonObject, key: str) -> port.AnyReply:
        transaction = hashlib.sha256(key.encode()).hexdigest()[:32]
        return self._reply_to(await self._client.room_send(place.chat, "m.room.message", content, tx_id=transaction))

    def _reply_to(self, answer: Any) -> port.AnyReply:
        """What the homeserver's answer means."""
        if isinstance(answer, nio.RoomSendResponse):
            return port.Sent(answer.event_id)
        if not isinstance(answer, nio.ErrorResponse):
            return port.Accepted()
        match answer.status_code:
            case "M_LIMIT_EXCEEDED":
                return port.Flood((answer.retry_after_ms or _DEFAULT_PAUSE_S * 1000) / 1000)
            case "M_TOO_LARGE":
                return port.TooLong()
            case "M_NOT_FOUND":
                return port.Gone("message")
            case "M_FORBIDDEN":  # put out, or muted: the reply does not say which, the operator should know
                log.warning("matrix: a room takes nothing from us: %s", answer.message)
                return port.Gone("chat")
            case "M_UNKNOWN_TOKEN" if self._password:
                self._end_session()
                return port.Failed("the homeserver has ended our session")
            case "M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN" | "M_USER_DEACTIVATED":
                reason = f"the homeserver does not know us ({answer.message}): set a new token and restart"
                return port.Failed(reason, needs_operator=True)
            case str(code) if code.startswith("M_") and code not in ("M_UNKNOWN", "M_UNRECOGNIZED"):
                return port.Refused(f"{code}: {answer.message}")
            case _:
                return port.Unknown(str(answer.message))

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:
        self.check_size(attachment, max_bytes)
        try:
            await self._log_in()
        except NO_ANSWER as exc:
            raise self._lost(exc) from exc
        return await self.download(attachment, opened(self._client, attachment.ref), max_bytes)

    async def quoted(self, message: port.MessageReceived, *, in_conversation: bool) -> tuple[port.Quoted, ...]:
        """The message that it replies to, else the root of the thread that the bot is called into."""
        about = message.reply_to or ("" if in_conversation else message.place.thread)
        found = await quoted_event(self._client, message.place.chat, about) if about else None
        return (found,) if found is not None else ()

    # ── inwards ──────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, inbox: port.Inbox) -> None:
        """History from before the first start is not read: the first sync only says which rooms there are and where now
        is. Another run, or another process, goes on from what the one before it has taken."""
        self._login_refusal, self.stops_when_refused = "", False
        try:
            await self._log_in()
            user_id = str(self._client.user_id or self._user)
            rooms = Rooms(self._client, user_id, self._sent, self._of_others, self._notices)
            invitations = Invitations(self._client, user_id, self._allow)
            await self._who(self._client)
            await self._find_position(inbox, invitations)
            inbox.connected()
            first = True
            while True:
                # The first one tells what there is already, and waits for nothing: what is written from now on is new.
                answer = await self._sync(self._since, poll_s=0 if first else POLL_S)
                await self._complete(rooms, answer, inbox)
                await invitations.follow(answer, inbox.serves)
                rooms.note_encrypted(answer)
                await self._notices.send()
                for update in rooms.updates(answer, first=first, late=self._late):
                    await inbox.put(update)
                first = self._late = False
                self._since = answer.next_batch
                await self._keep_position(inbox, answer)
        except NO_ANSWER as exc:
            raise self._lost(exc) from exc

    async def _find_position(self, inbox: port.Inbox, invitations: Invitations) -> None:
        """Where the next sync begins. It stays late until it was put whole, in whichever connection."""
        kept = await inbox.position()
        if not self._since:
            first = await self._sync("", poll_s=0)
            await invitations.follow(first, inbox.serves)
            self._since = first.next_batch
        # So that the next process misses nothing that is written from now on.
        if not kept and await inbox.keep_position(self._since):
            self._kept_position = self._since
        if kept in ("", self._kept_position):
            return
        if await self._is_known(kept):  # a process before this one, or beside it, has read so far
            self._since, self._late = kept, True
        else:
            log.warning("matrix: what was written since the last connection cannot be read")
        self._kept_position = kept

    async def _is_known(self, position: str) -> bool:
        """Whether the homeserver has such a position. One that was set back to an old state would answer to a later one
        that nothing has happened, for ever."""
        answer = await self._ask_sync(position, poll_s=0)
        if isinstance(answer, nio.SyncResponse):
            return answer.next_batch != position or self._since == position
        status = answer.transport_response.status if answer.transport_response is not None else 0
        if status == HTTPStatus.BAD_REQUEST:
            return False
        raise self._refused("to sync", answer)

    async def _keep_position(self, inbox: port.Inbox, answer: nio.SyncResponse) -> None:
        """Where nothing has happened the one before it does as well, and nothing is written. One that storage has
        refused is not ours: the stored one would be taken for that of another process."""
        has_news = answer.rooms.invite or any(room.timeline.events for room in answer.rooms.join.values())
        if has_news and await inbox.keep_position(answer.next_batch):
            self._kept_position = answer.next_batch

    async def _complete(self, rooms: Rooms, answer: nio.SyncResponse, inbox: port.Inbox) -> None:
        """Reads what the sync does not have. The next connection begins where this one did, and tries again. Not for
        ever: one room that the homeserver cannot read would keep all others unheard."""
        failures = self._read_failures
        try:
            await rooms.fill_gaps(answer, self._since, give_up=failures >= MAX_GAP_FAILURES)
            await rooms.note_authors(answer, inbox.serves, give_up=failures >= MAX_AUTHOR_FAILURES)
        except PlatformError:
            self._read_failures += 1
            raise
        self._read_failures = 0

    async def _sync(self, since: str, *, poll_s: float) -> nio.SyncResponse:
        answer = await self._ask_sync(since, poll_s=poll_s)
        if isinstance(answer, nio.SyncResponse):
            return answer
        raise self._refused("to sync", answer)

    async def _ask_sync(self, since: str, *, poll_s: float) -> nio.SyncResponse | nio.SyncError:
        timeline: JsonObject = {"limit": 50 if since else 1}
        if not poll_s:
            # Unlike any before it: Synapse answers an equal one of the last two minutes, also of another process, from
            # a cache, which says that now is then. What was written since would not be taken for late.
            timeline["not_types"] = [f"tailrace.{secrets.token_hex(8)}"]
        window = {"room": {"timeline": timeline, "state": {"lazy_load_members": True}}}
        async with asyncio.timeout(poll_s + self._answer_s):
            return await self._client.sync(
                timeout=int(poll_s * 1000), since=since or None, sync_filter=window, set_presence="online"
            )

    async def _log_in(self) -> None:
        """With the session that is kept, else by a login. Two at once would end each other's session."""
        async with self._logging_in:
            if self._client.access_token:
                return
            if not self._take_kept_session():
                await self._log_in_once()
                if self._kept is not None:
                    self._kept.keep(Session(str(self._client.user_id), self._client.access_token), self._password)

    async def _log_in_once(self) -> None:
        """A password that was refused is not tried again for each message and each minute: homeservers count failed
        logins, and lock the account."""
        if self._login_refusal:
            raise PlatformError(self._login_refusal, platform=self.name, permanent=True)
        try:
            await self._log_in_as(self._client)
        except PlatformError as exc:
            if exc.permanent:
                self._login_refusal = str(exc).removeprefix(f"{self.name}: ")
                self.stops_when_refused = True
            raise

    def _take_kept_session(self) -> bool:
        session = self._kept.of(self._password) if self._kept is not None else None
        if session is not None:
            self._client.user_id, self._client.access_token = session
        return session is not None

    def _end_session(self) -> None:
        """The homeserver has ended it: the next try logs in."""
        if self._kept is not None:
            self._kept.forget(self._client.access_token)
        self._client.access_token = ""

    async def _log_in_as(self, client: nio.AsyncClient) -> None:
        answer = await client.login(self._password, device_name="Tailrace")
        if isinstance(answer, nio.LoginError) and answer.status_code == "M_LIMIT_EXCEEDED":
            advice = "wait some minutes, or use an access token (token_env), which needs no login"
            raise PlatformError(f"the homeserver allows few logins (M_LIMIT_EXCEEDED): {advice}", platform=self.name)
        if not isinstance(answer, nio.LoginResponse):
            advice = "set the account's password (password_env) and restart"
            raise self._refused(f"the login of {self._user}", answer, advice)

    async def _who(self, client: nio.AsyncClient) -> str:
        """The homeserver's word on it. A token says whose it is: as another user we would take our own messages for
        questions, and no room would take an answer."""
        answer = await client.whoami()
        if not isinstance(answer, nio.WhoamiResponse):
            raise self._refused("to say who we are", answer)
        if not self._password and answer.user_id != self._user:
            known = f'the homeserver knows us as {answer.user_id}: set user: "{answer.user_id}"'
            raise PlatformError(f"{known} in place of {self._user}", platform=self.name, permanent=True)
        return str(answer.user_id)

    async def check(self) -> str:
        """By the session that is kept; else, with a password, by one of its own: another login for the same device
        would end the one that a running gateway has."""
        if self._take_kept_session():
            with contextlib.suppress(PlatformError, *NO_ANSWER):
                return f"logged in as {await self._who(self._client)}"
        client = self._new_client("") if self._password else self._client
        try:
            if client is not self._client:
                await self._log_in_as(client)
            name = await self._who(client)
            if client is not self._client:
                await client.logout()
        except NO_ANSWER as exc:
            raise self._lost(exc) from exc
        finally:
            if client is not self._client:
                await client.close()
        return f"logged in as {name}"

    async def close(self) -> None:
        logging.getLogger("nio").removeHandler(self._quiet)
        await self._client.close()

    def _lost(self, error: Exception) -> PlatformError:
        return PlatformError(no_connection(error), platform=self.name)

    def _refused(self, what: str, answer: nio.ErrorResponse, advice: str = "") -> PlatformError:
        """A session that has ended is begun anew where there is a password. `advice`: for what lasts."""
        code = answer.status_code
        if code == "M_UNKNOWN_TOKEN" and self._password:
            self._end_session()
        permanent = code in ("M_FORBIDDEN", "M_USER_DEACTIVATED") or (code == "M_UNKNOWN_TOKEN" and not self._password)
        reason = f"the homeserver refused {what} ({code}: {answer.message})"
        if not code or code == "M_UNRECOGNIZED":
            status = answer.transport_response.status if answer.transport_response is not None else 0
            reason = f"what answers at {self._homeserver} (HTTP {status or '?'}) does not speak as a homeserver"
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:  # a proxy's own page
                reason = f"the homeserver is not there for now (HTTP {status})"
        return PlatformError(
            f"{reason}: {advice}" if advice and permanent else reason, platform=self.name, permanent=permanent
        )


def _message(text: str, *, markup: bool, thread: str = "") -> JsonObject:
    content: JsonObject = {"msgtype": "m.text", "body": text, **NO_MENTIONS}
    if markup:
        content |= {"format": "org.matrix.custom.html", "formatted_body": matrix_html(text)}
    return content | _in_thread(thread)


def _in_thread(thread: str) -> JsonObject:
    if not thread:
        return {}
    return {
        "m.relates_to": {
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": thread},
        }
    }


def make(config: Config) -> MatrixPlatform:
    """The account of this config. Raises `ConfigError`."""
    settings = config.platforms.get("matrix", MatrixSettings)
    if settings is None or not settings.homeserver or not settings.user:
        raise ConfigError("needs homeserver and user", key="platforms.matrix")
    if not settings.token_env and not settings.password_env:
        raise ConfigError("needs token_env or password_env", key="platforms.matrix")
    token = config.secret(settings.token_env) or ""
    if not token and settings.token_env and not settings.password_env:
        config.require_secret(settings.token_env, "platforms.matrix.token_env")
    password = "" if token else config.require_secret(settings.password_env, "platforms.matrix.password_env")
    kept = SessionFile(config.home, settings.homeserver, settings.user) if password else None
    return MatrixPlatform(
        settings.homeserver, settings.user, password=password, token=token, allow=settings.allow, kept=kept
    )
