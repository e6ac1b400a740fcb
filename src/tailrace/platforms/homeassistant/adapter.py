"""Home Assistant: questions come as events, or as sentences said to Assist; answers go out as notifications and events.

- In: the event `tailrace_message` with `{text, user?, conversation_id?}`, fired by an automation, a script or a
  dashboard; and the sentences said to Assist that begin with "ask tailrace".
- Out: `persistent_notification.create`, where the same id replaces what was shown, and the event `tailrace_response`
  with `{text, plain, conversation_id, message_id}`, for automations that speak it or send it on.

A notification that changed with every token would be no use: the answer comes whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from tailrace.config.load import Config
from tailrace.delivery import port
from tailrace.delivery.text.markup import plain_text
from tailrace.errors import ConfigError, PlatformError
from tailrace.platforms.homeassistant.socket import ConnectionLost, Socket, SocketMessage, connected
from tailrace.platforms.runtime.base import ANSWER_S, BasePlatform
from tailrace.platforms.runtime.connection_errors import first_error

log = logging.getLogger("tailrace.platforms.homeassistant")

MESSAGE_EVENT = "tailrace_message"
RESPONSE_EVENT = "tailrace_response"
SENTENCES = ["ask tailrace {question}", "tailrace {question}"]  # as Assist's sentence triggers have them
DEFAULT_CHAT = "home"
TITLE = "Tailrace"
# Events above 32 KiB are not recorded; text and plain text together stay below it. Notifications can be replaced and
# dismissed, and the key of a message names its notification: a second attempt shows the same one.
CAPABILITIES = port.Capabilities(
    limit=14_000, unit="bytes", edits=True, deletes=True, resend="idempotent", windows=(port.Window(5, 1.0),)
)
_PASSING = frozenset({"home_assistant_error", "timeout", "unknown_error"})
EventReader = Callable[[msgspec.Raw], port.MessageReceived]
_MARKS = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~])")


class _Data(msgspec.Struct):
    text: str
    user: str = ""
    conversation_id: str | None = None


class _Context(msgspec.Struct):
    id: str = ""
    user_id: str | None = None


class _MessageEvent(msgspec.Struct):
    """An event of ours."""

    data: _Data
    time_fired: str = ""
    context: _Context = msgspec.field(default_factory=_Context)


class _Input(msgspec.Struct):
    conversation_id: str | None = None


class _Sentence(msgspec.Struct):
    slots: dict[str, Any] = {}
    user_input: _Input = msgspec.field(default_factory=_Input)


class _Variables(msgspec.Struct):
    trigger: _Sentence


class _SentenceEvent(msgspec.Struct):
    """A sentence that Assist has heard."""

    variables: _Variables
    context: _Context | None = None


class HomeAssistantPlatform(BasePlatform):
    """One Home Assistant."""

    name = "homeassistant"
    same_everywhere = CAPABILITIES

    def __init__(self, url: str, token: str, *, answer_s: float = ANSWER_S) -> None:
        self._url, self._token, self._answer_s = url, token, answer_s
        self._socket: Socket | None = None

    # ── outwards ─────────────────────────────────────────────────────────────────────────────────────────────

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        if (socket := self._socket) is None:
            return port.Failed("not connected")
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._perform(socket, place, action)
        except (ConnectionLost, TimeoutError) as exc:
            return port.Unknown(str(exc) or "no answer in time")

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
        text = action.text if action.markup else _MARKS.sub(r"\\\1", action.text)
        created = await _call(socket, "create", {"notification_id": shown, "title": TITLE, "message": text})
        if refused := _refusal(created):
            return refused
        if action.final:
            said = plain_text(action.text) if action.markup else action.text
            told = {"text": action.text, "plain": said, "conversation_id": place.chat, "message_id": shown}
            fired = await socket.command("fire_event", {"event_type": RESPONSE_EVENT, "event_data": told})
            if not fired.success:  # the notification is there, and that is the answer
                log.warning("%s could not be fired: %s", RESPONSE_EVENT, fired.error.message)
        return None

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
            tasks.create_task(_put_updates(arrived, readers, inbox))
            try:
                async for event in events:
                    arrived.put_nowait(event)
            except PlatformError as exc:
                lost = exc
            self._socket = None
            arrived.put_nowait(None)
        raise lost

    async def _subscribe(self, socket: Socket, readers: dict[int, EventReader], inbox: port.Inbox) -> None:
        trigger = {"platform": "conversation", "command": SENTENCES}
        try:
            messages = await socket.write("subscribe_events", {"event_type": MESSAGE_EVENT})
            sentences = await socket.write("subscribe_trigger", {"trigger": trigger})
            readers |= {messages: _parse_message_event, sentences: _parse_sentence_event}
            subscribed = await socket.result(messages)
            if not subscribed.success:
                error = subscribed.error
                reason = f"{MESSAGE_EVENT} cannot be subscribed to: {error.message}; is the token an admin's?"
                raise PlatformError(reason, platform=self.name, permanent=error.code == "unauthorized")
            self._socket = socket
            inbox.connected()
            if not (heard := await socket.result(sentences)).success:
                log.info("Assist does not pass sentences on: %s", heard.error.message)
        except ConnectionLost:
            return  # the reader of the socket raises it

    async def check(self) -> str:
        async with connected(self._url, self._token):
            return f"connected to {self._url}"


async def _call(socket: Socket, service: str, data: dict[str, Any]) -> SocketMessage:
    called = {"domain": "persistent_notification", "service": service, "service_data": data}
    return await socket.command("call_service", called)


def _refusal(result: SocketMessage) -> port.AnyReply | None:
    """None where it was done. An error of Home Assistant's own is certain."""
    if result.success:
        return None
    reason = f"{result.error.message} ({result.error.code})"
    return port.Failed(reason) if result.error.code in _PASSING else port.Refused(reason)


