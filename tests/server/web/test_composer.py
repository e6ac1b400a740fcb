"""The message box in a real browser: what is written, attached, kept and sent. Skipped where there is no browser."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from server.web import chromium
from server.web.opened_page import ENDED, answer, page
from server.web.test_page_browser import STALLED
from tailrace.testing.provider import Scenario, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
BOX = "document.querySelector('#message').value"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LINES = "\n\n".join(f"Line {number}." for number in range(60))


async def test_the_empty_page_says_who_answers_and_what_to_try(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("Files.")) as (_, _, tab):
        for size in ((390, 844), (1280, 800)):
            await tab.size(*size)
            await tab.until_shown("faulty/ok")
            shown = await tab.text("#empty")
            assert str(tmp_path) in shown
            tools = await tab.value("[...document.querySelectorAll('#empty dd')].at(-1).title")
            assert "read_file" in tools
            assert await tab.value("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
        assert await tab.value("document.querySelectorAll('#empty button').length") == 3
        await tab.press("What is in this directory?")
        assert await tab.value(BOX) == "What is in this directory?"
        assert await tab.value("document.activeElement.id") == "message"
        await tab.enter()
        assert await answer(tab) == "Files."
        assert await tab.value("document.querySelector('#empty').hidden")
    assert tab.complaints == []


async def test_keys_of_the_message_box(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("One."), STALLED) as (_, _, tab):
        await tab.write("Message", "First line")
        low = await tab.value("document.querySelector('#message').offsetHeight")
        await tab.key("Enter", 13, text="\r", modifiers=8)
        await tab.call("Input.insertText", text="second\nthird\nfourth")
        assert await tab.value(BOX) == "First line\nsecond\nthird\nfourth"
        assert await tab.value("document.querySelector('#message').offsetHeight") > low, "the box grows"
        composing = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true})"
        await tab.value(f"document.querySelector('#message').dispatchEvent({composing})")
        assert await tab.value("document.querySelectorAll('article').length") == 0, "an input method's Enter"
        await tab.enter()
        assert await answer(tab) == "One."
        await tab.key("ArrowUp", 38)
        assert await tab.value(BOX) == "First line\nsecond\nthird\nfourth"
        await tab.enter()
        await tab.until_shown("one two three")
        assert "under way" in await tab.value("document.querySelector('#message').placeholder")
        await tab.key("Escape", 27)
        await tab.until_shown("Stopped")
        await tab.until("!document.querySelector('#message').placeholder.includes('under way')")
        assert await tab.value("document.activeElement.id") == "message"
    assert tab.complaints == []


async def test_a_button_with_nothing_to_send_is_pale(devtools: str, tmp_path: Path) -> None:
    pale = "getComputedStyle(document.querySelector('#send')).opacity < 1"
    async with page(devtools, tmp_path) as (_, _, tab):
        assert await tab.value(pale)
        await tab.write("Message", "Go.")
        assert not await tab.value(pale)


async def test_each_conversation_keeps_its_draft(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("One.")) as (_, _, tab):
        await tab.size(1280, 800)
        await tab.send("First.")
        assert await answer(tab) == "One."
        await tab.write("Message", "and then")
        await tab.reload()
        await tab.until(f"{BOX} === 'and then'")
        await tab.press("New conversation")
        await tab.until(f"{BOX} === ''")
        await tab.write("Message", "something else")
        await tab.until("document.querySelector('#conversations a')")
        await tab.press("First.", "link")
        await tab.until(f"{BOX} === 'and then'")
        await tab.press("New conversation")
        await tab.until(f"{BOX} === 'something else'")


EARLY = """new MutationObserver((_, seeing) => {
  const box = document.querySelector('#message');
  if (!box) return;
  seeing.disconnect();
  box.value = 'Tell me';
}).observe(document, {childList: true, subtree: true})"""


async def test_what_is_written_before_the_scripts_are_there_is_kept(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path) as (_, _, tab):
        await tab.call("Page.addScriptToEvaluateOnNewDocument", source=EARLY)
        await tab.reload()
        await tab.until_shown("faulty/ok")
        assert await tab.value(BOX) == "Tell me"
        await tab.reload()
        await tab.until_shown("faulty/ok")
        assert await tab.value(BOX) == "Tell me", "and it is the draft"


async def test_enter_before_the_scripts_are_there_sends(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("Heard.")) as (_, _, tab):
        await tab.call("Page.addScriptToEvaluateOnNewDocument", source=EARLY.replace("Tell me", "Tell me\\n"))
        await tab.reload()
        assert await answer(tab) == "Heard."
        assert await tab.value(BOX) == ""
        assert "Tell me" in await tab.text("#log")
    assert tab.complaints == []


async def test_what_is_sent_before_the_server_has_said_who_it_is_is_asked(devtools: str, tmp_path: Path) -> None:
    late = """
