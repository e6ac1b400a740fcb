"""Home Assistant's web socket API on a loopback port: notifications as its users see them, events as they fire them.

    async with FakeHomeAssistant() as home:
        await home.fire("tailrace_message", {"text": "hello"}, user="ada")
        await home.until(lambda: home.notifications)

The adapter's `url` is `home.url`, its token `home.token`.

As the real one (2025.4), it answers commands before it is running: after `restart` the state is `NOT_RUNNING`, and
`RUNNING` once it has started. An event that is fired before that reaches no automation (`unheard`), and a sentence
trigger that is set up before that never fires, though both are answered with success. The context of a sentence, which
says who spoke, is in `user_input`; the trigger's own is null. With `ban_after`, an address is banned after so many
refused tokens.
"""

# ruff: noqa: S105 - the token opens nothing but the fake

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, Literal

import msgspec
from aiohttp import WSMsgType, web

from tailrace.testing.platforms.loopback import LoopbackFake, RecordedCall

VERSION = "2026.10.0"


class Shown(msgspec.Struct, frozen=True):
    """What a notification showed, from `at` on."""

    title: str
    message: str
    at: float


class Notification(msgspec.Struct):
    """`states` are all that it ever showed, in order; the last is what it shows."""

    id: str
    states: list[Shown]
    dismissed: bool = False

    @property
    def message(self) -> str:
        return self.states[-1].message


class Fired(msgspec.Struct, frozen=True):
    """An event that the other side fired."""

    type: str
    data: dict[str, Any]


Loss = Literal["before", "after", "silence"]
CoreState = Literal["NOT_RUNNING", "STARTING", "RUNNING"]
START_S = 10.0  # from the open port to the running state


