"""The inspector in a real browser: a run seen, replayed, forked, compared and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.timeline.sample_run import ANSWER, BEGAN, SampleLog, sample_log
from server.web import chromium
from server.web.axe import violations_everywhere
from server.web.chromium import Tab, browsing
from server.web.opened_page import page
from tailrace.app.timeline import timeline_of
from tailrace.app.timeline.export_html import export_html
from tailrace.events import (
    AttemptDiscarded,
    AttemptStarted,
    LlmDelta,
    MessageRecorded,
    RunFailure,
    RunFinished,
    RunStarted,
    StateChanged,
    StepFailed,
    StepFinished,
    StepStarted,
)
from tailrace.messages import File, Image, Message, Text, assistant
from tailrace.testing.provider import Break, Offset, Scenario, reply

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium")

TEXT = "One two three four five six seven eight nine ten"
CUT = Scenario(reply=reply(TEXT), broken=Break("reset", Offset(60, per_cent=True)))
STALLED = Scenario(reply=reply(TEXT), broken=Break("stall", Offset(60, per_cent=True)))
WIDE = f"```\n{'wide ' * 100}\n```\n"  # scrolls in its own box
HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>"
TICKS = 'document.querySelectorAll(".tick")'
ITEMS = '[...document.querySelectorAll(".item")]'


async def scrub(tab: Tab, share: float) -> None:
    """Moves the handle of the replay."""
    await tab.value(
        f'(() => {{ const r = document.querySelector(".scrub"); r.value = {share * 1000}; '
        'r.dispatchEvent(new Event("input")); })()'
    )


async def seen(tab: Tab) -> str:
    return (await tab.text(".replay-view")).strip()


async def fits(tab: Tab) -> bool:
    """Nothing is wider than the window."""
    wide: bool = await tab.value('document.querySelector("#inspector").scrollWidth <= innerWidth')
    return wide


async def test_a_run_is_seen_replayed_forked_and_compared(devtools: str, tmp_path: Path) -> None:
    script = (CUT, reply(" eight nine ten"), reply("One two thirty, and so on."))
    async with page(devtools, tmp_path, *script, store="sqlite:///t.db") as (server, _, tab):
        run_id = await server.start("Count.")
        await server.events(f"/runs/{run_id}/stream")
        await tab.size(1280, 800)
        await tab.go(f"{server.url}/?run={run_id}")
        await tab.until(f'document.querySelector(".replay-view")?.innerText.includes({json.dumps(TEXT)})')
        assert await tab.text(".run-title") == "Count."
        await tab.find("link", "Runs")
        facts = await tab.text(".overview")
        assert "completed" in facts
        assert "faulty/ok" in facts
        assert ("Tries\n2" in facts, "Model calls" in facts) == (True, False)
        titles = await tab.value(f'{ITEMS}.map((item) => item.querySelector(".item-title").textContent)')
        assert [titles[1], titles[3]] == ["call 1: faulty/ok", "call 1, try 2: faulty/ok"]
        kinds = await tab.value(f'{ITEMS}.map((item) => item.querySelector(".item-kind").textContent)')
        assert kinds == ["Question", "Model", "Text", "Model", "Text", "End"]
        assert await tab.value('document.querySelectorAll(".bar").length') == len(kinds)

        # A bar of the lanes opens its item.
        await tab.value('document.querySelector(".bar-attempt").click()')
        await tab.until('document.querySelector(".item[open]")?.innerText.includes("the connection broke")')
        assert await tab.value('document.querySelector(".item[open]").classList.contains("chosen")')

        await played(tab)
        for width, height in ((390, 844), (1280, 800)):
            await tab.size(width, height)
            assert await fits(tab)

        # A fork from the question, beside the run that it came from.
        await tab.value(f"{ITEMS}[0].open = true")
        await tab.until(f'{ITEMS}[0].querySelector(".quiet-button")')
        await tab.value(f'{ITEMS}[0].querySelector(".quiet-button").click()')
        await tab.write("Message (may stay empty)", "Count otherwise.")
        await tab.follow(tab.press("Begin the fork"))
        await tab.until_shown("One two thirty, and so on.")
        await tab.until_shown("The answers part after “One two”.")
        assert await tab.value('document.querySelectorAll(".lanes").length') == 2
        assert "forked here" in await tab.value('document.querySelector(".lanes").textContent')
        fork = await tab.value('new URLSearchParams(location.search).get("with")')
        await tab.size(390, 844)
        assert await fits(tab)

        # The fork offers the comparison too.
        await tab.go(f"{server.url}/?run={fork}")
        await tab.until_shown("Show both side by side")
        assert tab.complaints == []
        assert all(address.startswith((server.url, "data:")) for address in tab.requests)


async def played(tab: Tab) -> None:
    """From the beginning, at 16 times the speed, to the end."""
    await scrub(tab, 0)
    assert "One" not in await seen(tab)
    await tab.value('document.querySelector(".speed").selectedIndex = 2')
    await tab.value('document.querySelector(".speed").dispatchEvent(new Event("change"))')
    await tab.press("Play")
    await tab.until('document.querySelector(".play").textContent === "Play"')
    assert TEXT in await seen(tab)


# What is drawn at each frame, from the first on.
FRAMES_SEEN = """
window.drawn = new Set();
(function look() {
  for (const node of document.querySelectorAll("#ask, main")) if (node.checkVisibility()) drawn.add(node.id);
  requestAnimationFrame(look);
})();
window.drawnWith = (id) => new Promise((resolve) => {
  (function look() { if (drawn.has(id)) resolve([...drawn]); else requestAnimationFrame(look); })();
});
"""


@pytest.mark.parametrize(("address", "view"), [("/?run={}", "inspector"), ("/?usage", "usage")])
async def test_no_empty_conversation_is_drawn_before_another_view(
    devtools: str, tmp_path: Path, address: str, view: str
) -> None:
    async with page(devtools, tmp_path, reply(TEXT)) as (server, browser, tab):
        assert await tab.value("document.querySelector('#ask').checkVisibility()")
        run = await server.start("Count.")
        opened = await browser.tab(server.url + address.format(run), script=FRAMES_SEEN)
        await opened.until(f"document.querySelector('#{view} a')")
        assert await opened.value(f"drawnWith('{view}')") == [view]


async def test_a_live_run_grows_until_it_ends(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, STALLED, store="sqlite:///t.db") as (server, _, tab):
        run_id = await server.start("Count.")
        await tab.go(f"{server.url}/?run={run_id}")
        await tab.until_shown("One two three")
        await tab.until('document.querySelector(".bar-attempt")?.dataset.tone === "open"')
        assert "running" in await tab.text(".overview")
        await server.json("POST", f"/runs/{run_id}/stop")
        await tab.until('document.querySelector(".status").dataset.status === "stopped"')
        assert await tab.value('document.querySelector(".bar-attempt").dataset.tone ?? ""') == ""
        assert await tab.value('document.querySelector(".run-error").hidden'), "whoever stopped it knows that"
        after = (await server.app.journal.get(run_id)).last_seq
        _, fork = await server.json("POST", f"/runs/{run_id}/fork", {"after": after, "input": "Go on."})
        await tab.go(f"{server.url}/?run={run_id}&with={fork['id']}")
        await tab.until('document.querySelector(".mark span")?.textContent === "forked here"')
        whole = '[...document.querySelectorAll(".lane-scroll")].every((lane) => lane.scrollWidth <= lane.clientWidth)'
        assert await tab.value(whole), "a label at the end is not cut off"
        assert tab.complaints == []


@pytest.mark.parametrize("asked", ["What is it?", ""])
async def test_the_images_and_files_of_a_question_are_named(devtools: str, tmp_path: Path, asked: str) -> None:
    log, file = SampleLog(), tmp_path / "run.html"
    beside = (Image(data="QUJD" * 25, media_type="image/png"), File("QUJD", name="bill.pdf"))
    parts = (*((Text(asked),) if asked else ()), *beside)
    log.add(RunStarted("agent", at=BEGAN), MessageRecorded(Message("user", parts)))
    log.ask("near", "small-2")
    log.say("A bill.")
    log.add(MessageRecorded(assistant("A bill."), "end"), RunFinished("completed", "A bill.", at=BEGAN + 9))
    file.write_text(export_html(log.timeline(), log.entries), encoding="utf-8")
    named = ["image: image/png, 75 bytes", "file: bill.pdf"]
    async with browsing(devtools) as browser:
        tab = await browser.tab("about:blank")
        await tab.go(file.as_uri())
        await tab.until_shown("A bill.")
        chips = await tab.value('[...document.querySelectorAll(".question .chip")].map((chip) => chip.textContent)')
        assert chips == named
        assert await tab.value(f'{ITEMS}[0].querySelector(".item-title").textContent') == " · ".join(
            filter(None, (asked, *named))
        )
        await tab.value(f"{ITEMS}[0].querySelector('summary').click()")
        await tab.until(f'{ITEMS}[0].querySelector("dd")?.textContent === {json.dumps(", ".join(named))}')
        assert tab.complaints == []


async def test_an_exported_file_needs_nothing_else(devtools: str, tmp_path: Path) -> None:
    """What the run says stays text (J123), and no request leaves the file."""
    log = sample_log(question=HOSTILE, answer=f"{HOSTILE}\n\n{WIDE}\n{ANSWER}")
    file = tmp_path / "run.html"
    file.write_text(export_html(log.timeline(), log.entries), encoding="utf-8")
    async with browsing(devtools) as browser:
        tab = await browser.tab("about:blank")
        await tab.size(1280, 800)
        await tab.go(file.as_uri())
        await tab.until_shown("All three tests pass now.")
        assert await tab.text(".run-title") == HOSTILE
        lanes = await tab.value('[...document.querySelectorAll(".lane-name")].map((name) => name.textContent)')
        assert lanes == ["Model", "Thinking", "Text", "Tools", "Approvals", "Events"]
        assert await tab.value('document.querySelectorAll(".cut").length') == 3  # the stall, the approval, the tests
        # A bar shows the moment at which its item ended; the next event comes by a button, and by a key.
        await tab.value('document.querySelectorAll(".bar-attempt")[1].click()')
        assert "so one of" in await seen(tab)
        assert "them is wrong" not in await seen(tab)
        await tab.press("Next event")
        assert (await seen(tab)).count("them") == 1
        await key(tab, ".")
        assert "them is" in await seen(tab)
        await key(tab, ",")
        assert "them is" not in await seen(tab)
        await scrub(tab, 1)
        assert "All three tests pass now." in await seen(tab)
        await tab.value('document.querySelector(".bar-tool_call[title*=patch]").click()')
        await tab.until('document.querySelector(".item[open] .diff .plus")')
        moments = await tab.value(f"{TICKS}.length")
        await tab.size(390, 844)
        await tab.until(f"{TICKS}.length < {moments}")
        assert await fits(tab)
        assert await tab.value('document.querySelectorAll("img, iframe, object").length') == 0
        assert tab.dialogs == []
        assert tab.complaints == []
        assert set(tab.requests) == {"about:blank", file.as_uri()} or set(tab.requests) == {file.as_uri()}


async def test_nothing_stands_in_the_way_of_people(devtools: str, tmp_path: Path) -> None:
    """axe-core, in light and dark, on a desktop and a phone, with every item open."""
    log, file = sample_log(), tmp_path / "run.html"
    file.write_text(export_html(log.timeline(reasoning=True), log.entries, reasoning=True), encoding="utf-8")
    async with browsing(devtools) as browser:
        tab = await browser.tab(file.as_uri())
        await tab.until_shown("All three tests pass now.")
        await tab.value(f"{ITEMS}.forEach((item) => {{ item.open = true; }})")
        await tab.until('document.querySelector(".item[open] .diff")')
        assert await violations_everywhere(tab, "inspector") == []


async def test_a_call_stands_where_it_was_written_before_its_approval(devtools: str, tmp_path: Path) -> None:
    log, file = sample_log(), tmp_path / "run.html"
    file.write_text(export_html(log.timeline(), log.entries), encoding="utf-8")
    shown = f'{ITEMS}.map((item) => [".item-kind", ".item-time"].map((part) => item.querySelector(part).textContent))'
    async with browsing(devtools) as browser:
        tab = await browser.tab(file.as_uri())
        await tab.until_shown("All three tests pass now.")
        moments = [(kind, float(at)) for kind, at in await tab.value(shown) if kind in {"Tool", "Approval"}]
    assert {kind for kind, _ in moments} == {"Tool", "Approval"}
    assert moments == sorted(moments, key=lambda moment: moment[1])


async def test_a_sequence_is_replayed_step_by_step(devtools: str, tmp_path: Path) -> None:
    log = SampleLog()
    log.add(RunStarted("sequence", at=BEGAN), StateChanged("running"))
    log.add(StepStarted("draft", 1, BEGAN + 0.1), AttemptStarted("near", "small", "draft"), after=0.1)
    log.add(LlmDelta("draft", "A wrong"), after=0.2)
    log.add(
        AttemptDiscarded("cut", "draft"), StepFailed("draft", RunFailure("retryable", "cut"), 1, BEGAN + 1), after=0.2
    )
    log.add(StepStarted("draft", 2, BEGAN + 1), LlmDelta("draft", "A right one."), after=0.5)
    log.add(StepFinished("draft", {"text": "A right one."}), after=0.1)
    log.add(RunFinished("completed", '{"draft":{"text":"A right one."}}', at=BEGAN + log.now))
    run = log.run(kind="sequence")
    file = tmp_path / "run.html"
    file.write_text(export_html(timeline_of(run, log.entries), log.entries), encoding="utf-8")  # a log without times
    async with browsing(devtools) as browser:
        tab = await browser.tab(file.as_uri())
        await tab.until_shown("A right one.")
        assert await tab.text(".lane-name") == "Steps"
        titles = await tab.value(f'{ITEMS}.map((item) => item.querySelector(".item-title").textContent)')
        assert "draft, call 1: near/small" in titles, "steps may run side by side"
        assert await tab.text(".scrub-time") == f"event {len(log.entries)} of {len(log.entries)}"
        await scrub(tab, 0)
        shown = []
        for _ in log.entries:
            await tab.press("Next event")
            shown.append(await seen(tab))
        assert any("A wrong" in text for text in shown)
        assert "A wrong" not in shown[-1]
        assert "finished" in shown[-1]
        assert tab.complaints == []


async def key(tab: Tab, name: str, **more: Any) -> None:
    await tab.value("document.activeElement.blur()")
    await tab.value(
        'document.querySelector(".inspector-body").dispatchEvent('
        f'new KeyboardEvent("keydown", {{ key: {json.dumps(name)}, bubbles: true }}))'
    )
