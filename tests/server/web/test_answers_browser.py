"""Answers on the page, in a real browser: tools that open, what is said below an answer, and what one does with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.web import axe, chromium
from server.web.opened_page import ENDED, answer, in_page, page
from tailrace import Agent, tool
from tailrace.testing.provider import Scenario, call, reply, say, think

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")


@tool(repeatable=True)
def level(river: str) -> str:
    """The level of a river."""
    return f"{river}: 1.2 m"


CARDS = """[...document.querySelectorAll('.tool')].map((card) => [
  card.querySelector('.tool-name').textContent, card.dataset.state,
  card.querySelector('.result').textContent.replace(/( · )?[0-9.]+ m?s$/, '')])"""
TOLD = f"JSON.stringify({CARDS})"
SHOWN = "[...document.querySelectorAll('article:not([hidden]) > .question')].map((each) => each.textContent)"
OPENED = "document.querySelector('.tool[data-state={state}] .tool-body').textContent"
HEAD = ("River", "Kilometres", "Liechtenstein", "Bratislava", "Regensburg", "Klosterneuburg")
WIDE = f"| {' | '.join(HEAD)} |\n|:--|--:|{':-:|' * 4}\n| Danube | 2,850 | {'yes | ' * 3}{'no, by far ' * 4}|\n"
CODE = "```python\ndef f(x):\n    return x  # why\n```\n"


async def open_card(tab: chromium.Tab, state: str) -> str:
    """What is behind a card once it is there."""
    await tab.value(f"document.querySelector('.tool[data-state={state}]').open = true")
    body = OPENED.format(state=state)
    await tab.until(f"/Output|Not executed/.test({body})")
    shown: str = await tab.value(body)
    return shown


async def test_tool_calls_open_and_tell_how_they_ended_also_after_a_reload(devtools: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    calls = (
        call("terminal", {"command": "echo hello; exit 3"}),
        call("write_file", {"path": "notes.txt", "content": "one\nTWO\nthree\nfour\n"}),
        call("terminal", {"command": "rm -rf build"}),
    )
    config = "approvals: {timeout_s: 0.01}\n"
    expected = [
        ["terminal", "failed", "exit code 3"],
        ["write_file", "done", "+2 −1"],
        ["terminal", "denied", "denied: no answer came"],
    ]
    told = json.dumps(json.dumps(expected, ensure_ascii=False, separators=(",", ":")))
    async with page(devtools, tmp_path, reply(say("I will."), *calls), reply("Done."), config=config) as (_, _, tab):
        await tab.send("Work.")
        await answer(tab)
        for reloaded in (False, True):
            await tab.until(f"{TOLD} === {told}")
            assert "echo hello; exit 3" in (failed := await open_card(tab, "failed"))
            assert "hello\n[exit code 3]" in failed
            written = await open_card(tab, "done")
            assert " one\n-two\n+TWO\n three\n+four" in written
            assert await tab.value("document.querySelectorAll('.hljs-addition').length") == 2
            assert "no answer came in time" in await open_card(tab, "denied")
            assert any("outputs=true" in url for url in tab.requests) is reloaded
            await tab.reload()
            await tab.until(ENDED)
        await tab.size(390, 844)
        cut = "[...document.querySelectorAll('.result')].filter((each) => each.scrollWidth > each.clientWidth).length"
        assert await tab.value(cut) == 0, "what became of a call is read whole on a phone"
    assert tab.complaints == []


async def test_a_call_is_seen_while_it_is_written(devtools: str, tmp_path: Path) -> None:
    content = "\n".join(f"line {number} of it" for number in range(60))
    written = Scenario(reply=reply(call("write_file", {"path": "a.txt", "content": content})), pace_s=0.02)
    async with page(devtools, tmp_path, written, reply("Done.")) as (server, _, tab):
        await tab.send("Write.")
        await tab.until("document.querySelector('.tool[data-state=writing]')")
        await tab.value("document.querySelector('.tool').open = true")
        await tab.until("document.querySelector('.tool-body pre')?.textContent.includes('line 1 of it')")
        server.provider.flowing.clear()
        assert "line 59" not in await tab.text(".tool-body")
        assert await tab.text(".activity") != ""
        server.provider.flowing.set()
        await answer(tab)
        assert await tab.value(CARDS) == [["write_file", "done", "+60 −0"]]
        assert "+line 59 of it" in await tab.text(".tool-body"), "it stays open"
    assert tab.complaints == []


async def test_what_came_from_a_cache_is_counted_once(devtools: str, tmp_path: Path) -> None:
    usage = '{"input_tokens": 36, "cache_read_tokens": 35, "output_tokens": 70}'
    async with page(devtools, tmp_path) as (_, _, tab):
        shown = f"""import("/web/answer/run_facts.js").then(({{ RunFacts }}) => {{
            const facts = new RunFacts(); facts.know({{ usage: {usage} }}); facts.show(); return facts.node.textContent;
        }})"""
        assert await tab.value(shown) == "36 in, 70 out"


async def test_below_an_answer_stand_its_figures_and_what_one_can_do(devtools: str, tmp_path: Path) -> None:
    text = f"Look:\n\n{CODE}\n{WIDE}"
    async with page(devtools, tmp_path, reply(think("Hmm."), say(text)), reply("Other.")) as (_, _, tab):
        await tab.send("Which way?")
        await answer(tab)
        assert await tab.value("document.querySelector('.run-facts').offsetHeight") == 0, "only for who asks"
        await tab.press("Figures")
        assert " in, " in await tab.text(".run-facts")
        await tab.find("link", "Inspect")
        run = await tab.value("new URL(document.querySelector('.actions a').href).searchParams.get('run')")
        assert run.startswith("run_")
        await tab.value("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        for name, copied in (("Copy", text.strip()), ("Copy code", "def f(x):\n    return x  # why")):
            await tab.press(name)
            await tab.until(f"window.copied && document.body.innerText.includes('Copied') && '{name}'")
            assert await tab.value("window.copied") == copied
        assert "Hmm." not in await tab.text(".answer"), "only for who asks"
        await tab.value("document.querySelector('.thought').open = true")
        await tab.until("document.querySelector('.thought').innerText.includes('Hmm.')")
        for width, height in ((390, 844), (1280, 800)):
            await tab.size(width, height)
            assert await tab.value("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
            assert await tab.value("document.querySelector('.table td').offsetHeight") < 120, "a sentence has room"
            words = "[...document.querySelectorAll('.table td, .table th')].map((cell) => cell.getClientRects().length)"
            assert set(await tab.value(words)) == {1}
        await tab.size(390, 844)
        assert await tab.value("{ const box = document.querySelector('.table'); box.scrollWidth > box.clientWidth; }")
        line = "parseFloat(getComputedStyle(document.querySelector('th')).lineHeight)"
        assert await tab.value(f"document.querySelector('th').clientHeight < 2 * {line}"), "no word is broken"
    assert tab.complaints == []


async def test_a_word_that_is_longer_than_its_cell_stays_in_it(devtools: str, tmp_path: Path) -> None:
    table = f"| name | value |\n|---|---|\n| key | {'w' * 100} |\n"
    async with page(devtools, tmp_path, reply(table)) as (_, _, tab):
        await tab.send("Where is it?")
        await answer(tab)
        cells = "[...document.querySelectorAll('.table td')]"
        assert await tab.value(f"{cells}.every((cell) => cell.scrollWidth <= cell.clientWidth)")


async def test_a_thought_stands_where_it_happened_and_says_how_long_it_took(devtools: str, tmp_path: Path) -> None:
    told = "[...document.querySelectorAll('.thought summary')].map((each) => each.textContent)"
    places = "[...document.querySelectorAll('article .answer')].map((each) => each.firstElementChild.className)"
    slow = Scenario(reply=reply(think("One two three four five."), say("One.")), pace_s=0.1)
    async with page(devtools, tmp_path, slow, reply("Two."), reply(think("\n"), say("Blank."))) as (server, _, tab):
        await tab.size(1280, 1200)
        await tab.send("And?")
        await tab.until("document.querySelector('.thought')")
        server.provider.flowing.clear()
        await tab.until("/^Thinking for [1-9]/.test(document.querySelector('.thought summary').textContent)")
        await tab.value("document.querySelector('.thought').open = true")
        await tab.until("document.querySelector('.thought-text').innerText !== ''")
        server.provider.flowing.set()
        await tab.until_shown("One.")
        await tab.until(ENDED)
        for words in ("Two.", "Blank."):
            await tab.send("And?")
            await tab.until_shown(words)
            await tab.until(ENDED)
        for _ in range(2):
            await tab.until(f"/^Thought for [0-9.]+ m?s$/.test({told}.join())")
            assert await tab.value(places) == ["thought", "message", "message"]
            await tab.reload()
            await tab.until_shown("Blank.")
            await tab.until(ENDED)
    assert tab.complaints == []


async def test_a_thought_of_no_time_tells_none(devtools: str, tmp_path: Path) -> None:
    script = """const { Thought } = await import("/web/answer/reasoning.js");
    return args.map((took) => { const times = [0, took]; const thought = new Thought(() => times.shift());
      thought.end(); return thought.summary.textContent; });"""
    assert await in_page(devtools, tmp_path, script, 0.04, 0.3) == ["Thought", "Thought for 0.3 s"]


async def test_an_edited_question_is_a_further_version_of_its_turn(devtools: str, tmp_path: Path) -> None:
    script = (reply("Left."), reply("Go on."), reply("Right."), reply("Still left."))
    async with page(devtools, tmp_path, *script) as (server, _, tab):
        await tab.send("Which way?")
        assert await answer(tab) == "Left."
        address = await tab.value("location.href")
        await tab.send("And then?")
        await tab.until_shown("Go on.")
        await tab.until(ENDED)
        await tab.value("document.querySelector('article button[title=Edit]').click()")
        assert await tab.value("document.activeElement.value") == "Which way?"
        await tab.until("document.querySelector('.fork-form select').options.length > 1")
        await tab.value("document.querySelector('.fork-form select').selectedIndex = 1")
        chosen = await tab.value("document.querySelector('.fork-form select').value")
        await tab.write("Edited question", " And why?")
        await tab.press("Send edited")
        await tab.until_shown("Right.")
        await tab.until(ENDED)
        asked = server.provider.requests[-1].json()
        for _ in range(2):
            assert await tab.value(SHOWN) == ["Which way? And why?"]
            assert await tab.text("article:not([hidden]) .versions > span") == "2 of 2"
            await tab.press("Previous version")
            assert await tab.value(SHOWN) == ["Which way?", "And then?"]
            await tab.press("Next version")
            await tab.reload()
            await tab.until_shown("Right.")
            await tab.until(ENDED)
        await tab.press("Previous version")
        await tab.send("Sure?")
        await tab.until_shown("Still left.")
        assert await tab.value(SHOWN) == ["Which way?", "And then?", "Sure?"], "it follows what is shown"
        assert await tab.value("location.href") == address
        assert await tab.text("#heading") == "Which way?"
        assert await tab.value("document.querySelectorAll('#conversations .row').length") == 1
    assert [message["content"] for message in asked["messages"]][1:] == ["Which way? And why?"]
    assert chosen.endswith("/" + asked["model"])
    last = [message["content"] for message in server.provider.requests[-1].json()["messages"]][1:]
    assert last == ["Which way?", "Left.", "And then?", "Go on.", "Sure?"]
    assert tab.complaints == []


async def test_waiting_for_the_first_token_is_told_by_seconds(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, "silence") as (_, _, tab):
        await tab.send("Anybody there?")
        await tab.until("/^Thinking \\d+ s$/.test(document.querySelector('.activity')?.textContent)")
        await tab.press("Stop")
        await answer(tab)
        assert await tab.text(".activity") == ""
    assert tab.complaints == []


RICH = """# Head

