"""How usage is counted and read back."""

from __future__ import annotations

from tailrace.app.usage.counters import UsageRow, amounts_of, day_of, minute_of, priced, rows_of, summed
from tailrace.messages import SpentTokens, Usage

NOON = 1_795_176_000.0  # 2026-11-20, 12:00 UTC


def added(*amounts: dict[str, float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in amounts:
        for name, amount in each.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def spent(model: str, given: int = 10, made: int = 5) -> SpentTokens:
    return SpentTokens("openai", model, Usage(given, made, cache_read_tokens=3))


def test_what_is_counted_can_be_read_by_day_key_and_model() -> None:
    counters = added(
        amounts_of("ci", spent("gpt-5"), NOON, 0.25),
        amounts_of("ci", SpentTokens("openai", "gpt-5", Usage(10, 5, 3, estimated_tokens=4)), NOON + 3600, 0.25),
        amounts_of("ci", spent("o"), NOON + 86_400),
        amounts_of("a\tb\n", spent("gpt-5"), NOON),
    )
    rows = priced(rows_of(counters), lambda spent: 0.01 * spent.usage.input_tokens if spent.model == "gpt-5" else None)
    assert rows == [
        UsageRow("2026-11-20", "a?b?", "openai/gpt-5", 1, 10, 5, 3, usd=0.1),
        UsageRow("2026-11-20", "ci", "openai/gpt-5", 2, 20, 10, 6, estimated_tokens=4, usd=0.2),
        UsageRow("2026-11-21", "ci", "openai/o", 1, 10, 5, 3, unpriced=15),
    ]
    assert counters["spent\t2026-11-20\tci\ttokens"] == 30
    assert counters["spent\t2026-11-20\tci\tusd"] == 0.5


def test_rows_are_added_up_by_any_name_the_most_expensive_first() -> None:
    rows = [
        UsageRow("2026-11-20", "a", "m", 1, 10, 5, usd=0.1),
        UsageRow("2026-11-21", "a", "n", 2, 20, 10, usd=0.3, unpriced=7),
        UsageRow("2026-11-21", "b", "m", 1, 900, 5),
    ]
    assert summed(rows, "key") == [
        UsageRow("", "a", "", 3, 30, 15, usd=0.4, unpriced=7),
        UsageRow("", "b", "", 1, 900, 5),
    ]
    assert [row.model for row in summed(rows, "model")] == ["n", "m"]
    assert [row.day for row in summed(rows, "day")] == ["2026-11-20", "2026-11-21"]


def test_a_day_and_a_minute_are_those_of_utc() -> None:
    midnight = 1_795_132_800.0
    assert (day_of(midnight - 1), day_of(midnight)) == ("2026-11-19", "2026-11-20")
    assert int(minute_of(midnight)) == int(minute_of(midnight - 1)) + 1
    assert minute_of(midnight - 1) < minute_of(midnight)


def test_calls_are_priced_each_by_itself() -> None:
    """The price of a long context is that of one long call, not of many short ones."""
    row = UsageRow("2026-11-20", "ci", "p/m", 100, 1_000_000, 1000)

    def price(spent: SpentTokens) -> float:
        return spent.usage.input_tokens * (0.001 if spent.usage.input_tokens <= 200_000 else 0.01)

    [priced_row] = priced([row], price)
    assert priced_row.usd == 1000.0


def test_cached_tokens_that_are_counted_beside_the_input_count_for_the_day() -> None:
    day_tokens = "spent\t2026-11-20\tci\ttokens"
    assert amounts_of("ci", spent("m"), NOON)[day_tokens] == 15
    assert amounts_of("ci", spent("m"), NOON, cached_beside=True)[day_tokens] == 18
