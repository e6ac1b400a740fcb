"""Slack on a loopback port, Web API and Socket Mode: what an app sends is what people see, what they do are envelopes.

    async with FakeSlack() as slack:
        general = slack.channel("C1")
        ts = await slack.write(general, "<@U0BOT> hello", user="U7")
        await slack.until(lambda: general.texts == ["Hello."])
        general.answers[0].states           # everything that the message ever showed

The app's `base_url` is `slack.api_url`, its tokens `slack.token` and `slack.app_token`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import msgspec
from aiohttp import web

from proof.platforms.budgets import Budget, Meter
from proof.platforms.slack_channels import (
    BOT_ID,
    BOT_USER,
    MAX_MARKDOWN,
    TEAM,
    SlackChannel,
    SlackMessage,
    SlackRefusal,
    SlackState,
    state_of,
)
from tailrace.testing.platforms.loopback import Fault, LoopbackFake, json_fault

Params = dict[str, Any]
STREAM_LIFETIME_S = 300.0
MAX_PAGE = 999
CONFIRM_S = 3.0  # after which Slack tells who waits for a command or a button that the app did not respond
_AWAITED = ("slash_commands", "interactive")
_RECONNECT = {"type": "disconnect", "reason": "refresh_requested"}
BOT = {"user_id": BOT_USER, "bot_id": BOT_ID, "team_id": TEAM, "user": "tailrace", "team": "Testers"}
# Per method in the whole workspace, by Slack's tiers; a message a second in each channel.
BUDGETS = {
    "chat.postMessage": Budget(60, 60.0),
    "chat.update": Budget(50, 60.0),
    "chat.startStream": Budget(20, 60.0),
    "chat.appendStream": Budget(100, 60.0),
    "chat.stopStream": Budget(20, 60.0),
}


def flood(retry_after_s: int) -> Fault:
    """Too many requests, said by the server (G78)."""
    return json_fault(429, {"ok": False, "error": "ratelimited"}, **{"Retry-After": str(retry_after_s)})


def refusal(code: str) -> Fault:
    """An error in Slack's own words."""
    return json_fault(200, {"ok": False, "error": code})


