"""Delivery in every interleaving of two gateways and a bad platform, and the mistakes that the model must find.

`TAILRACE_SOAK=10` explores more faults.
"""

from __future__ import annotations

import os

import msgspec
import pytest
from proof.model_checking import RuleBroken, explore

from model_checking.delivery_model import Bounds, DeliveryModel, DeliveryState, Faults, Gateway
from tailrace.delivery import port
from tailrace.delivery.planning.planner import Planner
from tailrace.delivery.port import AnyReply, Capabilities
from tailrace.events import Delivered

SOAK = int(os.environ.get("TAILRACE_SOAK", "1"))
WHOLE = Capabilities(windows=())
EDIT = Capabilities(mode="edit", edits=True, windows=())
PLATFORMS = {
    "whole": WHOLE,
    "whole, look up": msgspec.structs.replace(WHOLE, resend="look_up"),
    "edited": EDIT,
    "edited, same key": msgspec.structs.replace(EDIT, resend="idempotent"),
    "edited, look up": msgspec.structs.replace(EDIT, resend="look_up"),
}
FAULTS = {
    "a lost reply, a flood, a death": Faults(unknowns=1, floods=1, crashes=1),
    "a lost reply, a takeover": Faults(unknowns=1, crashes=0, stalls=1),
}
LONG = {
    "two lost replies, two deaths": Faults(unknowns=2, crashes=2),
    "a flood, a failure, two deaths": Faults(unknowns=1, floods=1, failures=1, crashes=2),
    "a lost reply, a death, a takeover": Faults(unknowns=1, crashes=1, stalls=1),
}
SLOW = {("edited, same key", "a lost reply, a takeover"), ("edited, look up", "a lost reply, a takeover")}
ALL_FAULTS = FAULTS | LONG
ALL_WORLDS = [(platform, faults) for platform in PLATFORMS for faults in ALL_FAULTS]
QUICK_WORLDS = [world for world in ALL_WORLDS if world[1] in FAULTS and world not in SLOW]
WORLDS = ALL_WORLDS if SOAK > 1 else QUICK_WORLDS


@pytest.mark.parametrize(("platform", "faults"), WORLDS)
def test_G80_an_answer_is_shown_once_whatever_is_lost(platform: str, faults: str) -> None:
    explored = explore(DeliveryModel(Bounds(PLATFORMS[platform], faults=ALL_FAULTS[faults])))
    assert explored.complete
    assert explored.ends


# ── it can fail ──────────────────────────────────────────────────────────────────────────────────────────────


class SendsAnUnknownAgainAfterARestart(DeliveryModel):
    def facts_after_restart(self, facts: tuple[Delivered, ...]) -> tuple[Delivered, ...]:
        return tuple(
            msgspec.structs.replace(fact, state="unsent") if fact.state == "unknown" else fact for fact in facts
        )


class TakesNoReplyForAFailure(DeliveryModel):
    def replied(self, planner: Planner, reply: AnyReply, now: float) -> tuple[Delivered, ...]:
        return super().replied(planner, port.Failed() if isinstance(reply, port.Unknown) else reply, now)


class DropsTheWriteAhead(DeliveryModel):
    def write_ahead(self, planner: Planner) -> Delivered | None:
        return None


class EditsBeforeTheLedgerIsDurable(DeliveryModel):
    def must_commit(self, gateway: Gateway) -> bool:
        return False


class DropsTheConfirmation(DeliveryModel):
    def replied(self, planner: Planner, reply: AnyReply, now: float) -> tuple[Delivered, ...]:
        return tuple(fact for fact in super().replied(planner, reply, now) if fact.state != "confirmed")


class SendsWithoutTheRight(DeliveryModel):
    def may_send(self, state: DeliveryState, gateway: Gateway) -> bool:
        return True


class DeliversTwice(DeliveryModel):
    def may_claim(self, state: DeliveryState) -> bool:
        return True


class TakesANewKeyForEachTry(DeliveryModel):
    def replied(self, planner: Planner, reply: AnyReply, now: float) -> tuple[Delivered, ...]:
        facts = super().replied(planner, reply, now)
        for chain in planner.state.chains.values():
            for message in chain.messages:
                message.sends += message.state == "resend"
        return facts


LOST, DEATH, TAKEOVER = (
    Faults(unknowns=1, crashes=0),
    Faults(unknowns=0, crashes=1),
    Faults(unknowns=0, crashes=0, stalls=1),
)


@pytest.mark.parametrize(
    ("mistake", "platform", "faults", "rule", "steps"),
    [
        (SendsAnUnknownAgainAfterARestart, "whole", DEATH, "is sent again", 11),
        (TakesNoReplyForAFailure, "whole", LOST, "is sent again", 11),
        (DropsTheWriteAhead, "whole", DEATH, "knows nothing of", 5),
        (EditsBeforeTheLedgerIsDurable, "edited", DEATH, "shows the answer 2 times", 15),
        (DropsTheConfirmation, "edited", DEATH, "nothing went wrong", 8),
        (SendsWithoutTheRight, "edited", Faults(unknowns=0, crashes=1, stalls=1), "does not show it", 19),
        (DeliversTwice, "edited", TAKEOVER, "nothing went wrong", 12),
        (TakesANewKeyForEachTry, "edited, same key", LOST, "is sent again", 11),
    ],
)
def test_a_mistake_is_found_with_a_short_trace(
    mistake: type[DeliveryModel], platform: str, faults: Faults, rule: str, steps: int
) -> None:
    with pytest.raises(RuleBroken, match=rule) as caught:
        explore(mistake(Bounds(PLATFORMS[platform], faults=faults)))
    assert len(caught.value.trace) == steps, caught.value
