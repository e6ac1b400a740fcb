"""Telegram's Bot API on a loopback port: what a bot sends becomes what people see, what people do becomes updates.

    async with FakeTelegram() as telegram:
        ada = telegram.private(7, "Ada")
        telegram.write(ada, "hello")        # the bot gets an update, by long polling
        await telegram.until(lambda: ada.texts == ["Hello, Ada."])
        ada.answers[0].states               # everything that the message ever showed

The bot's `base_url` is `telegram.url`, its token `telegram.token`.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from proof.platforms.budgets import Budget, Meter
from proof.platforms.telegram_chats import (
    BOT_ID,
    TelegramChat,
    TelegramMessage,
    TelegramRefusal,
    TelegramState,
    state_of,
)
from tailrace.testing.platforms.loopback import Fault, LoopbackFake, json_fault

Params: TypeAlias = dict[str, Any]
EPOCH = 1_700_000_000  # what message dates count from
BUDGETS = {"private": Budget(1, 1.0), "group": Budget(20, 60.0), "supergroup": Budget(20, 60.0)}
_JSON_PARAMS = frozenset(
    {"entities", "reply_markup", "allowed_updates", "commands", "link_preview_options", "reply_parameters"}
)
_INTEGER_PARAMS = frozenset({"chat_id", "message_id", "message_thread_id", "draft_id", "offset", "timeout", "limit"})


def flood(retry_after_s: int) -> Fault:
    """Too many requests, said by the server (G78)."""
    return refusal(429, f"Too Many Requests: retry after {retry_after_s}", parameters={"retry_after": retry_after_s})


def refusal(status: int, description: str, *, parameters: dict[str, int] | None = None) -> Fault:
    """An error in the server's own words."""
    return json_fault(status, TelegramRefusal(status, description, **(parameters or {})).body)


