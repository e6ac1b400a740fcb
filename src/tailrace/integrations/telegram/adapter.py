"""Telegram: drafts in private chats, edits in groups, topics, buttons; by long polling.

One action is one call of the Bot API through python-telegram-bot. `replies` says what errors mean, `inbound`
what updates mean. Never waits, retries or splits.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Sequence
from functools import cache
from typing import Any, TypeVar

import aiohttp
import httpx
import msgspec
import telegram
from telegram.error import BadRequest, ChatMigrated, Conflict, InvalidToken, TelegramError

from tailrace.app.slash_commands import CHAT_MENU
from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.errors import ConfigError, PlatformError
from tailrace.gateway.base import ANSWER_S, UPLOAD_S, BasePlatform
from tailrace.integrations.telegram import TelegramSettings
from tailrace.integrations.telegram.inbound import KINDS, parse_update, seconds_before
from tailrace.integrations.telegram.markup import telegram_text
from tailrace.integrations.telegram.replies import Connections, Flooded, is_of_another, reply_to, status_of

T = TypeVar("T")
log = logging.getLogger("tailrace.integrations.telegram")
API_URL = "https://api.telegram.org"
NOT_SERVED = "I do not know you, so this did nothing."  # shown to a stranger alone, who pressed a button in a group
BUTTONS_PER_ROW = 2
CONNECT_S = 5.0
MAX_PHOTO_BYTES = 10 << 20
DOWNTIME_S = 300.0  # before its start: who wrote earlier did not know that a process was about to come
UPDATES_PER_POLL = 100  # at most: Telegram's own number
HELD_POLL_S = 0.3  # between polls while a part of a paste is held
POLL_S = 30  # how long the server holds a poll open when there is nothing to deliver
_PHOTOS = frozenset({"image/jpeg", "image/png", "image/webp"})
_TOKEN = re.compile(r"/bot\d+:[^/\s]+")
PRIVATE = port.Capabilities(
    mode="draft",
    limit=4096,
    unit="utf16",
    edits=True,
    deletes=True,
    buttons=True,
    max_file_bytes=50 << 20,
    windows=(port.Window(1, 1.0),),
    typing_s=5.0,
    draft_lifetime_s=30.0,
)
# 20 a minute, sends and edits together: an edit every 3 s lasts as long as the answer does.
GROUP = msgspec.structs.replace(
    PRIVATE, mode="edit", edit_interval_s=3.0, windows=(port.Window(1, 1.0), port.Window(20, 60.0))
)

NONSENSE = (AttributeError, KeyError, TypeError, ValueError)  # what the library raises for an object it cannot read


class UpdateConnections(Connections):
    """The connections for `getUpdates`. A Bot API server of another version than the library's may leave out a field
    that the library requires. Such an update is passed over: the offset would bring it back with every poll."""

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        answer = Connections.parse_json_payload(payload)
        if isinstance(updates := answer.get("result"), list):
            answer["result"] = [readable(update) for update in updates]
        return answer


def readable(update: Any) -> Any:
    """The update, or only its id where the library cannot read it. One without an id is left to the library."""
    if not isinstance(update, dict) or not isinstance(update_id := update.get("update_id"), int):
        return update
    try:
        telegram.Update.de_json(update, None)
    except NONSENSE as exc:
        log.warning("telegram: update %d is passed over: the client library cannot read it: %s", update_id, exc)
        return {"update_id": update_id}
    return update


def _hide_token(record: logging.LogRecord) -> bool:
    """The token is part of every address, and the libraries log addresses (J114)."""
    record.msg, record.args = _TOKEN.sub("/bot…", record.getMessage()), ()
    return True


@cache
def _tls() -> ssl.SSLContext:
    """One for all connections: reading the certificates takes longer than the rest of the start."""
    return httpx.create_ssl_context()


class TelegramPlatform(BasePlatform):
    """One bot."""

    name = "telegram"

    def __init__(self, token: str, *, base_url: str | None = None, answer_s: float = ANSWER_S) -> None:
        for library in ("httpx", "telegram.Bot"):
            logging.getLogger(library).addFilter(_hide_token)
        self._answer_s = answer_s
        self._started_at = time.time()
        self._reads_backlog = True  # until all that waited for this process was put
        self._moved: dict[str, int] = {}  # groups that have become supergroups: the id that they have now
        self._polling, self._request = self._connections(UpdateConnections, 2), self._connections(Connections, 256)
        self._server = base_url = (base_url or API_URL).rstrip("/")
        self._bot = telegram.Bot(
            token,
            base_url=f"{base_url}/bot",
            base_file_url=f"{base_url}/file/bot",
            request=self._request,
            get_updates_request=self._polling,
        )

    def _connections(self, kind: type[Connections], count: int) -> Connections:
        return kind(
            count,
            connect_timeout=CONNECT_S,
            read_timeout=self._answer_s,
            write_timeout=self._answer_s,
            pool_timeout=self._answer_s,
            httpx_kwargs={"verify": _tls()},
        )

    def capabilities(self, place: port.Place) -> port.Capabilities:
        return PRIVATE if place.kind == "private" else GROUP

    # ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        try:
            deadline_s = UPLOAD_S if isinstance(action, port.Upload) else 2 * self._answer_s
            async with asyncio.timeout(deadline_s):  # of all the parts of one request together
                return await self._perform(place, action)
        except ChatMigrated as exc:
            self._moved[place.chat] = exc.new_chat_id
            return reply_to(exc)
        except TelegramError as exc:
            return self._reply_to(exc, place, action)
        except TimeoutError:
            return port.Unknown("no answer in time")
        except NONSENSE as exc:
            return port.Unknown(f"an answer that makes no sense: {exc!r}")

    async def _perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        chat = self._moved.get(place.chat) or int(place.chat)
        thread = int(place.thread) if place.thread else None
        match action:
            case port.Send():
                text, look = _message(action)
                silent = action.silent or None  # left out of the request where it rings
                message = await self._bot.send_message(
                    chat, text, message_thread_id=thread, disable_notification=silent, **look
                )
                return port.Sent(str(message.message_id))
            case port.Upload():
                return port.Sent(str((await self._upload(chat, thread, action)).message_id))
            case port.Edit():
                text, look = _message(action)
                await self._bot.edit_message_text(text, chat, int(action.message_id), **look)
            case port.Draft() if place.kind == "private":
                text, entities = _shown(action.text, markup=action.markup)
                stop = {"can_stop": True, "keep_on_stop": True}  # Bot API 10.3; an older server ignores both
                await self._bot.send_message_draft(
                    chat, action.draft_id, text, thread, entities=entities, api_kwargs=stop
                )
            case port.Delete():
                await self._bot.delete_message(chat, int(action.message_id))
            case port.Typing():
                await self._bot.send_chat_action(chat, telegram.constants.ChatAction.TYPING, message_thread_id=thread)
            case _:
                return port.Refused(f"Telegram has no {type(action).__name__}")
        return port.Accepted()

    async def _upload(self, chat: int, thread: int | None, file: port.Upload) -> telegram.Message:
        """A picture where Telegram shows it as one, else a document."""
        sent = telegram.InputFile(file.data, file.name)
        times: dict[str, Any] = {"write_timeout": UPLOAD_S, "read_timeout": UPLOAD_S, "disable_notification": True}
        if file.media_type in _PHOTOS and len(file.data) <= MAX_PHOTO_BYTES:
            return await self._bot.send_photo(chat, sent, message_thread_id=thread, **times)
        return await self._bot.send_document(
            chat, sent, message_thread_id=thread, disable_content_type_detection=True, **times
        )

    @staticmethod
    def _reply_to(error: TelegramError, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        reply = reply_to(error)
        if reply == port.Gone("chat"):
            log.warning("%s cannot be written to: %s", place.key, error.message)  # blocked, put out, or deleted
        if isinstance(action, port.Delete) and isinstance(error, BadRequest) and "not found" in error.message.lower():
            return port.Accepted()
        if reply == port.Gone("thread") and not place.thread:
            return port.Refused(error.message)  # there is no chat around it to fall back to
        return reply

    # ── inwards ──────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, inbox: port.Inbox) -> None:
        """Polls. An offset confirms every update before it, so it moves when none of them is held: a paste that a crash
        cuts is delivered again. While a part is held, polls return at once, with that part and what has come since."""
        me = await self._ask(self._bot.get_me())
        await self._announce_commands()
        offset, wait_s = 0, 0  # the first one only asks whether polling works
        while True:
            try:
                updates = await self._bot.get_updates(offset, timeout=wait_s, allowed_updates=KINDS)
            except Conflict as exc:
                if "webhook" not in exc.message.lower():
                    raise PlatformError("another process polls with this token", platform=self.name) from exc
                await self._ask(self._bot.delete_webhook())
                continue
            except TelegramError as exc:
                raise self._error(exc) from exc
            except NONSENSE as exc:
                raise PlatformError(f"updates that make no sense: {exc!r}", platform=self.name) from exc
            if not wait_s:
                inbox.connected()
                wait_s = POLL_S
            for update in updates:
                await self._handle_update(update, me, inbox, waited=self._reads_backlog)
                if not inbox.holds_parts:
                    offset = update.update_id + 1
            self._reads_backlog &= len(updates) >= UPDATES_PER_POLL
            if inbox.holds_parts:
                await asyncio.sleep(HELD_POLL_S)

    async def _handle_update(
        self, update: telegram.Update, me: telegram.User, inbox: port.Inbox, *, waited: bool
    ) -> None:
        """`waited`: it may have been there before the process was."""
        if (message := update.message) is not None and message.migrate_to_chat_id is not None:
            self._moved[str(message.chat.id)] = message.migrate_to_chat_id
        received = parse_update(update, me)
        early_s = seconds_before(update, self._started_at)
        if waited and isinstance(received, port.MessageReceived) and early_s > DOWNTIME_S:
            received = msgspec.structs.replace(received, late_s=early_s)
        if received is not None:
            await inbox.put(received)
        if (query := update.callback_query) is not None:
            served = received is None or await inbox.serves(received.sender)
            try:  # takes the waiting sign off the button
                await self._bot.answer_callback_query(query.id, None if served else NOT_SERVED)
            except TelegramError as exc:
                log.info("a pressed button could not be confirmed: %s", exc.message)

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:
        self.check_size(attachment, max_bytes)
        file = await self._ask(self._file(attachment.ref))
        if (file.file_size or 0) > max_bytes:
            raise self.too_large(attachment, max_bytes)
        if not (file.file_path or "").startswith(("http://", "https://")):
            raise PlatformError(f"{attachment.name} is not offered for download", platform=self.name)
        deadlines = aiohttp.ClientTimeout(connect=CONNECT_S, sock_read=self._answer_s)
        async with aiohttp.ClientSession(timeout=deadlines) as session:
            return await self.download(attachment, session.get(str(file.file_path)), max_bytes)

    async def _file(self, ref: str) -> telegram.File:
        """Waits for as long as the server asks for; a message has a limit for its files."""
        while True:
            try:
                return await self._bot.get_file(ref)
            except Flooded as flooded:
                await asyncio.sleep(flooded.retry_after_s)

    async def check(self) -> str:
        me = await self._ask(self._bot.get_me())
        seen = "all messages" if me.can_read_all_group_messages else "mentions, replies and commands"
        return f"@{me.username}, sees {seen} in groups"

    async def close(self) -> None:
        await self._polling.shutdown()
        await self._request.shutdown()

    async def _announce_commands(self) -> None:
        try:
            await self._bot.set_my_commands([(command.name, command.help) for command in CHAT_MENU])
        except TelegramError as exc:
            log.warning("the list of commands could not be set: %s", exc.message)

    async def _ask(self, request: Awaitable[T]) -> T:
        """The answer, or `PlatformError`."""
        try:
            return await request
        except TelegramError as exc:
            raise self._error(exc) from exc

    def _error(self, error: TelegramError) -> PlatformError:
        if is_of_another(error):
            reason = f"{self._server} does not answer as a Bot API server does: {status_of(error)}"
            return PlatformError(reason, platform=self.name)
        if isinstance(error, InvalidToken):
            reason = f"the token was refused ({error.message}): /token at @BotFather shows the one that counts"
            return PlatformError(reason, platform=self.name, permanent=True)
        reply = reply_to(error)
        reason = reply.reason if isinstance(reply, port.Unknown | port.Failed) else error.message
        return PlatformError(reason.replace("no connection", f"no connection to {self._server}", 1), platform=self.name)


def _message(action: port.Send | port.Edit) -> tuple[str, dict[str, Any]]:
    """The text, and how it is shown."""
    text, entities = _shown(action.text, markup=action.markup)
    preview = telegram.LinkPreviewOptions(is_disabled=True)
    keyboard = _keyboard(action.buttons)
    return text, {"entities": entities, "reply_markup": keyboard, "link_preview_options": preview}


def _shown(text: str, *, markup: bool) -> tuple[str, list[telegram.MessageEntity] | None]:
    """The text and its entities. Without markup, or where nothing but marks is left, as it stands."""
    rich = telegram_text(text) if markup else None
    if rich is None or not rich.text:
        return text, None
    return rich.text, [
        telegram.MessageEntity(
            entity.type, entity.offset, entity.length, url=entity.url or None, language=entity.language or None
        )
        for entity in rich.entities
    ]


def _keyboard(buttons: Sequence[port.Button]) -> telegram.InlineKeyboardMarkup | None:
    if not buttons:
        return None
    keys = [telegram.InlineKeyboardButton(button.label, callback_data=button.value) for button in buttons]
    return telegram.InlineKeyboardMarkup(
        [keys[at : at + BUTTONS_PER_ROW] for at in range(0, len(keys), BUTTONS_PER_ROW)]
    )


def make(config: Config) -> TelegramPlatform:
    """The bot of this config. Raises `ConfigError`."""
    settings = config.platforms.get("telegram", TelegramSettings)
    if settings is None:
        raise ConfigError("is missing", key="platforms.telegram")
    return TelegramPlatform(
        config.require_secret(settings.token_env, "platforms.telegram.token_env"), base_url=settings.base_url
    )
