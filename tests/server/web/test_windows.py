"""Windows of one browser beside each other: all of them ask and are answered, though a browser has six connections to
one server. Skipped where there is no browser."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import RECORDER, answer, page
from server.web.test_approvals import HIDDEN
from server.web.test_page_browser import PACED, STALLED, WORDS
from tailrace.testing.provider import reply

needs_chromium = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
STREAMS = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/stream?')).length"


@needs_chromium
async def test_seven_windows_in_view_all_ask_and_are_answered(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, *[STALLED] * 6, PACED) as (server, browser, _):
        opened = [await browser.tab(server.url + "/", script=RECORDER, window=True) for _ in range(7)]
        for tab in opened[:6]:  # as many as a browser has connections
            await tab.send("Count.")
            await tab.until_shown("three")
        last = opened[6]
        await last.send("Count to a hundred.")
        assert await answer(last) == WORDS, "what was said in another window's slot is told in the next"
        seen = await last.value("seen")
        for tab in opened[:6]:
            await tab.press("Stop")
            await tab.until_shown("Stopped")
        assert [await tab.value("document.hidden") for tab in opened] == [False] * 7, "nobody was in the background"
        assert await last.value(STREAMS) > 1, "it has given its slot to others"
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
    assert [tab.complaints for tab in opened] == [[]] * 7


# `open`: the streams that the page still had when the browser took it out again.
KEPT = """const signals = [], real = fetch;
globalThis.fetch = (url, how) => {
  if (String(url).includes("/stream")) signals.push(how.signal);
  return real(url, how);
};
globalThis.begun = () => signals.length;
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) globalThis.open = signals.filter(({ aborted }) => !aborted).length;
});"""


@needs_chromium
async def test_a_page_that_the_browser_keeps_for_back_holds_no_connection(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, *(reply("Fine.") for _ in range(4))) as (server, browser, _):
        for number in range(3):
            await server.events(f"/runs/{await server.start('Hi.', session=f's{number}')}/stream")
        other = await browser.tab(f"{server.url}/?session=s2", window=True)  # it reads the list of approvals for all
        await other.until_shown("Fine.")
        tab = await browser.tab(f"{server.url}/?session=s0", script=KEPT, window=True)
        await tab.until_shown("Fine.")
        await tab.value("(async () => { while (!begun()) await new Promise(requestAnimationFrame); })()")
        await tab.follow(tab.value("location.assign('/?session=s1')"))
        await tab.until_shown("Fine.")
        await tab.follow(tab.value("history.back()"))
        assert await tab.value("[location.search, globalThis.open]") == ["?session=s0", 0]
        await server.events(f"/runs/{await server.start('More.', session='s0')}/stream")
        await tab.until_shown("More.")  # it follows again


@needs_chromium
async def test_hidden_tabs_share_slots_and_their_titles_say_what_has_ended(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, *[STALLED] * 7) as (server, browser, tab):
        opened, runs = [tab], []
        for number in range(7):
            runs.append(await server.start("Count.", session=f"s{number}"))
            address = f"{server.url}/?session=s{number}"
            if number:
                opened.append(await browser.tab(address))
            else:
                await tab.go(address)
            await opened[-1].until("document.title === '● Count. · Tailrace'")
        for run in runs:
            await server.json("POST", f"/runs/{run}/stop", {})
        for each in opened:  # nobody has looked at the first six meanwhile
            await each.until("document.title === 'Count. · Tailrace'")
        assert [await each.value("document.hidden") for each in opened] == [True] * 6 + [False]


@needs_chromium
async def test_a_fork_that_runs_is_read_by_the_one_stream_of_its_conversation(devtools: str, tmp_path: Path) -> None:
    of_run = "performance.getEntriesByType('resource').some(({ name }) => /[/]runs[/][^/]+[/]stream/.test(name))"
    async with page(devtools, tmp_path, reply("The Danube."), STALLED) as (_, _, tab):
        await tab.send("Name a river.")
        assert await answer(tab) == "The Danube."
        await tab.press("Fork from here")
        await tab.write("Next message", "Another?")
        await tab.follow(tab.press("Send in a new conversation"))
        await tab.until_shown("three")
        await tab.reload()
        await tab.until_shown("three")
        await tab.until(of_run)  # it is over, while the run goes on
        await tab.press("Stop")
        await tab.until_shown("Stopped")
        assert (await answer(tab)).startswith("one two three")
    assert tab.complaints == []


# What the page tells of its stream, and when the server has taken a question, in an attribute that can be waited for.
SAID = """
const tell = (words) => {
  const { dataset } = document.documentElement;
  dataset.said = `${dataset.said ?? ""}${words},`;
};
const post = MessagePort.prototype.postMessage;
MessagePort.prototype.postMessage = function (message, ...rest) {
  if (message.pool === "stream") tell(`${message.what} ${message.runs ? "runs" : "idle"}`);
  return post.call(this, message, ...rest);
};
const fetched = window.fetch;
window.fetch = async (path, options) => {
  const response = await fetched(path, options);
  if (path === "/runs" && options.method === "POST") tell("taken");
  return response;
};
const later = window.setTimeout;
window.setTimeout = (act, ms, ...rest) => later(act, ms === 60_000 ? 0 : ms, ...rest); // a tab in the background rests
"""
HAS_SAID = "document.documentElement.dataset.said"


@needs_chromium
async def test_a_window_says_when_something_runs_in_it_and_rests_in_the_background(
    devtools: str, tmp_path: Path
) -> None:
    async with page(devtools, tmp_path, reply("Hello."), STALLED) as (server, browser, _):
        tab = await browser.tab(server.url + "/", script=SAID)
        await tab.send("Hi.")
        assert await answer(tab) == "Hello."
        await tab.until(f"{HAS_SAID}.endsWith('show idle,')")
        await tab.value(f"{HAS_SAID} = ''")
        await tab.send("Count.")
        await tab.until_shown("three")
        before, _, after = (await tab.value(HAS_SAID)).partition("taken,")
        assert "show runs," in before, "its slot is kept or given while the question is being sent"
        assert "idle" not in after
        await tab.value(HIDDEN % "true")
        await tab.press("Stop")
        await tab.until_shown("Stopped")
        await tab.until(f"{HAS_SAID}.endsWith('leave idle,')")  # nothing runs, and nobody looks
        await tab.value(HIDDEN % "false")
        await tab.until(f"{HAS_SAID}.endsWith('want idle,')")
    assert tab.complaints == []


@needs_chromium
async def test_nothing_of_a_fork_is_lost_while_its_beginning_is_read(devtools: str, tmp_path: Path) -> None:
    held = """