const fetched = window.fetch;
const met = new Promise((resolve) => { window.meet = resolve; });
window.fetch = async (path, options) => { if (path === "/about") await met; return fetched(path, options); };
"""
    async with page(devtools, tmp_path, reply("Etna.")) as (server, browser, _):
        tab = await browser.tab(server.url + "/", script=late)
        await tab.send("Name a volcano.")
        assert await tab.text("#status") == "Sending once the server answers…"
        await tab.value("meet()")
        assert await answer(tab) == "Etna."
        assert await tab.text("#status") == ""
        assert await tab.value("document.querySelectorAll('article').length") == 1
    assert tab.complaints == []


async def test_a_question_below_a_long_answer_is_followed(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply(LINES), reply("Two."), reply(LINES), reply("Four.")) as (_, _, tab):
        await tab.size(390, 844)
        for question, last in (
            ("First.", "Line 59."),
            ("Second.", "Two."),
            ("Third.", "Line 59."),
            ("Fourth.", "Four."),
        ):
            await tab.send(question)
            await tab.until(f"document.querySelector('article:last-child')?.innerText.includes('{last}')")
            await tab.until(ENDED)
            below = "(log) => log.scrollHeight - log.scrollTop - log.clientHeight"
            await tab.until(f"({below})(document.querySelector('#log')) < 40")
            assert await tab.value("document.querySelector('#latest').hidden")


# At which side of its box the text of an element stands: the first of these that has the words.
SIDE = """(selector, words) => {
  const node = [...document.querySelectorAll(selector)].find((node) => node.textContent.includes(words));
  const range = document.createRange();
  range.selectNodeContents(node);
  const [text, box] = [range.getBoundingClientRect(), node.getBoundingClientRect()];
  return text.left - box.left < box.right - text.right ? 'left' : 'right';
}"""


async def test_each_paragraph_runs_the_way_its_first_letter_does(devtools: str, tmp_path: Path) -> None:
    side = f"(words) => ({SIDE})('article p, article .question', words)"
    async with page(devtools, tmp_path, reply("שלום לכולם.\n\nHello all.\n\n- ראשון\n\n---\n\n1. first")) as (
        _,
        _,
        tab,
    ):
        await tab.size(1280, 800)
        await tab.send("מה שלומך?")
        await tab.until(ENDED)
        assert await tab.value(f"({side})('שלום לכולם')") == "right"
        assert await tab.value(f"({side})('Hello all')") == "left"
        assert await tab.value("document.querySelector('#message').dir") == "auto"
        directions = (
            "[...document.querySelectorAll('article :is(ul, ol)')].map((list) => getComputedStyle(list).direction)"
        )
        assert await tab.value(directions) == ["rtl", "ltr"], "the marks of a list stand where its words begin"


async def test_each_name_runs_the_way_its_first_letter_does(devtools: str, tmp_path: Path) -> None:
    hebrew, english, inspect = "מה שלומך?", "How are you?", "document.querySelector('.actions a').href"
    async with page(devtools, tmp_path, reply("Fine."), reply("Fine.")) as (server, _, tab):
        await tab.size(1280, 800)
        sides = []
        for question in (hebrew, english):
            await tab.go(f"{server.url}/")
            await tab.send(question)
            await tab.until(ENDED)
            await tab.until(f"document.querySelector('#conversations a')?.textContent === {json.dumps(question)}")
            sides += [await tab.value(f"({SIDE})({name!r}, {question!r})") for name in ("#conversations a", "#heading")]
            await tab.go(await tab.value(inspect))
            await tab.until("document.querySelector('.replay-view .question')")
            sides += [await tab.value(f"({SIDE})({name!r}, {question!r})") for name in (".item-title", ".run-title")]
    assert sides == ["right"] * 4 + ["left"] * 4


async def test_the_model_is_chosen_and_remembered(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, reply("One."), reply("Two.")) as (server, _, tab):
        await tab.until("document.querySelector('#model').textContent === 'faulty/ok'")
        assert server.provider.requests == [], "providers are asked for their models when somebody looks"
        await tab.call("DOM.focus", backendNodeId=await tab.find("combobox", "Model"))
        await tab.until("document.querySelectorAll('#model optgroup').length > 0")
        choose = "(select) => { select.value = 'other/ok'; select.dispatchEvent(new Event('change')); }"
        await tab.value(f"({choose})(document.querySelector('#model'))")
        assert await tab.value("document.activeElement.id") == "message"
        await tab.send("First.")
        await tab.until(ENDED)
        await tab.reload()
        await tab.until("document.querySelector('#model').value === 'other/ok'")
        await tab.send("Second.")
        await tab.until_shown("Two.")
        _, runs = await server.json("GET", "/runs")
    assert [run["model"] for run in runs["data"]] == ["other/ok", "other/ok"]


async def test_the_empty_page_names_the_model_that_is_chosen(devtools: str, tmp_path: Path) -> None:
    said = "document.querySelector('#empty dd')?.innerText"
    choose = "(name) => { const select = document.querySelector('#model'); select.value = name; "
    choose += "select.dispatchEvent(new Event('change')); }"
    async with page(devtools, tmp_path) as (_, _, tab):
        await tab.until(f"{said} === 'faulty/ok'")
        await tab.call("DOM.focus", backendNodeId=await tab.find("combobox", "Model"))
        await tab.until("document.querySelectorAll('#model optgroup').length > 0")
        await tab.value(f"({choose})('other/ok')")
        await tab.until(f"{said} === 'other/ok'")
        await tab.reload()
        await tab.until(f"{said} === 'other/ok'")
        assert await tab.value("document.querySelector('#model').selectedOptions[0].textContent") == "other/ok"
        await tab.value(f"({choose})('')")
        await tab.until(f"{said} === 'faulty/ok'")
    assert tab.complaints == []


async def test_why_a_file_was_refused_is_no_longer_said_once_the_message_is_sent(devtools: str, tmp_path: Path) -> None:
    (tmp_path / "tool.bin").write_bytes(b"\x00\x01\xff")
    async with page(devtools, tmp_path / "home", reply("Hello."), reply("Seen.")) as (_, _, tab):
        await tab.send("Hi.")
        assert await answer(tab) == "Hello."
        node = await tab.call("Runtime.evaluate", expression="document.querySelector('#files')")
        chosen = [str(tmp_path / "tool.bin")]
        await tab.call("DOM.setFileInputFiles", files=chosen, objectId=node["result"]["objectId"])
        await tab.until_shown("tool.bin: only images")
        await tab.send("Never mind.")
        await tab.until_shown("Seen.")
        assert await tab.text("#status") == ""


async def test_files_are_attached_shown_and_sent(devtools: str, tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PIXEL)
    (tmp_path / "notes.txt").write_text("Grüße\n</file>\nend", encoding="utf-8")
    (tmp_path / "tool.bin").write_bytes(b"\x00\x01\xff")
    async with page(devtools, tmp_path / "home", reply("Seen.")) as (server, _, tab):
        await tab.find("button", "Attach files")
        node = await tab.call("Runtime.evaluate", expression="document.querySelector('#files')")
        chosen = [str(tmp_path / name) for name in ("dot.png", "notes.txt", "tool.bin")]
        await tab.call("DOM.setFileInputFiles", files=chosen, objectId=node["result"]["objectId"])
        await tab.until_shown("tool.bin: only images (PNG, JPEG, WebP, GIF) and text in UTF-8 can be attached.")
        chips = "[...document.querySelectorAll('#attached li > span')].map((chip) => chip.textContent).join()"
        assert await tab.value(chips) == "dot.png,notes.txt"
        data = (
            "const data = new DataTransfer(); data.items.add(new File(['more'], 'more.md', {type: 'text/markdown'}));"
        )
        await tab.value(
            f"{{ {data} document.querySelector('#message').dispatchEvent("
            "new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})) }"
        )
        await tab.until(f"{chips} === 'dot.png,notes.txt,more.md'")
        await tab.value(
            f"{{ {data} document.querySelector('#log').dispatchEvent("
            "new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})) }"
        )
        await tab.until(f"{chips} === 'dot.png,notes.txt,more.md,more.md'")
        for _ in range(2):
            await tab.value("document.querySelector('#attached li:last-child button').click()")
        assert await tab.value(chips) == "dot.png,notes.txt"
        await tab.send("What is this?")
        assert await answer(tab) == "Seen."
        assert await tab.value("document.querySelector('#attached').hidden")
        assert await tab.value("document.querySelectorAll('.question img').length") == 1
        sent = server.provider.requests[0].json()["messages"][-1]["content"]
        await tab.reload()
        await tab.until_shown("Seen.")
        question = (await tab.text(".question")).split()
        await tab.until("document.querySelector('.question img')?.naturalWidth === 1")  # it is there again
        title = await tab.text("h1")
    assert [part["type"] for part in sent] == ["text", "image_url", "text"]
    assert base64.b64decode(sent[1]["image_url"]["url"].partition(",")[2]) == PIXEL
    assert sent[2]["text"] == '\n\n<file name="notes.txt">\nGrüße\n</file>\nend\n</file>'
    assert question == ["What", "is", "this?", "notes.txt"]
    assert title == "What is this?"
    assert not [complaint for complaint in tab.complaints if "Content Security Policy" in complaint]


async def test_a_file_that_is_chosen_while_the_page_is_made_ready_stays(devtools: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Hello.", encoding="utf-8")
    held = """
        const ask = window.fetch, begun = new Promise((begin) => (window.begin = begin));
        window.fetch = async (...request) => {
          if (String(request[0]).includes("/about")) await begun;
          return ask(...request);
        };"""
    async with page(devtools, tmp_path / "home") as (server, browser, _):
        tab = await browser.tab(server.url + "/", script=held)
        node = await tab.call("Runtime.evaluate", expression="document.querySelector('#files')")
        chosen = [str(tmp_path / "notes.txt")]
        await tab.call("DOM.setFileInputFiles", files=chosen, objectId=node["result"]["objectId"])
        await tab.until("document.querySelectorAll('#attached li').length === 1")
        await tab.value("window.begin()")
        await tab.until_shown("How can I help?")
        assert await tab.text("#attached span") == "notes.txt"


async def test_an_edited_question_keeps_its_files_and_no_name_has_what_is_in_them(
    devtools: str, tmp_path: Path
) -> None:
    (tmp_path / "dot.png").write_bytes(PIXEL)
    (tmp_path / "notes.txt").write_text("Grüße\n</file>\nend", encoding="utf-8")
    async with page(devtools, tmp_path / "home", reply("Seen."), reply("Seen again.")) as (server, _, tab):
        node = await tab.call("Runtime.evaluate", expression="document.querySelector('#files')")
        chosen = [str(tmp_path / name) for name in ("dot.png", "notes.txt")]
        await tab.call("DOM.setFileInputFiles", files=chosen, objectId=node["result"]["objectId"])
        await tab.until("document.querySelectorAll('#attached li').length === 2")
        await tab.send("What is this?")
        await tab.until_shown("Seen.")
        await tab.until(ENDED)
        sent = server.provider.requests[0].json()["messages"][-1]["content"]
        await tab.press("Edit")
        form = "document.querySelector('.fork-form').getBoundingClientRect()"
        log = "document.querySelector('#log').getBoundingClientRect()"
        assert await tab.value(f"{form}.bottom <= {log}.bottom + 1"), "the button that sends it is in view"
        assert "its files are sent with it" in await tab.text(".fork-form")
        await tab.press("Send edited")
        await tab.until_shown("Seen again.")
        await tab.until(ENDED)
        edited = server.provider.requests[-1].json()["messages"][-1]["content"]
        await tab.reload()
        await tab.until("document.querySelector('article:not([hidden]) .question img')?.naturalWidth > 0")
        inspect = await tab.value("document.querySelector('article:not([hidden]) .actions a').href")
        await tab.go(inspect)
        await tab.until("document.querySelector('.replay-view .question')")
        shown = "[...document.querySelectorAll('.run-title, .item-title, .replay-view .question')]"
        seen = await tab.value(f"{shown}.map((each) => each.innerText || each.textContent)")
    assert edited == sent
    assert [" ".join(seen[at].split()) for at in (0, 1, -1)] == [
        "What is this?",
        "What is this? · image: image/png, 72 bytes",
        "What is this? notes.txt image: image/png, 72 bytes",
    ]


@pytest.mark.parametrize("size", [(390, 844), (1280, 800)])
async def test_only_who_reads_the_end_follows_it(devtools: str, tmp_path: Path, size: tuple[int, int]) -> None:
    paced = Scenario(reply=reply(LINES), pace_s=0.004)
    at_end = "(({scrollHeight, scrollTop, clientHeight}) => scrollHeight - scrollTop - clientHeight < 40)"
    log = "document.querySelector('#log')"
    async with page(devtools, tmp_path, paced, paced) as (server, _, tab):
        await tab.size(*size)
        await tab.send("Count.")
        await tab.until_shown("Line 40.")
        assert await tab.value(f"{at_end}({log})")
        server.provider.flowing.clear()
        await tab.value(f"{log}.scrollTop = 50")
        await tab.until("!document.querySelector('#latest').hidden")
        server.provider.flowing.set()
        await tab.until(ENDED)
        assert await tab.value(f"{log}.scrollTop") == 50, "what is read stays where it is"
        await tab.press("latest")
        await tab.until("document.querySelector('#latest').hidden")
        assert await tab.value(f"{at_end}({log})")
        assert await tab.value("document.activeElement.id") == "message"
        waiting = "document.querySelector('#waiting')"
        await tab.value(f"{waiting}.append('x'); {waiting}.style.height = '200px'")
        await tab.value("new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
        assert await tab.value(f"{at_end}({log})"), "what waits above the box does not cover the end"
