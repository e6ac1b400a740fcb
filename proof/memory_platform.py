"""A chat platform in memory, with a record of what a user would have seen, and with faults on request.

`ChatView` is one chat: it enforces what the real platforms enforce (message limits, rate limits, streams that expire,
messages that do not exist) and keeps every state that the user was shown. `MemoryPlatform` is a platform of such chats.
No sockets and no clock of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tailrace.delivery import port
from tailrace.delivery.text.split import units
from tailrace.errors import PlatformError
from tailrace.gateway.base import BasePlatform


@dataclass(slots=True)
class SeenMessage:
    """A message as the user sees it."""

    message_id: str
    key: str
    text: str
    thread: str = ""
    markup: bool = True
    buttons: tuple[port.Button, ...] = ()
    cards: dict[str, port.Card] = field(default_factory=dict)
    file: bytes | None = None
    streaming: bool = False
    opened_at: float = 0.0
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class LostReply:
    """The request was `done` or not; either way its reply is lost."""

    done: bool = True


Fault = LostReply | port.AnyReply | None
Screen = tuple[str, ...]


class ChatView:
    """One chat. `overruns` are the requests that exceeded the rate limits; there should be none."""

    def __init__(self, capabilities: port.Capabilities) -> None:
        self.capabilities = capabilities
        self.messages: list[SeenMessage] = []
        self.draft = ""
        self.typing_at: list[float] = []
        self.screens: list[tuple[float, Screen]] = []
        self.requests: list[float] = []
        self.overruns: list[float] = []
        self.lost_threads: set[str] = set()

    @property
    def visible(self) -> list[SeenMessage]:
        return [message for message in self.messages if not message.deleted]

    @property
    def texts(self) -> Screen:
        """What the user sees now, from top to bottom."""
        drafted = (self.draft,) if self.draft else ()
        return (*(message.text for message in self.visible), *drafted)

    def perform(self, place: port.Place, action: port.AnyAction, now: float, fault: Fault = None) -> port.AnyReply:
        """`fault`: a reply that replaces the action, which is not done; or `LostReply`."""
        if not isinstance(action, port.Typing):
            self._count(now)
        if fault is not None and not isinstance(fault, LostReply):
            return fault
        if isinstance(fault, LostReply) and not fault.done:
            return port.Unknown("lost on the way there")
        reply = self._perform(place, action, now)
        if not self.screens or self.screens[-1][1] != self.texts:
            self.screens.append((now, self.texts))
        return port.Unknown("lost on the way back") if isinstance(fault, LostReply) else reply

    def _count(self, now: float) -> None:
        self.requests.append(now)
        for window in self.capabilities.windows:
            recent = self.requests[-window.count - 1 :]
            if len(recent) > window.count and now - recent[0] < window.seconds - 1e-6:
                self.overruns.append(now)

    def _perform(self, place: port.Place, action: port.AnyAction, now: float) -> port.AnyReply:
        match action:
            case port.Send() | port.Open():
                return self._new(place, action, now)
            case port.Upload():
                return self._upload(place, action)
            case port.LookUp(key=key):
                found = [message for message in self.messages if message.key == key]
                return port.Sent(found[-1].message_id) if found else port.NotFound()
            case port.Edit():
                return self._edit(action)
            case port.Append() | port.Close():
                return self._stream(action, now)
            case port.Draft(text=text):
                if self._too_long(text):
                    return port.TooLong()
                self.draft = text
                return port.Accepted()
            case port.Delete(message_id=message_id):
                for message in self.messages:
                    message.deleted = message.deleted or message.message_id == message_id
                return port.Accepted()
            case port.Typing():
                self.typing_at.append(now)
                return port.Accepted()

    def _too_long(self, text: str) -> bool:
        return units(text, self.capabilities.unit) > self.capabilities.limit

    def _find(self, message_id: str) -> SeenMessage | None:
        return next((message for message in self.visible if message.message_id == message_id), None)

    def _new(self, place: port.Place, action: port.Send | port.Open, now: float) -> port.AnyReply:
        if place.thread in self.lost_threads:
            return port.Gone("thread")
        if self._too_long(action.text):
            return port.TooLong()
        if self.capabilities.resend == "idempotent":
            for message in self.messages:
                if message.key == action.key:
                    return port.Sent(message.message_id)
        seen = SeenMessage(f"m{len(self.messages) + 1}", action.key, action.text, place.thread)
        match action:
            case port.Send(markup=markup, buttons=buttons):
                seen.markup, seen.buttons = markup, buttons
            case port.Open(cards=cards):
                seen.streaming, seen.opened_at = True, now
                seen.cards = {card.id: card for card in cards}
        self.messages.append(seen)
        self.draft = ""
        return port.Sent(seen.message_id)

    def _upload(self, place: port.Place, action: port.Upload) -> port.AnyReply:
        if len(action.data) > self.capabilities.max_file_bytes:
            return port.Refused("no files here")
        if self.capabilities.resend == "idempotent":
            for message in self.messages:
                if message.key == action.key:
                    return port.Sent(message.message_id)
        seen = SeenMessage(f"m{len(self.messages) + 1}", action.key, action.name, place.thread, file=action.data)
        self.messages.append(seen)
        self.draft = ""
        return port.Sent(seen.message_id)

    def _edit(self, action: port.Edit) -> port.AnyReply:
        message = self._find(action.message_id)
        if message is None:
            return port.Gone("message")
        if self._too_long(action.text):
            return port.TooLong()
        if (message.text, message.markup, message.buttons) == (action.text, action.markup, action.buttons):
            return port.NotModified()
        message.text, message.markup, message.buttons = action.text, action.markup, action.buttons
        return port.Accepted()

    def _stream(self, action: port.Append | port.Close, now: float) -> port.AnyReply:
        message = self._find(action.message_id)
        if message is None:
            return port.Gone("message")
        life = self.capabilities.stream_lifetime_s
        if life is not None and now > message.opened_at + life:
            message.streaming = False
        if not message.streaming:
            return port.Gone("stream")
        if self._too_long(message.text + action.text):
            return port.TooLong()
        message.text += action.text
        message.cards.update({card.id: card for card in action.cards})
        message.streaming = isinstance(action, port.Append)
        return port.Accepted()


FaultOf = Callable[[port.Place, port.AnyAction], Fault]


class MemoryPlatform(BasePlatform):
    """Chats in memory. `fault` is called before each request; `latency_s` is the time that one takes."""

    def __init__(
        self,
        capabilities: port.Capabilities,
        *,
        name: str = "telegram",
        fault: FaultOf | None = None,
        latency_s: float = 0.0,
    ) -> None:
        self.name = name
        self.chats: dict[str, ChatView] = {}
        self.performed: list[tuple[port.Place, port.AnyAction]] = []
        self.files: dict[str, bytes] = {}
        self.fault = fault
        self.starts = 0
        self.first_message = asyncio.Event()  # set by the first message in any chat
        self._capabilities = capabilities
        self._latency_s = latency_s
        self._inbox: port.Inbox | None = None
        self._here = asyncio.Event()
        self._hang_up = asyncio.Event()

    def capabilities(self, _place: port.Place) -> port.Capabilities:
        return self._capabilities

    def chat(self, chat: str) -> ChatView:
        return self.chats.setdefault(chat, ChatView(self._capabilities))

    async def perform(self, place: port.Place, action: port.AnyAction) -> port.AnyReply:
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        self.performed.append((place, action))
        fault = self.fault(place, action) if self.fault is not None else None
        reply = self.chat(place.chat).perform(place, action, asyncio.get_running_loop().time(), fault)
        if self.chat(place.chat).messages:
            self.first_message.set()
        return reply

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:
        data = self.files.get(attachment.ref)
        if data is None or len(data) > max_bytes:
            raise PlatformError(f"cannot fetch {attachment.name}", platform=self.name)
        return data

    async def run(self, inbox: port.Inbox) -> None:
        self.starts += 1
        self._inbox = inbox
        inbox.connected()
        self._here.set()
        try:
            await self._hang_up.wait()
        finally:
            self._here.clear()
            self._hang_up.clear()
        raise PlatformError("the connection was cut", platform=self.name)

    def cut_connection(self) -> None:
        self._hang_up.set()

    async def receive(self, updates: Sequence[port.Update] | port.Update) -> None:
        """Users' updates arrive, in order."""
        await self._here.wait()
        if self._inbox is None:
            raise PlatformError("not connected", platform=self.name)
        for update in updates if isinstance(updates, Sequence) else [updates]:
            await self._inbox.put(update)
