"""Home Assistant: questions come as events; answers go out as notifications and events.

- In: the event `tailrace_message` with `{text, user?, conversation_id?}`, fired by an automation or a script.
- Out: `persistent_notification.create`, where the same id replaces what was shown, and an event with `{text, plain,
  conversation_id, message_id}`: `tailrace_response` for answers, which automations speak or send on, and
  `tailrace_notice` with a `kind` for what is not to be spoken (tools, notices, approvals, pairing codes).

Each text comes whole. A Home Assistant that is still starting accepts every command, but its automations hear no event,
so nothing is subscribed to or sent before it runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.errors import ConfigError, PlatformError
from tailrace.gateway.base import ANSWER_S, BasePlatform
from tailrace.gateway.connection_errors import first_error
from tailrace.integrations.homeassistant import HomeAssistantSettings
from tailrace.integrations.homeassistant.inbound import MESSAGE_EVENT, parse_message_event
from tailrace.integrations.homeassistant.outbound import notification_text, spoken_text, title_of
from tailrace.integrations.homeassistant.socket import ConnectionLost, Socket, SocketMessage, connected, shown_url
from tailrace.values.validation_words import decoding_problem

log = logging.getLogger("tailrace.integrations.homeassistant")

RESPONSE_EVENT = "tailrace_response"
NOTICE_EVENT = "tailrace_notice"
STARTED_EVENT = "homeassistant_started"  # fired when the state becomes `RUNNING`
RUNNING = "RUNNING"
MAX_TOLD = 1024  # notifications whose event is remembered
# Events above 32 KiB are not recorded; text and plain text together stay below it. Notifications can be replaced and
# dismissed, and the key of a message names its notification: a second attempt shows the same one.
CAPABILITIES = port.Capabilities(
    limit=14_000, unit="bytes", edits=True, deletes=True, resend="idempotent", windows=(port.Window(5, 1.0),)
)
_PASSING = frozenset({"home_assistant_error", "timeout", "unknown_error"})
EventReader: TypeAlias = Callable[[msgspec.Raw], port.MessageReceived | None]


class _Config(msgspec.Struct):
    state: str = RUNNING


class HomeAssistantPlatform(BasePlatform):
    """One Home Assistant."""

    name = "homeassistant"
    same_everywhere = CAPABILITIES
    stops_when_refused = True  # with `ip_ban_enabled` the host bans an address after a few refused tokens

    def __init__(self, url: str, token: str, *, answer_s: float = ANSWER_S) -> None:
        self._url, self._token, self._answer_s = url, token, answer_s
        self._socket: Socket | None = None
        self._told: OrderedDict[str, str] = OrderedDict()  # by notification: the text whose event was fired last

    # ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        try:
            async with asyncio.timeout(self._answer_s):
                if self._socket is None:
                    return port.Failed("not connected")
                return await self._perform(self._socket, place, action)
        except ConnectionLost as exc:
            return port.Unknown(str(exc))
        except TimeoutError:
            return port.Unknown("no answer in time")

    async def _perform(self, socket: Socket, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        match action:
            case port.Send():
                shown = f"tailrace_{hashlib.sha256(action.key.encode()).hexdigest()[:24]}"
                return await self._show(socket, place, shown, action) or port.Sent(shown)
            case port.Edit():
                return await self._show(socket, place, action.message_id, action) or port.Accepted()
            case port.Delete():
                dismissed = await _call(socket, "dismiss", {"notification_id": action.message_id})
                return _refusal(dismissed) or port.Accepted()
            case _:
                return port.Refused(f"Home Assistant has no {type(action).__name__}")

    async def _show(
        self, socket: Socket, place: port.Place, shown: str, action: port.Send | port.Edit
    ) -> port.AnyReply | None:
        """Shows the notification and tells of it. What was refused, or None where it was done."""
        text = notification_text(place, action)
        created = await _call(socket, "create", {"notification_id": shown, "title": title_of(place), "message": text})
        if refused := _refusal(created):
            return refused
        if action.final:
            await self._tell(socket, place, shown, action)
        return None

    async def _tell(self, socket: Socket, place: port.Place, shown: str, action: port.Send | port.Edit) -> None:
        """Fires the event of a notification, once for the same text: a notification whose reply was lost is created
        again, and an event that was spoken is not to be spoken twice."""
        if self._told.get(shown) == action.text:
            return
        said = spoken_text(action.text) if action.markup else action.text
        told = {"text": action.text, "plain": said, "conversation_id": place.chat, "message_id": shown}
        event = RESPONSE_EVENT
        if action.purpose != "answer":
            event, told = NOTICE_EVENT, told | {"kind": action.purpose}
        number = await socket.write("fire_event", {"event_type": event, "event_data": told})
        self._told[shown] = action.text  # not before: what was never written is told with the next try
        self._told.move_to_end(shown)
        if len(self._told) > MAX_TOLD:
            self._told.popitem(last=False)
        fired = await socket.result(number)
        if not fired.success:  # the notification is there, and that is the answer
            log.warning("%s could not be fired: %s", event, fired.error.message)

    # ── inwards ──────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, inbox: port.Inbox) -> None:
        try:
            async with connected(self._url, self._token) as socket:
                await self._listen(socket, inbox)
        except ExceptionGroup as group:
            raise first_error(group) from group
        finally:
            self._socket = None

    async def _listen(self, socket: Socket, inbox: port.Inbox) -> None:
        """Reads the socket until it is lost. Another task puts the updates: the inbox may wait for a command, and only
        this reader sees its result. Events from before the loss are still put, since Home Assistant sends them once."""
        arrived: asyncio.Queue[SocketMessage | None] = asyncio.Queue()
        readers: dict[int, EventReader] = {}
        async with asyncio.TaskGroup() as tasks, aclosing(socket.events()) as events:
            tasks.create_task(self._subscribe(socket, readers, inbox))
            tasks.create_task(self._put_updates(arrived, readers, inbox))
            try:
                async for event in events:
                    arrived.put_nowait(event)
            except PlatformError as exc:
                lost = exc
            self._socket = None
            arrived.put_nowait(None)
        raise lost

    async def _put_updates(
        self, arrived: asyncio.Queue[SocketMessage | None], readers: Mapping[int, EventReader], inbox: port.Inbox
    ) -> None:
        while (event := await arrived.get()) is not None:
            if (read := readers.get(event.id)) is None:
                continue
            try:
                update = read(event.event)
            except msgspec.DecodeError as exc:
                log.warning("an event %s was not understood: %s", MESSAGE_EVENT, decoding_problem(exc))
                continue
            if update is not None:
                await inbox.put(update)

    async def _subscribe(self, socket: Socket, readers: dict[int, EventReader], inbox: port.Inbox) -> None:
        try:
            await self._until_running(socket, readers)
            messages = await socket.write("subscribe_events", {"event_type": MESSAGE_EVENT})
            readers[messages] = parse_message_event
            self._check_subscribed(MESSAGE_EVENT, await socket.result(messages))
            self._socket = socket
            inbox.connected()
        except ConnectionLost:
            return  # the reader of the socket raises it

    async def _until_running(self, socket: Socket, readers: dict[int, EventReader]) -> None:
        """Returns when Home Assistant has started. The event is subscribed to first, so that it cannot be missed."""
        started = asyncio.Event()
        number = await socket.write("subscribe_events", {"event_type": STARTED_EVENT})
        readers[number] = lambda _: started.set()
        self._check_subscribed(STARTED_EVENT, await socket.result(number))
        if (state := await _state_of(socket)) != RUNNING:
            log.info("Home Assistant is %s; waiting until it is running", state)
            await started.wait()

    def _check_subscribed(self, event: str, answer: SocketMessage) -> None:
        if answer.success:
            return
        if answer.error.code == "unauthorized":
            reason = "the token is not an administrator's, and only they may listen to events"
            raise PlatformError(reason, platform=self.name, permanent=True)
        raise PlatformError(f"{event} cannot be subscribed to: {answer.error.message}", platform=self.name)

    async def check(self) -> str:
        async with connected(self._url, self._token) as socket:
            subscribed = await socket.lone_command("subscribe_events", {"event_type": MESSAGE_EVENT})
            self._check_subscribed(MESSAGE_EVENT, subscribed)
            return f"connected to {shown_url(self._url)}"


async def _state_of(socket: Socket) -> str:
    answer = await socket.command("get_config", {})
    return msgspec.json.decode(answer.result, type=_Config).state if answer.success else RUNNING


async def _call(socket: Socket, service: str, data: dict[str, Any]) -> SocketMessage:
    called = {"domain": "persistent_notification", "service": service, "service_data": data}
    return await socket.command("call_service", called)


def _refusal(result: SocketMessage) -> port.AnyReply | None:
    """None where it was done. An error of Home Assistant's own is certain."""
    if result.success:
        return None
    reason = f"{result.error.message} ({result.error.code})"
    return port.Failed(reason) if result.error.code in _PASSING else port.Refused(reason)


def make(config: Config) -> HomeAssistantPlatform:
    """The Home Assistant of this config. Raises `ConfigError`."""
    settings = config.platforms.get("homeassistant", HomeAssistantSettings)
    if settings is None or settings.url is None:
        raise ConfigError("is missing", key="platforms.homeassistant.url")
    token = config.require_secret(settings.token_env, "platforms.homeassistant.token_env")
    return HomeAssistantPlatform(settings.url, token)
