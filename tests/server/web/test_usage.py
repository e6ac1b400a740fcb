"""What was used, on the page."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import page
from tailrace.app.usage.counters import DAY_S, amounts_of, day_of
from tailrace.messages import SpentTokens, Usage

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")


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