- [x] done
- [ ] to do

$x_1$ and ![a map](https://example.org/map.png)

```python
@meta
class A(int):  # comment
    text = f"{1 + 2}" or None
```

```diff
@@ -1 +1 @@
-old
+new
```
"""


async def test_what_stands_in_an_answer_is_open_to_everybody(devtools: str, tmp_path: Path) -> None:
    axe.source()
    work = reply(
        think("Hmm."), say(RICH), call("terminal", {"command": "exit 3"}), call("read_file", {"path": "config.yaml"})
    )
    async with page(devtools, tmp_path, work, reply("Done.")) as (_, _, tab):
        await tab.send("Work.")
        await answer(tab)
        await tab.press("Fork from here")
        await tab.value("for (const card of document.querySelectorAll('details')) card.open = true")
        await tab.until("document.querySelectorAll('.tool-body pre').length >= 4")
        assert await axe.violations_everywhere(tab, "answer") == []


async def test_what_a_called_agent_does_is_seen_live_in_its_card_and_inspected_from_there(
    devtools: str, tmp_path: Path
) -> None:
    paced = Scenario(reply=reply("The level of the Aare" + " rises and falls" * 100), pace_s=0.02)
    script = (reply(call("research", {"input": "the Aare"})), reply(call("level", {"river": "Aare"})), paced, "ok")
    async with page(devtools, tmp_path, *script, store="sqlite:///tailrace.db") as (server, _, tab):
        helper = Agent(config=server.app.config, tools=[level])
        agent = Agent(config=server.app.config, tools=[helper.as_tool("research")], session="rivers")
        async with agent, agent.stream("How is the Aare?") as run:
            await tab.go(f"{server.url}/?session=rivers")
            await tab.until("document.querySelector('.tool[data-state=running]')")
            await tab.value("document.querySelector('.tool').open = true")
            inside = "document.querySelector('.called-run').textContent"
            await tab.until(f"{inside}?.includes('The level of')")
            server.provider.flowing.clear()
            assert "level" in await tab.text(".called-run .tool-name")
            assert await tab.value("document.querySelector('.tool').dataset.state") == "running"
            server.provider.flowing.set()
            result = await run.result()
        await tab.until(f"{inside}.includes('The level of the Aare rises')")
        await tab.reload()
        await tab.until(ENDED)
        await tab.value("document.querySelector('.tool').open = true")
        await tab.until(f"{inside}?.includes('The level of the Aare rises')")
        await tab.go(f"{server.url}/?run={result.run_id}")
        await tab.until("[...document.querySelectorAll('.item')].some((item) => item.textContent.includes('research'))")
        opened = "document.querySelectorAll('.item').forEach((item) => { item.open = true; })"
        await tab.value(opened)
        await tab.until("document.body.textContent.includes('What the agent did')")
        assert "?run=" in await tab.value("document.querySelector('.item a').getAttribute('href')")
    assert tab.complaints == []
