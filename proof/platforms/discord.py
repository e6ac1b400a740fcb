"""Discord on a loopback port, REST and gateway: what a bot sends is what people see, what people do becomes events.

    async with FakeDiscord() as discord:
        general = discord.channel(5)
        await discord.write(general, "<@42> hello", user=7)
        await discord.until(lambda: general.texts == ["Hello."])
        general.answers[0].states           # everything that the message ever showed

The bot's `base_url` is `discord.url`, its `gateway_url` `discord.gateway_url`, its token `discord.token`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from proof.platforms.budgets import Budget
from proof.platforms.discord_channels import (
    BOT_ID,
    GUILD_ID,
    Buckets,
    DiscordChannel,
    DiscordMessage,
    DiscordRefusal,
    state_of,
    user_json,
)
from proof.platforms.discord_socket import HEARTBEAT_MS, GatewaySession, GatewayWire, Op
from proof.platforms.history import ShownState
from tailrace.testing.platforms.loopback import Fault, LoopbackFake, json_fault

APPLICATION_ID = 43
BOT_ROLE_ID = 44  # the role that Discord makes for a bot, of the same name
BUDGET = Budget(5, 5.0)  # of one route in one channel
INTERACTION_S = 3.0  # in which it must be answered
_MESSAGE_CONTENT = 1 << 15  # the intent
_CONTENT_ENABLED = 1 << 19  # an application's flag: the intent is enabled, for a bot in few servers
_MEMBER = {"roles": [], "joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}
_USER = re.compile(r"<@!?(\d+)>")
_BOT_ROLE = {"id": str(BOT_ROLE_ID), "name": "tailrace", "permissions": "0", "position": 1, "color": 0, "flags": 0}
_BOT_ROLE |= {"hoist": False, "managed": True, "mentionable": True, "tags": {"bot_id": str(BOT_ID)}}
_EVERYONE = _BOT_ROLE | {"id": str(GUILD_ID), "name": "@everyone", "position": 0, "managed": False, "tags": {}}
_EVERYONE |= {"permissions": str(1 << 10 | 1 << 11 | 1 << 38)}  # View Channels, Send Messages, also in threads
_APPLICATION = {"id": str(APPLICATION_ID), "name": "Tailrace", "icon": None, "description": "", "flags": 0}
_APPLICATION |= {"bot_public": True, "bot_require_code_grant": False, "verify_key": "", "summary": ""}


def flood(retry_after_s: float) -> Fault:
    """Too many requests, said by the server (G78)."""
    body = {"message": "You are being rate limited.", "retry_after": retry_after_s, "global": False}
    return json_fault(429, body, **{"Retry-After": str(math.ceil(retry_after_s)), "Via": "1.1 google"})


def refusal(status: int, code: int, message: str) -> Fault:
    """An error in Discord's own words."""
    return json_fault(status, {"message": message, "code": code})


