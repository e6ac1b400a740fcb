"""Steering in every interleaving, and the mistakes that the model must find.

`TAILRACE_SOAK=10` explores more people, faults and work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

import msgspec
import pytest
from proof.model_checking import RuleBroken, explore

from model_checking.run_store import RunStore
from model_checking.steering_model import Bounds, Faults, SteeringModel, SteeringState
from tailrace.agent.steering import TAKE_BACK
from tailrace.agent.turn import CallModel, Finish, Turn, TurnCommand
from tailrace.events import AnyEvent, Entry, RunFinished, SteerAccepted, SteerCommitted, SteerReturned, SteerSoFar
from tailrace.events.steers import Steers
from tailrace.journal.stored.group_commit import StoredLog
from tailrace.ports import Signal

WORLDS = {
    "a death": Bounds(faults=Faults(crashes=1)),
    "a death, sent again": Bounds(faults=Faults(crashes=1, retries=1)),
    "taken back, a stop": Bounds(take_backs=1, faults=Faults(stops=1)),
    "taken back, a death": Bounds(take_backs=1, faults=Faults(crashes=1)),
    "two messages at a limit": Bounds(people=2, max_calls=1),
}
LONG = {
    "a stall": Bounds(faults=Faults(stalls=1)),
    "two messages": Bounds(people=2),
    "a tool, words": Bounds(tool=True, words=True),
    "a tool, a death": Bounds(tool=True, faults=Faults(crashes=1)),
    "a tool, a stop": Bounds(tool=True, faults=Faults(stops=1)),
    "words, a death": Bounds(words=True, faults=Faults(crashes=1)),
    "a person gives up, a death": Bounds(faults=Faults(crashes=1, timeouts=1)),
    "taken back, a stop, a death": Bounds(take_backs=1, faults=Faults(crashes=1, stops=1)),
}
if int(os.environ.get("TAILRACE_SOAK", "1")) > 1:
    WORLDS |= LONG


@pytest.mark.parametrize("world", WORLDS)
def test_N164_a_message_is_committed_or_returned_once_in_every_interleaving(world: str) -> None:
    with closing(RunStore()) as store:
        explored = explore(SteeringModel(store, WORLDS[world]))
    assert explored.complete
    assert explored.ends > 100


# ── it can fail ──────────────────────────────────────────────────────────────────────────────────────────────


class ForgetsWhatWasCommitted(SteeringModel):
    def replay(self, turn: Turn, entries: Sequence[Entry]) -> None:
        super().replay(turn, [entry for entry in entries if not isinstance(entry.event, SteerCommitted)])


class AcknowledgesBeforeTheCommit(SteeringModel):
    def seen_by_people(self, state: SteeringState) -> Steers:
        """What an owner remembers, also where its log does not have it yet."""
        for owner in state.owners:
            if (steers := self._turn(owner).steers).all:
                return steers
        return super().seen_by_people(state)


class EndsWithNoReturn(SteeringModel):
    def finish(self, log: StoredLog, finished: RunFinished) -> Entry:
        log.fold.steers = Steers()
        return super().finish(log, finished)


class TakesBackWhatIsCommitted(SteeringModel):
    def facts(self, signal: Signal, steers: Steers) -> list[AnyEvent]:
        if signal.name == TAKE_BACK:
            return [SteerReturned(str(signal.payload["steer_id"]), "taken_back")]
        return super().facts(signal, steers)


class AcceptsASignalAgain(SteeringModel):
    def facts(self, signal: Signal, steers: Steers) -> list[AnyEvent]:
        return super().facts(signal, steers if signal.name == TAKE_BACK else Steers())


class EndsWithAMessageThatWaits(SteeringModel):
    def due(self, turn: Turn) -> TurnCommand:
        command = super().due(turn)
        over = turn.output and isinstance(command, CallModel) and not turn.shown
        return Finish("completed", turn.output) if over else command


class RefusesWithNoSecondLook(SteeringModel):
    def looked_at_again(self, known: SteerSoFar | None) -> SteerSoFar | None:
        return None


class ForksWhatWaits(SteeringModel):
    def forked(self, entries: tuple[Entry, ...]) -> list[Entry]:
        waiting = [entry for entry in entries if isinstance(entry.event, SteerAccepted)]
        copied = super().forked(entries)
        return [*copied, *(msgspec.structs.replace(entry, seq=len(copied) + 2) for entry in waiting)]


@pytest.mark.parametrize(
    ("mistake", "rule", "steps"),
    [
        (ForgetsWhatWasCommitted, "committed or returned twice", 8),
        (AcknowledgesBeforeTheCommit, "was acknowledged, and the log does not have it", 5),
        (EndsWithNoReturn, "neither committed nor returned", 12),
        (TakesBackWhatIsCommitted, "committed or returned twice, or both", 11),
        (AcceptsASignalAgain, "accepted twice", 9),
        (EndsWithAMessageThatWaits, "passes over", 8),
        (RefusesWithNoSecondLook, "was refused, and the log has it", 11),
        (ForksWhatWaits, "waits in the fork", 5),
    ],
)
def test_a_mistake_is_found_with_a_short_trace(mistake: type[SteeringModel], rule: str, steps: int) -> None:
    bounds = Bounds(take_backs=1, faults=Faults(crashes=1, retries=1))
    with closing(RunStore()) as store, pytest.raises(RuleBroken, match=rule) as caught:
        explore(mistake(store, bounds))
    assert len(caught.value.trace) == steps, caught.value
