"""Decides what a chat is shown of a run, and when. Pure: events, the clock and the platform's replies in; one action,
a time to wait for, or the end out.

An answer is a row of slots in event order, and each slot a chain of messages. Each step compares what every message is
known to show with what it should show, and hands out the first action that differs: one at a time, in order. So a live
delivery, one that waited for a rate limit and one that another process began take the same path. The latest text wins:
an update that was not made in time is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from logging import DEBUG
from typing import assert_never

from tailrace.delivery import port
from tailrace.delivery.planning import replies
from tailrace.delivery.planning.messages import TERMINAL, Chain, ChatMessage, Wanted
from tailrace.delivery.planning.outline import ApprovalSlot, FileSlot, NoteSlot, Outline, Slot, TextSlot, ToolSlot
from tailrace.delivery.planning.pace import Pace
from tailrace.delivery.planning.presenter import CUT_OFF, MOVED, SUSPENDED, UNSHOWN, Presenter
from tailrace.delivery.planning.state import DeliveryState, Done, Flight, Showing, Step, Wait
from tailrace.delivery.planning.transient_notices import TransientNotices
from tailrace.delivery.port import AnyAction, AnyReply, Capabilities, Place
from tailrace.delivery.text.balance import balance, closed
from tailrace.delivery.text.split import CURSOR, fitting, units
from tailrace.events import Delivered, Entry
from tailrace.runs.record import traced

log = logging.getLogger("tailrace.delivery")
TYPING_SHARE = 0.8  # of an indicator's lifetime, after which it is renewed
STREAM_SHARE = 0.8  # of a native stream's lifetime, after which the next message continues
MOVED_KEY = "moved"
UNSHOWN_KEY, CUT_OFF_KEY = "unshown", "cut_off"
_MINOR = ("tools", "notice", "pairing")  # what is not worth a word when it is missing
_NEW_MESSAGES = (port.Send, port.Open, port.Upload)
NOTHING_MORE = "…"  # shown by a message that is no longer needed and cannot be deleted


class Planner:
    """One answer in one place. `name` is the delivery's, unique and stable: message keys begin with it."""

    def __init__(
        self,
        name: str,
        place: Place,
        capabilities: Capabilities,
        presenter: Presenter,
        *,
        showing: Showing,
        pace: Pace,
        purpose: port.Purpose = "answer",
    ) -> None:
        """`purpose` is that of the run's own texts."""
        mode: port.Mode = capabilities.mode if showing.streaming else "whole"
        if mode in ("edit", "stream") and not capabilities.edits:
            mode = "whole"
        self.state = DeliveryState(place, capabilities, pace, mode)
        self.outline = Outline(presenter, edits=capabilities.edits, purpose=purpose)
        self._notes = TransientNotices(self.outline, self.state, presenter)
        self._capabilities = capabilities
        self._pace = pace
        self._name = name
        self._presenter = presenter
        self._min_tokens = showing.min_tokens
        self._interval_s = showing.edit_interval_s or capabilities.edit_interval_s
        self._rung = ""  # the first text that grew in the chat
        self._settled = 0  # all slots before this index are complete
        self._cut_off: set[str] = set()  # slots with a final text whose sender died before the platform replied
        self._suspended = False
        self._updated_at = float("-inf")
        self._typing_at = float("-inf")
        self._roll_over_at = float("inf")  # when a native stream must be replaced, even without a new event

    # ── what happened ────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, entry: Entry) -> None:
        if log.isEnabledFor(DEBUG):
            log.debug("%s <- %d %s", self._name, entry.seq, traced(entry.event))
        if self.outline.apply(entry):
            self._settled = 0

    def suspend(self) -> None:
        """The process is about to end: incomplete messages get a note, and then the planner is done. Another process
        continues the delivery."""
        if self.outline.finished is not None or self._suspended:
            return
        self._suspended = True
        if not self._visibly_grows() and not self.outline.parked:
            self._notes.suspend()

    def try_again(self) -> None:
        """The platform can be reached again: no message waits out its pause, and the count of tries starts over. A
        message that may have been sent keeps its count: the platform remembers its key for minutes only (G80)."""
        for chain in self.state.chains.values():
            for message in chain.messages:
                message.not_before = float("-inf")
                if not message.in_doubt:
                    message.tries = 0

    def restore(self, facts: Iterable[Delivered]) -> None:
        """Continues from the ledger of another process. Events may be applied before or after."""
        for fact in facts:
            replies.restore(self.state, fact)
        messages = (message for chain in self.state.chains.values() for message in chain.messages)
        self._cut_off = {message.key.rpartition(".")[0] for message in messages if message.state == "unresolved"}
        self._notes.restore()
        self._note_move()

    def replied(self, reply: AnyReply, now: float) -> list[Delivered]:
        """Applies the reply to the action in flight; returns the facts for the ledger."""
        flight = self.state.flight
        facts = replies.apply_reply(self.state, reply, now)
        if flight is not None and isinstance(reply, port.Sent | port.Accepted) and self._is_news(flight):
            self._notes.news(now)
        self._note_move()
        self._note_unshown()
        if log.isEnabledFor(DEBUG):
            log.debug("%s <- %s, recorded: %s", self._name, traced(reply), ", ".join(map(traced, facts)) or "nothing")
        return facts

    def _is_news(self, flight: Flight) -> bool:
        """Whether the action has shown something of the run."""
        noted = flight.chain is not None and any(slot.key == flight.chain.key for slot in self._notes.slots)
        return not noted and not isinstance(flight.action, port.Typing | port.Delete | port.LookUp)

    @property
    def _ends(self) -> bool:
        """The planner is done once every message shows its last text."""
        return self._suspended or self.outline.finished is not None

    def _note_move(self) -> None:
        """Adds a note for the whole chat: the thread is gone (G85)."""
        if self.state.moved and not any(slot.key == MOVED_KEY for slot in self.outline.slots):
            self.outline.slots.insert(self._settled, NoteSlot(MOVED_KEY, MOVED))

    def _note_unshown(self) -> None:
        """The user is told once that a text was given up, unless nothing could be sent at all. What was said about
        tools and stalls is not worth it. What the platform takes later is sent then."""
        if self.state.until_heard:
            return
        slots = {slot.key: slot for slot in self.outline.slots}
        reasons = self.state.unshown.items()
        given_up = [slots.get(key.rpartition(".")[0]) for key, why in reasons if why != replies.UNREACHABLE]
        missed = [slot for slot in given_up if slot is not None and slot.purpose not in _MINOR]
        if missed and UNSHOWN_KEY not in slots:
            self.outline.slots.append(NoteSlot(UNSHOWN_KEY, UNSHOWN, purpose="failure"))

    def _note_cut_off(self) -> None:
        """N170: tells the chat once that an answer may be missing. We do not send it again, since it may be there."""
        cut_off = [slot for slot in self.outline.slots if slot.key in self._cut_off and slot.purpose not in _MINOR]
        if cut_off:
            self._cut_off.clear()
            self.outline.slots.append(NoteSlot(CUT_OFF_KEY, CUT_OFF, purpose="failure"))

    @property
    def write_ahead(self) -> Delivered | None:
        """The fact that must be durable before the action in flight is performed (G77, G80)."""
        flight = self.state.flight
        if flight is None or flight.message is None or not isinstance(flight.action, _NEW_MESSAGES):
            return None
        return flight.message.fact("unknown", self._capabilities.limit)

    # ── what is due ──────────────────────────────────────────────────────────────────────────────────────────

    def step(self, now: float) -> Step:
        """The next thing to do. An action is in flight until `replied` is called."""
        if self.state.flight is not None:
            raise RuntimeError("the action in flight has no reply yet")
        if self.state.over:
            return Done()
        if self._cut_off:
            self._note_cut_off()
        self._roll_over_at = float("inf")
        if (fades_at := self._draft_fades_at()) <= now:
            self.state.show_preview("")  # about to vanish while the answer stalls: it is sent again
            fades_at = float("inf")
        if not self._suspended:
            fades_at = min(fades_at, self._notes.due(now, idle=self._goes_on_unseen()))
        until, pending = fades_at, False
        for flight in self._due(now):
            if flight.at <= now:
                return self._hand_out(flight, now)
            until, pending = min(until, flight.at), True
            if flight.first:
                break
        if not pending and self._ends:
            return Done()
        if (typing_at := self._typing_due(now)) is not None:
            if typing_at <= now:
                return self._hand_out(Flight(port.Typing(), now), now)
            until = min(until, typing_at)
        until = min(until, self._roll_over_at)
        return Wait(None if until == float("inf") else until, patient=pending)

    def _hand_out(self, flight: Flight, now: float) -> AnyAction:
        self.state.flight = flight
        if log.isEnabledFor(DEBUG):
            named = isinstance(flight.action, port.Upload)  # a file's name does not get into a log
            log.debug("%s -> %s", self._name, "Upload" if named else traced(flight.action))
        match flight.action:
            case port.Typing():
                self._typing_at = now
                return flight.action
            case port.Send(final=final) | port.Edit(final=final):
                self._updated_at = self._updated_at if final else now
            case port.Draft() | port.Open() | port.Append():
                self._updated_at = now
            case _:
                pass
        if isinstance(flight.action, port.Send) and not flight.action.final and flight.chain is not None:
            self._rung = self._rung or flight.chain.key
        if isinstance(flight.action, _NEW_MESSAGES) and flight.message is not None:
            message, opens = flight.message, isinstance(flight.action, port.Open)
            message.sent_final = flight.final and not (isinstance(flight.action, port.Send) and not flight.action.final)
            message.sent_native = opens or (message.sent_native and message.state == "resend")
        self._pace.begin(now)
        return flight.action

    def _goes_on_unseen(self) -> bool:
        """Whether the chat waits for the run and shows nothing that grows."""
        outline = self.outline
        waits = outline.finished is None and not outline.parked and outline.open_approval is None
        return waits and not self._visibly_grows()

    def _draft_fades_at(self) -> float:
        """When the preview must be sent again although its text has not changed."""
        life = self._capabilities.draft_lifetime_s
        if life is None or not self.state.preview.text or self._ends:
            return float("inf")
        return self._updated_at + life * TYPING_SHARE

    def _typing_due(self, now: float) -> float | None:
        """When the typing indicator is due; None while the answer visibly grows."""
        life = self._capabilities.typing_s
        if life is None or self._ends or self.outline.parked:
            return None
        if self._visibly_grows() or (self.state.preview.text and self.outline.answer is not None):
            return None
        return max(now, self._typing_at + life * TYPING_SHARE)

    def _visibly_grows(self) -> bool:
        """Whether a message in the chat shows a part of the text that the model writes."""
        growing = self.outline.answer
        return growing is not None and growing.growing and self._is_there(growing.key)

    def _is_there(self, key: str) -> bool:
        chain = self.state.chains.get(key)
        return chain is not None and any(message.message_id for message in chain.messages)

    def _due(self, now: float) -> Iterator[Flight]:
        """The actions that are due, in order, each with its earliest time."""
        slots = self.outline.slots
        for place in range(self._settled, len(slots)):
            slot = slots[place]
            settled = True
            for flight in self._slot_due(slot, now):
                settled = False
                yield flight
            if settled and place == self._settled and self._is_settled(slot):
                self._settled += 1
        for note in self._notes.slots:
            yield from self._slot_due(note, now)
        yield from self._to_remove(now)

    def _is_settled(self, slot: Slot) -> bool:
        if isinstance(slot, TextSlot | ToolSlot) and slot.growing:
            return False
        if isinstance(slot, ApprovalSlot) and slot.approval.decision is None:
            return False
        if isinstance(slot, NoteSlot) and slot.kind and slot is self.outline.slots[-1] and not self._ends:
            return False  # a notice of the same kind may replace it
        chain = self.state.chains.get(slot.key)
        return chain is None or all(message.closed for message in chain.messages)

    def _slot_due(self, slot: Slot, now: float) -> Iterator[Flight]:
        chain = self.state.chain(slot.key)
        for index, wanted in enumerate(self._wanted(slot, chain, now)):
            message = chain.message(index)
            if wanted is None or message.state in TERMINAL:
                continue
            if action := self._action(slot, message, wanted):
                final = wanted.final or isinstance(action, port.LookUp)
                at = self._time_for(message, now, final=final)
                yield Flight(action, at, chain, message, wanted, first=final or not message.message_id)

    def _time_for(self, message: ChatMessage, now: float, *, final: bool) -> float:
        at = max(self._pace.free_at(now, final=final), message.not_before)
        rewrite_s = self._capabilities.rewrite_interval_s if message.state == "posted" else 0.0
        return at if final else max(at, self._updated_at + self._pace.interval(max(self._interval_s, rewrite_s)))

    # ── what a message should show ───────────────────────────────────────────────────────────────────────────

    def _wanted(self, slot: Slot, chain: Chain, now: float) -> Iterator[Wanted | None]:
        """What each message of the slot should show; None for one that would be blank."""
        match slot:
            case TextSlot():
                yield from self._wanted_text(slot, chain, now)
            case ToolSlot():
                yield from self._wanted_tools(slot)
            case ApprovalSlot(approval=approval):
                can = self._capabilities
                buttons = self._presenter.approval_buttons(approval) if can.buttons else ()
                text = self._presenter.approval(approval, buttons=can.buttons)
                yield from self._in_parts(chain, text, buttons, lasting=approval.decision is not None)
            case NoteSlot(text=text):
                yield from self._in_parts(chain, text)
            case FileSlot(file=file):
                yield Wanted(self._presenter.file(file), final=True)
            case _:
                assert_never(slot)

    def _wanted_text(self, slot: TextSlot, chain: Chain, now: float) -> Iterator[Wanted | None]:
        if self.state.mode == "whole" and slot.growing:
            return  # each text is shown once it is complete
        source = slot.text
        self._roll_over(slot, chain, source, now)
        for index, part in enumerate(chain.parts(source)):
            message = chain.message(index)
            text = chain.text_of(index, part)
            if not text.strip():
                yield None
            elif part.whole or not slot.growing:
                yield Wanted(text, final=True, streamed=text if not part.whole else closed(part.raw(source)))
            elif self._suspended:
                yield self._cut_short(text, message)
            elif index or slot.tokens >= self._min_tokens or message.message_id:
                cursor = CURSOR if self.state.mode == "edit" else ""
                yield Wanted(balance(text, cursor), final=False, streamed=text)

    def _wanted_tools(self, slot: ToolSlot) -> Iterator[Wanted]:
        tools = slot.tools.values()
        text = self._presenter.tool_lines(tools, slot.outputs, self._capabilities.limit, self._capabilities.unit)
        if not text:
            return
        final = not slot.growing
        if self.state.mode == "stream" and self._capabilities.cards and self._presenter.chrome != "verbose":
            yield Wanted(text, final, cards=tuple(map(self._presenter.card, tools)))
        elif final or (self._capabilities.edits and self.state.mode != "whole"):
            yield Wanted(text, final)

    def _in_parts(
        self, chain: Chain, text: str, buttons: tuple[port.Button, ...] = (), *, lasting: bool = True
    ) -> Iterator[Wanted | None]:
        """A text that does not grow; the last part has the buttons."""
        parts = chain.parts(text)
        for index, part in enumerate(parts):
            shown = chain.text_of(index, part)
            below = buttons if part is parts[-1] else ()
            yield Wanted(shown, True, below, lasting=lasting) if shown.strip() else None

    def _cut_short(self, text: str, message: ChatMessage) -> Wanted:
        """An incomplete text with the note of `suspend`."""
        ending = f"\n\n{SUSPENDED}"
        room = message.limit - units(ending, self._capabilities.unit) - 32
        shown = balance(text[: fitting(text, 0, room, self._capabilities.unit)]) + ending
        return Wanted(shown, final=True, streamed=closed(text) + ending, lasting=False)

    # ── what brings it there ─────────────────────────────────────────────────────────────────────────────────

    def _action(self, slot: Slot, message: ChatMessage, wanted: Wanted) -> AnyAction | None:
        match message.state:
            case "streaming":
                return self._stream_action(message, wanted)
            case "posted" | "confirmed" if isinstance(slot, FileSlot):
                return None
            case "posted" | "confirmed":
                return self._edit_action(slot, message, wanted)
            case "look_up":
                return port.LookUp(self._key(message), wanted.text, not message.plain)
            case "absent" | "resend":
                return self._send_action(slot, message, wanted)
            case "failed" | "removed" | "unresolved":
                return None
            case _:
                assert_never(message.state)

    def _edit_action(self, slot: Slot, message: ChatMessage, wanted: Wanted) -> AnyAction | None:
        if message.shows(wanted):
            if message.state == "posted" and wanted.final and wanted.lasting:
                message.show(wanted)
            return None
        outdated = message.final_only and not wanted.final
        if message.confirmed_by_another(wanted) or outdated or not self._capabilities.edits:
            return None
        return port.Edit(message.message_id, wanted.text, not message.plain, wanted.final, wanted.buttons, slot.purpose)

    def _send_action(self, slot: Slot, message: ChatMessage, wanted: Wanted) -> AnyAction | None:
        """The first message of a text."""
        mode, is_text = self.state.mode, isinstance(slot, TextSlot)
        if (
            isinstance(slot, FileSlot)
            and not message.named
            and len(slot.file.data) <= self._capabilities.max_file_bytes
        ):
            return port.Upload(self._key(message), slot.file.name, slot.file.media_type, slot.file.data)
        if is_text and not wanted.lasting:
            return self._cut_preview(slot, message, wanted)
        final = wanted.final and (not wanted.cards or message.final_only)  # cards need a stream; without one: lines
        if not final:
            if message.final_only:
                return None
            if mode == "stream" and (wanted.cards or is_text):
                return port.Open(self._key(message), wanted.streamed, wanted.cards)
            if mode == "draft" and is_text:
                number, shown = self.state.preview
                return port.Draft(number, wanted.text, not message.plain) if wanted.text != shown else None
            if not self._capabilities.edits:
                return None
        silent = not self._rings(slot, message)
        return port.Send(
            self._key(message), wanted.text, not message.plain, final, wanted.buttons, slot.purpose, silent
        )

    def _rings(self, slot: Slot, message: ChatMessage) -> bool:
        """A turn rings once with its answer, however many tools it calls: with the text that ends it, or, where that
        grows in the chat, with the first text that does. Questions and failures ring too. A stopped answer does not:
        the person has just written."""
        if not isinstance(slot, TextSlot):
            return slot.purpose in ("approval", "failure", "pairing")
        is_first = message is self.state.chain(slot.key).messages[0]
        if slot.growing:
            return is_first and self._rung in ("", slot.key)
        return (
            is_first and slot is self.outline.answer and self.outline.finished is not None and slot.purpose != "stopped"
        )

    def _cut_preview(self, slot: Slot, message: ChatMessage, wanted: Wanted) -> AnyAction | None:
        """The text of a preview that a shutdown has cut, as a message: the preview is gone in seconds, and the next
        process, which goes on in that message, may come later. Without a preview the chat needs no explanation."""
        if not self.state.preview.text or message.final_only or not self._capabilities.edits:
            return None
        return port.Send(self._key(message), wanted.text, not message.plain, final=False, purpose=slot.purpose)

    def _stream_action(self, message: ChatMessage, wanted: Wanted) -> AnyAction | None:
        stream = message.stream
        if stream is None or stream.text is None or not wanted.streamed.startswith(stream.text):
            return port.Close(message.message_id)  # text can only be added: the right text is edited in afterwards
        cards = tuple(card for card in wanted.cards if card not in stream.cards)
        added = wanted.streamed[len(stream.text) :]
        if wanted.final:
            return port.Close(message.message_id, added, cards)
        return port.Append(message.message_id, added, cards) if added.strip() or cards else None

    def _key(self, message: ChatMessage) -> str:
        return f"{self._name}.{message.key}.{message.sends}"

    def _roll_over(self, slot: TextSlot, chain: Chain, source: str, now: float) -> None:
        """Ends a native stream that is about to expire at a word; the next message continues the text (G90)."""
        life = self._capabilities.stream_lifetime_s
        if life is None or not slot.growing:
            return
        part = chain.parts(source)[-1]
        message = chain.messages[len(chain.parts(source)) - 1]
        stream = message.stream
        if stream is None or stream.text is None or part.whole:
            return
        if now < (due := stream.opened_at + life * STREAM_SHARE):
            self._roll_over_at = due
            return
        least = part.start + max(0, len(stream.text) - len(part.before))
        space = max(source.rfind(" ", least), source.rfind("\n", least))
        chain.end_at(message, max(space + 1, least, part.start + 1))

    def _to_remove(self, now: float) -> Iterator[Flight]:
        """Deletes messages that were replaced, never before the replacement is confirmed (G87)."""
        if self._suspended:
            return
        for slot in (*self.outline.slots, *self._notes.slots):
            if (chain := self.state.chains.get(slot.key)) is None:
                continue
            for message in chain.messages:
                if message.strays and message.digest and self._capabilities.deletes:
                    yield self._removal(chain, message, port.Delete(message.strays[0]), now)
            if self._may_shrink(slot):
                for message in chain.surplus(slot.text if isinstance(slot, TextSlot) else ""):
                    if gone := self._emptied(message):
                        yield self._removal(chain, message, gone, now)

    def _may_shrink(self, slot: Slot) -> bool:
        """Whether the slot's text may have become too short for its messages."""
        if isinstance(slot, NoteSlot):
            return not slot.text and self._capabilities.deletes
        return isinstance(slot, TextSlot) and not slot.growing

    def _emptied(self, message: ChatMessage) -> AnyAction | None:
        if message.state == "streaming":
            return port.Close(message.message_id)
        if self._capabilities.deletes:
            return port.Delete(message.message_id)
        gone = port.Edit(message.message_id, NOTHING_MORE, markup=False, purpose="notice")
        return gone if self._capabilities.edits else None

    def _removal(self, chain: Chain, message: ChatMessage, action: AnyAction, now: float) -> Flight:
        return Flight(action, self._time_for(message, now, final=True), chain, message, first=True)