async def _put_updates(
    arrived: asyncio.Queue[SocketMessage | None],
    readers: Mapping[int, EventReader],
    inbox: port.Inbox,
) -> None:
    while (event := await arrived.get()) is not None:
        if (read := readers.get(event.id)) is None:
            continue
        try:
            update = read(event.event)
        except msgspec.DecodeError as exc:
            log.warning("an event was not understood: %s", exc)
            continue
        await inbox.put(update)


def _parse_message_event(content: msgspec.Raw) -> port.MessageReceived:
    """Without a `user` in the data, the sender is the user of Home Assistant who fired the event."""
    fired = msgspec.json.decode(content, type=_MessageEvent)
    sender = fired.data.user or fired.context.user_id or ""
    update_id = f"{fired.context.id}:{fired.time_fired}"  # one context may fire several events
    return _received(update_id, fired.data.text, sender, fired.data.conversation_id)


def _parse_sentence_event(content: msgspec.Raw) -> port.MessageReceived:
    heard = msgspec.json.decode(content, type=_SentenceEvent)
    sentence, context = heard.variables.trigger, heard.context or _Context()
    update_id = context.id or secrets.token_hex(16)  # nothing is ever delivered twice
    question = str(sentence.slots.get("question", ""))
    return _received(update_id, question, context.user_id or "", sentence.user_input.conversation_id)


def _received(update_id: str, text: str, sender: str, conversation: str | None) -> port.MessageReceived:
    place = port.Place("homeassistant", conversation or sender or DEFAULT_CHAT)
    return port.MessageReceived(update_id, place, port.Sender(sender or DEFAULT_CHAT), text, message_id=update_id)


def make(config: Config) -> HomeAssistantPlatform:
    """The Home Assistant of this config. Raises `ConfigError`."""
    settings = config.platforms.homeassistant
    if settings is None or settings.url is None:
        raise ConfigError("is missing", key="platforms.homeassistant.url")
    token = config.require_secret(settings.token_env, "platforms.homeassistant.token_env")
    return HomeAssistantPlatform(settings.url, token)
