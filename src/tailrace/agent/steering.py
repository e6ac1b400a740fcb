"""Messages for a turn that is under way, as signals to its owner.

Any process leaves the signal; the owner alone writes what becomes of it, into the one fenced log. Signals are kept
until the run is sealed, and each owner sees all of them: `facts_of` is idempotent by the message's id. Owns the form of
these signals. `Turn` decides when a message is committed; the journal returns what is left (`OpenLog.finish`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from tailrace.events import AnyEvent, SteerAccepted, SteerReturned
from tailrace.events.steers import SteerInput, Steers
from tailrace.ports import Signal

STEER: Final = "steer"
TAKE_BACK: Final = "take_back"


def steer_signal(steer_id: str, message: SteerInput, by: str) -> Signal:
    return Signal(STEER, {"steer_id": steer_id, "input": msgspec.to_builtins(message)}, by)


def take_back_signal(steer_id: str, by: str) -> Signal:
    return Signal(TAKE_BACK, {"steer_id": steer_id}, by)


def facts_of(signal: Signal, steers: Steers) -> list[AnyEvent]:
    """What the owner records of this signal. Nothing for another kind of signal, and for what is on record already."""
    steer_id = str(signal.payload.get("steer_id", ""))
    known = steers.get(steer_id)
    if signal.name == TAKE_BACK and known is not None and known.state == "accepted":
        return [SteerReturned(steer_id, "taken_back")]
    if signal.name != STEER or known is not None:
        return []
    accepted = SteerAccepted(steer_id, msgspec.convert(signal.payload["input"], SteerInput), signal.by)
    return [accepted, SteerReturned(steer_id, "too_many")] if steers.is_full(accepted.input) else [accepted]
