"""The example page with `useChat`, built as its package.json says and used in a real browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.example_page import EXAMPLES, built_page, opened_page
from clients.installed import PROGRAMS
from integrations.launch_tool import Launch
from server.http_server import RunningServer
from server.web import chromium
from tailrace.testing.provider import Break, Offset, Scenario, call, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
WORDS = " ".join(f"word{number}" for number in range(1, 61))
STOP = '(button) => button.textContent === "Stop"'
READY = 'document.querySelector("main")?.dataset.status === "ready"'


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_page("use_chat", tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def built_plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with `useChat` as it is, without a `Chat` of its own."""
    return built_page("use_chat", tmp_path_factory.mktemp("plain"), page=PROGRAMS / "use_chat.jsx")


@pytest.fixture(scope="module")
def devtools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chromium.started(tmp_path_factory.mktemp("chromium")) as address:
        yield address


def test_the_page_has_some_sixty_lines() -> None:
    assert len((EXAMPLES / "use_chat/page.jsx").read_text(encoding="utf-8").splitlines()) <= 64


async def test_turns_a_reload_in_the_middle_and_a_second_tab(devtools: str, built: Path, tmp_path: Path) -> None:
    script = (reply("Hello."), Scenario(reply=reply(WORDS), pace_s=0.05))
    async with opened_page(devtools, built, tmp_path, *script) as (server, browser, tab):
        await tab.send("Hi.")
        await tab.until_shown("Hello.")
        await tab.until(READY)
        await tab.send("Count.")
        await tab.until_shown("word5 ")
        await tab.reload()
        other = await browser.tab(await tab.value("location.href"))
        texts = []
        for each in (tab, other):
            await each.until_shown("word60")
            await each.until(READY)
            texts.append(await each.value("[...document.querySelectorAll('article')].map((a) => a.innerText.trim())"))
        asked = [message["content"] for message in server.provider.requests[1].json()["messages"][1:]]
        await tab.reload()
        await tab.until(READY)
        after = await tab.value("[...document.querySelectorAll('article')].map((a) => a.innerText.trim())")
    assert texts == [["Hi.", "Hello.", "Count.", WORDS]] * 2
    assert after == texts[0]
    assert asked == ["Hi.", "Hello.", "Count."]
    assert (tab.complaints, other.complaints) == ([], [])


async def test_use_chat_as_it_is_resumes_after_a_reload(devtools: str, built_plain: Path, tmp_path: Path) -> None:
    """The page keeps no message: the one that is being written comes back whole."""
    (tmp_path / "notes.txt").write_text("rain", encoding="utf-8")
    script = (reply(call("read_file", {"path": "notes.txt"})), Scenario(reply=reply(WORDS), pace_s=0.05))
    async with opened_page(devtools, built_plain, tmp_path, *script) as (_, _, tab):
        await tab.press("Ask")
        await tab.until_shown("word5 ")
        await tab.reload()
        await tab.until_shown("word60")
        await tab.until(READY)
        shown = await tab.value("[...document.querySelectorAll('article')].map((a) => a.textContent)")
    assert shown == [f"|     1\train||{WORDS}"]
    assert tab.complaints == []


async def test_an_approval_a_refusal_and_an_answer_anew(devtools: str, built: Path, tmp_path: Path) -> None:
    launch = reply(call("launch", {"what": "rocket"}))
    script = (launch, reply("It flies."), launch, reply("It stays."))
    async with opened_page(devtools, built, tmp_path, *script, tools=(Launch(),)) as (server, _, tab):
        await tab.send("Launch!")
        await tab.until_shown("approval-requested")
        await tab.until(READY)
        await tab.reload()
        await tab.until_shown("approval-requested")
        await tab.until(READY)
        await tab.press("Approve")
        await tab.until_shown("It flies.")
        await tab.until(READY)
        first = await tab.text("article.assistant")
        await tab.press("Regenerate")
        await tab.until_shown("approval-requested")
        await tab.until(READY)
        await tab.press("Deny")
        await tab.until_shown("It stays.")
        await tab.until(READY)
        second = await tab.text("article.assistant")
        articles = await tab.value("document.querySelectorAll('article').length")
        _, runs = await server.json("GET", "/runs")
    assert ("launched rocket" in first, "output-available" in first) == (True, True)
    assert ("output-denied" in second, "It flies." in second) == (True, False)
    assert articles == 2
    assert [run["status"] for run in runs["data"]] == ["completed", "completed"]
    assert tab.complaints == []


