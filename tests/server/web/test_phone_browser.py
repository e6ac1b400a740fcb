"""The page under a finger: what Chromium shows of it as a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.web import chromium
from server.web.chromium import Tab
from server.web.opened_page import ENDED, answer, page
from tailrace.testing.provider import reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
SMALL = """[...document.querySelectorAll("button, select, summary, a:not(.skip), input:not([type=checkbox])")]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.closest("[inert], .unseen"))
  .filter((each) => each.offsetHeight < 44 || (each.offsetWidth < 44 && !each.closest("th")))
  .map((each) => each.outerHTML)"""


async def as_phone(tab: Tab) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    await tab.call("Emulation.setDeviceMetricsOverride", **size)
    await tab.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=1)


async def test_what_is_tapped_on_a_phone_has_44_pixels_in_each_view(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("One.")) as (server, _, tab):
        await as_phone(tab)
        await tab.send("Count.")
        await answer(tab)
        assert await tab.value(SMALL) == []
        _, found = await server.json("GET", "/runs")
        [run] = [each["id"] for each in found["data"]]
        for address, shown in (
            (f"/?run={run}&with={run}", "Show it alone"),
            ("/?runs", "Count."),
            ("/?ops", "All is well"),
        ):
            await tab.go(server.url + address)
            await tab.until_shown(shown)
            assert await tab.value(SMALL) == [], address


async def test_the_heading_of_the_timeline_stays_on_a_line_beside_its_controls(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("One.")) as (server, _, tab):
        await as_phone(tab)
        run = await server.start("Count.")
        await server.events(f"/runs/{run}/stream")
        await tab.go(f"{server.url}/?run={run}")
        await tab.until("document.querySelector('.replay-view')?.innerText.includes('One.')")
        await tab.value("document.querySelector('.cut-label').hidden = false")  # as beside a long pause
        heading = "document.querySelector('.toolbar h2')"
        line = f"parseFloat(getComputedStyle({heading}).lineHeight)"
        assert await tab.value(f"{heading}.offsetHeight < 2 * {line}")
        assert await tab.value("document.querySelector('#inspector').scrollWidth <= innerWidth")


async def test_no_box_is_so_small_that_safari_zooms_into_it(devtools: str, tmp_path: Path) -> None:
    boxes = "[...document.querySelectorAll('textarea, select, input:not([type=checkbox], [type=file])')]"
    async with page(devtools, tmp_path, reply("One.")) as (server, _, tab):
        await as_phone(tab)
        await tab.send("Count.")
        await answer(tab)
        await tab.press("Edit")
        for address in ("", "/?runs"):
            if address:
                await tab.go(server.url + address)
                await tab.until_shown("Count.")
            assert (
                await tab.value(f"Math.min(...{boxes}.map((box) => parseFloat(getComputedStyle(box).fontSize)))") == 16
            )


async def test_the_actions_of_a_version_stand_in_one_row_on_a_phone(devtools: str, tmp_path: Path) -> None:
    icons = "[...document.querySelectorAll('article:not([hidden]) .actions > .icon')]"
    async with page(devtools, tmp_path, reply("One."), reply("Two.")) as (_, _, tab):
        await as_phone(tab)
        await tab.send("Count.")
        await answer(tab)
        await tab.press("Regenerate")
        await tab.until_shown("2 of 2")
        await tab.until(ENDED)
        assert await tab.value(f"new Set({icons}.map((each) => each.offsetTop)).size") == 1
