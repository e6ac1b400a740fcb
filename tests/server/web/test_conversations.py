"""The list of conversations in a real browser: what it shows, reopening, searching, deleting, and what other tabs and
other clients ask. Skipped where there is no browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.http_server import RunningServer
from server.web import chromium
from server.web.chromium import Tab
from server.web.opened_page import ENDED, RECORDER, SETTLED, Launch, answer, page
from server.web.test_page_browser import PACED, STALLED, WORDS
from tailrace.testing.provider import Scenario, call, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
NAMES = "[...document.querySelectorAll('#conversations a')].map((link) => link.textContent)"
PHONE, DESKTOP = (390, 844), (1280, 800)
# Whoever asks here hears of what was asked elsewhere only after the server has answered.
LATE_STREAM = """
const fetched = window.fetch;
let answered;
const asked = new Promise((resolve) => { answered = resolve; });
window.fetch = async (path, options) => {
  const response = await fetched(path, options);
  if (path === "/runs" && options.method === "POST") answered();
  if (!path.startsWith("/sessions/") || !path.includes("/stream?")) return response;
  const late = new TransformStream({ transform: (piece, out) => asked.then(() => out.enqueue(piece)) });
  return new Response(response.body.pipeThrough(late), response);
};
"""


async def listed(tab: Tab, names: Sequence[str]) -> None:
    """Waits until the list has these conversations, in this order."""
    await tab.until(f"JSON.stringify({NAMES}) === JSON.stringify({json.dumps([*names])})")


async def ended(server: RunningServer, run_id: str) -> None:
    await server.events(f"/runs/{run_id}/stream")


async def asked(server: RunningServer, session: str, text: str) -> None:
    await ended(server, await server.start(text, session=session))


async def test_conversations_are_reopened_without_a_load_and_back_leads_back(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("The Danube."), reply("Etna."), reply("The Volga.")) as (_, _, tab):
        await tab.size(*DESKTOP)
        await tab.value("window.loadedOnce = true")
        await tab.send("Name a river.")
        assert await answer(tab) == "The Danube."
        await tab.press("New conversation")
        await tab.until("document.querySelectorAll('article').length === 0")
        assert await tab.value("document.activeElement.id") == "message"
        await tab.send("Name a volcano.")
        assert await answer(tab) == "Etna."
        await listed(tab, ["Name a volcano.", "Name a river."])
        await tab.press("Name a river.", "link")
        await tab.until("document.querySelector('.answer')?.innerText === 'The Danube.'")
        assert await tab.text("h1") == "Name a river."
        assert await tab.value("document.querySelector('#conversations [aria-current]').textContent") == "Name a river."
        assert await tab.value("document.activeElement.id") == "message"
        await tab.send("And another?")
        await tab.until_shown("The Volga.")
        await listed(tab, ["Name a river.", "Name a volcano."])  # the newest activity first
        await tab.value("history.back()")
        await tab.until("document.querySelector('.answer')?.innerText === 'Etna.'")
        assert await tab.value("document.title") == "Name a volcano. · Tailrace"
        assert await tab.value("window.loadedOnce"), "the page was never loaded again"
    assert tab.complaints == []


async def test_search_finds_questions_and_answers(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("The Danube."), reply("Etna.")) as (server, _, tab):
        await tab.size(*DESKTOP)
        await asked(server, "one", "Name a river.")
        await asked(server, "two", "Name a volcano.")
        await tab.reload()
        await listed(tab, ["Name a volcano.", "Name a river."])
        await tab.call("DOM.focus", backendNodeId=await tab.find("searchbox", "Search"))
        await tab.call("Input.insertText", text="danube")
        await listed(tab, ["Name a river."])
        await tab.call("Input.insertText", text="x")
        await tab.until_shown("Nothing found for “danubex”.")
    assert tab.complaints == []


async def test_on_a_phone_the_list_is_a_drawer(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("The Danube.")) as (server, _, tab):
        await tab.size(*PHONE)
        await asked(server, "one", "Name a river.")
        await tab.reload()
        await listed(tab, ["Name a river."])
        assert not await tab.value("document.querySelector('#sidebar').checkVisibility({visibilityProperty: true})")
        await tab.find("button", "New conversation")  # the one of the header
        await tab.press("Conversations")
        await tab.find("button", "New conversation")  # the one of the drawer: what is below it cannot be reached
        assert await tab.value("document.activeElement.id") == "close-sidebar"
        await tab.key("Escape", 27)
        assert await tab.value("document.activeElement.id") == "open-sidebar"
        await tab.press("Conversations")
        await tab.value(SETTLED)
        await tab.press("Name a river.", "link")
        await tab.until("document.querySelector('.answer')?.innerText === 'The Danube.'")
        assert not await tab.value("document.body.classList.contains('drawer')")
        assert await tab.value("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    assert tab.complaints == []


async def test_deleting_asks_first_and_is_refused_while_it_runs(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("The Danube."), STALLED) as (server, _, tab):
        await tab.size(*DESKTOP)
        await asked(server, "one", "Name a river.")
        await tab.send("Count.")
        await tab.until_shown("three")
        await listed(tab, ["Count.", "Name a river."])
        await tab.press("More for Count.")
        await tab.press("Delete")
        assert await tab.value("document.activeElement.textContent") == "Cancel", "Enter deletes nothing"
        await tab.press("Delete")
        await tab.until("document.querySelector('#delete-refused').textContent !== ''")
        await tab.press("Cancel")
        focused = "look = () => (document.activeElement.id === 'message' ? resolve() : requestAnimationFrame(look))"
        await tab.value(f"new Promise((resolve) => {{ const {focused}; look(); }})")
        await tab.press("Stop")
        await tab.until(ENDED)
        await tab.press("More for Count.")
        await tab.press("Delete")
        await tab.press("Delete")
        await listed(tab, ["Name a river."])
        await tab.until_shown("How can I help?")
        assert await tab.value("location.search") == ""
        _, found = await server.json("GET", "/sessions")
    assert [item["title"] for item in found["data"]] == ["Name a river."]


async def test_a_second_tab_follows_what_is_asked_anywhere(devtools: str, tmp_path: Path) -> None:
    script = (reply("The Danube."), PACED, reply("Etna."))
    async with page(devtools, tmp_path, *script) as (server, browser, tab):
        await tab.send("Name a river.")
        assert await answer(tab) == "The Danube."
        other = await browser.tab(await tab.value("location.href"), script=RECORDER)
        await other.until_shown("The Danube.")
        await tab.call("Page.bringToFront")
        await tab.send("Count.")
        await other.until("document.querySelectorAll('article').length === 2")
        assert await answer(other) == await answer(tab) == WORDS
        session = await tab.value("new URLSearchParams(location.search).get('session')")
        await asked(server, session, "Name a volcano.")  # as another client does
        for each in (tab, other):
            await each.until_shown("Etna.")
            questions = await each.value("[...document.querySelectorAll('.question')].map((node) => node.textContent)")
            assert questions == ["Name a river.", "Count.", "Name a volcano."]
    assert tab.complaints == other.complaints == []


async def test_a_conversation_that_was_deleted_elsewhere_is_no_longer_shown(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("The Danube."), reply("Etna.")) as (server, browser, tab):
        await tab.size(*DESKTOP)
        await tab.send("Name a river.")
        assert await answer(tab) == "The Danube."
        other = await browser.tab(await tab.value("location.href"))
        await other.size(*DESKTOP)
        await other.until_shown("The Danube.")
        await tab.call("Page.bringToFront")
        await tab.write("Message", "Name a volcano.")
        await other.call("Page.bringToFront")
        await other.press("More for Name a river.")
        await other.press("Delete")
        await other.press("Delete")
        await tab.call("Page.bringToFront")
        await tab.until_shown("This conversation is not here")
        assert await tab.value("document.querySelectorAll('article').length") == 0
        assert await tab.value("document.querySelector('#message').value") == "Name a volcano.", "what is written stays"
        await tab.press("Send")
        assert await answer(tab) == "Etna."
        questions = await tab.value("[...document.querySelectorAll('.question')].map((node) => node.textContent)")
        asked = [message["content"] for message in server.provider.requests[-1].json()["messages"][1:]]
    assert questions == asked == ["Name a volcano."], "the model is told what is on the screen"
    assert other.complaints == []


async def test_a_conversation_that_another_client_deletes_is_no_longer_shown(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("The Danube.")) as (server, _, tab):
        await tab.send("Name a river.")
        assert await answer(tab) == "The Danube."
        session = await tab.value("new URLSearchParams(location.search).get('session')")
        assert (await server.json("DELETE", f"/sessions/{session}"))[0] == 204
        await tab.until_shown("This conversation is not here")  # with the next look at the list
        assert await tab.value("document.querySelectorAll('article').length") == 0


async def test_questions_of_two_tabs_stand_in_the_order_in_which_they_were_asked(devtools: str, tmp_path: Path) -> None:
    counting = Scenario(reply=reply("one two three four five six"), pace_s=0.5)
    async with page(devtools, tmp_path, reply("The Danube."), counting, reply("Etna.")) as (_, browser, tab):
        await tab.send("Name a river.")
        assert await answer(tab) == "The Danube."
        other = await browser.tab(await tab.value("location.href"), script=LATE_STREAM)
        await other.until_shown("The Danube.")
        await tab.call("Page.bringToFront")
        await tab.send("Count.")
        await tab.until_shown("three")
        await other.call("Page.bringToFront")
        await other.send("Name a volcano.")
        await other.until_shown("Etna.")
        for each in (tab, other):
            await each.until("document.querySelectorAll('.question').length === 3")
            questions = await each.value("[...document.querySelectorAll('.question')].map((node) => node.textContent)")
            assert questions == ["Name a river.", "Count.", "Name a volcano."]


async def test_tabs_in_the_background_leave_connections_for_the_one_that_asks(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, *[STALLED] * 6, reply("Etna.")) as (server, browser, tab):
        behind = [tab]
        for number in range(6):  # as many as a browser has connections
            await server.start("Count.", session=f"s{number}")
            address = f"{server.url}/?session=s{number}"
            if number:
                behind.append(await browser.tab(address))
            else:
                await tab.go(address)
            await behind[-1].until_shown("three")
        asking = await browser.tab(server.url + "/")
        await asking.send("Name a volcano.")
        assert await answer(asking) == "Etna."
        for each in behind:
            await each.call("Page.bringToFront")
            await each.press("Stop")
            await each.until_shown("Stopped")  # what is looked at is followed again
    assert [each.complaints for each in behind] == [[]] * 6


async def test_the_list_and_the_title_say_what_runs_and_what_waits(devtools: str, tmp_path: Path) -> None:
    counting = Scenario(reply=reply("one two three four five six", call("launch", {"what": "it"})), pace_s=0.3)
    async with page(devtools, tmp_path, counting, reply("Done."), tools=(Launch(),)) as (_, _, tab):
        await tab.size(*DESKTOP)
        await tab.send("Count.")
        await tab.until("document.title === '● Count. · Tailrace'")
        await tab.until("document.querySelector('#conversations .badge')?.textContent === 'running'")
        await tab.until("document.title.endsWith('Approval needed · Count. · Tailrace')")
        await tab.until("document.querySelector('#conversations .badge')?.textContent === 'approval'")
        await tab.press("Approve once")
        await tab.until("document.title === 'Count. · Tailrace'")
        await tab.until("document.querySelector('#conversations .badge')?.textContent === ''")


async def test_more_is_loaded_where_it_is_looked_for(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, *[reply("Yes.")] * 70) as (server, _, tab):
        await tab.size(*DESKTOP)
        for number in range(35):
            await asked(server, f"s{number}", f"Question {number}?")
        for number in range(32):
            await asked(server, "long", f"Part {number}?")
        await tab.go(server.url + "/?session=long")
        await tab.until_shown("Part 31?")
        assert "Part 1?" not in await tab.text("#log")
        await tab.press("Earlier messages")
        await tab.until("document.querySelector('.question').textContent === 'Part 0?'")
        questions = await tab.value("[...document.querySelectorAll('.question')].map((node) => node.textContent)")
        assert questions == [f"Part {number}?" for number in range(32)]
        assert await tab.value("document.querySelectorAll('#conversations .row').length") == 30
        await tab.value("document.querySelector('#conversation-list').scrollTo(0, 10000)")
        await listed(tab, ["Part 0?", *(f"Question {number}?" for number in reversed(range(35)))])
        assert await tab.value("document.querySelector('#older').hidden")
    assert tab.complaints == []


async def test_runs_that_are_no_conversation_have_a_section_of_their_own(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("Yes."), reply("Yes.")) as (server, _, tab):
        await tab.size(*DESKTOP)
        run_id = await server.start("Alone?")
        await ended(server, run_id)
        block = {"type": "step", "id": "nap", "handler": "sleep", "params": {"seconds": 0}}
        _, sequence = await server.json("POST", "/sequences", {"name": "nightly", "blocks": [block]})
        _, instance = await server.json("POST", "/instances", {"sequence_id": sequence["id"]})
        await tab.value("document.querySelector('#runs-section summary').click()")
        await tab.until("document.querySelectorAll('#runs a').length === 2")
        links = await tab.value(
            "[...document.querySelectorAll('#runs a')].map((a) => [a.textContent, a.getAttribute('href')])"
        )
        assert await tab.text("#conversations-note") == "No conversations yet."
    assert links == [["nightly", f"/?instance={instance['id']}"], ["Alone?", f"/?run={run_id}"]]


async def test_a_list_that_takes_its_time_says_that_it_is_loading(devtools: str, tmp_path: Path) -> None:
    held = """