async def test_a_lost_connection_is_resumed_when_the_page_is_looked_at(
    devtools: str, built: Path, tmp_path: Path
) -> None:
    async with opened_page(devtools, built, tmp_path, Scenario(reply=reply(WORDS), pace_s=0.05)) as (server, _, tab):
        await tab.send("Count.")
        await tab.until_shown("word5 ")
        for stream in [*server.pipeline._streams]:
            stream.drop()
        await tab.until('document.querySelector("[role=alert]") !== null')
        await tab.value('document.dispatchEvent(new Event("visibilitychange"))')
        await tab.until_shown("word60")
        await tab.until(READY)
        shown = await tab.text("article.assistant")
        articles = await tab.value("document.querySelectorAll('article').length")
    assert (shown.strip(), articles) == (WORDS, 2)


async def cut_off_and_ended(server: RunningServer, tab: chromium.Tab) -> None:
    """An answer of which the page has the beginning, and the server all of it."""
    await tab.send("Count.")
    await tab.until_shown("word5 ")
    for stream in [*server.pipeline._streams]:
        stream.drop()
    await tab.until('document.querySelector("[role=alert]") !== null')
    run = (await server.json("GET", "/runs"))[1]["data"][0]["id"]
    async with asyncio.timeout(chromium.PATIENCE_S):
        await server.app.agents.finished(run)


@pytest.mark.parametrize("back", ["looked at", "reloaded"])
async def test_an_answer_that_ended_while_the_page_was_away_is_whole(
    devtools: str, built: Path, tmp_path: Path, back: str
) -> None:
    async with opened_page(devtools, built, tmp_path, Scenario(reply=reply(WORDS), pace_s=0.05)) as (server, _, tab):
        await cut_off_and_ended(server, tab)
        if back == "reloaded":
            await tab.reload()
        else:
            await tab.value('document.dispatchEvent(new Event("visibilitychange"))')
        await tab.until_shown("word60")
        shown = await tab.text("article.assistant")
        articles = await tab.value("document.querySelectorAll('article').length")
    assert (shown.strip(), articles) == (WORDS, 2)


# A request for the messages waits until `release()`.
HELD = """
const real = window.fetch;
window.fetch = async (url, options) => {
  const answer = await real(url, options);
  if (!String(url).endsWith("/messages") || window.release) return answer;
  await new Promise((resolve) => {
    window.release = resolve;
    document.body.dataset.held = "";
  });
  return answer;
};
document.dispatchEvent(new Event("visibilitychange"));
"""


@pytest.mark.parametrize("meanwhile", [True, False])
async def test_a_question_after_an_answer_that_was_cut_off_stays_and_the_answer_is_whole(
    devtools: str, built: Path, tmp_path: Path, meanwhile: bool
) -> None:
    """Also while the page asks for the rest of it."""
    script = (Scenario(reply=reply(WORDS), pace_s=0.05), reply("No more."))
    async with opened_page(devtools, built, tmp_path, *script) as (server, _, tab):
        await cut_off_and_ended(server, tab)
        if meanwhile:
            await tab.value(HELD)
            await tab.until("document.body.dataset.held !== undefined")
        await tab.send("And now?")
        await tab.until_shown("No more.")
        await tab.value("window.release?.()")
        await tab.until_shown("word60")
        await tab.until(READY)
        texts = await tab.value("[...document.querySelectorAll('article')].map((a) => a.innerText.trim())")
    assert texts == ["Count.", WORDS, "And now?", "No more."]


async def test_stop_ends_the_run(devtools: str, built: Path, tmp_path: Path) -> None:
    stalled = Scenario(reply=reply(WORDS), broken=Break("stall", Offset(60, per_cent=True)))
    config = "call: {idle_timeout_s: 600}\n"
    async with opened_page(devtools, built, tmp_path, stalled, reply("Again."), config=config) as (server, _, tab):
        await tab.send("Count.")
        await tab.until_shown("word5 ")
        run = (await server.json("GET", "/runs"))[1]["data"][0]["id"]
        await tab.value(f"[...document.querySelectorAll('button')].find({STOP}).click()")  # the text may still move it
        async with asyncio.timeout(chromium.PATIENCE_S):
            ended = await server.app.agents.finished(run)
        await tab.until(READY)
        kept = json.loads(await tab.value("localStorage.getItem(location.hash.slice(1))"))[-1]
        await tab.send("Go on.")
        await tab.until_shown("Again.")
    assert ended.status == "stopped"
    assert kept["metadata"]["status"] == "stopped"
    assert [part["state"] for part in kept["parts"] if part["type"] == "text"] == ["done"]
    assert tab.complaints == []
