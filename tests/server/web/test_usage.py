"""What was used, on the page."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import SAVED_FILE, page
from tailrace.app.usage.counters import DAY_S, amounts_of, day_of
from tailrace.messages import SpentTokens, Usage

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
PRICED = "gpt-4o"


async def test_the_page_has_tables_and_says_what_is_estimated(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (server, browser, _):
        server.app.usage.add("ci", SpentTokens("faulty", "ok", Usage(1200, 34, estimated_tokens=1234)))
        tab = await browser.tab(server.url + "/?usage")
        await tab.until_shown("1,234 tokens are estimated: their provider has not counted them.")
        assert await tab.text("caption") == "By key"
        assert await tab.value("document.querySelectorAll('#usage table').length") == 2
        shown = "[...document.body.children].filter((node) => node.checkVisibility()).map((node) => node.id)"
        assert await tab.value(shown) == ["usage"], "nothing of the conversation"
        assert tab.complaints == []


@pytest.mark.parametrize(("calls", "dated"), [(1, "1 call is"), (3, "3 calls are")])
async def test_what_was_used_while_a_clock_was_ahead_is_not_of_today_and_is_shown_as_its_day(
    devtools: str, tmp_path: Path, calls: int, dated: str
) -> None:
    tomorrow = time.time() + DAY_S
    async with page(devtools, tmp_path) as (server, browser, _):
        server.app.usage.add("ci", SpentTokens("faulty", "ok", Usage(1200, 34)))
        spent = amounts_of("ci", SpentTokens("faulty", "ok", Usage(77, 7)), tomorrow, calls=calls)
        await server.app.journal.add_to_counters(spent)
        tab = await browser.tab(server.url + "/?usage")
        await tab.until_shown(f"{dated} dated after today because a clock was ahead; see 7 days.")
        assert "1,200" in await tab.text("tbody")
        await tab.go(server.url + "/?usage=week")
        await tab.until_shown(day_of(tomorrow))
        assert "1,277" in await tab.text("tbody")
        assert tab.complaints == []


async def test_the_days_of_a_week_and_of_a_month_are_counted_in_utc_and_listed_from_the_last(
    devtools: str, tmp_path: Path
) -> None:
    now = time.time()
    names = "[...document.querySelectorAll('#usage table:last-of-type')].at(-1)"
    days = f"[...{names}.querySelectorAll('tbody th')].map((cell) => cell.textContent)"
    async with page(devtools, tmp_path) as (server, _, tab):
        for ago in (0, 6, 7, 29, 30):
            spent = amounts_of("ci", SpentTokens("faulty", "ok", Usage(100, 10)), now - ago * DAY_S, calls=1)
            await server.app.journal.add_to_counters(spent)
        for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):  # in one of them it is another day now
            await tab.call("Emulation.setTimezoneOverride", timezoneId=zone)
            await tab.go(server.url + "/?usage")
            await tab.until_shown("By key")
            assert await tab.text("tbody td") == "1"
        for span, shown in (("week", (0, 6)), ("month", (0, 6, 7, 29))):
            await tab.go(f"{server.url}/?usage={span}")
            await tab.until_shown("By day")
            assert await tab.value(days) == [day_of(now - ago * DAY_S) for ago in shown]
    assert tab.complaints == []


async def test_what_was_used_on_later_days_alone_is_told_where_today_has_nothing(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (server, _, tab):
        spent = amounts_of("ci", SpentTokens("faulty", "ok", Usage(77, 7)), time.time() + DAY_S, calls=2)
        await server.app.journal.add_to_counters(spent)
        await tab.go(server.url + "/?usage")
        await tab.until_shown(
            "Nothing was used today. 2 calls are dated after today because a clock was ahead; see 7 days."
        )


async def test_what_cost_most_or_wrote_most_stands_first(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (server, _, tab):
        for key, written in (("ann", 10), ("bob", 30), ("cid", 20)):
            server.app.usage.add(key, SpentTokens("faulty", "ok", Usage(100, written)))
        await tab.go(server.url + "/?usage")
        await tab.until_shown("By key")
        keys = (
            "[...document.querySelector('#usage table').querySelectorAll('tbody th')].map((cell) => cell.textContent)"
        )
        assert await tab.value(keys) == ["bob", "cid", "ann"]


async def test_each_line_has_its_cost_the_dearest_first_and_says_where_it_is_not_all(
    devtools: str, tmp_path: Path
) -> None:
    rows = "[...document.querySelectorAll('#usage table')].map((each) => [...each.tBodies[0].rows]"
    shown = f"{rows}.map((row) => [row.cells[0].textContent, row.cells[4].textContent]))"
    async with page(devtools, tmp_path) as (server, _, tab):
        for key, model, tokens in (("ann", PRICED, 400), ("bob", PRICED, 2_000_000), ("bob", "unknown", 9_000_000)):
            server.app.usage.add(key, SpentTokens("openai", model, Usage(tokens, 0)))
        await server.app.usage.flush()
        _, found = await server.json("GET", "/usage")
        usd = {(row["key"], row["model"].rpartition("/")[2]): row.get("usd", 0) for row in found["data"]}
        await tab.go(server.url + "/?usage")
        await tab.until_shown("Money by list prices, without 9,000,000 tokens of models that have none.")
        by_key, by_model = await tab.value(shown)
    little, much = usd["ann", PRICED], usd["bob", PRICED]
    assert 0 < little < 0.01 < much
    assert by_key == [["bob", f"≥ ${much:.2f}"], ["ann", f"${little:.4f}"]]
    assert [cost for _, cost in by_model] == [f"${much + little:.2f}", "–"]


async def test_costs_are_in_view_on_a_desktop_beside_the_names_of_models(devtools: str, tmp_path: Path) -> None:
    cut = "[...document.querySelectorAll('.usage-table')].filter((each) => each.scrollWidth > each.clientWidth).length"
    async with page(devtools, tmp_path) as (server, _, tab):
        server.app.usage.add("ci", SpentTokens("faulty", "a-model-2026-11-17", Usage(1_234_567, 234_567)))
        for width in (1280, 1024):
            await tab.size(width, 800)
            await tab.go(server.url + "/?usage=month")
            await tab.until_shown("By day")
            assert await tab.value(cut) == 0


async def test_costs_are_in_view_on_a_phone_beside_short_names(devtools: str, tmp_path: Path) -> None:
    cut = "[...document.querySelectorAll('.usage-table')].filter((each) => each.scrollWidth > each.clientWidth).length"
    async with page(devtools, tmp_path) as (server, _, tab):
        server.app.usage.add("ci", SpentTokens("faulty", "ok", Usage(31_299, 2_147)))
        await tab.size(390, 844)
        await tab.go(server.url + "/?usage")
        await tab.until_shown("By key")
        assert await tab.value(cut) == 0


async def test_what_is_shown_is_saved_as_csv_and_no_name_becomes_a_formula(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (server, browser, _):
        server.app.usage.add("=1+1", SpentTokens("faulty", 'a"b', Usage(1200, 34)))
        tab = await browser.tab(server.url + "/?usage", script=SAVED_FILE)
        await tab.until_shown("By key")
        await tab.press("CSV")
        assert await tab.value("savedName") == "usage-today.csv"
        head, row = list(csv.reader((await tab.value("saved.text()")).splitlines()))
    saved = dict(zip(head, row, strict=True))
    assert (saved["key"], saved["model"]) == ("'=1+1", 'faulty/a"b')
    assert (saved["calls"], saved["input_tokens"], saved["output_tokens"]) == ("1", "1200", "34")
    assert tab.complaints == []


async def test_days_are_bars_of_money_or_tokens_with_a_part_for_each_key(devtools: str, tmp_path: Path) -> None:
    bars = "[...document.querySelectorAll('.chart-bars > div')].map((day) => [...day.children].map("
    heights = f"{bars}(part) => Math.round(parseFloat(part.style.height || 0))))"
    async with page(devtools, tmp_path) as (server, _, tab):
        spent = (("ann", PRICED, 300_000, 0), ("bob", "own", 100_000, 0), ("ann", PRICED, 100_000, 2))
        for key, model, tokens, ago in spent:
            amounts = amounts_of(
                key, SpentTokens("openai", model, Usage(tokens, 0)), time.time() - ago * DAY_S, calls=1
            )
            await server.app.journal.add_to_counters(amounts)
        await tab.go(server.url + "/?usage=week")
        await tab.until_shown("Day by day")
        nothing = [[0, 0]]
        assert await tab.value(heights) == nothing * 4 + [[33, 0]] + nothing + [[100, 0]], "money: one has no price"
        await tab.press("Tokens")
        assert await tab.value(heights) == nothing * 4 + [[25, 0]] + nothing + [[75, 25]]
        assert "ann 300,000, bob 100,000" in await tab.value("document.querySelector('.chart-bars').lastChild.title")
        assert "at most 400,000 a day" in await tab.value("document.querySelector('.chart-bars').ariaLabel")
        await tab.size(390, 844)
        assert await tab.value("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    assert tab.complaints == []


async def test_keys_beyond_the_largest_share_one_part_of_a_bar(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (server, _, tab):
        for number in range(7):
            server.app.usage.add(f"key{number}", SpentTokens("faulty", "ok", Usage(1000 - number, 0)))
        await tab.go(server.url + "/?usage=week")
        await tab.until_shown("Day by day")
        legend = "[...document.querySelectorAll('.chart-legend span')].map((key) => key.textContent)"
        assert await tab.value(legend) == ["key0", "key1", "key2", "key3", "others"]
