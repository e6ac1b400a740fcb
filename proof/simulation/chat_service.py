"""The chat platform of a simulated world: the service, which outlives every process, and the adapter of one process.

The service shows what its users see, and knows what was done about each request. A reply may be lost on the way, with
the request done or not, and a process may die between the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from proof.simulation.loop import PROCESS, SimulatedLoop
from proof.simulation.world import ChatFault, World
from tailrace.delivery import port
from tailrace.delivery.port import AnyAction, AnyReply, Capabilities, Inbox, MessageReceived, Place, Sender, Update
from tailrace.errors import PlatformError, TailraceError

NAME = "telegram"  # the config knows the platform by it
LATENCY_S = 0.05
LOST_AFTER_S = 2.0
PRESSED_AFTER_S = 0.6
USER = Sender("ann")


class SimulatedBug(Exception):
    """An adapter that breaks its contract."""


class ShownMessage(msgspec.Struct):
    """A message as the chat shows it now."""

    chat: str
    key: str
    text: str
    final: bool
    purpose: str = "answer"


class ChatService:
    """The platform's side. `acknowledged` are the updates that a process has taken."""

    def __init__(self, loop: SimulatedLoop, world: World, trace: Callable[[str], None]) -> None:
        self._loop = loop
        self._world = world
        self._trace = trace
        self._faults = list(world.chat_faults)
        self._arrived = asyncio.Event()
        self.updates: list[Update] = []
        self.acknowledged: list[str] = []
        self.messages: dict[str, ShownMessage] = {}
        self.requests = 0
        self.faults_met: list[ChatFault] = []
        self.in_doubt = 0  # requests whose reply was lost, or whose process has died
        self.lost_finals: list[str] = []  # the texts of final messages that were not shown, and whose reply was lost
        self._decided: set[str] = set()
        self._numbers = 0
        self._keys: dict[str, str] = {}

    # ── users ──

    def post(self, update: Update) -> None:
        self.updates.append(update)
        self._arrived.set()

    def say(self, chat: str, number: int, text: str) -> None:
        place = Place(NAME, chat)
        self.post(MessageReceived(update_id=f"u{number}", place=place, sender=USER, text=text, message_id=f"m{number}"))

    def press(self, chat: str, value: str) -> None:
        place = Place(NAME, chat)
        self.post(port.ButtonPressed(update_id=f"b{len(self.updates)}", place=place, sender=USER, value=value))

    async def next_updates(self) -> list[Update]:
        while not (open_ones := [one for one in self.updates if one.update_id not in self.acknowledged]):
            self._arrived.clear()
            await self._arrived.wait()
        return open_ones

    # ── requests ──

    def next_fault(self, action: AnyAction) -> ChatFault:
        self.requests += 1
        if isinstance(action, port.Typing):
            return "ok"
        fault = self._faults.pop(0) if self._faults else "ok"
        self.faults_met.append(fault)
        return fault

    def receive(self, place: Place, action: AnyAction, fault: ChatFault, answer: asyncio.Future[AnyReply]) -> None:
        """A request has arrived."""
        done = fault not in ("lost", "failed", "flood", "markup")
        if isinstance(action, port.Edit) and fault == "gone":
            self.messages.pop(action.message_id, None)
        reply = self._perform(place, action) if done else self._refusal(action, fault)
        self._trace(f"chat {type(action).__name__} {fault} -> {type(reply).__name__}")
        is_lost = fault in ("lost", "lost-done", "raises")
        if is_lost or (answer.cancelled() and done):
            self.in_doubt += 1
        if fault == "lost" and isinstance(action, port.Send) and action.final:
            self.lost_finals.append(action.text)
        wait_s = LOST_AFTER_S if is_lost or fault == "slow" else LATENCY_S
        self._loop.call_later(wait_s, _settle, answer, port.Unknown("no reply") if is_lost else reply, fault)

    def _refusal(self, action: AnyAction, fault: ChatFault) -> AnyReply:
        if fault == "flood":
            return port.Flood(1.5)
        if fault == "markup" and getattr(action, "markup", False):
            return port.MarkupRejected()
        return port.Failed("simulated")

    def _perform(self, place: Place, action: AnyAction) -> AnyReply:
        match action:
            case port.Send(key=key, text=text, final=final, buttons=buttons, purpose=purpose):
                if self._world.resend == "idempotent" and key in self._keys:
                    return port.Sent(self._keys[key])
                message_id = self._new(ShownMessage(place.chat, key, text, final, purpose))
                self._answer_question(place.chat, text, buttons)
                return port.Sent(message_id)
            case port.LookUp(key=key):
                return port.Sent(self._keys[key]) if key in self._keys else port.NotFound()
            case port.Edit(message_id=message_id, text=text, final=final, buttons=buttons):
                if (message := self.messages.get(message_id)) is None:
                    return port.Gone("message")
                same = message.text == text and message.final == final
                message.text, message.final = text, final
                self._answer_question(place.chat, text, buttons)
                return port.NotModified() if same else port.Accepted()
            case port.Open(key=key, text=text):
                return port.Sent(self._new(ShownMessage(place.chat, key, text, final=False)))
            case port.Append(message_id=message_id, text=text) | port.Close(message_id=message_id, text=text):
                if (message := self.messages.get(message_id)) is None or message.final:
                    return port.Gone("stream")
                message.text += text
                message.final = isinstance(action, port.Close)
                return port.Accepted()
            case port.Delete(message_id=message_id):
                self.messages.pop(message_id, None)
                return port.Accepted()
            case port.Upload():
                return port.Refused("no files here")
            case _:
                return port.Accepted()

    def _new(self, message: ShownMessage) -> str:
        self._numbers += 1
        message_id = f"s{self._numbers}"
        self.messages[message_id] = message
        self._keys[message.key] = message_id
        return message_id

    def _answer_question(self, chat: str, text: str, buttons: tuple[port.Button, ...]) -> None:
        """The person presses a button, once for each question."""
        asked = {button.value.rpartition(":")[0] for button in buttons} - self._decided
        for approval in sorted(asked):
            self._decided.add(approval)
            # A long question is split, and its buttons are below the last part.
            before = [message.text for message in self.messages.values() if message.chat == chat]
            decision = self._world.decision(" ".join([*before, text]))
            if decision != "never":
                self._loop.call_later(PRESSED_AFTER_S, self.press, chat, f"{approval}:{decision}")


