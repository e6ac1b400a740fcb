"""Answers that a platform takes once the person has written again: kept in the journal until then.

WhatsApp takes none more than a day after the person's last message, and says so at once or later: of each message on
its own. What has arrived is not sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from tailrace.delivery.ledger import DeliverySpec
from tailrace.delivery.planning.outline import KEPT_BACK_KEY
from tailrace.delivery.planning.pace import Pace
from tailrace.delivery.planning.passing_notes import is_passing
from tailrace.delivery.planning.planner import MOVED_KEY, UNSHOWN_KEY, Done, Planner
from tailrace.delivery.planning.presenter import Presenter
from tailrace.delivery.port import Capabilities, Place
from tailrace.errors import CorruptLog
from tailrace.events import Delivered, DeliveredState, Entry
from tailrace.journal.key_values import KeyValues
from tailrace.messages import Value
from tailrace.ports import Journal

log = logging.getLogger("tailrace.delivery")
KEPT_BACK: Final = "This could not be sent before you wrote again:"  # above what is sent then
NAMESPACE: Final = "chats.kept_back"
MAX_KEPT = 20  # answers of one place; the oldest are left out first: they are in the conversation
# A message whose send got no reply is never sent again (G80), here neither.
_IN_CHAT: Final[frozenset[DeliveredState]] = frozenset({"sent", "confirmed", "unknown"})


class Kept(NamedTuple):
    """`lost`: the messages of the delivery that were taken and then not delivered; of the others its ledger tells.
    None: any may be lost."""

    delivery: str
    lost: frozenset[str] | None


# ── what is to be sent ───────────────────────────────────────────────────────────────────────────────────────


def messages_seen(
    before: Iterable[Delivered], facts: Iterable[Delivered], lost: Collection[str] | None
) -> tuple[Delivered, ...]:
    """What a delivery has left of the answer: those that are in the chat, and as unsent those that are not. `before` is
    what it found there itself. Notes about the delivery are no part of the answer."""
    if lost is None:
        return ()
    newest = {fact.key: fact for fact in (*before, *facts)}
    return tuple(
        fact if fact.state in _IN_CHAT and key not in lost else _unsent(fact)
        for key, fact in newest.items()
        if fact.state != "gone" and not _is_note(key.rpartition(".")[0])
    )


def _is_note(slot_key: str) -> bool:
    return slot_key in (KEPT_BACK_KEY, MOVED_KEY, UNSHOWN_KEY) or is_passing(slot_key)


def _unsent(fact: Delivered) -> Delivered:
    return replace(fact, state="unsent", message_id="", digest="", until_heard=False)


def lost_since(kept: Kept, later: str, seen: Iterable[Delivered]) -> Kept:
    """The same of the delivery that took the place of this one and has found `seen` in the chat: what it took for
    arrived is lost there, the rest it has sent."""
    arrived = frozenset(fact.key for fact in seen if fact.state in _IN_CHAT)
    return Kept(later, arrived & (kept.lost or frozenset()))


def sends_anything(spec: DeliverySpec, capabilities: Capabilities, entries: Iterable[Entry]) -> bool:
    """Whether a delivery of the run with this log has something to send, or may have."""
    presenter = Presenter(spec.chrome, mark=capabilities.command_mark, platform=spec.place.platform)
    pace = Pace(capabilities.windows)
    planner = Planner("", spec.place, capabilities, presenter, showing=spec.showing, pace=pace, hints=spec.hints)
    planner.state.inherit(spec.seen)
    for entry in entries:
        planner.apply(entry)
    return not isinstance(planner.step(0.0), Done)


# ── what is kept ─────────────────────────────────────────────────────────────────────────────────────────────


class KeptDeliveries(Value):
    """`lost` is by delivery, as in `Kept`; one that is not there was kept by an earlier version, or as a whole."""

    deliveries: tuple[str, ...] = ()
    lost: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, kept: Iterable[Kept]) -> KeptDeliveries | None:
        """None where nothing is kept. Their names sort by when they began, and a platform tells of lost messages in any
        order."""
        some = sorted(kept, key=lambda one: one.delivery)[-MAX_KEPT:]
        lost = {one.delivery: tuple(sorted(one.lost)) for one in some if one.lost is not None}
        return cls(tuple(one.delivery for one in some), lost) if some else None

    @property
    def kept(self) -> tuple[Kept, ...]:
        lost = {delivery: frozenset(parts) for delivery, parts in self.lost.items()}
        return tuple(Kept(delivery, lost.get(delivery)) for delivery in self.deliveries)


class KeptBack:
    """Those of one account, by place."""

    def __init__(self, journal: Journal, account: str) -> None:
        self._kept = KeyValues(journal, NAMESPACE, KeptDeliveries)
        self._prefix = f"{account} "

    async def add(self, place: Place, delivery: str, lost: Collection[str] | None) -> None:
        """`lost` as in `Kept`. Raises `JournalError`."""

        def added(kept: KeptDeliveries | None) -> KeptDeliveries | None:
            known = {one.delivery: one for one in (kept.kept if kept is not None else ())}
            before = known.pop(delivery, Kept(delivery, frozenset()))
            together = None if lost is None or before.lost is None else before.lost.union(lost)
            return KeptDeliveries.of((*known.values(), Kept(delivery, together)))

        await self.of(place)  # one that cannot be read makes room
        await self._kept.update(self._prefix + place.key, added)

    async def of(self, place: Place) -> tuple[Kept, ...]:
        """The oldest first. Raises `JournalError`."""
        key = self._prefix + place.key
        try:
            return (await self._kept.get(key) or KeptDeliveries()).kept
        except CorruptLog as exc:  # the person has written something, and that is answered all the same
            log.error("%s; it is moved to %s.unreadable", exc, NAMESPACE)  # noqa: TRY400
            await self._kept.set_aside(key)
            return ()

    async def settle(self, place: Place, done: Kept) -> None:
        """This is sent, or will never be. What was lost of it since it was read stays. Raises `JournalError`."""

        def left(kept: KeptDeliveries | None) -> KeptDeliveries | None:
            return KeptDeliveries.of(
                more
                for one in (kept.kept if kept is not None else ())
                if (more := one if one.delivery != done.delivery else _left_of(one, done)) is not None
            )

        await self._kept.update(self._prefix + place.key, left)


def _left_of(now: Kept, done: Kept) -> Kept | None:
    if done.lost is None or now.lost is None:
        return None if done.lost is None else now
    more = now.lost - done.lost
    return Kept(now.delivery, more) if more else None


async def is_kept_back(journal: Journal, deliveries: Collection[str]) -> bool:
    """Whether something of one of these is sent when the person writes again. Raises `JournalError`."""
    kept, _ = await KeyValues(journal, NAMESPACE, KeptDeliveries).readable()
    return any(not set(deliveries).isdisjoint(value.deliveries) for value in kept.values())
