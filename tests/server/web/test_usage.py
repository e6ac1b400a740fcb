"""What was used, on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import page
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