const fetched = window.fetch;
const released = new Promise((resolve) => { window.release = resolve; });
window.fetch = async (path, options) => {
  if (path.startsWith("/sessions?")) await released;
  return fetched(path, options);
};
"""
    async with page(devtools, tmp_path) as (server, browser, _):
        tab = await browser.tab(server.url + "/", script=held)
        await tab.until("document.querySelector('#conversations-note').textContent === 'Loading…'")
        await tab.value("release()")
        await tab.until("document.querySelector('#conversations-note').textContent === 'No conversations yet.'")
    assert tab.complaints == []


async def test_a_search_that_another_one_takes_the_place_of_complains_of_nothing(devtools: str, tmp_path: Path) -> None:
    held = """
const fetched = window.fetch;
window.notes = [];
window.fetch = (path, options) => {
  if (!path.endsWith("q=one")) return fetched(path, options);
  document.title = "held"; // until it is aborted
  return new Promise((_, reject) => options.signal.addEventListener("abort", () => reject(options.signal.reason)));
};
new MutationObserver(() => notes.push(document.querySelector("#conversations-note")?.textContent))
  .observe(document, { subtree: true, childList: true });
"""
    async with page(devtools, tmp_path) as (server, browser, _):
        tab = await browser.tab(server.url + "/", script=held)
        await tab.size(*DESKTOP)
        await tab.until_shown("No conversations yet.")
        await tab.value("notes.length = 0")
        await tab.call("DOM.focus", backendNodeId=await tab.find("searchbox", "Search"))
        await tab.call("Input.insertText", text="one")
        await tab.until("document.title === 'held'")
        await tab.call("Input.insertText", text=" more")
        await tab.until_shown("Nothing found for “one more”.")
        assert set(await tab.value("notes")) <= {"No conversations yet.", "Nothing found for “one more”."}
    assert tab.complaints == []


async def test_an_address_of_no_conversation_says_so(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("Hello.")) as (server, _, tab):
        await tab.go(server.url + "/?session=doesnotexist")
        await tab.until_shown("This conversation is not here")
        await tab.size(1280, 800)
        await tab.follow(tab.press("To a new conversation", "link"))
        await tab.until_shown("How can I help?")
        await tab.go(server.url + "/?session=doesnotexist")
        await tab.until_shown("This conversation is not here")
        await tab.send("Hi.")
        assert await answer(tab) == "Hello."
        assert "This conversation is not here" not in await tab.text()
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        await tab.reload()
        root = (await tab.call("DOM.getDocument"))["root"]["backendNodeId"]
        texts = await tab.call("Accessibility.queryAXTree", backendNodeId=root, role="StaticText")
        shown = " ".join(str(node.get("name", {}).get("value")) for node in texts["nodes"])
    assert "This page needs JavaScript." in shown
    assert "Send" not in shown, "no form that does nothing"


async def test_a_conversation_that_somebody_begins_later_is_shown(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("Begun.")) as (server, _, tab):
        await tab.go(f"{server.url}/?session=later")
        await tab.until_shown("This conversation is not here")
        await server.json("POST", "/runs", {"input": "Begin.", "session": "later"})
        await tab.until_shown("Begun.")  # with the next look at the list
        assert "This conversation is not here" not in await tab.text()
    assert [line for line in tab.complaints if "404" not in line] == []


# Cut off, a path of its own to a browser, what no store takes, longer than any name.
NO_NAMES = ("", ".", "..", "%00", "a%0Ab", "x" * 257)


@pytest.mark.parametrize("named", ["session", "run", "instance"])
async def test_an_address_with_no_name_opens_the_page_and_says_so(devtools: str, tmp_path: Path, named: str) -> None:
    kind = "conversation" if named == "session" else named
    async with page(devtools, tmp_path, reply("Hello.")) as (server, _, tab):
        for name in NO_NAMES:
            await tab.go(f"{server.url}/?{named}={name}")
            await tab.until_shown(f"The address names no {kind}.")
            await tab.until_shown("How can I help?")
        await tab.send("Hi.")
        assert await answer(tab) == "Hello."
    assert tab.complaints == []


async def test_a_long_name_leaves_the_conversation_in_the_window(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("Done.")) as (_, _, tab):
        for size in (DESKTOP, PHONE):
            await tab.size(*size)
            await tab.send("Read https://example.com/" + "a-long-path/" * 30 + " please, and say what it is about.")
            await tab.until(ENDED)
            inside = "(name) => document.querySelector(name).getBoundingClientRect().right <= innerWidth"
            for name in ("#heading", "#main", "#log", ".answer", "#send"):
                assert await tab.value(f"({inside})({name!r})"), f"{name} sticks out of {size}"


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
async def test_the_list_has_one_line_for_a_name_and_the_whole_of_a_longer_one_on_hover(
    devtools: str, tmp_path: Path, size: tuple[int, int]
) -> None:
    fits, longer = "How long is the Danube?", "Is it so? " + "A-long-word-" * 9
    async with page(devtools, tmp_path, reply("So."), reply("Yes.")) as (server, _, tab):
        await asked(server, "long", longer)
        await asked(server, "fits", fits)
        await tab.size(*size)
        await tab.reload()
        await listed(tab, [fits, longer])
        if size == PHONE:
            await tab.press("Conversations")
            await tab.value(SETTLED)
        links = "[...document.querySelectorAll('#conversations a')]"
        whole = "(link) => link.scrollHeight <= link.clientHeight && link.scrollWidth <= link.clientWidth"
        assert await tab.value(f"{links}.map({whole})") == [True, False]
        assert await tab.value(f"{links}.map((link) => link.title)") == [fits, longer]
        height = "document.querySelector('#conversations .row:last-child').getBoundingClientRect().height"
        assert await tab.value(height) < 50, "one line"
        assert await tab.value("document.documentElement.scrollWidth <= innerWidth")
