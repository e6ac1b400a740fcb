"""The chats of one platform: messages start runs, commands are carried out, approvals are answered.

A chat, and each thread in it, has one run at a time. A user who is not allowed is told so once. This module owns the
order of the updates and the way from a message to its run; `chats` has the rest. It knows no platform by name.
"""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from tailrace.agent.turn_spec import Busy, PendingAttachments, TurnSpec
from tailrace.app import App
from tailrace.app.slash_commands import ChatCommand, command_suggested
from tailrace.config.sections import PlatformSettings
from tailrace.delivery import port
from tailrace.delivery.ledger import DeliverySpec
from tailrace.delivery.planning.presenter import DECISIONS, Chrome
from tailrace.delivery.port import ButtonPressed, MessageReceived, Place, Platform, StopPressed, Update
from tailrace.errors import SteerRefused, StorageFailed, TailraceError
from tailrace.events.speakers import SpokenBy, one_line_name
from tailrace.gateway.chat_settings import ChatSettingsStore, Pairing
from tailrace.gateway.chats.chat_words import RESTARTING, no_such_command
from tailrace.gateway.chats.commands import ChatCommands
from tailrace.gateway.chats.newcomers import Newcomers
from tailrace.gateway.chats.place_runs import PlaceRuns
from tailrace.gateway.chats.place_sessions import PlaceSessions, session_name
from tailrace.gateway.deliveries import Deliveries
from tailrace.gateway.inbound.attachments import message_of, named_message, shown_text
from tailrace.gateway.inbound.incoming import Decision, Incoming, OpenQuestion, command_of, decide
from tailrace.gateway.inbound.pastes import PASTE_GAP_S, Pastes, part_ids
from tailrace.gateway.inbound.quotations import quotations_of, with_quotations, with_quoted_files
from tailrace.gateway.inbound.recent_ids import RecentIds
from tailrace.gateway.inbound.speaker_names import SpeakerNames
from tailrace.journal.storage_wait import warning_level
from tailrace.messages import JsonObject, Message

log = logging.getLogger("tailrace.gateway")


