"""A run that did not end well, on the page: told as what it was, and asked again."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import ENDED, answer, page
from tailrace.testing.provider import Scenario, call, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
REFUSED = ("status-401", "status-401")  # by the model, and by the one that stands in for it
PHONE, DESKTOP = (390, 844), (1280, 800)
FAILURE = "document.querySelector('.failure')"


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
async def test_a_failure_is_an_alert_with_status_advice_details_and_retry(
    devtools: str, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with page(devtools, tmp_path, *REFUSED, reply("Hello."), reply("Fine.")) as (server, _, tab):
        await tab.size(*size)
        await tab.send("Hi.")
        await tab.until(f"{FAILURE}?.querySelector('.advice').textContent")
        told = await tab.text(".failure [role=alert]")
        await tab.reload()
        await tab.until(f"{FAILURE}?.querySelector('.advice').textContent")  # as it is found again
        assert await tab.text(".failure [role=alert]") == told
        assert await tab.value(f"{FAILURE}.getBoundingClientRect().right <= innerWidth")
        await tab.value("document.querySelector('.failure summary').click()")
        await tab.until("document.querySelector('.failure li')")
        details = await tab.text(".failure ol")
        await tab.press("Retry")
        await tab.until_shown("Hello.")
        await tab.until(ENDED)
        await tab.send("How are you?")
        await tab.until_shown("Fine.")
        asked = [each["content"] for each in server.provider.requests[-1].json()["messages"][1:]]
    assert told.startswith("The run failed (HTTP 401, 2 tries): other: Incorrect API key provided")
    assert "key" in told.splitlines()[-1], "what to do next"
    assert "Incorrect API key" in details
    assert asked == ["Hi.", "Hello.", "How are you?"], "the model is not told of the try that failed"
    assert tab.complaints == []


async def test_the_tries_are_those_of_the_call_that_failed(devtools: str, tmp_path: Path) -> None:
    looks = reply(call("terminal", {"command": "true"}))
    async with page(devtools, tmp_path, looks, *REFUSED) as (_, _, tab):
        await tab.send("Look.")
        await tab.until(f"{FAILURE}?.querySelector('.advice').textContent")
        told = await tab.text(".failure [role=alert]")
        await tab.value("document.querySelector('.failure summary').click()")
        await tab.until("document.querySelector('.failure li')")
        attempts = await tab.value("document.querySelectorAll('.failure li').length")
        await tab.reload()
        await tab.until(f"{FAILURE}?.querySelector('.advice').textContent")
        again = await tab.text(".failure [role=alert]")
    assert told.startswith("The run failed (HTTP 401, 2 tries): ")
    assert again == told
    assert attempts == 2


async def test_what_was_cut_is_told_quietly_and_its_text_stays(devtools: str, tmp_path: Path) -> None:
    long = Scenario(reply=reply("one two three", stop="length"))
    async with page(devtools, tmp_path, long) as (_, _, tab):
        await tab.send("Count.")
        shown = await answer(tab)
        note = await tab.text("article .note")
        alerts = await tab.value("document.querySelectorAll('.failure').length")
    assert shown.startswith("one two three")
    assert note.startswith("The answer is incomplete")
    assert alerts == 0
