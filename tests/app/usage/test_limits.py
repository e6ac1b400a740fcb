"""What a key may use: counted by the store, judged by the minute and the day."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tailrace.app.costs import Costs
from tailrace.app.housekeeping import expire_usage
from tailrace.app.usage.counters import RESERVED_S, amounts_of
from tailrace.app.usage.ledger import UsageLedger
from tailrace.app.usage.limits import Allowance, KeyLimits, Refusal
from tailrace.config.load import load
from tailrace.config.sections import ServerKey
from tailrace.errors import Permanent
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.messages import ModelRequest, SpentTokens, Usage, user
from tailrace.ports import Journal
from tailrace.providers.attempt import Route
from tailrace.runs.charged_to import CHARGED_TO
from tailrace.testing.scripted.provider import ScriptedProvider

MIDNIGHT = 1_795_132_800.0


class Clock:
    def __init__(self) -> None:
        self.now = MIDNIGHT + 3600 + 15

    def __call__(self) -> float:
        return self.now


def limits(key: ServerKey, journal: Journal, clock: Clock) -> KeyLimits:
    return limits_of([key], journal, clock)


def limits_of(keys: Iterable[ServerKey], journal: Journal, clock: Clock) -> KeyLimits:
    limits = KeyLimits(journal, UsageLedger(journal, Costs(load({}, Path()))), clock=clock)
    limits.take_keys(keys)
    return limits


async def test_a_key_without_limits_costs_nothing() -> None:
    journal = MemoryJournal()
    judged = await limits(ServerKey("ci", "CI_KEY"), journal, Clock()).admit("ci")
    assert judged is None
    assert await journal.counters("rate\t") == {}


async def test_as_many_requests_pass_in_a_minute_as_the_key_has() -> None:
    clock, journal = Clock(), MemoryJournal()
    door = limits(ServerKey("ci", "CI_KEY", requests_per_minute=3), journal, clock)
    judged = await asyncio.gather(*(door.admit("ci") for _ in range(5)))
    assert [each.requests_left for each in judged if isinstance(each, Allowance)] == [2, 1, 0]
    refused = [each for each in judged if isinstance(each, Refusal)]
    assert [each.retry_after_s for each in refused] == [45, 45]
    assert refused[0].message == "this key may use 3 requests a minute of the clock; it may again in 45 s"
    clock.now += 45
    assert isinstance(await door.admit("ci"), Allowance)
    assert len(await journal.counters("rate\t")) == 2, "a node whose clock is behind may be in the minute before"
    clock.now += 60
    assert isinstance(await door.admit("ci"), Allowance)
    assert len(await journal.counters("rate\t")) == 2, "older ones are forgotten"


async def test_a_day_s_tokens_and_money_are_those_of_the_day() -> None:
    clock, journal = Clock(), MemoryJournal()
    key = ServerKey("ci", "CI_KEY", tokens_per_day=100, usd_per_day=1.0)
    door = limits(key, journal, clock)
    allowed = await door.admit("ci")
    assert isinstance(allowed, Allowance)
    assert (allowed.requests, allowed.tokens, allowed.tokens_left) == (None, 100, 100)
    await journal.add_to_counters(amounts_of("ci", SpentTokens("p", "m", Usage(60, 39)), clock.now, 0.5))
    assert isinstance(await door.admit("ci"), Allowance)
    await journal.add_to_counters(amounts_of("ci", SpentTokens("p", "m", Usage(1, 0)), clock.now, 0.1))
    refused = await door.admit("ci")
    assert isinstance(refused, Refusal)
    assert (refused.limit, refused.used, refused.retry_after_s) == ("tokens_per_day", 100, 86_400 - 3615)
    assert isinstance(refused.used, int), "tokens are whole, and so they are in the answer"
    assert refused.message == "this key may use 100 tokens a day, and has used 100; it may again in 23 h"
    clock.now = MIDNIGHT + 86_400
    assert isinstance(await door.admit("ci"), Allowance)
    await journal.add_to_counters(amounts_of("ci", SpentTokens("p", "m", Usage(1, 0)), clock.now, 1.25))
    refused = await door.admit("ci")
    assert isinstance(refused, Refusal)
    assert refused.message == "this key may use $1 a day, and has used $1.25; it may again in 24 h"


async def test_a_clock_that_was_ahead_uses_up_the_day_that_it_showed_and_no_other() -> None:
    clock, journal = Clock(), MemoryJournal()
    door = limits(ServerKey("ci", "CI_KEY", tokens_per_day=100, requests_per_minute=2), journal, clock)
    judged = list[type]()
    for ahead_days, tokens in ((0, 60), (1, 100), (0, 39), (0, 1), (0, 0), (1, 0), (2, 0)):
        at = clock.now + ahead_days * 86_400
        clock.now, now = at + 120 * len(judged), clock.now  # each in a minute of its own
        judged.append(type(await door.admit("ci")))
        clock.now = now
        await journal.add_to_counters(amounts_of("ci", SpentTokens("p", "m", Usage(tokens, 0)), at))
    # Ahead by a day for one call, then back: this day has what was used on it, the next one is used up, the one after
    # it is whole.
    assert judged == [Allowance, Allowance, Allowance, Allowance, Refusal, Refusal, Allowance]


async def test_keys_are_counted_each_for_itself() -> None:
    clock, journal = Clock(), MemoryJournal()
    keys = {name: ServerKey(name, "CI_KEY", requests_per_minute=1) for name in ("a", "a\tb", "ab")}
    door = limits_of(keys.values(), journal, clock)
    assert all([isinstance(await door.admit(name), Allowance) for name in keys])
    assert all([isinstance(await door.admit(name), Refusal) for name in keys])


async def test_the_minutes_of_ten_thousand_keys_are_removed_together() -> None:
    """A request costs the same however many keys there are."""

    class Counted(MemoryJournal):
        steps = 0

        async def add_to_counters(self, amounts: Mapping[str, float]) -> dict[str, float]:
            self.steps += 1
            return await super().add_to_counters(amounts)

        async def remove_counters(self, prefix: str, before: str) -> None:
            self.steps += 1
            await super().remove_counters(prefix, before)

    clock, journal = Clock(), Counted()
    names = [f"key {number}" for number in range(10_000)]
    door = limits_of([ServerKey(name, "CI_KEY", requests_per_minute=9) for name in names], journal, clock)
    for name in names:
        await door.admit(name)
    assert journal.steps == 10_001
    clock.now += 120
    await door.admit("key 1")
    assert len(await journal.counters("rate\t")) == 1


@pytest.mark.parametrize("early_s", [0.0, 0.25, 59.75])
async def test_what_a_client_waits_for_is_over_when_it_asks_again(early_s: float) -> None:
    clock, journal = Clock(), MemoryJournal()
    clock.now = MIDNIGHT + 86_400 - early_s
    door = limits(ServerKey("ci", "CI_KEY", requests_per_minute=1, tokens_per_day=10), journal, clock)
    assert isinstance(await door.admit("ci"), Allowance)
    refused = await door.admit("ci")
    assert isinstance(refused, Refusal)
    assert 1 <= refused.retry_after_s <= 60
    await journal.add_to_counters(amounts_of("ci", SpentTokens("p", "m", Usage(10, 0)), clock.now))
    spent = await door.admit("ci")
    assert isinstance(spent, Refusal)
    assert spent.limit == "tokens_per_day"
    clock.now += spent.retry_after_s
    assert isinstance(await door.admit("ci"), Allowance)


ROUTES = (Route(ScriptedProvider([]), "m"),)


async def entered(door: KeyLimits, max_tokens: int | None = None) -> AbstractAsyncContextManager[None]:
    """A call of this key that is under way."""
    CHARGED_TO.set("ci")
    inside = door.gate(ModelRequest("m", (user("Go."),), max_tokens=max_tokens), ROUTES)
    assert inside is not None
    await inside.__aenter__()
    return inside


async def test_O174_calls_in_flight_reserve_what_they_may_use_on_every_node() -> None:
    clock, journal = Clock(), MemoryJournal()
    key = ServerKey("ci", "CI_KEY", tokens_per_day=1000)
    one, other = limits(key, journal, clock), limits(key, journal, clock)
    calls = [await entered(door, max_tokens=499) for door in (one, other)]
    with pytest.raises(Permanent, match="in flight, have reserved what is left of 1,000 tokens_per_day") as refused:
        await entered(one)
    assert (refused.value.code, refused.value.status) == ("insufficient_quota", 429)
    await calls[0].__aexit__(None, None, None)
    await (await entered(other)).__aexit__(None, None, None)


async def test_what_a_killed_process_had_reserved_expires() -> None:
    clock, journal = Clock(), MemoryJournal()
    door = limits(ServerKey("ci", "CI_KEY", tokens_per_day=1000), journal, clock)
    await entered(door)
    clock.now += RESERVED_S
    with pytest.raises(Permanent):
        await entered(door)
    clock.now += RESERVED_S
    await (await entered(door)).__aexit__(None, None, None)
    await expire_usage(journal, clock.now, keep_s=None)
    assert set((await journal.counters("reserved\t")).values()) == {0.0}


async def test_a_call_that_is_cancelled_while_it_reserves_gives_it_back(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "runs.db")
    call = asyncio.create_task(entered(limits(ServerKey("ci", "CI_KEY", tokens_per_day=1000), journal, Clock())))
    await asyncio.sleep(0)  # it waits for the store
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await journal.add_to_counters({"another": 0.0})  # after what was under way
    reserved = await journal.counters("reserved\t")
    assert set(reserved.values()) == {0.0}
    await journal.close()


async def test_a_call_without_a_budget_is_not_looked_at() -> None:
    clock, journal = Clock(), MemoryJournal()
    door = limits(ServerKey("ci", "CI_KEY", requests_per_minute=1), journal, clock)
    for name in ("ci", "another"):
        CHARGED_TO.set(name)
        assert door.gate(ModelRequest("m", ()), ROUTES) is None
