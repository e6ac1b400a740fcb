"""The chats of one platform: messages start runs, commands are carried out, approvals are answered.

A chat, and each thread in it, has one run at a time. A user who is not allowed is told so once. This module knows no
platform by name.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from tailrace.agent.service import Busy, TurnSpec, Unfetched
from tailrace.agent.session import TURN_KIND
from tailrace.app import App
from tailrace.app.models import named, unaliased
from tailrace.config.sections import PlatformSettings
from tailrace.delivery.inbound import (
    ChatCommand,
    Pastes,
    RecentIds,
    command_in,
    command_meant,
    is_allowed,
    is_for_us,
    is_yes_or_no,
)
from tailrace.delivery.ledger import DeliverySpec
from tailrace.delivery.planning.planner import Showing
from tailrace.delivery.planning.presenter import DECISIONS, Chrome, code_span, with_mark
from tailrace.delivery.port import ButtonPressed, MessageReceived, Place, Platform, Sender, StopPressed, Update
from tailrace.delivery.speakers import one_line_name
from tailrace.errors import RunNotFound, RunSealed, TailraceError
from tailrace.events import ApprovalAsked, Decision, Snapshot
from tailrace.messages import JsonObject, Message
from tailrace.platforms.runtime.attachments import message_of, named_message, shown_text
from tailrace.platforms.runtime.chat_settings import ChatSettings, ChatSettingsStore, Pairing, switched
from tailrace.platforms.runtime.chat_words import HELP, RESTARTING, STOPPED, model_name, nothing_of_yours, unanswered
from tailrace.platforms.runtime.deliveries import Deliveries
from tailrace.platforms.runtime.place_locks import PlaceLocks
from tailrace.platforms.runtime.running_turns import requester_of_turn, turns_of_chat, turns_of_session
from tailrace.platforms.runtime.speaker_names import SpeakerNames
from tailrace.ports import Run

log = logging.getLogger("tailrace.platforms")
MAX_TOLD_CODES = 1024


class Conversations:
    """The conversations of one platform."""

    def __init__(
        self,
        app: App,
        platform: Platform,
        settings: PlatformSettings,
        deliveries: Deliveries,
        *,
        chats: ChatSettingsStore,
        pairing: Pairing,
    ) -> None:
        self._app = app
        self._platform = platform
        self._settings = settings
        self._deliveries = deliveries
        self._chats = chats
        self._pairing = pairing
        self._recent = RecentIds()
        self._pastes = Pastes()
        self._speaker_names = SpeakerNames(app.journal, app.speakers, platform, settings.names)
        self._held = asyncio.Event()  # a paste may be incomplete
        self._yolo: set[str] = set()  # sessions; for as long as the process lives
        self._told_codes: OrderedDict[str, str] = OrderedDict()  # users who are not served, and the code each was told
        self._turns = PlaceLocks()
        self._stopping = False
        app.agents.sources[platform.name] = self._fetch_files
        app.person_names[platform.name] = self._speaker_names.name_of_id

    def take_no_more(self) -> None:
        """The process is about to end: it begins no run any more. Commands and buttons are still carried out."""
        self._stopping = True

    async def handle(self, update: Update) -> None:
        """The updates of one place are handled one after the other, in the order of the calls. Raises `TailraceError`
        for an update that was not handled: the platform must deliver it again."""
        async with self._turns.of(update.place):
            await self._handle_once(update)

    async def _handle_once(self, update: Update) -> None:
        if not self._recent.add(update.update_id):
            return
        try:
            await self._handle(update)
        except Exception as exc:
            if isinstance(exc, TailraceError):
                self._recent.forget(update.update_id)
                raise
            # Delivered again, it would fail again and hold up all that follows: it is handled, and the user is told.
            log.exception("%s: a message could not be handled", self._platform.name)
            self._deliveries.say(update.place, "⚠️ Something went wrong with this message.", update.update_id, "failure")
        except BaseException:
            self._recent.forget(update.update_id)
            raise

    async def _handle(self, update: Update) -> None:
        if not await self.serves(update.sender):
            await self._offer_pairing(update)
            return
        match update:
            case MessageReceived():
                await self._message(update)
            case ButtonPressed(value=value):
                approval_id, _, decision = value.rpartition(":")
                if decision in DECISIONS:
                    await self._answer(update.place, update.sender, approval_id, decision, update.update_id)
            case StopPressed():
                await self._stop(update.place, update.sender)

    async def join_pastes(self) -> None:
        """Starts the run of a held paste once no more of it has come. Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._held.clear()
            due_at = self._pastes.due_at
            try:
                async with asyncio.timeout_at(due_at):
                    await self._held.wait()
            except TimeoutError:
                for message in self._pastes.take_complete(loop.time()):
                    await self._start_run_logged(message)

    async def flush(self) -> None:
        """Takes all held pastes as they are: the process is about to end."""
        for message in self._pastes.take_all():
            await self._start_run_logged(message)

    # ── who ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def serves(self, sender: Sender) -> bool:
        """Whether the config or a pairing code lets this person in."""
        return is_allowed(self._settings.allow, sender.id) or await self._pairing.is_paired(self._requester(sender))

    def _requester(self, sender: Sender) -> str:
        return f"{self._platform.name}:{sender.id}"

    async def _offer_pairing(self, update: Update) -> None:
        """A new user gets a pairing code in private, and another once that has expired. In a group their messages are
        ignored; the log names whoever speaks to the bot there, once."""
        user = self._requester(update.sender)
        if not isinstance(update, MessageReceived):
            return
        if update.place.kind != "private":
            if update.addressed and user not in self._told_codes:
                self._remember_told(user, "")
                log.warning("%s is not served: not in platforms.%s.allow", user, self._platform.name)
            return
        code = await self._pairing.code_for(user, update.sender.name)
        if code is not None and code != self._told_codes.get(user):
            self._remember_told(user, code)
            command = code_span(f"tailrace gateway --pair {code}")
            text = f"I do not know you yet. The person who runs me can let you in: {command}"
            self._deliveries.say(update.place, text, update.update_id, "pairing")
        log.warning("%s is not served: not in platforms.%s.allow", user, self._platform.name)

    def _remember_told(self, user: str, code: str) -> None:
        self._told_codes[user] = code
        if len(self._told_codes) > MAX_TOLD_CODES:
            self._told_codes.popitem(last=False)

    # ── what ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _message(self, message: MessageReceived) -> None:
        place = message.place
        command = command_in(message.text) if not message.attachments else None
        if command is not None and (place.kind == "private" or message.addressed):
            await self._command(message, command)
            return
        to_us_alone = place.kind == "private" or self._is_whole_chat(place)
        if to_us_alone and not message.attachments and (meant := command_meant(message.text)):
            # As a question it would end the answer under way, and with it the question that it was to answer.
            told = f"There is no such command. Did you mean /{meant}? See /help."
            self._say(place, told, message.update_id, only_for=message.sender)
            return
        for_us = is_for_us(message, self._settings.respond) or self._pastes.continues(message)
        if not for_us and (message.to_others or not await self._goes_on(place)):
            self._recent.forget(message.update_id)  # an edit may address it to us: then it comes again
            return
        is_answer = not message.attachments and is_yes_or_no(message.text)
        if is_answer and (asked := await self._open_approval(place, message.sender)):
            # As a question it would end the run that asks.
            ours = asked.requester == self._requester(message.sender)
            how = "A question is open: answer it with /approve or /deny. See /help."
            self._say(place, how if ours else await self._only_the_requester(asked), message.update_id)
            return
        whole = self._pastes.add(message, asyncio.get_running_loop().time())
        self._held.set()
        if whole is not None:
            await self._start_run(whole)

    async def _goes_on(self, place: Place) -> bool:
        """Whether the place is a thread in which we have answered before, or were told to begin anew."""
        if not self._is_thread_of_chat(place):
            return False
        chosen = await self._chats.of(place.key)
        return chosen.generation > 0 or await self._app.journal.session(_session(place, chosen), TURN_KIND) is not None

    async def _start_run_logged(self, message: MessageReceived) -> None:
        try:
            async with self._turns.of(message.place):
                await self._start_run(message)
        except TailraceError as exc:
            log.error("%s: a message could not be answered: %s", self._platform.name, exc)  # noqa: TRY400
            self._deliveries.say(message.place, f"⚠️ {exc}", message.update_id, "failure")

    async def _fetch_files(self, reference: JsonObject) -> Message:
        return await message_of(self._platform, msgspec.convert(reference, MessageReceived))

    async def _start_run(self, received: MessageReceived) -> None:
        place, later = received.place, self._stopping
        if not named_message(received).parts:
            return
        if later and not self._app.config.runs_are_kept:
            self._say(place, RESTARTING, f"{received.update_id}.restart")
            return
        chosen = await self._chosen(place)
        session = _session(place, chosen)
        requester = self._requester(received.sender)
        spoken_by = await self._speaker_names.spoken_by(session, received)
        busy = await self._busy(received, session)
        spec = TurnSpec(
            named_message(received),
            model=chosen.model,
            requester=requester,
            requester_name=spoken_by.name or one_line_name(received.sender.name),
            spoken_by=spoken_by,
            reachable=True,
            yolo=not later and await self._is_yolo(place),  # it ends with this process
            busy=busy,
            promised=busy != self._settings.busy,
            unfetched=self._unfetched(received),
            shown=shown_text(received) if received.attachments else "",
        )
        # The key makes it one run, whatever process heard of the update before (G88).
        key = f"{self._platform.name}:{received.update_id}"
        run = await self._app.agents.submit(spec, session=session, idempotency_key=key, later=later)
        chrome = self._chrome(chosen)
        shown = DeliverySpec(run.id, place, self._showing(place), chrome, requester)
        await self._deliveries.deliver(shown, later=later)

    async def _busy(self, received: MessageReceived, session: str) -> Busy:
        """A message ends the answer under way, or waits for it. Where that waits for another person's answer, the
        message waits: nobody loses a question by what others write in the same chat."""
        if self._settings.busy == "queue" or received.place.kind == "private":
            return self._settings.busy
        asked = await self._open_approval(received.place, received.sender)
        if asked is None or asked.requester == self._requester(received.sender):
            return self._settings.busy
        if not await self._asks_in(session, asked):  # `/new` has just ended it, and is still about to show that
            return self._settings.busy
        who = await self._speaker_names.requester_of(asked)
        told = f"A question to {who} is open. I answer this after it."
        self._say(received.place, told, f"{received.update_id}.busy")
        return "queue"

    async def _asks_in(self, session: str, asked: ApprovalAsked) -> bool:
        """Whether it is a run of this session that asks; the place may have had others before."""
        shown = self._deliveries.asked.get(asked.approval_id)
        return shown is None or (await self._app.journal.get(shown[0])).new.session == session

    def _unfetched(self, message: MessageReceived) -> Unfetched | None:
        return Unfetched(self._platform.name, msgspec.to_builtins(message)) if message.attachments else None

    def _chrome(self, chosen: ChatSettings) -> Chrome:
        """How much is shown of tools: what `/verbose` has chosen, else what the config says."""
        configured = self._settings.tools
        if chosen.verbose is None:
            return configured
        return "verbose" if chosen.verbose else "lines" if configured == "verbose" else configured

    def _showing(self, place: Place) -> Showing:
        streaming = self._app.config.streaming
        can_stream = self._platform.capabilities(place).mode != "whole"
        on = can_stream and self._app.config.streams(self._platform.name)
        return Showing(streaming=on, edit_interval_s=streaming.edit_interval, min_tokens=streaming.min_tokens)

    async def _session(self, place: Place) -> str:
        return _session(place, await self._chats.of(place.key))

    async def _chosen(self, place: Place) -> ChatSettings:
        """What was chosen in the conversation, else for the whole chat."""
        chosen = await self._chats.of(place.key)
        if not self._is_thread_of_chat(place):
            return chosen
        chat = await self._chats.of(replace(place, thread="").key)
        verbose = chat.verbose if chosen.verbose is None else chosen.verbose
        return replace(chosen, model=chosen.model or chat.model, verbose=verbose)

    async def _is_yolo(self, place: Place) -> bool:
        return not self._yolo.isdisjoint(await self._sessions_for(place))

    async def _sessions_for(self, place: Place) -> list[str]:
        """The sessions whose switches hold here: that of the conversation, and of the whole chat."""
        places = [place, replace(place, thread="")] if self._is_thread_of_chat(place) else [place]
        return [await self._session(one) for one in places]

    def _is_thread_of_chat(self, place: Place) -> bool:
        """Whether the thread is one of many conversations in its chat, with no conversation beside them."""
        return bool(place.thread) and self._platform.capabilities(place).threaded

    def _is_whole_chat(self, place: Place) -> bool:
        """Whether the place is outside of such threads: a command there is about all of them."""
        return not place.thread and self._platform.capabilities(place).threaded

    # ── approvals and stopping ───────────────────────────────────────────────────────────────────────────────

    async def _answer(
        self, place: Place, sender: Sender, approval_id: str, decision: str, key: str, reason: str = ""
    ) -> None:
        """J110: bound to the requester. The outcome is shown where the question stands."""
        found = self._deliveries.asked.get(approval_id)
        if found is None:
            asked_elsewhere = await self._asked_elsewhere(place, sender)
            found = next((one for one in asked_elsewhere if one[1].approval_id == approval_id), None)
        if found is None:
            self._deliveries.say(place, "That question is not open any more.", key)
            return
        run_id, asked = found
        by = self._requester(sender)
        if asked.requester != by:
            self._deliveries.say(place, await self._only_the_requester(asked), key)
            return
        try:
            chosen = msgspec.convert(decision, Decision)
            await self._app.agents.answer(run_id, approval_id, chosen, by=by, reason=reason)
        except (RunSealed, RunNotFound):
            self._deliveries.say(place, "That question is not open any more.", key)

    async def _only_the_requester(self, asked: ApprovalAsked) -> str:
        return f"Only {await self._speaker_names.requester_of(asked)} may answer that question. It stays open."

    async def _open_approval(self, place: Place, sender: Sender) -> ApprovalAsked | None:
        """The newest question in this place that is not answered."""
        if (asked := self._deliveries.open_approval(place)) is not None:
            return asked
        return next((asked for _, asked in await self._asked_elsewhere(place, sender)), None)

    async def _asked_elsewhere(self, place: Place, sender: Sender) -> list[tuple[str, ApprovalAsked]]:
        """The open questions of the place, the newest first, each with the run that asks: another process may deliver
        the run, and a webhook may call any."""
        found: list[tuple[str, ApprovalAsked]] = []
        for run in await self._running(place, sender):
            state = (await self._app.journal.snapshot(run.id)).event
            if isinstance(state, Snapshot):
                found += [(run.id, one.asked) for one in reversed(state.approvals) if one.decision is None]
        return found

    async def _running(self, place: Place, sender: Sender) -> list[Run]:
        """What runs in the conversation. Outside of the threads of a chat: what this person asked for there or in any
        of them."""
        if not self._is_whole_chat(place):
            return await turns_of_session(self._app.journal, await self._session(place))
        requester, running = self._requester(sender), await turns_of_chat(self._app.journal, place)
        return [run for run in running if requester_of_turn(run) == requester]

    async def _others_served(self, place: Place, sender: Sender) -> list[str]:
        """Whose answers are under way in the threads of the chat, beside this person's. In a conversation there is
        nobody else's: what runs there is everybody's."""
        running = await turns_of_chat(self._app.journal, place) if self._is_whole_chat(place) else []
        others = dict.fromkeys(requester_of_turn(run) for run in running)
        return [await self._speaker_names.called(one) for one in others if one != self._requester(sender)]

    async def _stop(self, place: Place, sender: Sender, key: str = "") -> list[str]:
        """The runs that there were to stop. With the `key` of a command each thread is told, where it is about all."""
        running = await self._running(place, sender)
        for run in running:
            await self._app.agents.stop(run.id, by=self._requester(sender))
            thread = run.new.session.removeprefix(place.key).partition("#")[0].removeprefix(":")
            if key and thread and self._is_whole_chat(place):
                self._say(replace(place, thread=thread), STOPPED, f"{key}.{run.id}", below=[run.id])
        return [run.id for run in running]

    # ── commands ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _command(self, message: MessageReceived, command: ChatCommand) -> None:
        place, sender, key = message.place, message.sender, message.update_id
        stopped, before = list[str](), await self._switches(place)
        match command.name:
            case "approve" | "deny":
                asked = await self._open_approval(place, sender)
                decision = "deny" if command.name == "deny" else command.argument or "once"
                if asked is None or decision not in DECISIONS:
                    whole = self._is_whole_chat(place)
                    nothing = "No question of yours is open here." if whole else "There is nothing to approve."
                    self._say(place, nothing if asked is None else HELP, key, only_for=sender)
                    return
                reason = command.argument if decision == "deny" else ""
                await self._answer(place, sender, asked.approval_id, decision, key, reason)
                return
            case "stop":
                stopped = await self._stop(place, sender, key)
                waited = "" if self._is_whole_chat(place) else unanswered(stopped)
                text = STOPPED + waited if stopped else nothing_of_yours(await self._others_served(place, sender))
            case "new" if self._is_whole_chat(place):  # what runs in the threads has nothing to do with it
                text = "Here every question begins a conversation of its own."
            case "new":
                stopped = await self._stop(place, sender)
                self._yolo.discard(await self._session(place))
                await self._chats.update(place.key, lambda known: replace(known, generation=known.generation + 1))
                text = f"A new conversation begins.{unanswered(stopped)}"
            case "model":
                text = await self._model(place, command.argument)
            case "verbose":
                text = await self._switch_verbose(place, command.argument)
            case "yolo":
                text = await self._switch_yolo(place, command.argument)
            case "status":
                text = await self._status(place, sender)
            case "help" | "start":
                text = HELP
        is_for_all = await self._switches(place) != before
        self._say(place, text, key, below=stopped, only_for=None if is_for_all else sender)
        if command.name == "new" and command.argument and not self._is_whole_chat(place):
            await self._start_run(replace(message, text=command.argument))

    def _say(
        self, place: Place, text: str, key: str, *, below: Collection[str] = (), only_for: Sender | None = None
    ) -> None:
        """The text names commands as they are typed here. It stands below what there is of these runs' answers.
        `only_for`: nobody else needs to see it."""
        shown = with_mark(text, self._platform.capabilities(place).command_mark)
        where = replace(place, only_for=only_for.id) if only_for is not None else place
        self._deliveries.say(where, shown, key, below=below)

    async def _switches(self, place: Place) -> tuple[ChatSettings, bool]:
        """What commands choose for everybody there."""
        return await self._chats.of(place.key), await self._session(place) in self._yolo

    async def _model(self, place: Place, name: str) -> str:
        config, chosen = self._app.config, (await self._chosen(place)).model
        if not name:
            told = f"The model is {model_name(named(config, chosen))}."
            return f"{told} /model default goes back to {model_name(config.model)}." if chosen else told
        if name == "default":
            await self._chats.update(place.key, lambda known: replace(known, model=""))
            return f"The model is {model_name(named(config, (await self._chosen(place)).model))} from now on."
        if len(name.split()) != 1 or "/" not in unaliased(config, name):
            return f"⚠️ A model is named so: /model <provider>/<model>. /model default is {model_name(config.model)}."
        try:
            self._app.models.routes(named(config, name))
        except TailraceError as exc:
            return f"⚠️ {exc}"
        await self._chats.update(place.key, lambda known: replace(known, model=name))
        return f"The model is {code_span(name)} from now on."

    async def _switch_verbose(self, place: Place, argument: str) -> str:
        on = switched(argument, now=self._chrome(await self._chosen(place)) == "verbose")
        if on is None:
            return "/verbose, /verbose on or /verbose off."
        await self._chats.update(place.key, lambda known: replace(known, verbose=on))
        return "Tools are shown in full from now on." if on else "Tools are no longer shown in full."

    async def _switch_yolo(self, place: Place, argument: str) -> str:
        on = switched(argument, now=await self._is_yolo(place))
        if on is None:
            return "/yolo, /yolo on or /yolo off."
        if on:
            self._yolo.add(await self._session(place))
            where = "every conversation of this chat" if self._is_whole_chat(place) else "this conversation"
            return f"⚠️ Everything is approved without asking in {where}. /yolo off ends that."
        self._yolo.difference_update(await self._sessions_for(place))
        return "Dangerous commands ask again."

    async def _status(self, place: Place, sender: Sender) -> str:
        chosen = await self._chosen(place)
        ids = [run.id for run in reversed(await self._running(place, sender))]  # the oldest runs, the others wait
        waiting = [] if self._is_whole_chat(place) else ids[1:]
        choice = named(self._app.config, chosen.model)
        lines = [
            f"model: {choice.provider}/{choice.name}",
            f"streaming: {'on' if self._showing(place).streaming else 'off'}",
            f"approvals: {'off' if await self._is_yolo(place) or self._app.config.yolo else 'on'}",
            f"running: {', '.join(ids[: len(ids) - len(waiting)]) or 'nothing'}",
            *([f"waiting: {len(waiting)}"] if waiting else []),
        ]
        if others := await self._others_served(place, sender):
            lines.append(f"running for others: {', '.join(others)}")
        if asked := await self._open_approval(place, sender):
            ours = asked.requester == self._requester(sender)
            whom = "for your approval" if ours else f"for approval by {await self._speaker_names.requester_of(asked)}"
            lines.append(f"waiting {whom}: {asked.tool_name}")
        return "\n".join(f"- {line}" for line in lines)


def _session(place: Place, chosen: ChatSettings) -> str:
    return f"{place.key}#{chosen.generation}" if chosen.generation else place.key
