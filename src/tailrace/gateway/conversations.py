"""The chats of one platform: messages start runs, commands are carried out, approvals are answered.

A chat, and each thread in it, has one run at a time. A user who is not allowed is told so once. This module owns the
order of the updates and the way from a message to its run; `chats` has the rest. It knows no platform by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec

from tailrace.agent.service import Busy, TurnSpec, Unfetched
from tailrace.agent.session import TURN_KIND
from tailrace.app import App
from tailrace.app.slash_commands import command_in, command_meant, is_unknown_command
from tailrace.config.sections import PlatformSettings
from tailrace.delivery import port
from tailrace.delivery.ledger import DeliverySpec
from tailrace.delivery.planning.presenter import DECISIONS
from tailrace.delivery.port import ButtonPressed, MessageReceived, Place, Platform, StopPressed, Update
from tailrace.delivery.speakers import one_line_name
from tailrace.errors import JournalError, TailraceError
from tailrace.gateway.attachments import message_of, named_message, shown_text
from tailrace.gateway.chat_settings import ChatSettingsStore, Pairing
from tailrace.gateway.chats.chat_words import RESTARTING, no_such_command
from tailrace.gateway.chats.commands import ChatCommands
from tailrace.gateway.chats.held_parts import FailedParts, HeldPart, HeldParts, Joined
from tailrace.gateway.chats.newcomers import Newcomers
from tailrace.gateway.chats.place_runs import PlaceRuns
from tailrace.gateway.chats.place_sessions import PlaceSessions, session_name
from tailrace.gateway.deliveries import Deliveries
from tailrace.gateway.inbound import AskedAlready, Pastes, RecentIds, is_for_us, is_yes_or_no, joined_message
from tailrace.gateway.place_locks import PlaceLocks
from tailrace.gateway.registry import account_of
from tailrace.gateway.speaker_names import SpeakerNames
from tailrace.journal.storage_wait import warning_level
from tailrace.messages import JsonObject, Message
from tailrace.ports import ENDED

log = logging.getLogger("tailrace.gateway")
ENDS_S = 5.0  # for a run that is stopped and has said nothing


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
        self._recent = RecentIds()
        self._pastes = Pastes()
        self._kept = HeldParts(app.journal, account_of(app.config, platform.name), app.owner)
        self._held = asyncio.Event()  # a paste may be incomplete
        self._joined: dict[str, Joined] = {}  # by the update of the comment
        self._speaker_names = names = SpeakerNames(app.journal, app.speakers, platform, settings.names)
        self._sessions = sessions = PlaceSessions(app, platform, settings, chats)
        self._runs = runs = PlaceRuns(app, platform, deliveries, sessions, names)
        self._commands = ChatCommands(app, deliveries, sessions, runs, names, self._start_run)
        self.newcomers = Newcomers(platform, settings, deliveries, pairing)
        self._turns = PlaceLocks()
        self._stopping = False
        app.agents.sources[platform.name] = self._fetch_files
        app.person_names[platform.name] = names.name_of_id

    def take_no_more(self) -> None:
        """The process is about to end: it begins no run any more. Commands and buttons are still carried out."""
        self._stopping = True

    async def has_begun(self, place: Place) -> bool:
        """Whether the place has a conversation. Raises `JournalError`."""
        return await self._sessions.has_begun(place)

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
            self._say_failed(update, exc)
        except BaseException:
            self._recent.forget(update.update_id)
            raise

    def _say_failed(self, update: Update, error: Exception) -> None:
        log.error("%s: a message could not be handled", self._platform.name, exc_info=error)
        text = "⚠️ Something went wrong with this message."
        self._deliveries.say(update.place, text, f"{update.update_id}.failure", "failure")

    async def _handle(self, update: Update) -> None:
        if not await self.newcomers.serves(update.sender):
            await self.newcomers.offer_pairing(update)
            return
        match update:
            case MessageReceived():
                if not self._stopping:
                    await self._deliveries.send_undelivered(update.place)
                await self._message(update)
            case ButtonPressed(value=value):
                approval_id, _, decision = value.rpartition(":")
                if decision in DECISIONS:
                    await self._runs.answer(update.place, update.sender, approval_id, decision, update.update_id)
            case StopPressed():
                await self._commands.stop_by_button(update)
            case port.MessageLost(undelivered=delivery) if delivery:
                await self._deliveries.note_undelivered(update.place, delivery)
            case port.MessageLost():
                self._deliveries.say_unshown(update.place, update.update_id)

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
                await self._start_runs(self._pastes.take_complete(loop.time()))

    async def flush(self) -> None:
        """Takes all held pastes as they are: the process is about to end."""
        await self._start_runs(self._pastes.take_all())

    async def _start_runs(self, messages: list[MessageReceived]) -> None:
        """Cancelled, it holds those again that it has not begun: the platform does not deliver them a second time."""
        try:
            while messages:
                await self._start_run_logged(messages[0])
                del messages[0]
        finally:
            self._pastes.hold_again(messages)

    async def _message(self, message: MessageReceived) -> None:
        place = message.place
        command = command_in(message.text) if not message.attachments else None
        if command is not None and (place.kind == "private" or message.addressed):
            if command.row.follows_paste and (held := self._pastes.take_of_sender(message)) is not None:
                await self._ask_whole(held)
            await self._commands.carry_out(message, command)
            return
        is_unknown = not message.attachments and is_unknown_command(message.text)
        if is_unknown and await self._is_for_our_commands(message):
            # As a question it would end the answer under way, and with it the question that it was to answer.
            told = no_such_command(command_meant(message.text))
            self._deliveries.say(place, told, message.update_id, only_for=message.sender)
            return
        now = asyncio.get_running_loop().time()
        for_us = is_for_us(message, self._settings.respond) or self._pastes.continues(message, now)
        if not for_us and (message.to_others or not await self._sessions.goes_on_in(place)):
            self._pastes.set_aside(message, now)
            self._recent.forget(message.update_id)  # an edit may address it to us: then it comes again
            return
        is_answer = not message.attachments and is_yes_or_no(message.text)
        if is_answer and (asked := await self._runs.open_approval(place, message.sender)):
            # As a question it would end the run that asks.
            ours = asked.requester == self._runs.requester(message.sender)
            how = "A question is open: answer it with /approve or /deny. See /help."
            told = how if ours else await self._runs.only_the_requester(asked)
            self._deliveries.say(place, told, message.update_id)
            return
        update_id = message.update_id
        if (comment := self._pastes.comment_on(message, now)) is not None:
            message = await self._joined_with(comment, message)
        if message.at_limit:
            message = await self._kept_part(update_id, message)
        whole = self._pastes.add(message, asyncio.get_running_loop().time())
        self._held.set()
        if whole is not None:
            await self._ask_whole(whole)

    async def _kept_part(self, update_id: str, message: MessageReceived) -> MessageReceived:
        part = await self._kept.keep(update_id, message, self._joined.get(message.update_id))
        if part.joined is not None:
            self._joined.setdefault(part.message.update_id, part.joined)
        return part.message

    async def _ask_whole(self, whole: MessageReceived) -> None:
        """Raises `TailraceError`: its last part comes again, and those before it, which do not, are taken up again."""
        try:
            await self._start_run(whole)
        except TailraceError:
            for update_id in (whole.update_id, *self._kept.let_go(whole)):  # the former may be of a comment
                self._recent.forget(update_id)
            raise
        except Exception:  # its sender is told, and it is not taken up again
            await self._release(whole)
            raise
        await self._release(whole)

    async def _ask_held(self, whole: MessageReceived) -> None:
        """Nothing of it comes again. Where it fails its sender is told, and it is not taken up again."""
        try:
            await self._start_run(whole)
        except Exception:
            await self._release(whole)
            raise
        await self._release(whole)

    async def _release(self, whole: MessageReceived) -> None:
        try:
            await self._kept.release(whole)
        except JournalError as exc:  # taken up again it is the same run
            log.log(warning_level(exc), "%s: that a message was asked is not kept: %s", self._platform.name, exc)

    async def take_up_left(self, is_gone: Callable[[str], Awaitable[bool]]) -> None:
        """Takes up what processes that are gone have waited with for more of it, and what this one could not ask."""
        name, failed = self._platform.name, FailedParts()
        try:
            left = await self._kept.left(is_gone)
        except TailraceError as exc:
            log.log(warning_level(exc), "%s: messages may be held that nobody waits with: %s", name, exc)
            return
        for update_id, part in left.items():
            if failed.holds_up(part):
                continue
            try:
                await self._take_up(update_id, part)
                if not self._kept.waits(update_id):  # it is nobody's any more, or kept under another update
                    await self._kept.drop(update_id)
            except TailraceError as exc:
                failed.add(part)
                told = "%s: a message that is held could not be asked, and is tried again: %s"
                log.log(warning_level(exc), told, part.message.place.key, exc)

    async def _take_up(self, update_id: str, part: HeldPart) -> None:
        """What was joined with a comment has the comment's id, and may be delivered again under its own."""
        if part.joined is not None:
            if update_id != part.message.update_id and not self._recent.add(update_id):
                return
            self._joined.setdefault(part.message.update_id, part.joined)
        try:
            await self.handle(part.message)
        except BaseException:
            self._recent.forget(update_id)
            raise

    async def _is_for_our_commands(self, message: MessageReceived) -> bool:
        """Whether a command that there is none of is for us: in a shared chat it may be another bot's."""
        place = message.place
        if is_for_us(message, self._settings.respond) or self._sessions.is_whole_chat(place):
            return True
        if not message.to_others and await self._sessions.goes_on_in(place):
            return True
        asked = await self._runs.open_approval(place, message.sender) if command_meant(message.text) else None
        return asked is not None and asked.requester == self._runs.requester(message.sender)

    async def _joined_with(self, comment: AskedAlready, message: MessageReceived) -> MessageReceived:
        """What somebody forwards, below their comment on it. The run of the comment alone ends here, and the joined
        question takes its place in the conversation. A run that has said or done something stays in it, and so does one
        after which somebody else has asked: then what is forwarded is a message of its own."""
        run = await self._app.journal.get(comment.run_id)
        newest, *before = await self._app.journal.runs(session=run.new.session, kind=TURN_KIND, limit=2)
        if run.state in ENDED or newest.id != run.id or await self._runs.has_begun(run):
            return message
        await self._app.agents.stop(run.id, by=self._runs.requester(message.sender), newer=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_S):
                await self._app.agents.finished(run.id)
        if await self._runs.has_begun(run):  # meanwhile
            return message
        follows = run.new.input.get("follows")  # of one that took the place of another itself
        if follows is None:
            follows = before[0].id if before else ""
        joined = joined_message(comment.message, message)
        self._joined[joined.update_id] = Joined(message.update_id, str(follows))
        return joined

    async def _start_run_logged(self, message: MessageReceived) -> None:
        try:
            async with self._turns.of(message.place):
                await self._ask_held(message)
        except TailraceError as exc:
            log.error("%s: a message could not be answered: %s", self._platform.name, exc)  # noqa: TRY400
            self._deliveries.say(message.place, f"⚠️ {exc}", f"{message.update_id}.failure", "failure")
        except Exception as exc:  # noqa: BLE001 - logged; it ends this message and no other
            self._say_failed(message, exc)

    async def _fetch_files(self, reference: JsonObject) -> Message:
        return await message_of(self._platform, msgspec.convert(reference, MessageReceived))

    async def _start_run(self, received: MessageReceived) -> None:
        place, later = received.place, self._stopping
        if not named_message(received).parts:
            return
        if later and not self._app.config.runs_are_kept:
            self._deliveries.say(place, RESTARTING, f"{received.update_id}.restart")
            return
        chosen = await self._sessions.chosen(place)
        session = session_name(place, chosen.generation)
        requester = self._runs.requester(received.sender)
        spoken_by = await self._speaker_names.spoken_by(session, received)
        busy = await self._busy(received, session)
        joined = self._joined.get(received.update_id)
        spec = TurnSpec(
            named_message(received),
            model=chosen.model,
            requester=requester,
            requester_name=spoken_by.name or one_line_name(received.sender.name),
            spoken_by=spoken_by,
            reachable=True,
            yolo=not later and await self._sessions.is_yolo(place),  # it ends with this process
            busy=busy,
            promised=busy != self._settings.busy,
            unfetched=self._unfetched(received),
            shown=shown_text(received) if received.attachments else "",
            follows=joined.follows if joined is not None else None,
        )
        # The key makes it one run, whatever process heard of the update before (G88).
        key = f"{self._platform.name}:{joined.update_id if joined is not None else received.update_id}"
        run = await self._app.agents.submit(spec, session=session, idempotency_key=key, later=later)
        self._joined.pop(received.update_id, None)  # not before: what was cancelled is begun again
        self._pastes.note_asked(received, run.id, asyncio.get_running_loop().time())
        chrome, showing = self._sessions.chrome(chosen), self._sessions.showing(place)
        shown = DeliverySpec(run.id, place, showing, chrome, requester)
        await self._deliveries.deliver(shown, later=later)

    async def _busy(self, received: MessageReceived, session: str) -> Busy:
        """A message ends the answer under way, or waits for it. Where that waits for another person's answer, the
        message waits: nobody loses a question by what others write in the same chat."""
        if self._settings.busy == "queue" or received.place.kind == "private":
            return self._settings.busy
        asked = await self._runs.open_approval(received.place, received.sender)
        if asked is None or asked.requester == self._runs.requester(received.sender):
            return self._settings.busy
        if not await self._runs.asks_in(session, asked):  # `/new` has just ended it, and is still about to show that
            return self._settings.busy
        who = await self._speaker_names.requester_of(asked)
        told = f"A question to {who} is open. I answer this after it."
        self._deliveries.say(received.place, told, f"{received.update_id}.busy")
        return "queue"

    def _unfetched(self, message: MessageReceived) -> Unfetched | None:
        return Unfetched(self._platform.name, msgspec.to_builtins(message)) if message.attachments else None
