"""`tailrace usage`: the table, the JSON and the words for a time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from tailrace.app.costs import Costs
from tailrace.app.usage.counters import UsageRow, amounts_of
from tailrace.cli.main import main
from tailrace.cli.usage.command import first_day, usage_table
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.messages import SpentTokens, Usage

NOON = 1_795_176_000.0  # 2026-11-20


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_HOME", str(tmp_path))
    return tmp_path


def price(_costs: Costs, spent: SpentTokens) -> float | None:
    return spent.usage.input_tokens / 100_000 if spent.model == "gpt-5" else None


async def spend(home: Path) -> None:
    journal = await SqliteJournal.open(home / "tailrace.db")
    now = time.time()
    for key, model, given, at in (
        ("ci", "gpt-5", 150_000, now),
        ("ci", "own", 1000, now),
        ("telegram", "gpt-5", 400, now),
        ("ci", "gpt-5", 900_000, now - 3 * 86_400),
    ):
        await journal.add_to_counters(amounts_of(key, SpentTokens("p", model, Usage(given, 20)), at))
    await journal.close()


async def test_what_was_used_today_is_a_table_by_key_and_model(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Costs, "price", price)
    await spend(home)
    assert await asyncio.to_thread(main, ["usage"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["key", "model", "calls", "input", "output", "cost"],
        ["ci", "p/gpt-5", "1", "150,000", "20", "$1.50"],
        ["ci", "p/own", "1", "1,000", "20", "–"],
        ["telegram", "p/gpt-5", "1", "400", "20", "$0.0040"],
    ]
    assert lines[5].split() == ["total", "3", "151,400", "60", "≥", "$1.50"]
    assert lines[7] == "without 1,020 tokens of models that have no price"
    assert await asyncio.to_thread(main, ["usage", "week", "--by", "key", "--json"]) == 0
    rows = [msgspec.json.decode(line, type=UsageRow) for line in capsys.readouterr().out.splitlines()]
    assert [(row.key, row.calls, row.usd) for row in rows] == [("ci", 3, 10.5), ("telegram", 1, 0.004)]


def test_where_nothing_was_used_it_says_so_and_creates_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "week"]) == 0
    assert "nothing was used since" in "".join(capsys.readouterr())
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("word", ["yesterday", "2026-13-01", "20261130", ""])
def test_a_time_that_is_none_is_one_clear_line(home: Path, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["usage", word])
    assert ended.value.code == 2
    assert "expected today, week, month or a day as 2026-11-30" in capsys.readouterr().err


def test_the_words_for_a_time() -> None:
    assert [first_day(word, NOON) for word in ("today", "week", "month", "2026-01-02")] == [
        "2026-11-20",
        "2026-11-14",
        "2026-10-22",
        "2026-01-02",
    ]


def test_one_row_needs_no_total() -> None:
    assert len(usage_table([UsageRow("", "ci", "", 1, 2, 3, usd=0.5)], by="key")) == 2


def test_a_table_says_how_many_tokens_are_estimated() -> None:
    row = UsageRow("", "ci", "p/m", 1, 900, 600, estimated_tokens=1500, usd=0.1)
    assert usage_table([row], by=None)[-1] == "1,500 of the tokens are estimated: their provider has not counted them"
