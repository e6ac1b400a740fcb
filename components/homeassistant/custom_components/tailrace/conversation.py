"""The conversation entity: an utterance in, an answer that is spoken while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from homeassistant.components import conversation
from homeassistant.const import MATCH_ALL
from homeassistant.core import HomeAssistant
from homeassistant.helpers import intent
from homeassistant.helpers.device_registry import DeviceEntryType, DeviceInfo
from homeassistant.helpers.entity_platform import AddConfigEntryEntitiesCallback
from homeassistant.helpers.update_coordinator import CoordinatorEntity

from .assistant import Assistant, TailraceEntry, approval_question, ending_of
from .availability import Availability
from .client import KeyMayNot, KeyRefused, OverLimit, Refused, TailraceError, Unreachable
from .commands import Command, command_in
from .const import DOMAIN
from .log_view import GAP, Ask, Ended, LogView, Say, StartOver, Told
from .spoken import sentence
from .talks import OpenQuestion, Talk
from .yes_no import said_yes


async def async_setup_entry(
    _hass: HomeAssistant, entry: TailraceEntry, async_add_entities: AddConfigEntryEntitiesCallback
) -> None:
    async_add_entities([TailraceConversation(entry)])


@dataclass
class Answer:
    """What was said to one utterance. `waits`: a yes or a no is asked for. `failed`: there is an error and no text."""

    run_id: str = ""
    words: list[str] = field(default_factory=list)
    waits: bool = False
    failed: bool = False

    @property
    def text(self) -> str:
        return "".join(self.words)


class TailraceConversation(CoordinatorEntity[Availability], conversation.ConversationEntity):
    """Unavailable while the server is away; spoken to, it then says so."""

    _attr_has_entity_name = True
    _attr_name = None
    _attr_supports_streaming = True

    def __init__(self, entry: TailraceEntry) -> None:
        super().__init__(entry.runtime_data.availability)
        self._assistant: Assistant = entry.runtime_data
        self._attr_unique_id = entry.entry_id
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, entry.entry_id)},
            name=entry.title,
            manufacturer="Tailrace",
            entry_type=DeviceEntryType.SERVICE,
        )

    @property
    def supported_languages(self) -> list[str] | Literal["*"]:
        return MATCH_ALL

    async def _async_handle_message(
        self, user_input: conversation.ConversationInput, chat_log: conversation.ChatLog
    ) -> conversation.ConversationResult:
        answer = Answer()
        deltas = self._deltas(user_input, chat_log.conversation_id, answer)
        try:
            said = [each async for each in chat_log.async_add_delta_content_stream(user_input.agent_id, deltas)]
        except asyncio.CancelledError:
            if answer.run_id:
                self._assistant.cancelled(answer.run_id)
            raise
        withdrawn = {id(content) for content in said if content.content != answer.text}  # beginnings that do not stand
        chat_log.content[:] = [content for content in chat_log.content if id(content) not in withdrawn]
        response = intent.IntentResponse(language=user_input.language)
        if answer.failed:
            response.async_set_error(intent.IntentResponseErrorCode.UNKNOWN, answer.text)
        else:
            response.async_set_speech(answer.text)
        return conversation.ConversationResult(
            response=response,
            conversation_id=chat_log.conversation_id,
            continue_conversation=answer.waits or chat_log.continue_conversation,
        )

    async def _deltas(
        self, user_input: conversation.ConversationInput, conversation_id: str, answer: Answer
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The answer as Home Assistant's deltas. All that is said is in `answer` too; an error before any word is in
        `answer` alone, as Home Assistant tells errors itself."""
        key, talk = self._assistant.talk(user_input.device_id, conversation_id)
        text = user_input.text
        try:
            if command := command_in(text, user_input.language):
                if reply := await self._carried_out(key, talk, command, user_input.language):
                    yield _first(answer, reply)
                    return
                if command.name == "new":
                    (_, talk), text = self._assistant.talk(user_input.device_id, conversation_id), command.question
            if talk.open_question is not None and (asked := await self._still_open(talk)):
                allowed = said_yes(text, user_input.language)
                if allowed is None:
                    again = await sentence(self.hass, user_input.language, "yes_or_no", question=asked.question)
                    answer.waits = True
                    yield _first(answer, again)
                    return
                await self._assistant.client.answer(asked.run_id, asked.approval_id, allowed=allowed)
                talk.open_question = None
                answer.run_id, view = asked.run_id, LogView(asked.seq)
            elif not text.strip():
                answer.words, answer.failed = [await sentence(self.hass, user_input.language, "heard_nothing")], True
                return
            else:
                answer.run_id, view = await self._start(key, talk, text, user_input), LogView()
        except TailraceError as exc:
            answer.words, answer.failed = [await self._explained(exc, user_input.language)], True
            return
        async with aclosing(self._told(view, answer, user_input.language, talk)) as told:
            async for delta in told:
                yield delta

    async def _carried_out(self, key: str, talk: Talk, command: Command, language: str) -> str:
        """What is said to a command; empty where there is a question for the model. Raises `TailraceError`."""
        match command:
            case Command("new"):
                await self._assistant.begin_anew(key)
                return "" if command.question else await sentence(self.hass, language, "new_conversation")
            case Command("stop", said=True) if talk.open_question is not None:  # it answers that
                return ""
            case Command("stop"):
                stopped = await self._assistant.stop(key)
                if not stopped and command.said:  # it may be meant for the house
                    return ""
                return await sentence(self.hass, language, "stopped" if stopped else "nothing_runs")
            case _:
                return await sentence(self.hass, language, "commands")

    async def _start(self, key: str, talk: Talk, text: str, user_input: conversation.ConversationInput) -> str:
        return await self._assistant.start(
            key, talk, text, language=user_input.language, extra=user_input.extra_system_prompt
        )

    async def _still_open(self, talk: Talk) -> OpenQuestion | None:
        """The open question, unless it was answered elsewhere or its time is up. Raises `TailraceError`."""
        asked = talk.open_question
        if asked is None:
            return None
        try:
            state = await self._assistant.client.state(asked.run_id)
        except Refused:  # the server keeps the run no longer
            state = {}
        waits = [each["asked"]["approval_id"] for each in state.get("approvals", []) if each.get("decision") is None]
        if state.get("status") in ("pending", "running") and asked.approval_id in waits:
            return asked
        talk.open_question = None
        return None

    async def _told(
        self, view: LogView, answer: Answer, language: str, talk: Talk
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The deltas of a run, to its end, to a question of its, or to the end of all patience."""
        assistant, run_id = self._assistant, answer.run_id
        deadline = asyncio.get_running_loop().time() + assistant.answer_s
        try:
            async with aclosing(assistant.follow(run_id, view)) as events:
                while not isinstance(told := await _before(deadline, events), Ask | Ended):
                    yield _delta(told, answer)
        except TimeoutError:
            assistant.tell_later(run_id)
            yield _added(answer, await sentence(self.hass, language, "takes_longer"))
            return
        except TailraceError as exc:
            assistant.tell_later(run_id)
            reason = await self._explained(exc, language, "cut_off")
            if answer.words:
                yield _added(answer, reason)
            else:
                answer.words, answer.failed = [reason], True
            return
        if isinstance(told, Ask):
            question = await approval_question(self.hass, language, told)
            assistant.ask(talk, run_id, told, question)
            answer.waits = True
            yield _added(answer, question)
            return
        assistant.heard(run_id)
        said = bool(answer.text.strip())
        ending = await ending_of(self.hass, language, told, said=said)
        if ending and said:
            yield _added(answer, ending)
        elif ending:
            answer.words, answer.failed = [ending], told.status != "stopped"

    async def _explained(self, failure: TailraceError, language: str, away: str = "unreachable") -> str:
        """The failure in a sentence; the entity is shown as unavailable where the server is."""
        match failure:
            case OverLimit():
                return await sentence(self.hass, language, "failed", reason=str(failure))
            case Unreachable():
                self.coordinator.failed(failure)
                return await sentence(self.hass, language, away)
            case KeyRefused() | KeyMayNot():
                self.coordinator.failed(failure)
                return await sentence(self.hass, language, "key_refused")
            case _:
                return await sentence(self.hass, language, "failed", reason=str(failure))


async def _before(deadline: float, events: AsyncGenerator[Told, None]) -> Told:
    """The next event. The deadline holds while it is waited for, and never while Home Assistant has the turn."""
    async with asyncio.timeout_at(deadline):
        return await anext(events, Ended("completed"))


def _delta(told: Say | StartOver, answer: Answer) -> dict[str, Any]:
    if isinstance(told, StartOver):
        answer.words.clear()
        return _first(answer, told.text)
    return _next(answer, told.text) if answer.words else _first(answer, told.text)


def _first(answer: Answer, text: str) -> dict[str, Any]:
    """A message begins."""
    answer.words.append(text)
    return {"role": "assistant", "content": text}


def _next(answer: Answer, text: str) -> dict[str, Any]:
    answer.words.append(text)
    return {"content": text}


def _added(answer: Answer, text: str) -> dict[str, Any]:
    """A sentence of our own, after what the run said."""
    return _next(answer, GAP + text) if answer.words else _first(answer, text)
