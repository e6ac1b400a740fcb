"""A message for the answer under way, in a real browser. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import page
from server.web.test_page_browser import STALLED, WORDS
from tailrace.testing.provider import Scenario, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
SLOW = Scenario(reply=reply(WORDS), pace_s=0.05)  # five seconds
BOX = "document.querySelector('#message').value"
NEXT = "document.querySelectorAll('.question.next').length"
SHOWN = "[...document.querySelectorAll('article .question, article .message')].map((each) => each.textContent)"


async def test_N165_a_message_waits_greyed_and_is_read_after_the_answer(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, SLOW, reply("Backwards.")) as (server, browser, tab):
        await tab.size(1280, 800)
        await tab.send("Count.")
        await tab.until_shown("word5")
        await tab.send("And backwards?")
        await tab.until(f"{NEXT} === 1")
        await tab.until_shown("Backwards.")
        assert await tab.value(NEXT) == 0
        assert await tab.value("document.querySelectorAll('article').length") == 1
        live = await tab.value("document.querySelector('article .answer').innerText")
        said = [message["content"] for message in server.provider.requests[-1].json()["messages"][1:]]
        again = await browser.tab(await tab.value("location.href"))
        await again.until_shown("Backwards.")
        assert await again.value("document.querySelector('article .answer').innerText") == live
    assert said == ["Count.", WORDS, "And backwards?"]
    assert tab.complaints == []


async def test_escape_and_the_button_take_it_back_and_escape_again_stops(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, STALLED) as (_, _, tab):
        await tab.send("Count.")
        await tab.until_shown("one two")
        for take_back in ("Escape", "button"):
            await tab.send("Backwards?")
            await tab.until(f"{NEXT} === 1")
            if take_back == "Escape":
                await tab.key("Escape", 27)
            else:
                await tab.press("Take back")
            await tab.until(f"{BOX} === 'Backwards?'")
            assert await tab.value(NEXT) == 0
            await tab.value("document.querySelector('#message').value = ''; undefined")
        assert await tab.value("document.querySelector('.answer').ariaBusy") == "true"
        await tab.key("Escape", 27)
        await tab.until_shown("Stopped")
    assert tab.complaints == []


async def test_a_message_that_was_sent_before_a_reload_is_taken_back_with_its_text(
    devtools: str, tmp_path: Path
) -> None:
    async with page(devtools, tmp_path, STALLED) as (_, _, tab):
        await tab.send("Count.")
        await tab.until_shown("one two")
        await tab.send("Backwards?")
        await tab.until(f"{NEXT} === 1")
        await tab.reload()
        await tab.until(f"{NEXT} === 1")
        await tab.key("Escape", 27)
        await tab.until(f"{BOX} === 'Backwards?'")
        await tab.until(f"{NEXT} === 0")
    assert tab.complaints == []


async def test_N165_what_the_end_returns_is_asked_next_and_a_stop_gives_it_back(devtools: str, tmp_path: Path) -> None:
    limit = "agent: {max_turns: 1}\n"
    async with page(devtools, tmp_path, SLOW, reply("Backwards."), STALLED, config=limit) as (server, _, tab):
        await tab.send("Count.")
        await tab.until_shown("word5")
        await tab.send("And backwards?")
        await tab.until(f"{NEXT} === 1")
        await tab.until_shown("Backwards.")
        assert await tab.value("document.querySelectorAll('article').length") == 2
        await tab.send("More.")
        await tab.until_shown("one two")
        await tab.send("Faster.")
        await tab.until(f"{NEXT} === 1")
        await tab.press("Stop")
        await tab.until(f"{BOX} === 'Faster.'")
        said = [message["content"] for message in server.provider.requests[1].json()["messages"][1:]]
    assert said == ["Count.", WORDS, "And backwards?"]
