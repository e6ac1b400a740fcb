"""Lease and fencing in every interleaving, by the statements of the PostgreSQL store, and mistakes in these."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from proof.model_checking import RuleBroken, explore

from model_checking.lease_model import Bounds, Faults, LeaseModel
from model_checking.postgres_run_store import PostgresRunStore
from tailrace.errors import StaleEpoch
from tailrace.integrations.postgres import commits, statements
from tailrace.integrations.postgres.address import Connection
from tailrace.integrations.postgres.statements import Claimant, Head
from tailrace.ports import Lease

WORLDS = {
    "a death and a stall": Bounds(work=1, pipes=False, faults=Faults(crashes=1, stalls=1)),
    "given back": Bounds(work=1, pipes=False, faults=Faults(crashes=1, releases=2)),
    "deaths in a row": Bounds(work=1, pipes=False, faults=Faults(crashes=3, unparks=1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_the_lease_holds_in_every_interleaving(world: str, postgres_url: str) -> None:
    with closing(PostgresRunStore(postgres_url)) as store:
        explored = explore(LeaseModel(store, WORLDS[world]))
    assert explored.complete
    assert explored.ends > 100


def test_a_run_of_one_process_ends(postgres_url: str) -> None:
    bounds = Bounds(processes=1, work=1, pipes=False, faults=Faults(crashes=1))
    with closing(PostgresRunStore(postgres_url)) as store:
        assert explore(LeaseModel(store, bounds)).complete


# ── it can fail ──────────────────────────────────────────────────────────────────────────────────────────────

Patch = pytest.MonkeyPatch
held = statements._held
claim = statements.claim


def appends_under_an_old_claim(patch: Patch) -> None:
    fence = " AND h.epoch = w.epoch AND h.owner = w.owner"
    assert fence in commits.APPEND
    patch.setattr(commits, "APPEND", commits.APPEND.replace(fence, ""))


def steals_a_lease(patch: Patch) -> None:
    locked_head = statements.locked_head

    async def expired(connection: Connection, run_id: str, now: float | None = None) -> Head:
        return (await locked_head(connection, run_id, now))._replace(lease_holds=False)

    patch.setattr(statements, "locked_head", expired)


def writes_to_a_run_that_is_anothers(patch: Patch) -> None:
    async def whoever_has_it(connection: Connection, lease: Lease) -> Head:
        try:
            return await held(connection, lease)
        except StaleEpoch:
            return await statements.locked_head(connection, lease.run_id)

    patch.setattr(statements, "_held", whoever_has_it)


def counts_no_deaths(patch: Patch) -> None:
    async def claims(connection: Connection, run_id: str, claimant: Claimant, now: float | None) -> Any:
        claimed = await claim(connection, run_id, claimant, now)
        await connection.execute("UPDATE heads SET kills = 0")
        return claimed

    patch.setattr(statements, "claim", claims)


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (appends_under_an_old_claim, "an older claim"),
        (steals_a_lease, "whose lease has not expired"),
        (writes_to_a_run_that_is_anothers, "renews a lease that is another's|whose lease has not expired|ends at"),
        (counts_no_deaths, "deaths are counted"),
    ],
)
def test_a_mistake_is_found(plant: Callable[[Patch], None], rule: str, postgres_url: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    bounds = Bounds(work=1, pipes=False, faults=Faults(crashes=1, stalls=1))
    with closing(PostgresRunStore(postgres_url)) as store, pytest.raises(RuleBroken, match=rule):
        explore(LeaseModel(store, bounds))