class FakeTelegram(LoopbackFake):
    """The server, its chats, and the hands of the people in them."""

    token = "42:a-token-for-tests"  # noqa: S105 - opens nothing but this fake
    username = "tailrace_bot"

    def __init__(self, *, budgets: dict[str, Budget] = BUDGETS, port: int = 0) -> None:
        """`budgets` by kind of chat; empty: no limits."""
        super().__init__(port=port)
        self.chats: dict[int, TelegramChat] = {}
        self.commands: list[dict[str, str]] = []
        self.answered_queries: list[str] = []
        self.webhook = ""  # the address that another program has set
        self._budgets, self._meter = budgets, Meter()
        self._updates: list[dict[str, Any]] = []
        self._again: list[dict[str, Any]] = []  # delivered once more, whatever was confirmed
        self._last_update = 1000
        self._last_message = 0
        self._poll = 0  # counts getUpdates: a newer one ends the one that waits

    # ── people and what they do ──────────────────────────────────────────────────────────────────────────────

    def private(self, user_id: int, name: str = "Ada") -> TelegramChat:
        return self._add(TelegramChat(user_id, "private", name))

    def group(self, chat_id: int, title: str = "Group", *, topics: tuple[int, ...] = ()) -> TelegramChat:
        return self._add(
            TelegramChat(chat_id, "supergroup" if topics else "group", title, forum=bool(topics), topics=set(topics))
        )

    def write(
        self,
        chat: TelegramChat,
        text: str = "",
        *,
        user: int = 0,
        thread: int = 0,
        reply_to: TelegramMessage | None = None,
        fields: dict[str, Any] | None = None,
    ) -> int:
        """A person writes; returns the update's id. `user`: in a group, who. `fields`: more of the message object."""
        self._last_message += 1
        message: dict[str, Any] = {
            "message_id": self._last_message,
            "date": EPOCH + int(self.now()),
            "chat": chat.as_json(),
            "from": _user(user or chat.id),
        }
        if text:
            message |= {"text": text, "entities": _found_entities(text)}
        if thread:
            message |= {"message_thread_id": thread, "is_topic_message": True}
        if reply_to is not None:
            message["reply_to_message"] = self._message_json(chat, reply_to)
        state = TelegramState(text, at=self.now())
        chat.messages.append(TelegramMessage(self._last_message, thread, [state], user or chat.id))
        return self._put({"message": message | (fields or {})})

    def send_file(self, chat: TelegramChat, name: str, content: bytes, media_type: str, *, caption: str = "") -> int:
        """A person sends a file; an image as a photo in two sizes."""
        self._files[name] = content
        described = {"file_id": name, "file_unique_id": name, "file_size": len(content)}
        if media_type.startswith("image/"):
            small = {**described, "file_id": "thumbnail", "file_size": 10, "width": 90, "height": 90}
            fields: dict[str, Any] = {"photo": [small, {**described, "width": 800, "height": 800}]}
        else:
            fields = {"document": {**described, "file_name": name, "mime_type": media_type}}
        if caption:
            fields["caption"] = caption
        return self.write(chat, fields=fields)

    def press(self, chat: TelegramChat, message: TelegramMessage, label: str, *, user: int = 0) -> int:
        """A person presses a button of a message."""
        data = dict(message.buttons)[label]
        query = {"id": f"query-{self._last_update + 1}", "from": _user(user or chat.id), "chat_instance": "1"}
        return self._put({"callback_query": {**query, "data": data, "message": self._message_json(chat, message)}})

    def stop_draft(self, chat: TelegramChat) -> int:
        """The user presses the stop button of the preview."""
        draft = chat.draft
        if draft is None or not draft.is_shown(self.now()) or not draft.can_stop:
            raise AssertionError("there is no preview that can be stopped")
        thread = {"message_thread_id": draft.thread} if draft.thread else {}
        return self._put({"stopped_message_generation": {"chat": chat.as_json(), "draft_id": draft.id, **thread}})

    def deliver_again(self, update_id: int) -> None:
        """The same update once more, though it was confirmed (G88)."""
        self._again += [update for update in self._updates if update["update_id"] == update_id][:1]
        self.changed()

    # ── the Bot API ──────────────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[web.RouteDef]:
        return [
            web.route("*", "/bot{token}/{method}", self._serve),
            web.get("/file/bot{token}/{path}", self._serve_file),
        ]

    async def _serve(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        params = await _params(request)
        if request.match_info["token"] != self.token:
            return _response(TelegramRefusal(401, "Unauthorized"))
        if method.lower() == "getupdates" and not self._faults[method]:
            return await self._get_updates(request, params)
        return await self.answer(request, method, params, lambda: self._act(method, params))

    def _act(self, method: str, params: Params) -> web.Response:
        try:
            return _result(self._carry_out(method.lower(), params))
        except TelegramRefusal as refused:
            return _response(refused)

    def _carry_out(self, method: str, params: Params) -> object:
        """The result of the method. Raises `TelegramRefusal`."""
        match method:
            case "getme":
                about = {"can_join_groups": True, "can_read_all_group_messages": False}
                return self._bot() | about | {"supports_inline_queries": False}
            case "sendmessage":
                return self._send_message(params)
            case "sendphoto" | "senddocument":
                return self._send_file_message(method.removeprefix("send"), params)
            case "editmessagetext":
                chat, _ = self._open(params)
                return self._message_json(chat, chat.edit(params["message_id"], self._state(params)))
            case "sendmessagedraft":
                chat, thread = self._open(params)
                state, can_stop = self._state(params), params.get("can_stop") in (True, "true", "True")
                chat.preview(params.get("draft_id", 0), thread, state, can_stop=can_stop)
            case "deletemessage":
                chat, _ = self._open(params)
                chat.find(params["message_id"], "message to delete not found").deleted = True
            case "sendchataction":
                chat = self._chat(params)
                chat.check(params.get("message_thread_id", 0))
                chat.typing.append(self.now())
            case "answercallbackquery":
                self.answered_queries.append(params["callback_query_id"])
            case "setmycommands":
                self.commands = params["commands"]
            case "deletewebhook":
                self.webhook = ""
            case "getfile":
                return self._file_json(params["file_id"])
            case _:
                raise TelegramRefusal(404, "Not Found")
        return True

    def _send_message(self, params: Params) -> dict[str, Any]:
        chat, thread = self._open(params)
        state = self._state(params)
        self._last_message += 1
        message = TelegramMessage(self._last_message, thread, [state], silent=_is_silent(params))
        chat.messages.append(message)
        chat.end_preview(message.id)
        return self._message_json(chat, message)

    def _send_file_message(self, kind: str, params: Params) -> dict[str, Any]:
        chat, thread = self._open(params)
        uploads = [value for value in params.values() if isinstance(value, web.FileField)]
        if len(uploads) != 1 or not params.get(kind, ""):
            raise TelegramRefusal(400, f"Bad Request: there is no {kind} in the request")
        [upload] = uploads
        self._last_message += 1
        message = TelegramMessage(
            self._last_message,
            thread,
            [TelegramState(f"[{kind}] {upload.filename}", at=self.now())],
            silent=_is_silent(params),
        )
        chat.messages.append(message)
        chat.files.append((kind, upload.filename, upload.file.read()))
        chat.end_preview(message.id)
        return self._message_json(chat, message) | {"text": None}

    def _file_json(self, name: str) -> dict[str, Any]:
        if name not in self._files:
            raise TelegramRefusal(400, "Bad Request: invalid file_id")
        return {"file_id": name, "file_unique_id": name, "file_size": len(self._files[name]), "file_path": name}

    async def _serve_file(self, request: web.Request) -> web.StreamResponse:
        known = request.match_info["token"] == self.token
        return self.file(request.match_info["path"]) if known else web.Response(status=404)

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────────

    _confirmed = 0

    def _unconfirmed(self) -> list[dict[str, Any]]:
        return [update for update in self._updates if update["update_id"] > self._confirmed]

    async def _get_updates(self, request: web.Request, params: Params) -> web.Response:
        """Long polling: what is there at once, else what comes within `timeout`, at most `limit` of it. An offset
        confirms all before it."""
        if self.webhook:
            description = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete"
            return await self.answer(
                request, "getUpdates", params, lambda: _response(TelegramRefusal(409, description))
            )
        self._confirmed = max(self._confirmed, params.get("offset", 0) - 1)
        self._poll += 1
        mine = self._poll
        self.changed()

        def is_due() -> object:
            return mine != self._poll or self._again or self._unconfirmed() or self._closing.is_set()

        with suppress(TimeoutError):
            await self.until(is_due, params.get("timeout", 0))
        if mine != self._poll:
            taken_over = TelegramRefusal(409, "Conflict: terminated by other getUpdates request")
            return await self.answer(request, "getUpdates", params, lambda: _response(taken_over))
        found = [*self._again, *self._unconfirmed()][: params.get("limit", 100)]
        self._again.clear()
        return await self.answer(request, "getUpdates", params, lambda: _result(found))

    def _put(self, update: Params) -> int:
        self._last_update += 1
        self._updates.append({"update_id": self._last_update, **update})
        self.changed()
        return self._last_update

    # ── what is behind it ────────────────────────────────────────────────────────────────────────────────────

    def _add(self, chat: TelegramChat) -> TelegramChat:
        self.chats[chat.id] = chat
        return chat

    def _chat(self, params: Params) -> TelegramChat:
        if (chat := self.chats.get(params.get("chat_id", 0))) is None:
            raise TelegramRefusal(400, "Bad Request: chat not found")
        return chat

    def _open(self, params: Params) -> tuple[TelegramChat, int]:
        """The chat and topic of a request that counts against the chat's budget. Raises `TelegramRefusal`."""
        chat, thread = self._chat(params), params.get("message_thread_id", 0)
        if budget := self._budgets.get(chat.kind):
            wait_s = math.ceil(self._meter.wait_s(str(chat.id), budget, self.now()))
            if wait_s:
                raise TelegramRefusal(429, f"Too Many Requests: retry after {wait_s}", retry_after=wait_s)
        chat.check(thread)
        return chat, thread

    def _state(self, params: Params) -> TelegramState:
        """A draft may be empty: an answer is about to come."""
        if "draft_id" not in params and not params.get("text", "").strip():
            raise TelegramRefusal(400, "Bad Request: message text is empty")
        return state_of(params.get("text", ""), params.get("entities", []), params.get("reply_markup"), self.now())

    def _bot(self) -> dict[str, Any]:
        return {"id": BOT_ID, "is_bot": True, "first_name": "Tailrace", "username": self.username}

    def _message_json(self, chat: TelegramChat, message: TelegramMessage) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "message_id": message.id,
            "date": EPOCH + int(message.states[0].at),
            "chat": chat.as_json(),
            "from": self._bot() if message.author == BOT_ID else _user(message.author),
            "text": message.text,
            "entities": list(message.state.entities),
        }
        if message.thread:
            shown |= {"message_thread_id": message.thread, "is_topic_message": True}
        return shown


