"""What is counted is written: also when a look at it is cancelled, when storage was away, and at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tailrace.app.costs import Costs
from tailrace.app.usage.ledger import FLUSH_EVERY_S, UsageLedger
from tailrace.config.load import load
from tailrace.errors import JournalError, RunSealed, StaleEpoch, StorageFailed
from tailrace.journal.memory import MemoryJournal
from tailrace.messages import Dialect, SpentTokens, Usage
from tailrace.providers.call import Caller
from tailrace.providers.call_listener import AttemptOutcome, CallListener
from tailrace.testing.clock import driven

SPENT = SpentTokens("p", "m", Usage(3, 2))


class SlowJournal(MemoryJournal):
    """Writes when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.away = False
        self.asked: list[float] = []  # when

    async def add_to_counters(self, amounts: Mapping[str, float]) -> dict[str, float]:
        self.asked.append(asyncio.get_running_loop().time())
        await self.gate.wait()
        if self.away:
            raise StorageFailed("away")
        return await super().add_to_counters(amounts)


@pytest.fixture
async def journal() -> SlowJournal:
    return SlowJournal()


@pytest.fixture
def ledger(journal: SlowJournal, tmp_path: Path) -> UsageLedger:
    return UsageLedger(journal, Costs(load({}, tmp_path)))


async def test_a_look_that_is_cancelled_loses_nothing_and_counts_nothing_twice(
    ledger: UsageLedger, journal: SlowJournal
) -> None:
    ledger.add("ci", SPENT)
    looking = asyncio.ensure_future(ledger.rows())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    looking.cancel()
    await asyncio.wait([looking])
    ledger.add("ci", SPENT)
    journal.gate.set()
    [row] = await ledger.rows()
    assert (row.calls, row.input_tokens, row.output_tokens) == (2, 6, 4)


async def test_what_storage_refused_is_written_later(ledger: UsageLedger, journal: SlowJournal) -> None:
    journal.gate.set()
    journal.away = True
    ledger.add("ci", SPENT)
    with pytest.raises(StorageFailed):
        await ledger.flush()
    journal.away = False
    ledger.add("desk", SPENT)
    assert {row.key: row.calls for row in await ledger.rows()} == {"ci": 1, "desk": 1}


async def test_the_end_writes_the_rest(ledger: UsageLedger, journal: SlowJournal) -> None:
    journal.gate.set()
    async with ledger.running():
        ledger.add("ci", SPENT)
    assert len(await journal.counters("usage\t")) == 3


async def test_an_end_without_storage_says_how_many_tokens_are_lost(
    ledger: UsageLedger, journal: SlowJournal, caplog: pytest.LogCaptureFixture
) -> None:
    journal.gate.set()
    journal.away = True
    async with ledger.running():
        ledger.add("ci", SPENT)
        ledger.add("desk", SPENT)
    said = "10 tokens were used that could not be written, and are not among the sums"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [said]


async def test_what_was_used_while_a_clock_was_ahead_is_shown_as_its_day(tmp_path: Path) -> None:
    """To the key itself as to everybody, and of no other key."""
    clock = {"now": 1_795_132_800.0}  # midnight
    journal = MemoryJournal()
    ledger = UsageLedger(journal, Costs(load({}, tmp_path)), clock=lambda: clock["now"])
    today = ledger.today()
    for ahead_s in (0.0, 86_400.0, 400 * 86_400.0):
        for key in ("ci", "desk"):
            clock["now"] += ahead_s
            ledger.add(key, SPENT)
            clock["now"] -= ahead_s
    days = ["2026-11-20", "2026-11-21", "2027-12-25"]
    assert today == days[0]
    for since in (today, "2026-11-14", "2020-01-01"):
        assert [row.day for row in await ledger.rows(since, "ci")] == days
        assert len(await ledger.rows(since)) == 6
    assert [row.day for row in await ledger.rows("2026-11-21", "ci")] == days[1:]
    assert [row.day for row in await ledger.rows("2026-12-01", "ci")] == days[2:]