def _settle(answer: asyncio.Future[AnyReply], reply: AnyReply, fault: ChatFault) -> None:
    if answer.done():
        return
    if fault == "raises":
        answer.set_exception(SimulatedBug("in the adapter"))
    else:
        answer.set_result(reply)


class SimulatedPlatform:
    """Satisfies `delivery.port.Platform` in one process."""

    name = NAME
    hook_path = ""
    stops_when_refused = False

    def __init__(self, service: ChatService, loop: SimulatedLoop, world: World) -> None:
        self._service = service
        self._loop = loop
        self._capabilities = Capabilities(
            mode=world.mode,
            limit=world.limit,
            edits=world.mode != "whole",
            deletes=True,
            buttons=True,
            resend=world.resend,
            typing_s=5.0,
        )

    def capabilities(self, _place: Place) -> Capabilities:
        return self._capabilities

    async def perform(self, place: Place, action: AnyAction) -> AnyReply:
        fault = self._service.next_fault(action)
        answer: asyncio.Future[AnyReply] = self._loop.create_future()
        receive = partial(self._service.receive, place, action, fault, answer)
        self._loop.call_later(LATENCY_S, receive, context=self._loop.outside)
        return await answer

    async def quoted(self, _message: MessageReceived, *, in_conversation: bool) -> tuple[port.Quoted, ...]:  # noqa: ARG002
        return ()

    async def run(self, inbox: Inbox) -> None:
        inbox.connected()
        while True:
            for update in await self._service.next_updates():
                await asyncio.sleep(LATENCY_S)
                try:
                    await inbox.put(update)
                except PlatformError:
                    raise
                except TailraceError as exc:
                    raise PlatformError(str(exc), platform=NAME) from exc
                process = PROCESS.get()
                self._service._trace(f"acknowledged {update.update_id} by {process.name if process else ''}")
                self._service.acknowledged.append(update.update_id)

    async def display_name(self, sender: port.Sender) -> str:
        return sender.name

    async def fetch(self, attachment: port.Attachment, *, max_bytes: int) -> bytes:
        raise PlatformError(f"{attachment.ref} is not here ({max_bytes})", platform=NAME)

    async def hook(self, _request: port.HookRequest, _inbox: Inbox) -> port.HookAnswer:
        return port.HookAnswer(404)

    async def check(self) -> str:
        return "simulated"

    async def close(self) -> None:
        """It has no connection."""