def _is_silent(params: Params) -> bool:
    return params.get("disable_notification") in (True, "true", "True")


async def _params(request: web.Request) -> Params:
    """As the real server takes them: in the address, as a form, or as JSON."""
    params: Params = dict(request.query)
    if request.content_type == "application/json":
        params |= await request.json()
    elif request.method == "POST":
        params |= dict(await request.post())
    for name in _JSON_PARAMS & params.keys():
        if isinstance(params[name], str):
            params[name] = msgspec.json.decode(params[name])
    for name in _INTEGER_PARAMS & params.keys():
        params[name] = int(params[name])
    return params


def _found_entities(text: str) -> list[dict[str, Any]]:
    """The mentions and the command that a client marks by itself."""
    found: list[dict[str, Any]] = []
    at = 0
    for word in text.split(" "):
        length = len(word.encode("utf-16-le")) // 2
        if word.startswith("@") and length > 1:
            found.append({"type": "mention", "offset": at, "length": length})
        elif word.startswith("/") and length > 1:
            found.append({"type": "bot_command", "offset": at, "length": length})
        at += length + 1
    return found


def _user(user_id: int) -> dict[str, Any]:
    return {"id": user_id, "is_bot": False, "first_name": f"User {user_id}"}


def _result(result: object) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _response(refused: TelegramRefusal) -> web.Response:
    return web.json_response(refused.body, status=refused.status)
