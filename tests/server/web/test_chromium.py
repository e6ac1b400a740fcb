"""The mouse of the tests hits what it is meant for, also in a page that moves."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from server.web import chromium
from server.web.opened_page import SAVED_FILE

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
PRESSED = "document.title"
BUTTON = """<button onclick="document.title += 'b'">Go</button>"""


def page_of(body: str, script: str) -> str:
    others = """<body onclick="if (event.target === document.body) document.title += 'x'" style="height: 2000px">"""
    return "data:text/html," + quote(f"<!doctype html>{others}{body}<script>{script}</script>")


@pytest.mark.parametrize(
    ("body", "script"),
    [
        pytest.param(
            f"<div></div>{BUTTON}",
            "let height = 0; const grow = () => {"
            "document.querySelector('div').style.height = `${height += 7}px`;"
            "if (height < 280) requestAnimationFrame(grow); }; grow();",
            id="it moves at each frame for a while",
        ),
        pytest.param(
            f"<div></div>{BUTTON}",
            "const grow = () => { document.querySelector('div').style.height = '300px'; };"
            "addEventListener('mousedown', grow, {once: true});",
            id="it moves away between the two halves of a click",
        ),
        pytest.param(
            f"{BUTTON}<div style='position: fixed; inset: 0'></div>",
            "let frames = 0; const lift = () => {"
            "if (++frames < 20) requestAnimationFrame(lift); else document.querySelector('div').remove(); }; lift();",
            id="something lies over it at first",
        ),
        pytest.param(f"<div style='height: 3000px'></div>{BUTTON}", "", id="it is far down"),
        pytest.param(
            BUTTON,
            "const anew = () => { const old = document.querySelector('button');"
            "old.replaceWith(old.cloneNode(true)); };"
            "addEventListener('mousedown', anew, {once: true});",
            id="it is drawn anew between the two halves of a click",
        ),
        pytest.param(
            f"{BUTTON}<iframe style='position: fixed; inset: 0; display: none; width: 90vw; height: 90vh'></iframe>",
            "const frame = document.querySelector('iframe'); const listen = addEventListener;"
            "addEventListener = (...given) => { listen(...given); if (given[0] !== 'click') return;"
            "frame.style.display = 'block'; setTimeout(() => frame.remove(), 300); addEventListener = listen; };",
            id="another document takes the click",
        ),
    ],
)
async def test_a_button_is_pressed_once_and_nothing_else_is(devtools: str, body: str, script: str) -> None:
    async with chromium.browsing(devtools) as browser:
        tab = await browser.tab(page_of(body, script))
        await tab.press("Go")
        assert await tab.value(PRESSED) == "b"
        await tab.press("Go")
        assert await tab.value(PRESSED) == "bb"


async def test_a_file_that_is_saved_while_the_test_waits_for_it_is_noticed(devtools: str) -> None:
    async with chromium.browsing(devtools) as browser:
        tab = await browser.tab(page_of("", ""), script=SAVED_FILE)
        save = "Object.assign(document.createElement('a'), {download: 'runs.csv'}).click()"
        await asyncio.gather(tab.until("window.savedName === 'runs.csv'"), tab.value(save))


async def test_a_button_that_is_replaced_is_pressed_where_it_is_then(devtools: str) -> None:
    """As a page does that is drawn anew while it is used."""
    script = (
        "let frames = 0; const anew = () => { const old = document.querySelector('button');"
        "old.replaceWith(old.cloneNode(true)); if (++frames < 20) requestAnimationFrame(anew); }; anew();"
    )
    async with chromium.browsing(devtools) as browser:
        tab = await browser.tab(page_of(BUTTON, script))
        await tab.press("Go")
        assert await tab.value(PRESSED) == "b"
