"""Lease and fencing in every interleaving, and the mistakes that the model must find.

`TAILRACE_SOAK=10` explores more processes, faults and work.
"""

from __future__ import annotations

import os
from contextlib import closing

import msgspec
import pytest
from proof.model_checking import RuleBroken, explore

from model_checking.lease_model import Bounds, Faults, LeaseModel
from model_checking.run_store import LEASE_TICKS, NOW, Outcome, RunStore, StoredRun, Work
from tailrace.events import Entry
from tailrace.journal.stored.group_commit import PendingAppend, PendingCall, StoredLog
from tailrace.ports import Lease

WORLDS = {
    "a death and a stall": Bounds(progress=frozenset({0}), faults=Faults(crashes=1, stalls=1)),
    "three processes": Bounds(processes=3, work=1, faults=Faults(crashes=1, stalls=1)),
    "deaths in a row": Bounds(work=1, faults=Faults(crashes=3, unparks=1)),
    "given back, several machines": Bounds(work=1, pipes=False, faults=Faults(crashes=1, releases=2)),
}
LONG = {
    "two stalls": Bounds(progress=frozenset({0}), faults=Faults(crashes=1, stalls=2)),
    "two deaths, a stall": Bounds(faults=Faults(crashes=2, stalls=1)),
    "two deaths, a stall, several machines": Bounds(pipes=False, faults=Faults(crashes=2, stalls=1)),
    "three processes, two deaths": Bounds(processes=3, work=1, faults=Faults(crashes=2, stalls=1)),
    "a death, a stall, given back": Bounds(work=1, pipes=False, faults=Faults(crashes=1, stalls=1, releases=1)),
    "one of each": Bounds(faults=Faults(crashes=1, stalls=1, releases=1)),
}
if int(os.environ.get("TAILRACE_SOAK", "1")) > 1:
    WORLDS |= LONG


@pytest.mark.parametrize("world", WORLDS)
def test_the_lease_holds_in_every_interleaving(world: str) -> None:
    with closing(RunStore()) as store:
        explored = explore(LeaseModel(store, WORLDS[world]))
    assert explored.complete
    assert explored.ends > 100


# ── it can fail ──────────────────────────────────────────────────────────────────────────────────────────────


class ForgetsTheEpochOfAnAppend(RunStore):
    def _write(self, group: list[PendingAppend | PendingCall[Work]]) -> None:
        (newest,) = self._connection.execute("SELECT epoch FROM heads").fetchone()
        for part in group:
            if isinstance(part, PendingAppend):
                part.rows = [(*row[:-1], newest) for row in part.rows]
        super()._write(group)


class StealsALease(RunStore):
    def _claim(self, stored: StoredRun, owner: str, alive: frozenset[str], after: float) -> Outcome:
        expired = stored.head._replace(lease_left=0)
        return super()._claim(stored._replace(head=expired), owner, alive, after)


class NeverLetsALeaseExpire(RunStore):
    def _claim(self, stored: StoredRun, owner: str, alive: frozenset[str], after: float) -> Outcome:
        held = stored.head._replace(lease_left=stored.head.lease_left + LEASE_TICKS + 1)
        return super()._claim(stored._replace(head=held), owner, alive, after)


class RenewsALeaseThatIsAnothers(RunStore):
    def renew(self, stored: StoredRun, lease: Lease) -> Outcome:
        return super().renew(stored, _newest(stored, lease))


class GivesBackARunThatIsAnothers(RunStore):
    def release(self, stored: StoredRun, lease: Lease, log: StoredLog | None) -> Outcome:
        return super().release(stored, _newest(stored, lease), log)


class SealsARunThatIsAnothers(RunStore):
    def seal(self, stored: StoredRun, lease: Lease, log: StoredLog, last: Entry) -> Outcome:
        return super().seal(stored, _newest(stored, lease), log, last)


class SealsInTwoTransactions(RunStore):
    def seal(self, stored: StoredRun, lease: Lease, log: StoredLog, last: Entry) -> Outcome:
        return self.append(stored, log)  # and the process dies before the second one


class AcknowledgesBeforeTheCommit(RunStore):
    def append(self, stored: StoredRun, log: StoredLog) -> Outcome:
        return Outcome(stored)


class ParksByAnOldCount(RunStore):
    """An owner that seemed dead has come back between the count and the park."""

    def park(self, stored: StoredRun, lease: Lease, log: StoredLog, kills: int) -> Outcome:
        return super().park(stored, lease, log, 0)


class CountsNoDeaths(RunStore):
    def _claim(self, stored: StoredRun, owner: str, alive: frozenset[str], after: float) -> Outcome:
        outcome = super()._claim(stored, owner, alive, after)
        return outcome._replace(stored=outcome.stored._replace(head=outcome.stored.head._replace(kills=0)))


class ClaimsUnderTheSameEpoch(RunStore):
    def _claim(self, stored: StoredRun, owner: str, alive: frozenset[str], after: float) -> Outcome:
        outcome = super()._claim(stored, owner, alive, after)
        if outcome.refusal or stored.head.state != "running":
            return outcome
        num, lease = outcome.results[0]
        lease = msgspec.structs.replace(lease, epoch=stored.head.epoch)
        head = outcome.stored.head._replace(epoch=stored.head.epoch)
        return Outcome(outcome.stored._replace(head=head), ((num, lease),), outcome.errors)


def _newest(stored: StoredRun, lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, epoch=stored.head.epoch)


@pytest.mark.parametrize(
    ("mistake", "rule", "steps"),
    [
        (ForgetsTheEpochOfAnAppend, "an older claim writes", 9),
        (StealsALease, "whose lease has not expired", 2),
        (NeverLetsALeaseExpire, "cannot be claimed", 1),
        (RenewsALeaseThatIsAnothers, "renews a lease that is another's", 8),
        (GivesBackARunThatIsAnothers, "whose lease has not expired", 10),
        (SealsARunThatIsAnothers, "its log ends at", 9),
        (SealsInTwoTransactions, "its log ends at", 4),
        (AcknowledgesBeforeTheCommit, "was acknowledged and is lost", 5),
        (ParksByAnOldCount, "is parked after 1 deaths", 13),
        (CountsNoDeaths, "deaths are counted", 3),
        (ClaimsUnderTheSameEpoch, "deaths are counted", 7),
    ],
)
def test_a_mistake_is_found_with_a_short_trace(mistake: type[RunStore], rule: str, steps: int) -> None:
    with closing(mistake()) as store, pytest.raises(RuleBroken, match=rule) as caught:
        explore(LeaseModel(store, Bounds(work=1, faults=Faults(crashes=1, stalls=1))))
    assert len(caught.value.trace) == steps, caught.value


def test_times_are_relative() -> None:
    """A lease that has so much left is stored with its end, and read back the same."""
    with closing(RunStore()) as store:
        claimed = store.claim(store.first, "a", frozenset()).stored
        assert claimed.head.lease_left == LEASE_TICKS
        assert claimed.later().head.lease_left == LEASE_TICKS - 1
        assert store.run(claimed.later()).owner == "a"
        assert NOW > LEASE_TICKS
