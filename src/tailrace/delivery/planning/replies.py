"""What a platform's reply does to a delivery and to the message that it concerns. Pure.

Every reply but `Unknown` is certain. After `Unknown` an edit is repeated. A new message is looked up, or sent again
under the same key, where the platform supports that; otherwise a final text is never sent again (G80). `messages` has
the states that the replies lead to.
"""

from __future__ import annotations

import msgspec

from tailrace.delivery import port
from tailrace.delivery.planning.messages import Chain, ChatMessage, NativeStream
from tailrace.delivery.planning.state import DeliveryState, Flight
from tailrace.delivery.port import AnyReply
from tailrace.events import Delivered, DeliveredState

MAX_TRIES = 1450  # in a row, about a day: an outage of the platform or of our own connection loses no answer
MAX_TRIES_IN_DOUBT = 20  # about a quarter of an hour: platforms remember a key for minutes, not for hours
MAX_PARTIAL_TRIES = 5  # of a text that still grows; after that only the final text is sent
MAX_FLOODS = 100
MAX_DELETE_TRIES = 10
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 60.0
THREAD, CHAT = "thread", "chat"
FILE_PREFIX = "f"  # of the keys of files
WINDOW_CLOSED = "it was refused until the person writes again"  # by an earlier process
UNREACHABLE = "the platform could not be reached for too long"


def apply_reply(state: DeliveryState, reply: AnyReply, now: float) -> list[Delivered]:
    """Applies the reply to the action in flight; returns the facts for the ledger."""
    flight = state.flight
    if flight is None:
        raise RuntimeError("no action is in flight")
    state.flight = None
    if not isinstance(flight.action, port.Typing):
        pause_s = reply.pause_s if isinstance(reply, port.Sent | port.Accepted) else 0.0
        state.pace.end(now, pause_s=pause_s)
    match reply:
        case port.Flood(retry_after_s=seconds):
            state.pace.flooded(now, seconds)
        case port.Gone(what="thread") if state.place.thread:
            return _thread_gone(state, flight)
        case port.Gone(what="chat" | "thread"):
            state.over = True
            return [Delivered(CHAT, "gone")]
        case _:
            pass
    if flight.chain is None or flight.message is None:
        return []
    return _MessageReply(state, flight.chain, flight.message, flight, now).apply(reply)


def _thread_gone(state: DeliveryState, flight: Flight) -> list[Delivered]:
    state.leave_thread()
    if flight.chain is None:
        return [Delivered(THREAD, "gone")]
    flight.chain.restart()
    limit = state.capabilities.limit
    return [Delivered(THREAD, "gone"), *(message.fact("unsent", limit) for message in flight.chain.messages)]


def delay_s(tries: int) -> float:
    return float(min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(tries - 1, 16)))