class FakeSlack(LoopbackFake):
    """One workspace with one app in it, its channels, and the hands of the people in them."""

    token = "xoxb-for-tests"  # noqa: S105 - opens nothing but this fake
    app_token = "xapp-for-tests"  # noqa: S105 - neither does this

    def __init__(self, *, budgets: dict[str, Budget] = BUDGETS, port: int = 0) -> None:
        """`budgets` by method; empty: no limits."""
        super().__init__(port=port)
        self.channels: dict[str, SlackChannel] = {}
        self.names: dict[str, str] = {}  # what people are called, by user id
        self.scopes = ""  # of the bot token, as Slack names them beside its answers; empty: it names none
        self.acknowledged: list[str] = []
        self.timed_out: list[str] = []  # commands and buttons: Slack told the person that the app did not respond
        self.connections = 0
        self.replaced_at_once = 0  # how many of the next connections Slack wants replaced as soon as they are made
        self._budgets, self._meter = budgets, Meter()
        self._sockets: list[web.WebSocketResponse] = []
        self._unacknowledged: dict[str, dict[str, Any]] = {}
        self._number = 0
        self._uploads: dict[str, tuple[str, int, bytes | None]] = {}  # name, length, content once it is there

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/"

    # ── people and what they do ──────────────────────────────────────────────────────────────────────────────

    def channel(self, channel_id: str) -> SlackChannel:
        """A channel; a direct conversation where the id begins with D."""
        return self.channels.setdefault(channel_id, SlackChannel(channel_id))

    def direct(self, user: str) -> SlackChannel:
        """The direct conversation with a person; a new one where they have written in none yet."""
        with_bot = (
            one for one in self.channels.values() if one.private and any(m.author == user for m in one.messages)
        )
        return next(with_bot, None) or self.channel(f"D{user}")

    async def write(
        self,
        channel: SlackChannel,
        text: str,
        *,
        user: str = "U7",
        thread: str = "",
        files: dict[str, bytes] | None = None,
        fields: Params | None = None,
    ) -> str:
        """A person writes; returns the message's `ts`. `fields`: more of the event."""
        message = SlackMessage(self._ts(), user, thread, [SlackState(text, at=self.now())])
        channel.messages.append(message)
        event = {
            **message.as_json(),
            "channel": channel.id,
            "channel_type": "im" if channel.private else "channel",
            "team": TEAM,
            "client_msg_id": f"c-{message.ts}",
        }
        if thread:
            event["parent_user_id"] = channel.find(thread).author
        if files:
            event |= {"subtype": "file_share", "files": [self._file(name, data) for name, data in files.items()]}
        await self.send_event(event | (fields or {}))
        if f"<@{BOT_USER}>" in text and not channel.private:
            await self.send_event(event | {"type": "app_mention"} | (fields or {}))
        return message.ts

    async def press(self, channel: SlackChannel, message: SlackMessage, label: str, *, user: str = "U7") -> None:
        """A person presses a button of a message."""
        pressed = {"type": "button", "action_id": "x", "value": dict(message.buttons)[label]}
        payload = {
            "type": "block_actions",
            "user": {"id": user, "name": f"name of {user}"},
            "team": {"id": TEAM},
            "channel": {"id": channel.id},
            "message": message.as_json(),
            "actions": [pressed | {"action_ts": self._ts()}],
        }
        await self.deliver("interactive", payload)

    async def command(self, channel: SlackChannel, command: str, text: str = "", *, user: str = "U7") -> None:
        """A person uses a slash command."""
        payload = {"command": command, "text": text, "channel_id": channel.id, "user_id": user, "team_id": TEAM}
        payload["response_url"] = f"{self.url}/commands/{channel.id}/{user}"
        await self.deliver("slash_commands", payload | {"user_name": f"name of {user}", "trigger_id": self._ts()})

    async def send_event(self, event: Params) -> None:
        self._number += 1
        callback = {"type": "event_callback", "team_id": TEAM, "event_id": f"Ev{self._number}", "event": event}
        await self.deliver("events_api", callback)

    def _file(self, name: str, content: bytes) -> Params:
        self._files[name] = content
        kind = "text/plain" if name.endswith(".txt") else "image/png"
        return {"name": name, "mimetype": kind, "size": len(content), "url_private": f"{self.url}/files/{name}"}

    def expire_stream(self, message: SlackMessage) -> None:
        """Slack ends it by itself (G90)."""
        message.opened_at -= STREAM_LIFETIME_S

    def delete_thread(self, channel: SlackChannel, ts: str) -> None:
        """A person deletes the message that the thread hangs from, and all of the thread (G85)."""
        for message in channel.messages:
            message.deleted = message.deleted or ts in (message.ts, message.thread_ts)

    def _ts(self) -> str:
        self._number += 1
        return f"1700000000.{self._number:06d}"

    # ── the Web API ──────────────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/{method}", self._serve),
            web.get("/api/{method}", self._serve),
            web.post("/upload/{file}", self._take_upload),
            web.get("/files/{name}", self._serve_file),
            web.post("/commands/{channel}/{user}", self._take_whisper),
            web.get("/socket", self._socket),
        ]

    async def _serve(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        raw = await request.read()
        params: Params = msgspec.json.decode(raw) if raw.startswith(b"{") else {}
        if request.content_type == "application/x-www-form-urlencoded":
            params = dict(parse_qsl(raw.decode())) | dict(request.query)
        elif not params:
            params = dict(request.query)
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return await self.answer(request, method, params, lambda: self._act(method, params, bearer))

    def _act(self, method: str, params: Params, bearer: str) -> web.Response:
        try:
            handler = self._handler(method, bearer)
            told = {"x-oauth-scopes": self.scopes} if self.scopes else {}
            return web.json_response({"ok": True} | handler(params), headers=told)
        except SlackRefusal as refused:
            headers = {"Retry-After": str(refused.retry_after_s)} if refused.retry_after_s else {}
            status = 429 if refused.retry_after_s else 200
            return web.json_response({"ok": False, "error": refused.code}, status=status, headers=headers)

    def _handler(self, method: str, bearer: str) -> Callable[[Params], Params]:
        """Raises `SlackRefusal`, also for a method that is called too often."""
        handlers: dict[str, Callable[[Params], Params]] = {
            "auth.test": lambda _: BOT,
            "apps.connections.open": lambda _: {"url": f"{self.url.replace('http', 'ws', 1)}/socket"},
            "chat.postMessage": self._post_message,
            "chat.postEphemeral": self._post_ephemeral,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "chat.startStream": self._start_stream,
            "chat.appendStream": self._append_stream,
            "chat.stopStream": self._stop_stream,
            "conversations.replies": self._replies,
            "conversations.history": self._history,
            "assistant.threads.setStatus": self._set_status,
            "users.info": self._user_info,
            "files.getUploadURLExternal": self._upload_url,
            "files.completeUploadExternal": self._complete_upload,
        }
        budget = self._budgets.get(method)
        if budget is not None and (wait_s := self._meter.wait_s(method, budget, self.now())):
            raise SlackRefusal("ratelimited", retry_after_s=math.ceil(wait_s))
        if bearer != (self.app_token if method == "apps.connections.open" else self.token):
            raise SlackRefusal("invalid_auth")
        if method not in handlers:
            raise SlackRefusal("unknown_method")
        return handlers[method]

    def _open(self, params: Params, name: str = "channel") -> SlackChannel:
        channel = self.channels.get(params.get(name, ""))
        if channel is None:
            raise SlackRefusal("channel_not_found")
        if channel.archived:
            raise SlackRefusal("is_archived")
        if not channel.joined:
            raise SlackRefusal("not_in_channel")
        return channel

    def _post_message(self, params: Params) -> Params:
        if params.get("channel") in self.names:  # a person's id stands for the direct conversation with them
            params = params | {"channel": self.direct(params["channel"]).id}
        channel, thread = self._open(params), params.get("thread_ts", "")
        channel.check_thread(thread)
        message = SlackMessage(self._ts(), BOT_USER, thread, [state_of(params, self.now())], params.get("metadata", {}))
        channel.messages.append(message)
        return {"channel": channel.id, "ts": message.ts}

    def _post_ephemeral(self, params: Params) -> Params:
        self._open(params).whispers.append((params["user"], state_of(params, self.now()).text))
        return {"message_ts": self._ts()}

    def _update(self, params: Params) -> Params:
        message = self._open(params).find(params["ts"])
        if message.author != BOT_USER:
            raise SlackRefusal("cant_update_message")
        if self._is_streaming(message):
            raise SlackRefusal("streaming_state_conflict")
        message.states.append(state_of(params, self.now()))
        message.metadata = params.get("metadata", message.metadata)
        return {"ts": message.ts}

    def _delete(self, params: Params) -> Params:
        self._open(params).find(params["ts"]).deleted = True
        return {}

    def _start_stream(self, params: Params) -> Params:
        channel, thread = self._open(params), params.get("thread_ts", "")
        channel.check_thread(thread)
        if not channel.private and not (params.get("recipient_user_id") and params.get("recipient_team_id")):
            raise SlackRefusal("missing_recipient_team_id")
        message = SlackMessage(self._ts(), BOT_USER, thread, [SlackState("", streaming=True, at=self.now())])
        message.opened_at = self.now()
        message.append(params.get("chunks", []), self.now())
        channel.messages.append(message)
        return {"channel": channel.id, "ts": message.ts}

    def _append_stream(self, params: Params) -> Params:
        message = self._stream(params)
        if not params.get("chunks"):
            raise SlackRefusal("no_text")
        message.append(params["chunks"], self.now())
        return {"ts": message.ts}

    def _stop_stream(self, params: Params) -> Params:
        message = self._stream(params)
        message.append(params.get("chunks", []), self.now(), ends=True)
        message.metadata = params.get("metadata", {})
        return {"ts": message.ts}

    def _stream(self, params: Params) -> SlackMessage:
        message = self._open(params).find(params["ts"])
        if not self._is_streaming(message):
            raise SlackRefusal("message_not_in_streaming_state")
        if sum(len(chunk.get("text", "")) for chunk in params.get("chunks", [])) > MAX_MARKDOWN:
            raise SlackRefusal("msg_too_long")
        return message

    def _is_streaming(self, message: SlackMessage) -> bool:
        return message.state.streaming and self.now() - message.opened_at < STREAM_LIFETIME_S

    def _replies(self, params: Params) -> Params:
        channel, thread = self._open(params), params["ts"]
        channel.check_thread(thread)
        page = self._page([m for m in channel.messages if thread in (m.ts, m.thread_ts)], params)
        if params.get("cursor"):  # the first message is on each page
            page["messages"].insert(0, channel.find(thread).as_json())
        return page

    def _history(self, params: Params) -> Params:
        return self._page([m for m in reversed(self._open(params).messages) if not m.thread_ts], params)

    def _page(self, messages: list[SlackMessage], params: Params) -> Params:
        there = [message.as_json() for message in messages if not message.deleted]
        if not params.get("include_all_metadata"):
            there = [{name: value for name, value in m.items() if name != "metadata"} for m in there]
        start, limit = int(params.get("cursor") or 0), min(params.get("limit", 100), MAX_PAGE)
        end = start + limit
        more = {"response_metadata": {"next_cursor": str(end)}} if len(there) > end else {}
        return {"messages": there[start:end], "has_more": bool(more)} | more

    def _set_status(self, params: Params) -> Params:
        channel = self._open(params, "channel_id")
        channel.statuses.append((params["thread_ts"], params["status"]))
        return {}

    def _user_info(self, params: Params) -> Params:
        user = str(params.get("user", ""))
        if user not in self.names:
            raise SlackRefusal("user_not_found")
        name = self.names[user]
        return {"user": {"id": user, "name": user.lower(), "profile": {"display_name": name, "real_name": name}}}

    def _upload_url(self, params: Params) -> Params:
        self._number += 1
        file = f"F{self._number}"
        self._uploads[file] = (params["filename"], int(params["length"]), None)
        return {"file_id": file, "upload_url": f"{self.url}/upload/{file}"}

    async def _take_upload(self, request: web.Request) -> web.Response:
        file, content = request.match_info["file"], await request.read()
        name, length, _ = self._uploads.get(file, ("", -1, None))
        if length != len(content):
            return web.Response(status=400)
        self._uploads[file] = (name, length, content)
        return web.Response(text=f"OK - {length}")

    def _complete_upload(self, params: Params) -> Params:
        channel, thread = self._open(params, "channel_id"), params.get("thread_ts", "")
        channel.check_thread(thread)
        asked = params["files"]
        files = msgspec.json.decode(asked) if isinstance(asked, str) else asked
        for one in files:
            name, _, content = self._uploads.get(one["id"], ("", 0, None))
            if content is None:
                raise SlackRefusal("file_not_found")
            message = SlackMessage(self._ts(), BOT_USER, thread, [SlackState(f"[file] {name}", at=self.now())])
            channel.messages.append(message)
            channel.files.append(("file", name, content))
        return {"files": [{"id": one["id"], "title": one.get("title", "")} for one in files]}

    async def _take_whisper(self, request: web.Request) -> web.Response:
        said = msgspec.json.decode(await request.read())
        return await self.answer(request, "response_url", said, lambda: self._whisper(request.match_info, said))

    def _whisper(self, where: Mapping[str, str], said: Params) -> web.Response:
        text = state_of(said, self.now()).text if said.get("blocks") else said["text"]
        self.channels[where["channel"]].whispers.append((where["user"], text))
        return web.Response(text="ok")

    async def _serve_file(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=302, headers={"Location": f"{self.url}/sign-in"})
        return self.file(request.match_info["name"])

    # ── Socket Mode ──────────────────────────────────────────────────────────────────────────────────────────

    async def deliver(self, kind: str, payload: Params) -> None:
        """To one of the app's connections, and again until it is acknowledged."""
        self._number += 1
        envelope_id = f"envelope-{self._number}"
        envelope: Params = {"type": kind, "envelope_id": envelope_id, "payload": payload}
        self._unacknowledged[envelope_id] = envelope
        if kind in _AWAITED:
            asyncio.get_running_loop().call_later(CONFIRM_S, self._time_out, envelope_id)
        for socket in self._sockets[-1:]:
            await _send(socket, envelope)
        self.changed()

    def _time_out(self, envelope_id: str) -> None:
        if envelope_id in self._unacknowledged:
            self.timed_out.append(envelope_id)
            self.changed()

    async def deliver_again(self) -> None:
        """Delivers again what was not acknowledged (G88)."""
        for envelope in list(self._unacknowledged.values()):
            for socket in self._sockets[-1:]:
                await _send(socket, envelope | {"retry_attempt": 1, "retry_reason": "timeout"})

    async def ask_to_reconnect(self) -> None:
        """Slack refreshes its sockets every few hours."""
        for socket in list(self._sockets):
            await _send(socket, _RECONNECT)

    async def close_sockets(self) -> None:
        for socket in list(self._sockets):
            await socket.close()

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets.append(socket)
        self.connections += 1
        try:
            await _send(socket, {"type": "hello", "num_connections": len(self._sockets)})
            self.changed()
            if self.replaced_at_once:
                self.replaced_at_once -= 1
                await _send(socket, _RECONNECT)
            for envelope in list(self._unacknowledged.values()):
                await _send(socket, envelope)
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT and message.data.startswith("{"):
                    self._take_confirmation(msgspec.json.decode(message.data))
        finally:
            self._sockets.remove(socket)
            self.changed()
        return socket

    def _take_confirmation(self, confirmation: Params) -> None:
        """That of a slash command may have a text for the person who typed it."""
        envelope_id = confirmation["envelope_id"]
        if envelope := self._unacknowledged.pop(envelope_id, None):
            self.acknowledged.append(envelope_id)
            told = (confirmation.get("payload") or {}).get("text")
            if told and envelope["type"] == "slash_commands":
                command = envelope["payload"]
                self.channel(command["channel_id"]).whispers.append((command["user_id"], told))
        self.changed()


async def _send(socket: web.WebSocketResponse, envelope: Params) -> None:
    with suppress(ConnectionError):  # a closed connection gets it again after reconnecting
        await socket.send_str(msgspec.json.encode(envelope).decode())
