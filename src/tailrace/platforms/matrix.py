"""Matrix: `m.replace` edits in unencrypted rooms, threads, formatted bodies; rate limits are learned from its 429s.

One action is one request through matrix-nio. What updates say is `matrix_inbound`. Never waits, retries or splits.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any

import msgspec

from tailrace.config import Config
from tailrace.delivery.markup_matrix import matrix as html
from tailrace.delivery.port import (
    Accepted,
    AnyAction,
    AnyReply,
    Attachment,
    Capabilities,
    Delete,
    Edit,
    Failed,
    Flood,
    Gone,
    Inbox,
    Place,
    Refused,
    Send,
    Sent,
    TooLong,
    Typing,
    Unknown,
    Window,
)
from tailrace.errors import ConfigError, PlatformError
from tailrace.messages import JsonObject
from tailrace.platforms.base import BasePlatform

try:
    import aiohttp
    import nio

    from tailrace.platforms.matrix_inbound import Rooms
except ImportError as exc:
    raise ConfigError(
        f"matrix-nio is not installed ({exc}); pip install 'tailrace[matrix]'", key="platforms.matrix"
    ) from exc

log = logging.getLogger("tailrace.platforms.matrix")

# An event may have 64 KiB, its text twice (plain and HTML) and once more in an edit.
CAPABILITIES = Capabilities(
    mode="edit",
    limit=12_000,
    unit="bytes",
    edits=True,
    deletes=True,
    resend="idempotent",  # the transaction id: a second attempt gives the event of the first
    windows=(Window(10, 10.0),),  # a start; the homeserver's own limit is learned from what it refuses
    typing_s=20.0,
)
_TYPING_MS = 25_000
_DEFAULT_PAUSE_S = 2.0  # where a 429 names no time


class Timing(msgspec.Struct, frozen=True):
    """Deadlines in seconds."""

    answer_s: float = 20.0  # of one request; past it nobody knows what became of it
    poll_s: float = 30.0  # how long the server holds a sync open when there is nothing to say


class MatrixPlatform(BasePlatform):
    """One account on one homeserver."""

    name = "matrix"

    def __init__(
        self,
        homeserver: str,
        user: str,
        *,
        password: str = "",
        token: str = "",
        allow: tuple[str, ...] = (),
        timing: Timing | None = None,
    ) -> None:
        """`allow` says by whom the bot lets itself be invited; "*" is everybody."""
        self._timing = timing if timing is not None else Timing()
        self._user = user
        self._password = password
        self._allow = frozenset(allow)
        config = nio.AsyncClientConfig(
            max_limit_exceeded=0, max_timeouts=0, request_timeout=self._timing.answer_s, encryption_enabled=False
        )
        self._client = nio.AsyncClient(homeserver, user, config=config)
        if token:
            self._client.access_token = token
            self._client.user_id = user

    def capabilities(self, place: Place) -> Capabilities:
        del place
        return CAPABILITIES

    # ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        try:
            await self._log_in()
            return await self._perform(place, action)
        except PlatformError as exc:
            return Failed(str(exc))
        except aiohttp.ClientConnectorError as exc:
            return Failed(f"cannot connect: {exc.os_error.strerror or exc.os_error}")
        except (TimeoutError, aiohttp.ClientError, nio.exceptions.LocalProtocolError) as exc:
            return Unknown(type(exc).__name__)

    async def _perform(self, place: Place, action: AnyAction) -> AnyReply:
        match action:
            case Send(key=key, text=text, markup=markup):
                content = _message(text, markup=markup, thread=place.thread)
                return await self._put(place, content, key)
            case Edit(message_id=message_id, text=text, markup=markup):
                content = _message(text, markup=markup)
                edit = {
                    "msgtype": "m.text",
                    "body": f"* {content['body']}",
                    "m.new_content": content,
                    "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
                }
                if "formatted_body" in content:
                    edit |= {"format": content["format"], "formatted_body": f"* {content['formatted_body']}"}
                reply = await self._put(place, edit, f"{message_id}\0{text}\0{markup}")
                return Accepted() if isinstance(reply, Sent) else reply
            case Delete(message_id=message_id):
                return _reply_to(await self._client.room_redact(place.chat, message_id))
            case Typing():
                return _reply_to(await self._client.room_typing(place.chat, typing_state=True, timeout=_TYPING_MS))
            case _:
                return Refused(f"Matrix has no {type(action).__name__.lower()}")

    async def _put(self, place: Place, content: JsonObject, key: str) -> AnyReply:
        transaction = hashlib.sha256(key.encode()).hexdigest()[:32]
        return _reply_to(await self._client.room_send(place.chat, "m.room.message", content, tx_id=transaction))

    async def fetch(self, attachment: Attachment, *, max_bytes: int) -> bytes:
        if attachment.size_bytes is not None and attachment.size_bytes > max_bytes:
            raise PlatformError(f"{attachment.name} is larger than {max_bytes} bytes", platform=self.name)
        await self._log_in()
        answer = await self._client.download(attachment.ref)
        body = getattr(answer, "body", None)
        if not isinstance(body, bytes):
            raise PlatformError(f"{attachment.name} could not be fetched: {answer}", platform=self.name)
        if len(body) > max_bytes:
            raise PlatformError(f"{attachment.name} is larger than {max_bytes} bytes", platform=self.name)
        return body

    # ── inwards ──────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, inbox: Inbox) -> None:
        """History from before the start is not read: the first sync only says where now is."""
        try:
            await self._log_in()
            first = await self._sync(since=None, poll_s=0)
            inbox.connected()
            rooms = Rooms(self._client, self._user_id(), self._allow)
            await rooms.join_invited(first)
            since = first.next_batch
            while True:
                answer = await self._sync(since=since, poll_s=self._timing.poll_s)
                await rooms.join_invited(answer)
                for update in rooms.updates(answer):
                    await inbox.put(update)
                since = answer.next_batch
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise PlatformError(f"lost the homeserver: {type(exc).__name__} {exc}", platform=self.name) from exc

    async def _sync(self, *, since: str | None, poll_s: float) -> nio.SyncResponse:
        window = {"room": {"timeline": {"limit": 50 if since else 0}, "state": {"lazy_load_members": True}}}
        answer = await self._client.sync(timeout=int(poll_s * 1000), since=since, sync_filter=window)
        if isinstance(answer, nio.SyncResponse):
            return answer
        raise PlatformError(f"the homeserver refused to sync: {answer}", platform=self.name)

    async def _log_in(self) -> None:
        if self._client.access_token:
            return
        answer = await self._client.login(self._password, device_name="Tailrace")
        if not isinstance(answer, nio.LoginResponse):
            raise PlatformError(f"the homeserver refused the login of {self._user}: {answer}", platform=self.name)

    def _user_id(self) -> str:
        return str(self._client.user_id or self._user)

    async def check(self) -> str:
        try:
            await self._log_in()
            answer = await self._client.whoami()
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise PlatformError(f"cannot reach the homeserver: {exc}", platform=self.name) from exc
        if isinstance(answer, nio.WhoamiResponse):
            return f"logged in as {answer.user_id}"
        raise PlatformError(f"the homeserver does not know us: {answer}", platform=self.name)

    async def close(self) -> None:
        await asyncio.shield(self._client.close())


def _message(text: str, *, markup: bool, thread: str = "") -> JsonObject:
    content: JsonObject = {"msgtype": "m.text", "body": text}
    if markup:
        content |= {"format": "org.matrix.custom.html", "formatted_body": html(text)}
    if thread:
        content["m.relates_to"] = {
            "rel_type": "m.thread",
            "event_id": thread,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": thread},
        }
    return content


def _reply_to(answer: Any) -> AnyReply:
    """What the homeserver's answer means."""
    if isinstance(answer, nio.RoomSendResponse):
        return Sent(answer.event_id)
    if not isinstance(answer, nio.ErrorResponse):
        return Accepted()
    match answer.status_code:
        case "M_LIMIT_EXCEEDED":
            return Flood((answer.retry_after_ms or _DEFAULT_PAUSE_S * 1000) / 1000)
        case "M_TOO_LARGE":
            return TooLong()
        case "M_NOT_FOUND":
            return Gone("message")
        case "M_FORBIDDEN":
            return Gone("chat")
        case "M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN" | "M_USER_DEACTIVATED":
            return Refused(f"the homeserver does not know us any more: {answer.message}")
        case str(code) if code.startswith("M_") and code not in ("M_UNKNOWN", "M_UNRECOGNIZED"):
            return Refused(f"{code}: {answer.message}")
        case _:
            return Unknown(str(answer.message))


def make(config: Config) -> MatrixPlatform:
    settings = config.platforms.matrix
    if settings is None or not settings.homeserver or not settings.user:
        raise ConfigError("needs homeserver and user", key="platforms.matrix")
    token = config.secret(settings.token_env) or ""
    password = "" if token else config.require_secret(settings.password_env, "platforms.matrix.password_env")
    return MatrixPlatform(settings.homeserver, settings.user, password=password, token=token, allow=settings.allow)