class _MessageReply:
    """A reply to an action on one message. Each method returns the facts for the ledger."""

    def __init__(self, state: DeliveryState, chain: Chain, message: ChatMessage, flight: Flight, now: float) -> None:
        self._delivery, self._chain, self._message = state, chain, message
        self._flight, self._now = flight, now
        self._capabilities = state.capabilities

    def fact(self, state: DeliveredState) -> Delivered:
        return self._message.fact(state, self._capabilities.limit)

    @property
    def _uploads(self) -> bool:
        return isinstance(self._flight.action, port.Upload)

    def apply(self, reply: AnyReply) -> list[Delivered]:
        match self._flight.action:
            case port.Send() | port.Open() | port.Upload():
                return self._sent(reply)
            case port.LookUp():
                return self._looked_up(reply)
            case port.Edit():
                return self._edited(reply) if self._flight.wanted else self._deleted(reply)
            case port.Append() | port.Close():
                return self._streamed(reply)
            case port.Draft():
                return self._drafted(reply)
            case port.Delete():
                return self._deleted(reply)
            case port.Typing():
                return []

    # ── success ──

    def _succeeded(self) -> None:
        self._message.tries = 0
        if not self._flight.final:
            self._delivery.pace.eased()

    def _confirmed(self) -> list[Delivered]:
        """The message shows what it should. A final text is recorded."""
        wanted = self._flight.wanted
        if wanted is None:
            return []
        self._message.show(wanted)
        return [self.fact("confirmed" if self._message.state == "confirmed" else "sent")] if wanted.final else []

    # ── a new message ──

    def _sent(self, reply: AnyReply) -> list[Delivered]:
        match reply:
            case port.Sent(message_id=message_id):
                return self._arrived(message_id)
            case port.Unknown(reason=reason, unlikely=unlikely):
                facts = self._in_doubt()
                if unlikely and self._message.state == "unresolved":
                    self._note_unshown(reason)
                return facts
            case port.Accepted() | port.NotModified() | port.NotFound():
                return self._in_doubt()
            case _:
                return self._not_done(reply) or self._unsent()

    def _arrived(self, message_id: str) -> list[Delivered]:
        self._succeeded()
        self._delivery.until_heard = False  # they have written: what was given up before is missing, and not the rest
        self._delivery.next_preview()
        message, action = self._message, self._flight.action
        message.message_id = message_id
        message.sends += 1
        # After a resend the chat may show what the first attempt sent: the text is edited where that is possible.
        text_unknown = message.state == "resend" and self._capabilities.edits and not self._uploads
        if message.sent_native:
            known = action if isinstance(action, port.Open) else port.Open("")
            message.stream = NativeStream(self._now, None if text_unknown else known.text, known.cards)
            message.move("opened")
        elif text_unknown:
            message.move("posted")
        else:
            return self._confirmed() or [self.fact("sent")]
        return [self.fact("sent")]

    def _unsent(self) -> list[Delivered]:
        """This attempt failed, but an earlier one without a reply may have succeeded."""
        if self._message.state == "unresolved":
            return []  # the ledger has "unknown" under the key of that attempt, and must keep it
        return [self.fact("unknown" if self._message.in_doubt else "unsent")]

    def _in_doubt(self) -> list[Delivered]:
        """No reply: the message may have been sent."""
        resend = self._capabilities.resend
        match "never" if self._uploads and resend == "look_up" else resend:
            case "look_up":
                self._message.move("must_look_up")
                self._message.tries = 0
                return []
            case "idempotent":
                self._message.move("must_resend")
                return self._later()
            case "never":
                if self._message.sent_final:
                    self._delivery.in_doubt.add(self._message.key)
                return self._leave_in_doubt()

    def _leave_in_doubt(self) -> list[Delivered]:
        message = self._message
        message.tries = 0
        message.sends += 1
        if message.sent_final:
            message.move("unresolved")  # never sent again; the ledger keeps saying "unknown"
        else:
            message.move("stray")
            message.final_only = True  # one stray partial text at most: what is sent next is final
        return []

    def _looked_up(self, reply: AnyReply) -> list[Delivered]:
        message = self._message
        match reply:
            case port.Sent(message_id=message_id):
                self._succeeded()
                message.message_id = message_id
                message.sends += 1
                if message.sent_native:
                    message.stream = NativeStream()
                    message.move("opened")
                elif message.sent_final and not self._capabilities.edits:
                    message.move("confirmed")
                    return [self.fact("confirmed")]
                else:
                    message.move("posted")
                return [self.fact("sent")]
            case port.NotFound():
                message.move("not_found")
                message.tries = 0
                return [self.fact("unsent")]
            case port.Flood():
                return self._flooded()
            case _:
                return self._leave_in_doubt() if message.tries + 1 >= MAX_TRIES_IN_DOUBT else self._later()

    # ── a message that is there ──

    def _edited(self, reply: AnyReply) -> list[Delivered]:
        match reply:
            case port.Accepted() | port.NotModified() | port.Sent():
                self._succeeded()
                return self._confirmed()
            case port.Unknown():
                return self._later()
            case _:
                return self._not_done(reply)

    def _streamed(self, reply: AnyReply) -> list[Delivered]:
        message, stream, action = self._message, self._message.stream, self._flight.action
        if stream is None or not isinstance(action, port.Append | port.Close):
            return []
        match reply:
            case port.Accepted() | port.NotModified() | port.Sent():
                return self._piece_added(stream, action)
            case port.Flood():
                return self._flooded()
            case port.Failed() if isinstance(action, port.Close):
                return self._close_later()  # the stream is open for certain, and would stay so
            case port.Failed() if message.tries < 3:
                return self._later()
            case port.Failed():
                stream.text = None  # closed next, then edited
                return []
            case port.Unknown():
                stream.text = None  # the piece may have been added or not: close without adding, then edit
                return self._later() if isinstance(action, port.Close) else []
            case port.Gone(what="message"):
                return self._lost()
            case port.Gone():
                return self._ended_otherwise()
            case _ if isinstance(action, port.Append) or action.text or action.cards:
                stream.text = None  # it was not added, and the stream is open: closed next, then edited
                return []
            case _:
                return self._ended_otherwise()

    def _piece_added(self, stream: NativeStream, action: port.Append | port.Close) -> list[Delivered]:
        self._succeeded()
        stream.cards += action.cards
        if stream.text is not None:
            stream.text += action.text
        if isinstance(action, port.Append):
            return []
        wanted = self._flight.wanted
        complete = wanted is not None and stream.text == wanted.streamed
        return self._confirmed() if complete else self._ended_otherwise()

    def _close_later(self) -> list[Delivered]:
        message = self._message
        message.tries += 1
        if message.tries >= MAX_TRIES:
            return self._give_up(UNREACHABLE)
        message.not_before = self._now + delay_s(message.tries)
        return []

    def _ended_otherwise(self) -> list[Delivered]:
        """The native stream ended with another text, perhaps because it expired (G90): the right text is edited in."""
        self._message.move("posted")
        return [self.fact("sent")]

    def _drafted(self, reply: AnyReply) -> list[Delivered]:
        match reply:
            case port.Accepted() | port.NotModified() | port.Unknown() | port.Failed() | port.Sent():
                # A preview lasts for seconds: a lost one is not sent again, the next one has the latest text.
                self._delivery.pace.eased()
                if isinstance(self._flight.action, port.Draft):
                    self._delivery.show_preview(self._flight.action.text)
            case port.MarkupRejected() if not self._message.plain:
                self._message.plain = True
            case port.TooLong() if self._chain.shrink(self._message):
                pass
            case port.Flood():
                pass
            case _:
                self._delivery.mode = "edit"
                self._delivery.show_preview("")
        return []

    def _deleted(self, reply: AnyReply) -> list[Delivered]:
        message, action = self._message, self._flight.action
        retry = isinstance(reply, port.Unknown | port.Failed | port.Flood)
        message.tries = message.tries + 1 if retry else 0
        if retry and message.tries < MAX_DELETE_TRIES:
            message.not_before = self._now + delay_s(message.tries)
            return []
        message.tries = 0
        if isinstance(action, port.Delete) and action.message_id in message.strays:
            message.strays.remove(action.message_id)
            return []
        message.move("removed")
        return [self.fact("failed")]

    # ── what was certainly not done ──

    def _not_done(self, reply: AnyReply) -> list[Delivered]:
        message = self._message
        match reply:
            case port.Flood():
                return self._flooded()
            case port.MarkupRejected() if not message.plain:
                message.plain = True  # the last resort (G83)
                return []
            case port.TooLong() if not self._uploads and self._chain.shrink(message):
                return [self.fact("sent")] if message.message_id else self._unsent()
            case port.Failed():
                return self._later()
            case port.Gone(what="message" | "stream") if message.message_id:
                return self._lost()
            case port.Refused(for_now=True) if isinstance(self._flight.action, port.Open):
                message.final_only = True
                return []
            case port.Refused(reason=reason, until_heard=until_heard):
                return self._refused(reason, until_heard=until_heard and self._capabilities.reply_window)
            case _:
                return self._refused(f"the platform answered {type(reply).__name__}")

    def _flooded(self) -> list[Delivered]:
        """`retry_after` applies to the whole chat; the latest text is sent afterwards (G78)."""
        self._message.tries += 1
        return self._give_up("too many floods") if self._flight.final and self._message.tries >= MAX_FLOODS else []

    def _later(self) -> list[Delivered]:
        message = self._message
        message.tries += 1
        if message.tries >= MAX_PARTIAL_TRIES and not self._flight.final and not message.in_doubt:
            message.final_only, message.tries = True, 0
            return []
        if message.in_doubt and message.tries >= MAX_TRIES_IN_DOUBT:
            return self._leave_in_doubt()
        if message.tries >= MAX_TRIES:
            return self._give_up(UNREACHABLE)
        message.not_before = self._now + delay_s(message.tries)
        return []

    def _note_unshown(self, reason: str) -> None:
        self._delivery.unshown[self._message.key] = reason

    def _give_up(self, reason: str, *, until_heard: bool = False) -> list[Delivered]:
        self._note_unshown(reason)
        self._delivery.until_heard |= until_heard
        fact = self.fact("failed")  # says whether a native stream was left open
        self._message.move("failed")
        return [msgspec.structs.replace(fact, until_heard=until_heard)]

    def _refused(self, reason: str, *, until_heard: bool = False) -> list[Delivered]:
        """After a refused partial text only the final text is sent. A final text that cannot be edited in is sent as a
        new message; the old one is deleted afterwards."""
        message = self._message
        if isinstance(self._flight.action, port.Open):
            self._delivery.mode = "edit"
            return []
        if self._uploads:
            message.named = True
            return []
        if not self._flight.wanted or not self._flight.wanted.final:
            message.final_only = True
            return []
        if message.message_id and isinstance(self._flight.action, port.Edit):
            message.strays.append(message.message_id)
            return self._lost()
        return self._give_up(reason, until_heard=until_heard)

    def _lost(self) -> list[Delivered]:
        """The message cannot be used any more: another takes its place, with the final text only."""
        self._message.move("lost")
        self._message.final_only = True
        return [self.fact("unsent")]


# ── after a restart ──────────────────────────────────────────────────────────────────────────────────────────


def restore(state: DeliveryState, fact: Delivered) -> None:
    match fact:
        case Delivered(key="chat", state="gone"):
            state.over = True
        case Delivered(key="thread", state="gone"):
            state.leave_thread()
        case _:
            slot_key, _, index = fact.key.rpartition(".")
            resend = state.capabilities.resend
            if resend == "look_up" and slot_key.startswith(FILE_PREFIX):
                resend = "never"  # an upload is not looked up
            state.chain(slot_key).message(int(index)).restore(fact, resend)
            if fact.until_heard:
                state.until_heard, state.unshown[fact.key] = True, WINDOW_CLOSED
            elif fact.state in ("sent", "confirmed"):
                state.until_heard = False