class PlaceLocks:
    """Tasks get the lock of a place in the order in which they asked for it. A lock that is released while others wait
    stays the place's lock: the tasks that wait keep it alive, and nothing else does."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._locks)

    def of(self, place: Place) -> asyncio.Lock:
        if (lock := self._locks.get(place.key)) is None:
            lock = self._locks[place.key] = asyncio.Lock()
        return lock


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
        self._held = asyncio.Event()  # a paste may be incomplete
        self._unreleased: dict[str, asyncio.Future[TailraceError | None]] = {}  # the updates of held parts
        self._speaker_names = names = SpeakerNames(platform, settings.names)
        self._sessions = sessions = PlaceSessions(app, platform, chats)
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

    @property
    def holds_parts(self) -> bool:
        """Whether an update waits for the rest of its paste. Held parts are in memory alone."""
        return bool(self._unreleased)

    async def until_released(self, update_id: str) -> None:
        """Returns once the update is no held part, or is none any more: the paste has become a question. Raises
        `TailraceError` where it has not, and the platform must deliver the update again. A part that storage refused
        stays held meanwhile: a platform may be unable to deliver it again."""
        if (held := self._unreleased.get(update_id)) is not None and (error := await asyncio.shield(held)) is not None:
            raise error

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
            # Delivered again, it would fail again and hold up all that follows: the user gets a line instead.
            self._say_failed(update, exc)
        except BaseException:
            if update.update_id not in self._unreleased:
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
        """Cancelled, it holds the messages again that it has not begun."""
        try:
            while messages:
                await self._start_run_logged(messages[0])
                del messages[0]
        finally:
            self._pastes.hold_again(messages)

    async def _message(self, message: MessageReceived) -> None:
        decision = await self._decided(message)
        log.debug("%s: %s: %s", message.place.key, message.update_id, decision.trace)
        match decision.kind:
            case "command":
                await self._command(message, command_of(message))
            case "unknown_command":
                told = no_such_command(command_suggested(message.text))
                self._deliveries.say(message.place, told, message.update_id, only_for=message.sender)
            case "not_for_us":
                self._recent.forget(message.update_id)  # an edit may address it to us: then it comes again
            case "mention_alone":
                await self._command(message, ChatCommand("help"))
            case "answer_by_word":
                await self._tell_how_to_answer(message)
            case "part_of_paste" | "question":
                await self._ask_or_hold(message)
            case _:
                assert_never(decision.kind)

    async def _decided(self, message: MessageReceived) -> Decision:
        place = message.place
        incoming = Incoming(
            message,
            self._settings.respond,
            is_whole_chat=self._sessions.is_whole_chat(place),
            continues_paste=self._pastes.continues(message),
        )
        while True:
            match decide(incoming):
                case "in_conversation":
                    incoming = incoming._replace(in_conversation=await self._sessions.goes_on_in(place))
                case "open_question":
                    incoming = incoming._replace(open_question=await self._open_question(message))
                case decision:
                    return decision

    async def _open_question(self, message: MessageReceived) -> OpenQuestion:
        asked = await self._runs.open_approval(message.place, message.sender)
        if asked is None:
            return "none"
        return "theirs" if self._runs.may_answer(message.place, message.sender, asked) else "others"

    async def _command(self, message: MessageReceived, command: ChatCommand | None) -> None:
        if command is None:
            return
        if command.row.follows_paste and (held := self._pastes.take_of_sender(message)) is not None:
            await self._ask_whole(held)
        await self._commands.carry_out(message, command)

    async def _tell_how_to_answer(self, message: MessageReceived) -> None:
        """As a question the word would end the run that asks."""
        asked = await self._runs.open_approval(message.place, message.sender)
        if asked is None or self._runs.may_answer(message.place, message.sender, asked):
            told = "A question is open: answer it with /approve or /deny. See /help."
        else:
            told = await self._runs.only_the_requester(asked)
        self._deliveries.say(message.place, told, message.update_id)

    async def _ask_or_hold(self, message: MessageReceived) -> None:
        loop = asyncio.get_running_loop()
        whole = self._pastes.add(message, loop.time())
        self._held.set()
        if whole is not None:
            await self._ask_whole(whole)
        else:
            self._unreleased.setdefault(message.update_id, loop.create_future())

    async def _ask_whole(self, whole: MessageReceived) -> None:
        """Raises `TailraceError`: the platform delivers its parts again, of which none is acknowledged. Cancelled, it
        holds a paste again, and `join_pastes` asks it at once: a part may be acknowledged and not come again."""
        try:
            await self._start_run(whole)
        except TailraceError as exc:
            for update_id in part_ids(whole):
                self._recent.forget(update_id)
            self._release(whole, exc)
            raise
        except Exception:
            self._release(whole)  # its sender is told, and it is not delivered again
            raise
        except BaseException:
            if whole.parts or whole.update_id in self._unreleased:
                self._hold_again(whole)
            raise
        self._release(whole)

    def _hold_again(self, whole: MessageReceived, *, due_at: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        for update_id in part_ids(whole):
            self._unreleased.setdefault(update_id, loop.create_future())
        self._pastes.hold_again([whole], due_at)
        self._held.set()

    def _release(self, whole: MessageReceived, error: TailraceError | None = None) -> None:
        for update_id in part_ids(whole):
            if (held := self._unreleased.pop(update_id, None)) is not None:
                held.set_result(error)

    async def _start_run_logged(self, message: MessageReceived) -> None:
        try:
            async with self._turns.of(message.place):
                await self._start_run(message)
        except StorageFailed as exc:
            log.log(warning_level(exc), "%s: a held message is not stored yet: %s", self._platform.name, exc)
            self._release(message, exc)  # the calls that wait for it now; it is held for those that come again
            self._hold_again(message, due_at=asyncio.get_running_loop().time() + PASTE_GAP_S)
            return
        except TailraceError as exc:
            log.error("%s: a message could not be answered: %s", self._platform.name, exc)  # noqa: TRY400
            self._deliveries.say(message.place, f"⚠️ {exc}", f"{message.update_id}.failure", "failure")
        except Exception as exc:  # noqa: BLE001 - logged; it ends this message and no other
            self._say_failed(message, exc)
        self._release(message)  # not when it is cancelled: then it is held again

    async def _fetch_files(self, reference: JsonObject) -> Message:
        return await message_of(self._platform, msgspec.convert(reference, MessageReceived))

    async def _start_run(self, received: MessageReceived, busy: Busy | None = None) -> None:
        place, later = received.place, self._stopping
        if not (received.text.strip() or received.attachments or received.quoted or received.reply_to):
            return
        if later and not self._app.config.runs_are_kept:
            self._deliveries.say(place, RESTARTING, f"{received.update_id}.restart")
            return
        chosen = await self._sessions.chosen(place)
        session = session_name(place, chosen.generation)
        requester = self._runs.requester(received.sender)
        received = await self._with_quoted(received)
        spoken_by = replace(await self._speaker_names.spoken_by(received), quoted=quotations_of(received))
        written = replace(received, text=with_quotations(received), quoted=())
        given = replace(received, quoted=()) if spoken_by.id else written
        busy = busy or await self._busy(received, session)
        spec = TurnSpec(
            named_message(given),
            model=chosen.model,
            requester=requester,
            requester_name=spoken_by.name or one_line_name(received.sender.name),
            spoken_by=spoken_by if spoken_by.id else SpokenBy(),
            reachable=True,
            yolo=not later and await self._sessions.is_yolo(place),  # it ends with this process
            busy=busy,
            must_answer=busy != self._settings.busy,
            pending_attachments=(
                PendingAttachments(self._platform.name, msgspec.to_builtins(given)) if given.attachments else None
            ),
            shown=shown_text(written) if given.attachments or given.text != written.text else "",
        )
        # The key makes it one run, whatever process heard of the update before (G88).
        key = f"{self._platform.name}:{received.update_id}"
        if busy == "steer" and not later and not given.attachments and await self._steered(spec, session, key):
            return
        run = await self._app.agents.submit(spec, session=session, idempotency_key=key, later=later)
        chrome: Chrome = "verbose" if chosen.verbose else self._settings.tools
        shown = DeliverySpec(run.id, place, self._sessions.showing(place), chrome, requester)
        await self._deliveries.deliver(shown, later=later)

    async def _steered(self, spec: TurnSpec, session: str, key: str) -> bool:
        """Whether the answer under way has the message. It shows in its place when the model reads that. An answer to
        another person takes none: what it may do was approved by them."""
        try:
            steered = await self._app.steering.steer_session(
                session,
                spec.message,
                by=spec.requester,
                idempotency_key=key,
                spoken_by=spec.spoken_by,
                of_requester=spec.requester,
            )
        except SteerRefused as exc:  # too many wait: this one is answered after them
            log.info("%s: a message waits for its turn: %s", self._platform.name, exc)
            return False
        return steered is not None

    async def _with_quoted(self, received: MessageReceived) -> MessageReceived:
        """With what the platform must be asked for, and the files of what is quoted."""
        in_conversation = bool(received.place.thread) and await self._sessions.has_begun(received.place)
        read = await self._platform.quoted(received, in_conversation=in_conversation)
        return with_quoted_files(replace(received, quoted=(*read, *received.quoted)))

    async def _busy(self, received: MessageReceived, session: str) -> Busy:
        """A message ends the answer under way, or waits for it. It waits where that answer has an open question to
        another person: no message of others withdraws a question."""
        if self._settings.busy == "queue" or received.place.kind == "private":
            return self._settings.busy
        asked = await self._runs.open_approval(received.place, received.sender)
        if asked is None or self._runs.may_answer(received.place, received.sender, asked):
            return self._settings.busy
        if not await self._runs.asks_in(session, asked):  # `/new` has just ended it, and is still about to show that
            return self._settings.busy
        who = await self._speaker_names.requester_of(asked)
        told = f"A question to {who} is open. I answer this after it."
        self._deliveries.say(received.place, told, f"{received.update_id}.busy")
        return "queue"
