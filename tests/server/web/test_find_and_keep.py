"""Finding and keeping conversations on the page, in a real browser: names, pins, search, files and themes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.http_server import RunningServer
from server.web import axe, chromium
from server.web.chromium import Tab
from server.web.opened_page import in_page, page
from tailrace.agent.turn_spec import TurnSpec
from tailrace.messages import user
from tailrace.testing.provider import reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")

NAMES = "[...document.querySelectorAll('#conversations .row a')].map((each) => each.textContent).join()"
GROUPS = "[...document.querySelectorAll('#conversations .group')].map((each) => each.textContent).join()"
ROWS = "document.querySelectorAll('#conversations .row').length"
BOX = "document.querySelector('#message').value"


async def asked(server: RunningServer, session: str, question: str) -> str:
    _, run = await server.json("POST", "/runs", {"input": question, "session": session})
    await server.app.agents.finished(run["id"])
    return str(run["id"])


async def opened(tab: Tab, server: RunningServer, rows: int, path: str = "/") -> None:
    await tab.size(1280, 800)
    await tab.go(server.url + path)
    await tab.until(f"{ROWS} === {rows}")


async def test_a_conversation_is_renamed_pinned_and_found_under_its_day(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("The Danube."), reply("Etna.")) as (server, _, tab):
        for session, question in (("a", "Name a river."), ("b", "Name a volcano.")):
            await asked(server, session, question)
        await opened(tab, server, 2, "/?session=a")
        assert await tab.value(GROUPS) == "Today"
        await tab.press("More for Name a river.")
        await tab.press("Pin")
        await tab.until(f"{GROUPS} === 'Pinned,Today'")
        assert await tab.value(NAMES) == "Name a river.,Name a volcano."
        await tab.press("More for this conversation")
        await tab.press("Rename")
        assert await tab.value("document.activeElement.value") == "Name a river."
        await tab.call("Input.insertText", text="Rivers")
        await tab.press("Rename")
        await tab.until(f"{NAMES} === 'Rivers,Name a volcano.'")
        assert await tab.text("#heading") == "Rivers"
        await tab.reload()
        await tab.until(f"{NAMES} === 'Rivers,Name a volcano.'")
        await tab.until("document.querySelector('#heading').textContent === 'Rivers'")
        axe.source()
        await tab.press("More for Rivers")
        assert await axe.violations_everywhere(tab, "menu") == []
    assert tab.complaints == []


async def test_a_search_shows_where_the_words_are_and_leads_there(devtools: str, tmp_path: Path) -> None:
    long = "\n\n".join(f"Line {number}." for number in range(60))
    script = (reply("In the Ural there is the lake Turgoyak."), *(reply(long) for _ in range(3)), reply("Etna."))
    async with page(devtools, tmp_path, *script) as (server, _, tab):
        run = await asked(server, "a", "Name a lake.")
        for number in range(3):
            await asked(server, "a", f"More {number}?")
        await asked(server, "b", "Name a volcano.")
        await opened(tab, server, 2)
        await tab.call("Input.dispatchKeyEvent", type="keyDown", key="k", code="KeyK", modifiers=2)
        assert await tab.value("document.activeElement.id") == "search"
        await tab.call("Input.insertText", text="turgoyak")
        await tab.until(f"{ROWS} === 1 && document.querySelector('.excerpt mark')?.textContent === 'Turgoyak'")
        assert "there is the lake Turgoyak." in await tab.text(".excerpt")
        await tab.enter()
        await tab.enter()
        await tab.until(f"location.hash === '#{run}' && CSS.highlights.get('found')?.size === 1")
        top = "document.querySelector('article .question').getBoundingClientRect().top"
        assert 0 < await tab.value(top) < 400, "the answer is in view, not the newest one"
    assert tab.complaints == []


async def test_a_hit_in_markdown_reads_as_text(devtools: str, tmp_path: Path) -> None:
    text = "... **first** ## Then `retry` it"
    script = """
    const { SessionRow } = await import("/web/sidebar/session_row.js");
    const row = new SessionRow(() => {}, () => {});
    return args.map((query) => { row.tellExcerpt(%s, query); return row.excerpt.innerHTML; });"""
    shown = await in_page(devtools, tmp_path, script % json.dumps(text), "retry", "**first")
    assert shown == ["... first Then <mark>retry</mark> it", "... <mark>**first</mark>** ## Then `retry` it"]


async def test_what_programs_ask_is_among_the_runs(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("One."), reply("Two.")) as (server, _, tab):
        run = await server.app.agents.submit(TurnSpec(user("hello, python"), requester="python"), session="p")
        await server.app.agents.finished(run.id)
        await asked(server, "a", "Name a river.")
        await opened(tab, server, 1)
        assert await tab.value(NAMES) == "Name a river."
        await tab.value("document.querySelector('#runs-section').open = true")
        await tab.until("document.querySelectorAll('#runs .row').length === 1")
        assert "hello, python" in await tab.text("#runs")


async def test_a_conversation_is_shared_as_a_file_that_runs_nothing(devtools: str, tmp_path: Path) -> None:
    kept = """const made = URL.createObjectURL; URL.createObjectURL = (blob) => {
      blob.text().then((text) => { window.shared = text; }); return made(blob); };"""
    async with page(devtools, tmp_path / "home", reply("The **Danube**.\n\n```python\nx = 1\n```\n")) as (
        server,
        browser,
        _,
    ):
        await asked(server, "a", "Name a river.")
        tab = await browser.tab(f"{server.url}/?session=a", script=kept)
        await opened(tab, server, 1, "/?session=a")
        await tab.until_shown("Danube")
        await tab.call("Page.setDownloadBehavior", behavior="deny")
        await tab.press("More for this conversation")
        await tab.press("Share as a file")
        await tab.until("document.title && window.shared")
        shared = await tab.value("window.shared")
        file = tmp_path / "shared.html"
        file.write_text(shared, encoding="utf-8")
        other = await browser.tab(file.as_uri())
        shown = await other.text()
        assert "<script" not in shared
        assert "<button" not in shared
        assert await other.value("document.querySelector('.hljs-number') !== null")
        assert await other.value("document.querySelector('.answer strong').textContent") == "Danube"
    assert "Name a river." in shown
    assert [url for url in other.requests if not url.startswith("file:")] == []


async def test_the_theme_is_chosen_and_kept(devtools: str, tmp_path: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    async with page(devtools, tmp_path) as (_, _, tab):
        await tab.size(1280, 800)
        await tab.colours("light")
        light = await tab.value(paper)
        await tab.press("Theme: system")
        await tab.press("Theme: light")
        await tab.find("button", "Theme: dark")
        dark = await tab.value(paper)
        await tab.reload()
        await tab.find("button", "Theme: dark")
        assert await tab.value(paper) == dark != light
        await tab.press("Theme: dark")
        assert await tab.value(paper) == light


async def test_a_key_is_remembered_in_this_browser_where_a_person_wants_it(devtools: str, tmp_path: Path) -> None:
    env = {"TAILRACE_API_KEY": "a-key-of-some-length"}
    async with page(devtools, tmp_path, env=env) as (server, browser, tab):
        await tab.until("document.querySelector('#key-dialog').open")
        await tab.write("API key", "a-key-of-some-length")
        await tab.value("document.querySelector('#key-remember').click()")
        await tab.press("Continue")
        await tab.until_shown("How can I help?")
        other = await browser.tab(server.url + "/")
        await other.until_shown("How can I help?")
        assert not await other.value("document.querySelector('#key-dialog').open")