class FakeDiscord(LoopbackFake):
    """One server (guild), its channels and threads, direct conversations, and the hands of the people in them."""

    token = "a-token-for-tests"  # noqa: S105 - opens nothing but this fake

    def __init__(self, *, budget: Budget | None = BUDGET, port: int = 0) -> None:
        """`budget` of each route in each channel; None: no limits."""
        super().__init__(port=port)
        self.channels: dict[int, DiscordChannel] = {}
        self.commands: list[dict[str, Any]] = []
        self.interaction_answers: dict[str, dict[str, Any]] = {}
        self.follow_ups: dict[str, dict[str, Any]] = {}  # what was said after an interaction was answered
        self.identified: list[dict[str, Any]] = []  # what clients have said of themselves
        self.resumes = 0
        self.content_intent = True
        self.in_server = True
        self.reads_history = True  # the bot's right
        self.members: dict[int, set[int]] = {}  # of servers; the fake's own has everybody where it is not named here
        self.rights = 1 << 10 | 1 << 11 | 1 << 38  # of the bot, as interactions tell them
        self._buckets = Buckets(budget) if budget is not None else None
        self._interactions: dict[str, float] = {}  # when each began
        self._sessions: dict[str, GatewaySession] = {}
        self._wires: list[GatewayWire] = []
        self._last_id = 100

    @property
    def gateway_url(self) -> str:
        return f"{self.url.replace('http', 'ws', 1)}/gateway"

    @property
    def _flags(self) -> int:
        return _CONTENT_ENABLED if self.content_intent else 0

    # ── people and what they do ──────────────────────────────────────────────────────────────────────────────

    def channel(
        self, channel_id: int, name: str = "general", *, overwrites: list[dict[str, Any]] | None = None
    ) -> DiscordChannel:
        """`overwrites`: of permissions, as Discord has them."""
        return self._add(DiscordChannel(channel_id, name, overwrites=overwrites or []))

    def thread(self, channel_id: int, parent: DiscordChannel, name: str = "thread") -> DiscordChannel:
        return self._add(DiscordChannel(channel_id, name, parent=parent.id))

    def thread_below(self, parent: DiscordChannel, message_id: int, name: str = "thread") -> DiscordChannel:
        """A thread that hangs from a message of the channel: it has the message's id, and begins with a line that
        refers to it."""
        thread = self.thread(message_id, parent, name)
        reference = {"message_id": str(message_id), "channel_id": str(parent.id), "guild_id": str(GUILD_ID)}
        shown = parent.message_json(parent.find(message_id))
        fields = {"type": 21, "message_reference": reference, "referenced_message": shown}
        thread.messages.append(DiscordMessage(self._next_id(), 1, [ShownState("", at=self.now())], fields=fields))
        return thread

    def direct(self, channel_id: int, user: int) -> DiscordChannel:
        return self._add(DiscordChannel(channel_id, user=user))

    def _add(self, channel: DiscordChannel) -> DiscordChannel:
        self.channels[channel.id] = channel
        return channel

    async def write(
        self,
        channel: DiscordChannel,
        text: str,
        *,
        user: int = 0,
        reply_to: DiscordMessage | None = None,
        files: dict[str, bytes] | None = None,
        fields: dict[str, Any] | None = None,
    ) -> int:
        """A person writes; returns the message's id. `fields`: more of the message object."""
        message = DiscordMessage(self._next_id(), user or channel.user, [ShownState(text, at=self.now())])
        channel.messages.append(message)
        prose = re.sub(r"`[^`]*`", "", text)  # a mention in code is none
        described = message.fields
        described["mentions"] = [user_json(int(name)) | {"member": _MEMBER} for name in _USER.findall(prose)]
        described["mention_roles"] = [str(BOT_ROLE_ID)] if f"<@&{BOT_ROLE_ID}>" in prose else []
        if reply_to is not None:
            described |= {
                "type": 19,
                "message_reference": {"message_id": str(reply_to.id), "channel_id": str(channel.id)},
                "referenced_message": channel.message_json(reply_to),
            }
        described["attachments"] = [self._attachment(name, content) for name, content in (files or {}).items()]
        described |= fields or {}
        await self.dispatch("MESSAGE_CREATE", channel.message_json(message) | self._where(channel) | message.fields)
        return message.id

    async def press(self, channel: DiscordChannel, message: DiscordMessage, label: str, *, user: int = 0) -> str:
        """A person presses a button; returns the interaction's id."""
        data = {"custom_id": dict(message.buttons)[label], "component_type": 2}
        shown = channel.message_json(message)
        return await self._interact(channel, 3, user or channel.user, {"data": data, "message": shown})

    async def command(self, channel: DiscordChannel, name: str, text: str = "", *, user: int = 0) -> str:
        """A person uses a slash command; returns the interaction's id. Raises `LookupError` for a command, or a text
        behind it, that the bot has not offered: no client sends it."""
        [offered] = [command for command in self.commands if command["name"] == name] or [{}]
        if not offered or (text and not offered["options"]):
            raise LookupError(f"/{name} {text}".strip())
        options = [{"type": 3, "name": offered["options"][0]["name"], "value": text}] if text else []
        data = {"id": str(self._next_id()), "name": name, "type": 1, "options": options}
        return await self._interact(channel, 2, user or channel.user, {"data": data})

    async def _interact(self, channel: DiscordChannel, kind: int, user: int, fields: dict[str, Any]) -> str:
        interaction = str(self._next_id())
        self._interactions[interaction] = self.now()
        described = {
            "id": interaction,
            "application_id": str(APPLICATION_ID),
            "type": kind,
            "token": f"token-{interaction}",
            "version": 1,
            "channel_id": str(channel.id),
            "channel": channel.as_json(),
            "entitlements": [],
            "app_permissions": str(self.rights),
            "authorizing_integration_owners": {},
            "attachment_size_limit": 1_000_000,
        }
        where = {"user": user_json(user)} if channel.user else {"member": _MEMBER | {"user": user_json(user)}}
        await self.dispatch("INTERACTION_CREATE", described | self._where(channel) | where | fields)
        return interaction

    def _where(self, channel: DiscordChannel) -> dict[str, Any]:
        return {} if channel.user else {"guild_id": str(GUILD_ID), "member": _MEMBER}

    def _attachment(self, name: str, content: bytes) -> dict[str, Any]:
        self._files[name] = content
        url = f"{self.url}/files/{name}"
        described = {"id": str(self._next_id()), "filename": name, "size": len(content), "url": url, "proxy_url": url}
        return described | {"content_type": "text/plain; charset=utf-8" if name.endswith(".txt") else "image/png"}

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # ── REST ─────────────────────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[web.RouteDef]:
        message = "/channels/{channel}/messages/{message}"
        return [
            web.get("/gateway", self._gateway),
            web.get("/files/{name}", self._serve_file),
            web.get("/users/@me", self._handler("me", lambda *_: user_json(BOT_ID))),
            web.get(
                "/oauth2/applications/@me",
                self._handler("application", lambda *_: _APPLICATION | {"owner": user_json(1), "flags": self._flags}),
            ),
            web.get("/users/@me/guilds", self._handler("guilds", lambda *_: self._guilds())),
            web.get("/guilds/{guild}/members/{user}", self._handler("member", self._member)),
            web.put("/applications/{application}/commands", self._handler("commands", self._set_commands)),
            web.post("/interactions/{interaction}/{secret}/callback", self._handler("callback", self._callback)),
            web.patch("/webhooks/{application}/{secret}/messages/@original", self._handler("original", self._original)),
            web.post("/webhooks/{application}/{secret}", self._handler("follow_up", self._follow_up)),
            web.post("/users/@me/channels", self._handler("direct", self._open_direct)),
            web.get("/channels/{channel}/messages", self._handler("history", self._history)),
            web.get(message, self._handler("message", self._message)),
            web.post("/channels/{channel}/messages", self._handler("send", self._send)),
            web.patch(message, self._handler("edit", self._edit)),
            web.delete(message, self._handler("delete", self._delete)),
            web.patch("/channels/{channel}", self._handler("channel", self._change_channel)),
            web.post("/channels/{channel}/typing", self._handler("typing", self._type)),
        ]

    def _handler(self, name: str, act: Callable[[web.Request, Any], Any]) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            if request.content_type == "multipart/form-data":
                form = await request.post()
                payload: Any = form["payload_json"]  # bytes, because its type is not text
                body = msgspec.json.decode(payload) | {"uploaded": form["files[0]"]}
            else:
                body = msgspec.json.decode(raw) if (raw := await request.read()) else {}
            params = dict(request.match_info) | (body if isinstance(body, dict) else {})

            def respond() -> web.Response:
                try:
                    return self._respond(name, request, lambda: act(request, body))
                except DiscordRefusal as refused:
                    return web.json_response(refused.body, status=refused.status)

            return await self.answer(request, name, params, respond)

        return handle

    def _respond(self, name: str, request: web.Request, act: Callable[[], Any]) -> web.Response:
        if request.headers.get("Authorization") != f"Bot {self.token}":
            raise DiscordRefusal(401, 0, "401: Unauthorized")
        headers: dict[str, str] = {}
        if name in ("send", "edit", "delete"):
            bucket = f"{name}:{request.match_info['channel']}"
            wait_s, headers = self._buckets.reserve(bucket, self.now()) if self._buckets else (0.0, {})
            if wait_s:
                limited = flood(round(wait_s, 3))
                return web.Response(status=429, body=limited.body, headers=limited.headers | headers)
        result = act()
        if result is None:
            return web.Response(status=204, headers=headers)
        # no charset: discord.py compares the whole type
        return web.Response(body=msgspec.json.encode(result), headers=headers, content_type="application/json")

    def _found(self, request: web.Request) -> DiscordChannel:
        channel = self.channels.get(int(request.match_info["channel"]))
        if channel is None:
            raise DiscordRefusal(404, 10003, "Unknown Channel")
        return channel

    def _open(self, request: web.Request, *, changes: bool = False) -> DiscordChannel:
        """`changes`: a message that is there is to be changed."""
        channel = self._found(request)
        if channel.forum:
            raise DiscordRefusal(400, 50008, "Cannot send messages in a non-text channel")
        if channel.archived and (changes or channel.locked):
            raise DiscordRefusal(400, 50083, "Thread is archived")
        return channel

    def _send(self, request: web.Request, body: Any) -> dict[str, Any]:
        channel, uploaded = self._open(request), body.get("uploaded")
        channel.archived = False
        is_file = isinstance(uploaded, web.FileField)
        state = ShownState(f"[file] {uploaded.filename}", at=self.now()) if is_file else state_of(body, self.now())
        nonce = str(body.get("nonce", ""))
        if nonce and body.get("enforce_nonce"):
            for message in channel.messages:
                if message.nonce == nonce:
                    return channel.message_json(message)
        message = DiscordMessage(self._next_id(), BOT_ID, [state], nonce)
        channel.messages.append(message)
        if is_file:
            channel.files.append((uploaded.content_type, uploaded.filename, uploaded.file.read()))
        return channel.message_json(message)

    def _history(self, request: web.Request, _body: Any) -> list[dict[str, Any]]:
        """Without the right to read it Discord gives no messages, and no error."""
        channel, limit = self._found(request), int(request.query.get("limit", 50))
        if not 1 <= limit <= 100:
            raise DiscordRefusal(400, 50035, "Invalid Form Body")
        before = int(request.query.get("before", self._last_id + 1))
        return channel.before(before, limit) if self.reads_history else []

    def _message(self, request: web.Request, _body: Any) -> dict[str, Any]:
        channel = self._found(request)
        if not self.reads_history:
            raise DiscordRefusal(403, 50001, "Missing Access")
        return channel.message_json(channel.find(int(request.match_info["message"])))

    def _open_direct(self, _request: web.Request, body: Any) -> dict[str, Any]:
        user = int(body["recipient_id"])
        known = (channel for channel in self.channels.values() if channel.user == user)
        return (next(known, None) or self.direct(self._next_id(), user)).as_json()

    def _edit(self, request: web.Request, body: Any) -> dict[str, Any]:
        channel = self._open(request, changes=True)
        message = channel.find(int(request.match_info["message"]))
        if message.author != BOT_ID:
            raise DiscordRefusal(403, 50005, "Cannot edit a message authored by another user")
        message.states.append(state_of(body, self.now()))
        return channel.message_json(message)

    def _delete(self, request: web.Request, _body: Any) -> None:
        self._open(request, changes=True).find(int(request.match_info["message"])).deleted = True

    def _change_channel(self, request: web.Request, body: Any) -> dict[str, Any]:
        channel = self._found(request)
        if not channel.parent or channel.locked or body != {"archived": False}:  # all else is for moderators
            raise DiscordRefusal(403, 50013, "Missing Permissions")
        channel.archived = False
        return channel.as_json()

    def _type(self, request: web.Request, _body: Any) -> None:
        self._open(request).typing.append(self.now())

    def _member(self, request: web.Request, _body: Any) -> dict[str, Any]:
        guild, user = int(request.match_info["guild"]), int(request.match_info["user"])
        if guild != GUILD_ID and guild not in self.members:
            raise DiscordRefusal(404, 10004, "Unknown Guild")
        if user not in self.members.get(guild, {user}):
            raise DiscordRefusal(404, 10007, "Unknown Member")
        return _MEMBER | {"user": user_json(user), "nick": None}

    def _set_commands(self, _request: web.Request, body: Any) -> list[Any]:
        self.commands = body
        return self.commands

    def _callback(self, request: web.Request, body: Any) -> None:
        interaction, secret = request.match_info["interaction"], request.match_info["secret"]
        began = self._interactions.get(interaction)
        if secret == f"token-{interaction}" and interaction in self.interaction_answers:  # also after the three seconds
            raise DiscordRefusal(400, 40060, "Interaction has already been acknowledged.")
        if secret != f"token-{interaction}" or began is None or self.now() - began > INTERACTION_S:
            raise DiscordRefusal(404, 10062, "Unknown interaction")
        self.interaction_answers[interaction] = body

    def _answered(self, request: web.Request) -> str:
        """The interaction that a message follows: one that was answered."""
        interaction = request.match_info["secret"].removeprefix("token-")
        if interaction not in self.interaction_answers:
            raise DiscordRefusal(404, 10015, "Unknown Webhook")
        return interaction

    def _original(self, request: web.Request, body: Any) -> dict[str, Any]:
        answer = self.interaction_answers[self._answered(request)]
        if answer["type"] == 6:
            raise DiscordRefusal(404, 10008, "Unknown Message")
        flags = answer.get("data", {}).get("flags", 0) & 1 << 6  # who sees it was said when it was deferred
        answer["data"] = body | {"flags": flags | body.get("flags", 0) & ~(1 << 6)}
        return {}

    def _follow_up(self, request: web.Request, body: Any) -> dict[str, Any]:
        self.follow_ups[self._answered(request)] = body
        return {}

    async def _serve_file(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers:
            return web.Response(status=400, text="the token does not belong here")
        return self.file(request.match_info["name"])

    # ── the gateway ──────────────────────────────────────────────────────────────────────────────────────────

    async def dispatch(self, event: str, data: dict[str, Any]) -> None:
        """Every client that has identified itself is told, now or when it resumes. Again is again (G88)."""
        for session in self._sessions.values():
            await session.dispatch(event, data)
        self.changed()

    async def ask_to_reconnect(self) -> None:
        for wire in list(self._wires):
            await wire.send(Op.RECONNECT)

    async def invalidate_sessions(self) -> None:
        """They cannot be resumed: their clients must identify themselves anew."""
        self._sessions.clear()
        for wire in list(self._wires):
            await wire.send(Op.INVALID_SESSION, data=False)

    def drop_connections(self) -> None:
        for wire in list(self._wires):
            wire.abort()

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        wire = GatewayWire(socket, request)
        self._wires.append(wire)
        session: GatewaySession | None = None
        try:
            await wire.send(Op.HELLO, {"heartbeat_interval": HEARTBEAT_MS})
            while (payload := await wire.receive()) is not None:
                op, data = payload
                if op == Op.HEARTBEAT:
                    await wire.send(Op.ACK)
                elif op in (Op.IDENTIFY, Op.RESUME):
                    session = await (self._identify if op == Op.IDENTIFY else self._resume)(wire, data)
        finally:
            self._wires.remove(wire)
            if session is not None:
                session.detach(wire)
            self.changed()
        return socket

    async def _identify(self, wire: GatewayWire, data: dict[str, Any]) -> GatewaySession | None:
        self.identified.append(data)
        if data["token"] != self.token:
            await wire.socket.close(code=4004, message=b"Authentication failed.")
            return None
        if data["intents"] & _MESSAGE_CONTENT and not self.content_intent:
            await wire.socket.close(code=4014, message=b"Disallowed intent(s).")
            return None
        session = GatewaySession(f"session-{self._next_id()}")
        self._sessions[session.session_id] = session
        await session.attach(wire, 0)
        await session.dispatch("READY", self._ready(session.session_id))
        await session.dispatch("GUILD_CREATE", self._guild())
        self.changed()
        return session

    async def _resume(self, wire: GatewayWire, data: dict[str, Any]) -> GatewaySession | None:
        session = self._sessions.get(data["session_id"])
        if session is None or data["token"] != self.token:
            await wire.send(Op.INVALID_SESSION, data=False)
            return None
        self.resumes += 1
        await session.attach(wire, data["seq"] or 0)
        await session.dispatch("RESUMED", {})
        self.changed()
        return session

    def _ready(self, session_id: str) -> dict[str, Any]:
        return {
            "v": 10,
            "user": user_json(BOT_ID),
            "guilds": [{"id": str(GUILD_ID), "unavailable": True}],
            "session_id": session_id,
            "resume_gateway_url": self.gateway_url,
            "application": {"id": str(APPLICATION_ID), "flags": self._flags},
        }

    def _guilds(self) -> list[dict[str, Any]]:
        return [{"id": str(GUILD_ID), "name": "Guild"}] if self.in_server else []

    def _guild(self) -> dict[str, Any]:
        shown = [channel for channel in self.channels.values() if not channel.user]
        return {
            "id": str(GUILD_ID),
            "name": "Guild",
            "owner_id": "1",
            "roles": [_EVERYONE, _BOT_ROLE],
            "members": [],
            "member_count": 1,
            "channels": [channel.as_json() for channel in shown if not channel.parent],
            "threads": [channel.as_json() for channel in shown if channel.parent],
        }