async def test_only_keys_with_a_budget_of_money_need_prices(
    ledger: UsageLedger, journal: SlowJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[SpentTokens] = []

    async def load(_costs: Costs, spent: Iterable[SpentTokens]) -> None:
        loaded.extend(spent)

    monkeypatch.setattr(Costs, "load", load)
    monkeypatch.setattr(Costs, "price", lambda _costs, _spent: 0.5)
    journal.gate.set()
    ledger.priced = {"poor"}
    ledger.add("ci", SPENT)
    await ledger.flush()
    assert loaded == []
    ledger.add("poor", SPENT)
    await ledger.flush()
    assert loaded == [SPENT]
    assert [value for name, value in (await journal.counters("spent\t")).items() if name.endswith("usd")] == [0.5]


@driven
async def test_what_is_added_is_written_within_a_second_and_nothing_else_wakes_the_process(tmp_path: Path) -> None:
    journal = SlowJournal()
    journal.gate.set()
    ledger = UsageLedger(journal, Costs(load({}, tmp_path)))
    now = asyncio.get_running_loop().time
    async with ledger.running():
        await asyncio.sleep(1000)
        assert journal.asked == []
        ledger.add("ci", SPENT)
        began = now()
        await asyncio.sleep(5)
        assert [at - began for at in journal.asked] == [pytest.approx(FLUSH_EVERY_S)]
        journal.away, journal.asked = True, []
        ledger.add("ci", SPENT)
        await asyncio.sleep(3.5)
        assert len(journal.asked) == 3, "tried again each second"
        journal.away = False
        await asyncio.sleep(1)
        assert (await journal.counters("usage\t")).popitem()[1] == 4


async def test_calls_of_one_key_at_one_model_are_written_as_one(ledger: UsageLedger, journal: SlowJournal) -> None:
    """But for a key whose money is limited: each of its calls has a price."""
    told: list[tuple[str, SpentTokens]] = []
    ledger.on_spent = lambda key, spent: told.append((key, spent))
    ledger.priced = ("limited",)
    other = SpentTokens("p", "other", Usage(1, 1, cache_read_tokens=1))
    for key, spent in (("ci", SPENT), ("ci", other), ("limited", SPENT), ("ci", SPENT), ("limited", SPENT)):
        ledger.add(key, spent)
    journal.gate.set()
    counted = {(row.key, row.model): (row.calls, row.input_tokens, row.output_tokens) for row in await ledger.rows()}
    assert counted == {("ci", "p/m"): (2, 6, 4), ("ci", "p/other"): (1, 1, 1), ("limited", "p/m"): (2, 6, 4)}
    assert told == [("ci", SpentTokens("p", "m", Usage(6, 4))), ("ci", other), ("limited", SPENT), ("limited", SPENT)]


class TakenOver(CallListener):
    """Of a run that another process has."""

    def __init__(self, error: JournalError) -> None:
        self._error = error

    def attempt_ended(self, _attempt: AttemptOutcome) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "calls"), [(StaleEpoch("gone"), 0), (RunSealed("over"), 0), (StorageFailed("no"), 1)]
)
async def test_an_attempt_of_a_run_that_was_taken_over_is_counted_by_the_other_process(
    ledger: UsageLedger, journal: SlowJournal, error: JournalError, calls: int
) -> None:
    journal.gate.set()
    caller = Caller(observers=[ledger.observe])
    with pytest.raises(type(error)):
        caller.end_attempt(TakenOver(error), AttemptOutcome(1, "p", "m", Usage(3, 2)))
    assert sum(row.calls for row in await ledger.rows()) == calls


class FailingCosts(Costs):
    """Cannot price one model, and knows nothing of another one's provider."""

    def price(self, spent: SpentTokens, dialect: Dialect | None = None) -> float | None:
        if spent.model == "unpriced":
            raise ZeroDivisionError
        return 1.0

    def counts_cached_beside(self, provider: str) -> bool:
        if provider == "odd":
            raise KeyError(provider)
        return False