class FakeHomeAssistant(LoopbackFake):
    """The server, what it shows, and the hands of those who live there."""

    token = "a-token-for-tests"

    def __init__(self, *, port: int = 0, ban_after: int | None = None) -> None:
        super().__init__(port=port)
        self.state: CoreState = "RUNNING"
        self.unheard: list[Fired] = []
        self.refused_tokens = 0
        self._ban_after = ban_after
        self._starting: asyncio.TimerHandle | None = None
        self.notifications: dict[str, Notification] = {}
        self.fired: list[Fired] = []
        self.connections = 0  # ever authenticated
        self._open: dict[web.WebSocketResponse, dict[int, str]] = {}  # subscriptions: number → what to
        self._losses: list[Loss] = []
        self._errors: dict[str, list[tuple[str, str]]] = {}
        self._counter = count(1)

    @property
    def messages(self) -> list[str]:
        """What is on the screen."""
        return [shown.message for shown in self.notifications.values() if not shown.dismissed]

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def lose(self, *losses: Loss) -> None:
        """The next service calls meet these: the connection is cut before or after it is carried out, or it is carried
        out and never answered (G80)."""
        self._losses += losses

    def refuse(self, kind: str, code: str, message: str) -> None:
        """The next command of this type gets this error."""
        self._errors.setdefault(kind, []).append((code, message))

    async def fire(
        self, event_type: str, data: dict[str, Any], *, user: str | None = None, context: str | None = None
    ) -> None:
        """A person fires an event; `user` is who that is to Home Assistant."""
        number = next(self._counter)
        event = {
            "event_type": event_type,
            "data": data,
            "origin": "LOCAL",
            "time_fired": f"2026-11-15T05:00:00.{number:06}+00:00",
            "context": {"id": context or f"context-{number}", "parent_id": None, "user_id": user},
        }
        await self._deliver(event_type, event)

    async def restart(self, *, start_s: float | None = START_S) -> None:
        """Every connection ends; the port stays open, and it takes `start_s` until the state is `RUNNING` (None: until
        `start`). Notifications do not outlive the process, as in the real one."""
        self.state = "NOT_RUNNING"
        self.notifications.clear()
        for socket in list(self._open):
            await socket.close()
        await self.until(lambda: not self._open)
        if start_s is not None:
            loop = asyncio.get_running_loop()
            self._starting = loop.call_later(start_s, lambda: loop.create_task(self.start()))

    async def start(self) -> None:
        """It is running from now on."""
        self.state = "RUNNING"
        self.changed()
        await self.fire("homeassistant_started", {})

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        for socket in list(self._open):
            await socket.close()
        await super().close()

    async def _deliver(self, what: str, event: dict[str, Any]) -> None:
        for socket, subscriptions in list(self._open.items()):
            for number, subscribed in subscriptions.items():
                if subscribed in (what, "*"):
                    await socket.send_json({"id": number, "type": "event", "event": event})

    # ── the API ──────────────────────────────────────────────────────────────────────────────────────────────

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/websocket", self._serve)]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self._ban_after is not None and self.refused_tokens >= self._ban_after:
            return web.Response(status=403)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "auth_required", "ha_version": VERSION})
        offered = await socket.receive_json()
        if offered != {"type": "auth", "access_token": self.token}:
            self.refused_tokens += 1
            self.changed()
            await socket.send_json({"type": "auth_invalid", "message": "Invalid access token or password"})
            await socket.close()
            return socket
        await socket.send_json({"type": "auth_ok", "ha_version": VERSION})
        self._open[socket] = {}
        self.connections += 1
        self.changed()
        try:
            await self._answer_commands(socket)
        finally:
            del self._open[socket]
            self.changed()
        return socket

    async def _answer_commands(self, socket: web.WebSocketResponse) -> None:
        last = 0
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                return
            command = msgspec.json.decode(frame.data)
            self.calls.append(RecordedCall(command["type"], command, self.now()))
            if command["id"] <= last:
                await self._refuse(socket, command, "id_reuse", "Identifier values have to increase.")
                continue
            last = command["id"]
            if not await self._answer_command(socket, command):
                return

    async def _answer_command(self, socket: web.WebSocketResponse, command: dict[str, Any]) -> bool:
        """Whether the connection goes on."""
        kind = command["type"]
        if errors := self._errors.get(kind):
            await self._refuse(socket, command, *errors.pop(0))
            return True
        loss = self._losses.pop(0) if kind == "call_service" and self._losses else None
        if loss == "before":
            await socket.close()
            return False
        refused = self._carry_out(socket, command)
        result = {"state": self.state, "version": VERSION} if kind == "get_config" else None
        self.changed()
        if loss == "after":
            await socket.close()
            return False
        if refused:
            await self._refuse(socket, command, *refused)
        elif loss is None:
            kind = "pong" if kind == "ping" else "result"
            await socket.send_json({"id": command["id"], "type": kind, "success": True, "result": result})
        return True

    def _carry_out(self, socket: web.WebSocketResponse, command: dict[str, Any]) -> tuple[str, str] | None:
        """Code and message of the refusal, None where it was done."""
        match command:
            case {"type": "subscribe_events"}:
                self._open[socket][command["id"]] = command.get("event_type", "*")
            case {"type": "fire_event"}:
                heard = self.fired if self.state == "RUNNING" else self.unheard
                heard.append(Fired(command["event_type"], command.get("event_data", {})))
            case {"type": "call_service", "domain": "persistent_notification", "service": "create"}:
                self._create(command["service_data"])
            case {"type": "call_service", "domain": "persistent_notification", "service": "dismiss"}:
                shown = self.notifications.get(command["service_data"]["notification_id"])
                if shown is not None:
                    shown.dismissed = True
            case {"type": "call_service"}:
                return "not_found", "Service not found."
            case {"type": "ping" | "get_config"}:
                return None
            case _:
                return "unknown_command", "Unknown command."
        return None

    def _create(self, data: dict[str, Any]) -> None:
        state = Shown(data.get("title", ""), data["message"], self.now())
        shown = self.notifications.setdefault(data["notification_id"], Notification(data["notification_id"], []))
        shown.states.append(state)
        shown.dismissed = False

    @staticmethod
    async def _refuse(socket: web.WebSocketResponse, command: dict[str, Any], code: str, message: str) -> None:
        error = {"code": code, "message": message}
        await socket.send_json({"id": command["id"], "type": "result", "success": False, "error": error})
