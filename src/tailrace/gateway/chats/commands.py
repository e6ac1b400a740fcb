"""The commands of a chat: `/new`, `/stop`, `/model` and the others, carried out and confirmed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from tailrace.agent.turn_spec import Busy
from tailrace.app import App
from tailrace.app.models import named, unaliased
from tailrace.app.slash_commands import CHAT_HELP, SLASH_ANSWERS, ChatCommand, switched
from tailrace.delivery.planning.presenter import DECISIONS, code_span
from tailrace.delivery.port import MessageReceived, Place, Sender, StopPressed
from tailrace.errors import TailraceError
from tailrace.gateway.chats.chat_words import (
    NO_CONVERSATIONS,
    STOPPED,
    ended_by_leaving,
    missed,
    model_name,
    unanswered,
)
from tailrace.gateway.chats.place_runs import PlaceRuns
from tailrace.gateway.chats.place_sessions import PlaceSessions
from tailrace.gateway.deliveries import Deliveries
from tailrace.gateway.inbound.speaker_names import SpeakerNames


class AskAgent(Protocol):
    async def __call__(self, message: MessageReceived, busy: Busy | None = None, /) -> None:
        """Answers the message as a question. `busy`: instead of what the config says."""


class ChatCommands:
    def __init__(
        self,
        app: App,
        deliveries: Deliveries,
        sessions: PlaceSessions,
        runs: PlaceRuns,
        names: SpeakerNames,
        ask: AskAgent,
    ) -> None:
        self._app = app
        self._deliveries = deliveries
        self._sessions = sessions
        self._runs = runs
        self._names = names
        self._ask = ask
        # Each returns what is said then; empty: it has said it, or nothing is to be said.
        self._handlers: dict[str, Callable[[MessageReceived, str], Awaitable[str]]] = {
            "approve": self._approve,
            "deny": self._deny,
            "new": self._begin,
            "stop": self._stop,
            "steer": partial(self._say_meanwhile, "steer"),
            "queue": partial(self._say_meanwhile, "queue"),
            "model": self._model,
            "verbose": self._switch_verbose,
            "yolo": self._switch_yolo,
            "status": self._status,
            "help": self._help,
            "start": self._help,
        }

    async def carry_out(self, message: MessageReceived, command: ChatCommand) -> None:
        place, sender, key = message.place, message.sender, message.update_id
        if await self._was_for_its_moment(message, command):
            self._deliveries.say(place, missed(command.name), key, only_for=sender)
            return
        before = await self._sessions.switches(place)
        if (answer := SLASH_ANSWERS.get(command.name)) is not None:
            said = await answer(self._app, await self._sessions.session_of(place), command.argument)
            text = f"```\n{said}\n```"  # its columns stand below each other
        else:
            text = await self._handlers[command.name](message, command.argument)
        if text:
            is_for_all = await self._sessions.switches(place) != before
            self._deliveries.say(place, text, key, only_for=None if is_for_all else sender)

    async def _was_for_its_moment(self, message: MessageReceived, command: ChatCommand) -> bool:
        """Whether a command that was typed while no process ran may mean something else by now. An answer means the
        question that was open when it was typed, not one that was asked later."""
        if message.late_s is None:
            return False
        if command.name not in ("approve", "deny"):
            return not command.row.works_late
        asked = await self._runs.open_approval(message.place, message.sender)
        typed_at = time.time() - message.late_s if message.late_s else 0.0
        return asked is not None and not 0.0 < asked.asked_at <= typed_at

    async def _approve(self, message: MessageReceived, scope: str) -> str:
        return await self._answer(message, scope or "once")

    async def _deny(self, message: MessageReceived, reason: str) -> str:
        return await self._answer(message, "deny", reason)

    async def _answer(self, message: MessageReceived, decision: str, reason: str = "") -> str:
        place, sender = message.place, message.sender
        asked = await self._runs.open_approval(place, sender)
        if asked is None:
            whole = self._sessions.is_whole_chat(place)
            return "No question of yours is open here." if whole else "There is nothing to approve."
        if decision not in DECISIONS:
            return CHAT_HELP
        await self._runs.answer(place, sender, asked.approval_id, decision, message.update_id, reason)
        return ""

    # ── conversations ────────────────────────────────────────────────────────────────────────────────────────

    async def _stop(self, message: MessageReceived, _argument: str) -> str:
        place, sender, key = message.place, message.sender, message.update_id
        stopped = await self._runs.stop(place, sender, key)
        if self._sessions.is_whole_chat(place):  # the answers stand elsewhere, each in its thread
            nothing, waited, below = "Nothing of yours is running.", "", list[str]()
        else:
            nothing, waited, below = "Nothing is running.", unanswered(stopped), stopped
        told = STOPPED + waited if stopped else nothing
        self._deliveries.say(place, told, key, below=below, only_for=sender)
        return ""

    async def _say_meanwhile(self, busy: Busy, message: MessageReceived, text: str) -> str:
        if not text and not message.attachments:
            return f"/{busy} <message>"
        await self._ask(replace(message, text=text), busy)
        return ""

    async def stop_by_button(self, pressed: StopPressed) -> None:
        """The platform itself shows that the answer has ended; only the questions that waited need a notice."""
        stopped = await self._runs.stop(pressed.place, pressed.sender)
        if waited := unanswered(stopped):
            self._deliveries.say(pressed.place, STOPPED + waited, pressed.update_id, below=stopped)

    async def _begin(self, message: MessageReceived, question: str) -> str:
        place, key = message.place, message.update_id
        if self._sessions.is_whole_chat(place):  # the runs in its threads go on
            return NO_CONVERSATIONS
        if not (question and await self._sessions.was_moved_by(place, key)):  # else what runs there now answers it
            stopped, ended = await self._leave(place, message.sender)
            await self._sessions.begin(place, key)
            self._deliveries.say(place, f"A new conversation begins.{ended}", key, below=stopped)
        if question:
            await self._ask(replace(message, text=question))
        return ""

    async def _leave(self, place: Place, sender: Sender) -> tuple[list[str], str]:
        """Ends what runs in the conversation that is left: the runs, and what the chat is told of them."""
        session = await self._sessions.session_of(place)
        asked = await self._runs.open_approval(place, sender)
        asks_here = asked is not None and await self._runs.asks_in(session, asked)
        stopped = await self._runs.stop(place, sender)
        return stopped, ended_by_leaving(stopped, asked=asks_here)

    # ── switches ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _model(self, message: MessageReceived, name: str) -> str:
        place, config = message.place, self._app.config
        chosen = (await self._sessions.chosen(place)).model
        if not name:
            told = f"The model is {model_name(named(config, chosen))}."
            return f"{told} /model default goes back to {model_name(config.model)}." if chosen else told
        if name == "default":
            await self._sessions.choose_model(place, "")
            return f"The model is {model_name(named(config, (await self._sessions.chosen(place)).model))} from now on."
        if len(name.split()) != 1 or "/" not in unaliased(config, name):
            return f"⚠️ Write /model <provider>/<model>; /model default goes back to {model_name(config.model)}."
        try:
            self._app.models.routes(named(config, name))
        except TailraceError as exc:
            return f"⚠️ {exc}"
        await self._sessions.choose_model(place, name)
        return f"The model is {code_span(name)} from now on."

    async def _switch_yolo(self, message: MessageReceived, argument: str) -> str:
        """Only a word switches it: without one it says how it is."""
        place = message.place
        on = await self._sessions.is_yolo(place)
        if argument:
            if (wanted := switched(argument, now=on)) is None:
                return "/yolo, /yolo on or /yolo off."
            await self._sessions.choose_yolo(place, on=(on := wanted))
            for run in await self._runs.running(place, message.sender):
                self._app.approve_all(run.id, on=on)
        if not on:
            return "Dangerous commands ask, from the next one on. /yolo on ends that."
        where = "every conversation of this chat" if self._sessions.is_whole_chat(place) else "this conversation"
        return f"⚠️ Everything is approved without asking in {where}. /yolo off ends that."

    async def _switch_verbose(self, message: MessageReceived, argument: str) -> str:
        on = switched(argument, now=bool((await self._sessions.chosen(message.place)).verbose))
        if on is None:
            return "/verbose, /verbose on or /verbose off."
        await self._sessions.choose_verbose(message.place, on=on)
        return f"Tools are {'' if on else 'no longer '}shown in full{' from now on' if on else ''}."

    async def _help(self, _message: MessageReceived, _argument: str) -> str:
        return CHAT_HELP

    async def _status(self, message: MessageReceived, _argument: str) -> str:
        place, sender, sessions = message.place, message.sender, self._sessions
        chosen = await sessions.chosen(place)
        ids = [run.id for run in reversed(await self._runs.running(place, sender))]  # the oldest runs, the others wait
        waiting = [] if sessions.is_whole_chat(place) else ids[1:]
        choice = named(self._app.config, chosen.model)
        lines = [
            f"model: {choice.provider}/{choice.name}",
            f"streaming: {'on' if sessions.showing(place).streaming else 'off'}",
            f"approvals: {'off' if await sessions.is_yolo(place) or self._app.config.yolo else 'on'}",
            f"running: {', '.join(ids[: len(ids) - len(waiting)]) or 'nothing'}",
            *([f"waiting: {len(waiting)}"] if waiting else []),
        ]
        if asked := await self._runs.open_approval(place, sender):
            ours = asked.requester == self._runs.requester(sender)
            whom = "for your approval" if ours else f"for approval by {await self._names.requester_of(asked)}"
            lines.append(f"waiting {whom}: {asked.tool_name}")
        return "\n".join(f"- {line}" for line in lines)
