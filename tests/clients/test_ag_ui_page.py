"""The example page with AG-UI's client, built as its package.json says and used in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.example_page import EXAMPLES, built_page, opened_page
from server.routes.test_runs import Launch
from server.web import chromium
from server.web.chromium import Tab
from tailrace.testing.provider import Break, Offset, Scenario, call, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
WORDS = " ".join(f"word{number}" for number in range(1, 61))
READY = 'document.body.dataset.status === "ready"'


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_page("ag_ui", tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def devtools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chromium.started(tmp_path_factory.mktemp("chromium")) as address:
        yield address


async def shown(tab: Tab) -> Any:
    await tab.until(READY)
    return await tab.value("[...document.querySelectorAll('pre')].map((each) => each.innerText)")


def test_the_page_is_short() -> None:
    assert len((EXAMPLES / "ag_ui/page.js").read_text(encoding="utf-8").splitlines()) <= 70


async def test_turns_a_reload_a_second_tab_and_a_lost_connection(devtools: str, built: Path, tmp_path: Path) -> None:
    script = (reply("Hello."), Scenario(reply=reply(WORDS), pace_s=0.05))
    async with opened_page(devtools, built, tmp_path, *script) as (server, browser, tab):
        await tab.until(READY)
        await tab.send("Hi.")
        await tab.until_shown("Hello.")
        await tab.until(READY)
        await tab.send("Count.")
        await tab.until_shown("word5 ")
        await tab.reload()
        other = await browser.tab(await tab.value("location.href"))
        await other.until_shown("word10 ")
        for stream in [*server.pipeline._streams]:
            stream.drop()
        texts = [await shown(each) for each in (tab, other)]
        asked = [message["content"] for message in server.provider.requests[-1].json()["messages"][1:]]
    assert texts == [["Hi.", "Hello.", "Count.", WORDS]] * 2
    assert asked == ["Hi.", "Hello.", "Count."]
    assert len(server.provider.requests) == 2


async def test_approvals_across_a_reload_and_a_stop(devtools: str, built: Path, tmp_path: Path) -> None:
    launch = reply("I will.", call("launch", {"what": "rocket"}))
    stalled = Scenario(reply=reply(WORDS), broken=Break("stall", Offset(60, per_cent=True)))
    script = (launch, reply("It flies."), launch, reply("It stays."), stalled)
    config = "call: {idle_timeout_s: 600}\n"
    async with opened_page(devtools, built, tmp_path, *script, tools=(Launch(),), config=config) as (server, _, tab):
        await tab.until(READY)
        for answer, end in (("Approve", "It flies."), ("Deny", "It stays.")):
            await tab.send("Launch!")
            await tab.until_shown("Allow launch?")
            await tab.until(READY)
            await tab.reload()
            await tab.until_shown("Allow launch?")
            await tab.until(READY)
            await tab.press(answer)
            await tab.until_shown(end)
            await tab.until(READY)
        texts = await shown(tab)
        await tab.send("Count.")
        await tab.until_shown("word37")  # all that comes: until then the button moves away under the mouse
        await tab.press("Stop")
        await tab.until(READY)
        _, runs = await server.json("GET", "/runs")
    said = ["Launch!", 'I will.\nlaunch {"what":"rocket"}']
    denied = "Not executed: denied by the user."
    assert texts == [*said, "launched rocket", "It flies.", *said, denied, "It stays."]
    assert [run["status"] for run in runs["data"]] == ["stopped", "completed", "completed"]
    assert tab.complaints == []