async def test_one_call_that_cannot_be_priced_or_counted_does_not_lose_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = UsageLedger(MemoryJournal(), FailingCosts(load({}, tmp_path)))
    ledger.priced = {"ci"}
    told: list[str] = []
    ledger.on_spent = lambda _, spent: told.append(spent.model)
    for provider, model in (("p", "first"), ("p", "unpriced"), ("odd", "uncounted"), ("p", "last")):
        ledger.add("ci", SpentTokens(provider, model, Usage(3, 2)))
    await ledger.flush()
    assert told == ["first", "unpriced", "last"]
    ledger._costs = Costs(load({}, tmp_path))
    rows = {row.model: (row.calls, row.input_tokens, row.output_tokens) for row in await ledger.rows()}
    assert rows == {f"p/{model}": (1, 3, 2) for model in told}
    assert [record.getMessage() for record in caplog.records] == [
        "calls of p/unpriced cannot be priced: usd_per_day does not count them",
        "ci has used odd/uncounted, which could not be counted",
    ]


async def test_the_log_says_once_that_a_model_cannot_be_priced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = UsageLedger(MemoryJournal(), FailingCosts(load({}, tmp_path)))
    ledger.priced = {"ci"}
    for _ in range(3):
        ledger.add("ci", SpentTokens("p", "unpriced", Usage(3, 2)))
        await ledger.flush()
    assert len(caplog.records) == 1


async def test_a_row_that_cannot_be_priced_does_not_lose_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = UsageLedger(MemoryJournal(), FailingCosts(load({}, tmp_path)))
    for model in ("first", "unpriced", "last"):
        ledger.add("ci", SpentTokens("p", model, Usage(3, 2)))
    for _ in range(2):
        rows = {row.model: (row.usd, row.unpriced) for row in await ledger.rows()}
        assert rows == {"p/first": (1.0, 0), "p/unpriced": (0.0, 5), "p/last": (1.0, 0)}
    assert caplog.messages == ["calls of p/unpriced cannot be priced: usage shows them without a price"]


async def test_rows_without_prices_are_shown_all_the_same(
    ledger: UsageLedger, journal: SlowJournal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(_costs: Costs, _spent: Iterable[SpentTokens]) -> None:
        raise ImportError("no such module")

    monkeypatch.setattr(Costs, "load", failing)
    journal.gate.set()
    ledger.add("ci", SPENT)
    assert [(row.input_tokens, row.unpriced) for row in await ledger.rows()] == [(3, 5)]
    assert caplog.messages == ["the prices cannot be read: usage is shown without them"]


async def test_what_only_the_metrics_have_missed_is_not_said_to_be_uncounted(
    ledger: UsageLedger, journal: SlowJournal, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_key: str, _spent: SpentTokens) -> None:
        raise ZeroDivisionError

    journal.gate.set()
    ledger.on_spent = failing
    ledger.add("ci", SPENT)
    assert [(row.calls, row.input_tokens) for row in await ledger.rows()] == [(1, 3)]
    assert caplog.messages == ["ci has used p/m: counted, but not in the metrics"]


async def test_what_calls_have_cost_is_told_by_key_where_their_model_has_a_price(
    journal: SlowJournal, tmp_path: Path
) -> None:
    """By the price of one call: it may grow with the call's tokens, and several are written as one."""
    prices = "providers: {p: {dialect: chat, base_url: 'http://127.0.0.1:1', prices: {m: {input: 2, output: 4}}}}"
    (tmp_path / "config.yaml").write_text(prices, encoding="utf-8")
    ledger, told = UsageLedger(journal, Costs(load({}, tmp_path))), list[tuple[str, float]]()
    ledger.on_priced = lambda key, usd: told.append((key, round(usd, 9)))
    journal.gate.set()
    async with ledger.running():
        for key in ("ci", "ci", "desk"):
            ledger.add(key, SPENT)
        ledger.add("desk", SpentTokens("p", "unknown", Usage(3, 2)))
    assert told == [("ci", 28e-6), ("desk", 14e-6)]
