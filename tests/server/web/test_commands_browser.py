"""The slash commands of the page, in a real browser. Skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import ENDED, Launch, answer, page
from server.web.test_page_browser import WORDS
from tailrace.app.slash_commands import commands_of
from tailrace.testing.provider import Scenario, call, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
BOX = "document.querySelector('#message').value"
COMMANDS = "[...document.querySelectorAll('#commands [role=option] b')].map((each) => each.textContent.trim())"
ACTIONS = "import('/web/conversation/command_actions.js').then((made) => Object.keys(made.commandActions({})))"


async def test_slash_commands_do_here_what_they_do_in_chats(devtools: str, tmp_path: Path) -> None:
    launch = reply(call("launch", {"what": "it"}))
    script = (reply("One."), reply("Two."), launch, reply("Done."), launch, reply("No, then."))
    async with page(devtools, tmp_path, *script, tools=(Launch(),)) as (server, _, tab):
        await tab.size(1280, 800)
        await tab.write("Message", "/")
        await tab.until(f"{COMMANDS}.length > 0")
        assert await tab.value(COMMANDS) == [f"/{name}" for name in commands_of("page")]
        assert set(await tab.value(ACTIONS)) == set(commands_of("page"))
        await tab.call("Input.insertText", text="he")
        await tab.enter()  # as far as it is typed it means one
        await tab.until_shown("stop the answer under way")
        assert await tab.value(BOX) == "/"
        await tab.send("nonsense")
        await tab.until_shown("/nonsense is no command.")
        await tab.send("/status")
        await tab.until_shown("Nothing is running · approvals on · faulty/ok")
        assert server.provider.requests == []
        await tab.send("Count.")
        assert await answer(tab) == "One."
        await tab.send("/cost")
        await tab.until_shown("tokens in,")
        await tab.send("/retry")
        await tab.until_shown("2 of 2")
        await tab.until(ENDED)
        await tab.send("Launch it.")
        await tab.until("document.querySelector('#waiting button')")
        await tab.send("/status")
        await tab.until_shown("Answering · 1 waiting for approval")
        await tab.send("/approve")
        await tab.until_shown("Done.")
        await tab.until(ENDED)
        await tab.send("Launch it again.")
        await tab.until("document.querySelector('#waiting button')")
        await tab.send("/deny too early")
        await tab.until_shown("No, then.")
        await tab.until(ENDED)
        assert "too early" in json.dumps(server.provider.requests[-1].json()["messages"][-1])
        await tab.send("/model nosuch/model")
        await tab.until_shown("There is no model nosuch/model here.")
        await tab.send("/resume")
        await tab.until("document.activeElement.id === 'search'")
        await tab.send("/new And now?")
        await tab.until("location.search === ''")
        assert await tab.value(BOX) == "And now?"
    assert tab.complaints == []


async def test_what_is_queued_is_asked_after_the_answer_and_what_steers_within_it(
    devtools: str, tmp_path: Path
) -> None:
    slow = Scenario(reply=reply(WORDS), pace_s=0.05)
    async with page(devtools, tmp_path, slow, reply("Steered."), reply("Queued.")) as (server, _, tab):
        await tab.send("Count.")
        await tab.until_shown("word5")
        await tab.send("/queue What else?")
        await tab.until("document.querySelectorAll('article').length === 2")
        await tab.send("/steer Faster!")
        await tab.until_shown("Queued.")
        said = [request.json()["messages"][-1]["content"] for request in server.provider.requests]
        assert said == ["Count.", "Faster!", "What else?"]
        assert await tab.value("document.querySelectorAll('article').length") == 2
        await tab.send("/queue")
        await tab.until_shown("/queue <message>")
    assert tab.complaints == []


async def test_yolo_approves_what_waits_and_what_comes_until_it_is_off(devtools: str, tmp_path: Path) -> None:
    launch = reply(call("launch", {"what": "it"}))
    script = (launch, launch, reply("Done."), launch, reply("Asked."))
    async with page(devtools, tmp_path, *script, tools=(Launch(),)) as (_, _, tab):
        await tab.send("Launch it.")
        await tab.until("document.querySelector('#waiting button')")
        await tab.send("/yolo")
        await tab.until_shown("/yolo on approves everything")
        assert await tab.value("document.querySelector('#yolo').hidden")
        await tab.send("/yolo on")
        await tab.until_shown("Done.")
        await tab.until(ENDED)
        await tab.send("/status")
        await tab.until_shown("approvals off")
        await tab.press("Asks nothing: ask again")
        await tab.until("document.querySelector('#yolo').hidden")
        await tab.send("Launch it again.")
        await tab.until("document.querySelector('#waiting button')")
        await tab.send("/approve")
        await tab.until_shown("Asked.")
    assert tab.complaints == []