const fetched = window.fetch;
const released = new Promise((resolve) => { window.release = resolve; });
window.fetch = async (path, options) => {
  if (/^[/]runs[/][^/]+[/]stream/.test(path)) await released;
  return fetched(path, options);
};
"""
    async with page(devtools, tmp_path, reply("The Danube."), PACED) as (server, browser, tab):
        await tab.send("Name a river.")
        assert await answer(tab) == "The Danube."
        await tab.press("Fork from here")
        await tab.write("Next message", "Another?")
        await tab.follow(tab.press("Send in a new conversation"))
        await tab.until_shown("word10 ")
        server.provider.flowing.clear()
        other = await browser.tab(await tab.value("location.href"), script=held)
        await other.until_shown("Another?")
        server.provider.flowing.set()
        assert await answer(tab) == WORDS
        await other.value("release()")
        assert await answer(other) == WORDS
    assert other.complaints == []


@needs_chromium
async def test_a_tab_that_goes_to_the_background_before_its_next_frame_is_drawn(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, PACED) as (_, _, tab):
        await tab.send("Count to a hundred.")
        await tab.until_shown("word5 ")
        await tab.value("requestAnimationFrame = () => 0")  # asked while it was in view, and never given
        assert await answer(tab) == WORDS
        await tab.until("document.title === 'Count to a hundred. · Tailrace'")


@needs_chromium
async def test_a_browser_that_refuses_shared_workers_gives_each_window_a_stream(devtools: str, tmp_path: Path) -> None:
    refusing = "window.SharedWorker = function () { throw new DOMException('refused', 'SecurityError'); };"
    async with page(devtools, tmp_path, PACED) as (server, browser, _):
        tab = await browser.tab(server.url + "/", script=refusing)
        await tab.send("Count to a hundred.")
        assert await answer(tab) == WORDS
    assert tab.complaints == []
