"""The talks of one entry: turns utterances into runs, keeps what must outlive a restart, and tells later what nobody
heard.

A run goes on without Home Assistant. So every run is noted down until its end was told: after a restart, a lost server
or a long wait, its answer comes as a notification.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias

from homeassistant.components import persistent_notification
from homeassistant.config_entries import ConfigEntry
from homeassistant.const import CONF_API_KEY, CONF_URL, CONF_VERIFY_SSL
from homeassistant.core import HomeAssistant
from homeassistant.helpers.aiohttp_client import async_get_clientsession

from .availability import Availability
from .client import Refused, TailraceClient, TailraceError, persist
from .const import (
    CONF_ANSWER_SECONDS,
    CONF_INSTRUCTIONS,
    CONF_MODEL,
    CONF_RECONNECT_SECONDS,
    CONF_SESSION_MINUTES,
    DEFAULT_ANSWER_SECONDS,
    DEFAULT_INSTRUCTIONS,
    DEFAULT_MODEL,
    DEFAULT_RECONNECT_SECONDS,
    DEFAULT_SESSION_MINUTES,
    DOMAIN,
)
from .images import without_images
from .kept import Kept
from .log_view import GAP, Ask, Ended, LogView, Say, StartOver, Told
from .spoken import sentence
from .talks import OpenQuestion, Talk, Unheard, talk_key

_LOGGER = logging.getLogger(__name__)
_START_PATIENCE_S = 5.0  # a restart of the server takes about as long; whoever speaks waits no longer for a first word
_JUST_CANCELLED_S = 30.0
_NO_ANSWER = "the model gave no answer"  # the server's words for it

TailraceEntry: TypeAlias = "ConfigEntry[Assistant]"


def client_of(hass: HomeAssistant, data: dict[str, Any]) -> TailraceClient:
    """The client for the data of an entry, or of a form that may become one."""
    session = async_get_clientsession(hass, verify_ssl=data.get(CONF_VERIFY_SSL, True))
    return TailraceClient(session, data[CONF_URL], data.get(CONF_API_KEY, ""))


class Assistant:
    """Open it with `open`. All that it starts ends when the entry is unloaded; runs do not."""

    def __init__(self, hass: HomeAssistant, entry: TailraceEntry, kept: Kept) -> None:
        self.client = client_of(hass, dict(entry.data))
        self.availability = Availability(hass, entry, self.client)
        self.talks = kept.talks
        self._hass = hass
        self._entry = entry
        self._kept = kept
        self._followers = kept.followers

    @classmethod
    async def open(cls, hass: HomeAssistant, entry: TailraceEntry) -> Assistant:
        assistant = cls(hass, entry, await Kept.open(hass, entry))
        await assistant.availability.async_refresh()
        return assistant

    def _option(self, name: str, default: Any) -> Any:
        return self._entry.options.get(name, default)

    @property
    def answer_s(self) -> float:
        return float(self._option(CONF_ANSWER_SECONDS, DEFAULT_ANSWER_SECONDS))

    # ── talks ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _prefix(self) -> str:
        return f"homeassistant-{self._entry.entry_id[-8:].lower()}"

    def talk(self, device_id: str | None, conversation_id: str) -> tuple[str, Talk]:
        key = talk_key(device_id, conversation_id)
        idle_s = 60.0 * self._option(CONF_SESSION_MINUTES, DEFAULT_SESSION_MINUTES)
        return key, self.talks.talk(key, prefix=self._prefix, now=time.time(), idle_s=idle_s)

    async def begin_anew(self, key: str) -> Talk:
        """A new talk. What runs in the one before is stopped; where the server is away it goes on and is told later."""
        try:
            await self.stop(key)
        except TailraceError as exc:
            _LOGGER.warning("what runs in %s could not be stopped: %s", key, exc)
        talk = self.talks.begin_anew(key, prefix=self._prefix, now=time.time())
        self._kept.save_soon()
        return talk

    async def stop(self, key: str) -> bool:
        """Stops what runs in this talk, and tells no more of it. Whether there was anything, or a person has cancelled
        it just now: who says the wake word and then "stop" has done both. Raises `TailraceError` where the server does
        not stop it: then it is told as before."""
        runs = self.talks.under_way(key)
        for run_id in runs:
            try:
                await self.client.stop(run_id)
            except Refused as exc:  # it has ended, or the server keeps it no longer
                _LOGGER.debug("nothing to stop: %s", exc)
            if follower := self._followers.pop(run_id, None):
                follower.cancel()
            self.heard(run_id)
        return bool(runs) or time.time() - self._kept.cancelled.pop(key, 0.0) < _JUST_CANCELLED_S

    async def start(self, key: str, talk: Talk, text: str, *, language: str, extra: str | None) -> str:
        """A run that answers `text`. It is on disk that a question was sent before it is sent. Raises
        `TailraceError`."""
        talk.asking, talk.open_question = text, None
        self._kept.cancelled.pop(key, None)
        await self.save()
        instructions = (self._option(CONF_INSTRUCTIONS, DEFAULT_INSTRUCTIONS), extra)
        idempotency_key = uuid.uuid4().hex

        async def ask() -> str:
            return await self.client.start(
                text,
                session=talk.session,
                key=idempotency_key,
                model=self._option(CONF_MODEL, DEFAULT_MODEL),
                instructions="\n\n".join(filter(None, instructions)),
            )

        asking = self._hass.async_create_task(persist(ask, patience_s=_START_PATIENCE_S), f"{DOMAIN} start")
        try:
            run_id = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._in_background(self._stop_once_known(asking, talk), "stop")
            raise
        except TailraceError:
            talk.asking = ""
            raise
        talk.asking = ""
        self.talks.unheard[run_id] = Unheard(text, language, key)
        await self.save()
        return run_id

    def heard(self, run_id: str) -> None:
        """The run's end was told."""
        self.talks.answered(run_id)
        self._kept.save_soon()

    def ask(self, talk: Talk, run_id: str, asked: Ask, question: str) -> None:
        """The run waits for a yes or a no: the next utterance may give it; what follows otherwise comes later."""
        talk.open_question = OpenQuestion(run_id, asked.approval_id, question, asked.seq)
        if unheard := self.talks.unheard.get(run_id):
            unheard.after = asked.seq
        self._kept.save_soon()
        self.tell_later(run_id)

    def cancelled(self, run_id: str) -> None:
        """The person cancelled: the run is stopped. When Home Assistant itself stops, the run goes on without it."""
        if not self._hass.is_stopping:
            if unheard := self.talks.unheard.get(run_id):
                self._kept.cancelled[unheard.key] = time.time()
            self._in_background(self._stop(run_id), "stop")
            self.heard(run_id)

    async def _stop_once_known(self, asking: asyncio.Task[str], talk: Talk) -> None:
        if self._hass.is_stopping:
            return
        try:
            await self._stop(await asking)
        except TailraceError as exc:
            _LOGGER.debug("nothing to stop: %s", exc)
        talk.asking = ""

    async def _stop(self, run_id: str) -> None:
        try:
            await self.client.stop(run_id)
        except TailraceError as exc:
            _LOGGER.warning("run %s could not be stopped: %s", run_id, exc)

    async def save(self) -> None:
        await self._kept.save()

    def _in_background(self, work: Any, name: str) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._entry.async_create_background_task(self._hass, work, f"{DOMAIN} {name}")
        return task

    # ── following a run ──────────────────────────────────────────────────────────────────────────────────────

    async def follow(self, run_id: str, view: LogView) -> AsyncGenerator[Told, None]:
        """What the run tells to whoever listens. Raises `TailraceError` where the server stays away."""
        if follower := self._followers.pop(run_id, None):
            follower.cancel()
        patience_s = float(self._option(CONF_RECONNECT_SECONDS, DEFAULT_RECONNECT_SECONDS))
        self._kept.spoken.add(run_id)
        try:
            async with aclosing(self.client.follow(run_id, view, patience_s=patience_s)) as batches:
                async for batch in batches:
                    for told in batch:
                        yield told
        finally:
            self._kept.spoken.discard(run_id)

    # ── what nobody heard ────────────────────────────────────────────────────────────────────────────────────

    def tell_unheard(self) -> None:
        """After a restart: the answers that nobody heard come as notifications. After a reload, one may be spoken just
        now."""
        for run_id in self.talks.unheard:
            if run_id not in self._kept.spoken:
                self.tell_later(run_id)
        if any(talk.asking for talk in self.talks.by_key.values()):
            self._in_background(self._find_lost(), "find")

    def tell_later(self, run_id: str) -> None:
        """The rest of this run comes as a notification, unless a talk goes on with it first."""
        if run_id in self.talks.unheard and run_id not in self._followers:
            self._followers[run_id] = self._in_background(self._notify(run_id, self.talks.unheard[run_id]), run_id)

    async def _find_lost(self) -> None:
        """Questions of which it is not known whether they became runs, because Home Assistant died in between. They are
        not asked again: nobody waits for the answer any more, and what they ask for may no longer be meant."""
        for key, talk in list(self.talks.by_key.items()):
            if not talk.asking:
                continue
            run = None
            try:
                run = await self.client.newest_run(talk.session)
            except TailraceError as exc:
                _LOGGER.warning("whether %r became a run is not known: %s", talk.asking, exc)
            if run is not None and run["input"] == talk.asking and run["id"] not in self.talks.unheard:
                self.talks.unheard[run["id"]] = Unheard(talk.asking, self._hass.config.language, key)
                self.tell_later(run["id"])
            talk.asking = ""
        self._kept.save_soon()

    async def _notify(self, run_id: str, unheard: Unheard) -> None:
        view = LogView(unheard.after)
        words = list[str]()
        try:
            async with aclosing(self.client.follow(run_id, view, patience_s=None)) as batches:
                async for batch in batches:
                    for told in batch:
                        await self._note(run_id, unheard, told, words)
        except Refused as exc:  # the server keeps it no longer
            _LOGGER.warning("the answer of run %s cannot be read: %s", run_id, exc)
        except TailraceError as exc:
            _LOGGER.warning("the answer of run %s has to wait: %s", run_id, exc)
            return
        finally:
            if self._followers.get(run_id) is asyncio.current_task():
                del self._followers[run_id]
        self.heard(run_id)

    async def _note(self, run_id: str, unheard: Unheard, told: Told, words: list[str]) -> None:
        match told:
            case Say(text):
                words.append(text)
            case StartOver(text):
                words[:] = [text]
            case Ask():
                question = await approval_question(self._hass, unheard.language, told)
                if talk := self.talks.by_key.get(unheard.key):
                    talk.open_question = OpenQuestion(run_id, told.approval_id, question, told.seq)
                    self._kept.save_soon()
                self._show(run_id, unheard, question)
            case Ended():
                ending = await ending_of(self._hass, unheard.language, told, said=bool(words))
                if text := "".join([*words, *(["\n\n"] if words and ending else []), ending]):
                    self._show(run_id, unheard, text)

    def _show(self, run_id: str, unheard: Unheard, text: str) -> None:
        quoted = "\n".join(f"> {line}" for line in unheard.question.splitlines())
        shown = without_images(f"{quoted}\n\n{text}")
        persistent_notification.async_create(
            self._hass, shown, title=self._entry.title, notification_id=f"{DOMAIN}_{run_id}"
        )


async def approval_question(hass: HomeAssistant, language: str, asked: Ask) -> str:
    key = "approval_in" if asked.directory else "approval"
    return await sentence(hass, language, key, command=asked.command or asked.tool_name, directory=asked.directory)


async def ending_of(hass: HomeAssistant, language: str, ended: Ended, *, said: bool) -> str:
    """What has to be said of the run's end; empty where the answer speaks for itself. `said`: there is one."""
    if ended.status == "stopped":
        return await sentence(hass, language, "stopped")
    if ended.status == "failed" or not said:
        reason = ended.error if ended.error not in ("", _NO_ANSWER) else await sentence(hass, language, "no_answer")
        told = await sentence(hass, language, "failed", reason=reason)
        return f"{told}{GAP}{await sentence(hass, language, ended.advice)}" if ended.advice else told
    return ""
