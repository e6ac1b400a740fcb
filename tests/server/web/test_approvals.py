"""Approvals on the page: in view, understood, answered by mouse and keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.web import chromium
from server.web.chromium import Tab
from server.web.opened_page import ENDED, WAITS, Launch, answer, page
from tailrace.testing.provider import Reply, call, reply, say, think

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
PHONE, DESKTOP = (390, 844), (1280, 800)
LAUNCH = reply(say("I will."), call("launch", {"what": "it"}))
LONG = "\n\n".join(f"Paragraph {number} of a long answer." for number in range(60))
# Each button of the pinned question is what the mouse would hit in its middle.
IN_VIEW = """[...document.querySelectorAll("#waiting button")].every((button) => {
  const box = button.getBoundingClientRect();
  return document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2) === button
    && box.bottom <= document.querySelector("#ask").getBoundingClientRect().top;
})"""
FOCUS = "document.activeElement.id || document.activeElement.className"


async def line(tab: Tab) -> str:
    """The last approval as the conversation keeps it."""
    shown: str = await tab.value("[...document.querySelectorAll('.approval')].at(-1).innerText")
    return " ".join(shown.split())


@pytest.mark.parametrize(
    ("button", "outcome", "asks_again"),
    [
        ("Approve once", "Approved once launch it", True),
        ("Approve for session", "Approved for this session launch it", False),
        ("Always", "Approved always launch it", False),
        ("Deny", "Denied launch it", True),
    ],
)
async def test_a_tool_is_approved_or_denied_from_the_page(
    devtools: str, tmp_path: Path, button: str, outcome: str, asks_again: bool
) -> None:
    denied = button == "Deny"
    async with page(devtools, tmp_path, LAUNCH, reply("Done."), LAUNCH, reply("Done again."), tools=(Launch(),)) as (
        server,
        _,
        tab,
    ):
        await tab.send("Launch it.")
        await tab.until(WAITS)
        assert await tab.text("#waiting pre") == "launch it"
        assert f"in {tmp_path}, for local" in await tab.text("#waiting")
        await tab.press(button)
        await tab.until_shown("Done.")
        assert await tab.value("document.querySelector('#waiting').childElementCount") == 0
        said = await line(tab)
        await tab.until(ENDED)
        await tab.send("And again.")
        if asks_again:
            await tab.until(WAITS)
            await tab.press("Deny")
        await tab.until_shown("Done again.")
        asked = await tab.value("document.querySelectorAll('.approval').length")
        told = server.provider.requests[1].json()["messages"][-1]["content"]
    assert said == outcome
    assert ("launched it" in told) is not denied
    assert asked == (2 if asks_again else 1)
    assert tab.complaints == []


async def test_whoever_answers_after_another_window_is_told(devtools: str, tmp_path: Path) -> None:
    held = """const real = fetch; globalThis.fetch = (url, how) => String(url).endsWith("/approval")
      ? new Promise((resolve) => { globalThis.release = () => resolve(real(url, how)); }) : real(url, how);"""
    async with page(devtools, tmp_path, LAUNCH, reply("Done."), tools=(Launch(),)) as (_, browser, tab):
        await tab.send("Launch it.")
        await tab.until(WAITS)
        other = await browser.tab(await tab.value("location.href"), script=held, window=True)
        await other.until(WAITS)
        await other.press("Deny")  # it is on its way
        await tab.press("Approve once")
        await other.until_shown("Done.")
        await other.value("release()")
        said = [await line(tab), await line(other)]
    assert said == ["Approved once launch it", "Approved once (your answer came too late) launch it"]


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
async def test_a_question_is_in_view_wherever_the_conversation_is_read(
    devtools: str, tmp_path: Path, size: tuple[int, int]
) -> None:
    launch = reply(say(LONG), call("launch", {"what": "it " * 2000}))
    async with page(devtools, tmp_path, reply(LONG), launch, reply("Done."), tools=(Launch(),)) as (server, _, tab):
        await tab.size(*size)
        await tab.send("Talk.")
        await tab.until(ENDED)
        await tab.send("Launch it.")
        await tab.until(WAITS)
        await tab.until("document.activeElement.className === 'approval-card'")  # nobody was typing
        assert await tab.value(IN_VIEW)
        assert 50 <= int((await tab.text(".countdown")).removesuffix(" s")) <= 60
        shown = await tab.text("#waiting")
        read = await tab.value("document.querySelector('#log').scrollTop = 10")
        await tab.press("Deny and say why")
        assert await tab.value("document.activeElement.tagName") == "INPUT"
        await tab.call("Input.insertText", text="not today")
        await tab.enter()
        await tab.until("document.querySelector('#waiting').childElementCount === 0")
        assert await tab.value(FOCUS) == "message", "W12: what is typed next is not lost"
        assert await tab.value("document.querySelector('#log').scrollTop") == read, "whoever reads is left alone"
        said = await line(tab)
        await tab.until(ENDED)
        told = server.provider.requests[2].json()["messages"][-1]["content"]
    assert f"For session: exactly this in {tmp_path}, for local, in this conversation only" in shown
    assert f"Always: exactly this in {tmp_path}, for local, in every conversation, after a restart too; " in shown
    assert '"tailrace approvals" takes it back' in shown
    assert said.startswith("Denied: not today launch it")
    assert "denied by the user: not today" in told
    assert tab.complaints == []


async def test_whoever_types_goes_on_typing_and_a_time_out_is_nobodys_denial(devtools: str, tmp_path: Path) -> None:
    config = "approvals: {timeout_s: 1.5}\n"
    async with page(devtools, tmp_path, LAUNCH, reply("Done."), tools=(Launch(),), config=config) as (_, _, tab):
        await tab.send("Launch it.")
        await tab.write("Message", "By the way")
        await tab.until(WAITS)
        assert await tab.value("document.querySelector('[aria-live=assertive]').textContent") == (
            "Approval needed: launch wants to run launch it"
        )
        await tab.until_shown("Done.")
        assert await tab.value(FOCUS) == "message"
        assert await line(tab) == "Not executed: no answer came within 2 s launch it"
        await tab.until(ENDED)
        await tab.reload()
        await tab.until(ENDED)
        assert await line(tab) == "Not executed: no answer came within 2 s launch it"
        assert await tab.value("document.querySelector('#waiting').childElementCount") == 0


class LaunchBeside(Launch):
    """May run beside others of its kind."""

    parallel = True


def two() -> Reply:
    return reply(call("launch", {"what": "one"}, id="c1"), call("launch", {"what": "two"}, id="c2"))


async def test_several_questions_stack_and_each_is_answered(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, two(), reply("Done."), tools=(LaunchBeside(),)) as (server, _, tab):
        await tab.size(*PHONE)
        await tab.send("Launch both.")
        await tab.until("document.querySelectorAll('#waiting .approval-card').length === 2")
        await tab.value("document.querySelector('#waiting .danger').click()")
        await tab.until("document.querySelectorAll('#waiting .approval-card').length === 1")
        assert await tab.value(FOCUS) == "approval-card", "the next one"
        await tab.press("Approve once")
        await tab.until_shown("Done.")
        assert await tab.value(FOCUS) == "message"
        results = [each["content"] for each in server.provider.requests[1].json()["messages"][-2:]]
    assert sorted("launched" in result for result in results) == [False, True]


async def test_a_denial_after_a_reload_is_told_once_too(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, LAUNCH, reply("Done."), tools=(Launch(),)) as (_, _, tab):
        await tab.send("Launch it.")
        await tab.until(WAITS)
        await tab.reload()
        await tab.until(WAITS)
        await tab.press("Deny")
        await answer(tab)
        cards = await tab.value(
            "[...document.querySelectorAll('.tool')].filter((card) => card.checkVisibility()).length"
        )
        assert (await line(tab), cards) == ("Denied launch it", 0)


@pytest.mark.parametrize("button", ["Approve once", "Deny"])
async def test_a_reload_finds_an_approval_and_the_thoughts_at_their_calls(
    devtools: str, tmp_path: Path, button: str
) -> None:
    rounds = (
        reply(think("Hm."), say("I will look around first."), call("terminal", {"command": "ls -la"})),
        reply(think("So."), say("Now I remove the build."), call("terminal", {"command": "rm -rf build"})),
        reply("All done."),
    )
    places = """[...document.querySelector(".answer").children].map((node) =>
      node.className === "thought" ? "thought" : `${node.className.split(" ")[0]} ${node.innerText.split("\\n")[0]}`)"""
    async with page(devtools, tmp_path, *rounds) as (_, _, tab):
        await tab.send("Clean up.")
        await tab.until(WAITS)
        await tab.press(button)
        await answer(tab)
        live = await tab.value(places)
        await tab.reload()
        await answer(tab)
        await tab.until(f"JSON.stringify({places}) === {json.dumps(json.dumps(live, separators=(',', ':')))}")
        hidden = await tab.value("[...document.querySelectorAll('.answer > [hidden]')].map((node) => node.className)")
    kinds = [each.split(" ")[0] for each in live]
    assert kinds == ["thought", "message", "tool", "thought", "message", "approval", "tool", "message"]
    assert hidden == (["tool"] if button == "Deny" else []), "a denial is told once, by the line of the question"


async def test_an_approval_that_is_open_is_found_after_a_reload(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, LAUNCH, reply("Done."), tools=(Launch(),)) as (_, _, tab):
        await tab.send("Launch it.")
        await tab.until(WAITS)
        await tab.reload()
        await tab.until(WAITS)
        await tab.value("{ const once = document.querySelector('#waiting button'); once.click(); once.click(); }")
        whole = await answer(tab)
        answers = [url for url in tab.requests if url.endswith("/approval")]
        await tab.reload()
        await answer(tab)
        # what is laid out off the screen is not shown yet: it is once the page has scrolled to the end
        await tab.until(f"document.querySelector('article:last-child .answer').innerText === {json.dumps(whole)}")
    assert whole.index("I will.") < whole.index("Approved once") < whole.index("Done.")
    assert len(answers) == 1, "a double click is one answer"


OFFLINE = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}


@pytest.mark.parametrize("stopping", [False, True])
async def test_that_an_answer_was_not_taken_goes_once_the_server_is_there_again(
    devtools: str, tmp_path: Path, stopping: bool
) -> None:
    refused = "document.querySelector('#waiting .refused').textContent"
    async with page(devtools, tmp_path, LAUNCH, reply("Done."), tools=(Launch(),)) as (server, _, tab):
        await tab.send("Launch it.")
        await tab.until(WAITS)
        if stopping:
            server.pipeline._stopping = True
        else:
            await tab.call("Network.emulateNetworkConditions", offline=True, **OFFLINE)
        await tab.press("Approve once")
        await tab.until(refused)
        told = await tab.value(refused)
        if stopping:
            server.pipeline._stopping = False
        else:
            await tab.call("Network.emulateNetworkConditions", offline=False, **OFFLINE)
        await tab.until(f"{refused} === ''")
        await tab.press("Approve once")
        await tab.until_shown("Done.")
    assert told == (
        "the server is stopping; retry in a few seconds"
        if stopping
        else "The server cannot be reached. Nothing was decided."
    )


async def test_a_question_that_nobody_answered_cannot_be_answered_after_the_end(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, LAUNCH, tools=(Launch(),)) as (_, _, tab):
        await tab.send("Launch it.")
        await tab.until(WAITS)
        await tab.press("Stop")
        for _ in range(2):
            assert "Not answered" in await answer(tab)
            assert await tab.value("document.querySelectorAll('#waiting button').length") == 0
            await tab.reload()


# ── the inbox ────────────────────────────────────────────────────────────────────────────────────────────────

KEYS = "server: {drain_s: 0.05, keys: [{name: ann, key_env: ANN}, {name: bob, key_env: BOB}]}\n"
ENV = {"ANN": "the-key-of-ann", "BOB": "the-key-of-bob"}
# Notifications as the page makes them, and a tab that nobody sees.
NOTIFIED = """
window.notified = [];
window.Notification = class extends EventTarget {
  static permission = "default";
  static async requestPermission() { return (Notification.permission = "granted"); }
  constructor(title, options) { super(); notified.push([title, options.body]); }
};
"""
HIDDEN = """{
  Object.defineProperty(document, "hidden", { value: %s, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.mark.parametrize(("size", "inspected"), [(PHONE, True), (DESKTOP, False)])
async def test_what_waits_anywhere_is_decided_from_any_view(
    devtools: str, tmp_path: Path, size: tuple[int, int], inspected: bool
) -> None:
    async with page(devtools, tmp_path, LAUNCH, LAUNCH, reply("Done."), reply("Done."), tools=(Launch(),)) as (
        server,
        _,
        tab,
    ):
        await tab.size(*size)
        _, run = await server.json("POST", "/runs", {"input": "Launch it elsewhere.", "session": "another"})
        await tab.until("document.querySelector('.inbox-badge')?.textContent === '1 waiting'")
        await tab.until("document.title.startsWith('(1) ')")
        assert await tab.value("document.querySelectorAll('#waiting button').length") == 0, "of another conversation"
        await server.json("POST", "/runs", {"input": "And once more.", "session": "a third"})
        if inspected:
            await tab.go(f"{server.url}/?run={run['id']}")
        await tab.until("document.querySelector('.inbox-badge')?.textContent === '2 waiting'")
        await tab.press("2 waiting")
        shown = await tab.text("#inbox")
        assert await tab.value("document.querySelector('#inbox').contains(document.activeElement)")
        assert await tab.value("document.querySelector('#inbox').scrollWidth <= innerWidth")
        assert await tab.value("getComputedStyle(document.querySelector('#inbox .coverage p')).fontSize") == "13px"
        await tab.value("document.querySelectorAll('#inbox .danger')[1].click()")
        await tab.until("document.querySelectorAll('#inbox .approval-card').length === 1")
        await tab.press("Approve once")
        await tab.until_shown("Nothing waits.")
        await server.app.agents.finished(run["id"])
        await tab.key("Escape", 27)
        assert not await tab.value("document.querySelector('#inbox').open")
        assert await tab.value("document.querySelector('.inbox-badge').hidden && !document.title.startsWith('(')")
    assert shown.index("Launch it elsewhere.") < shown.index("And once more.")
    assert tab.complaints == []


async def test_J110_another_keys_question_is_shown_with_who_can_answer_it(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, LAUNCH, reply("Done."), tools=(Launch(),), config=KEYS, env=ENV) as (
        server,
        _,
        tab,
    ):
        headers = {"x-api-key": ENV["ANN"]}
        await server.json("POST", "/runs", {"input": "Launch it.", "session": "of-ann"}, headers=headers)
        await tab.value(f"sessionStorage.setItem('tailrace.key', {ENV['BOB']!r})")
        await tab.go(server.url + "/?session=of-ann")
        await tab.until_shown("Only ann can answer this.")
        assert await tab.value("document.querySelectorAll('#waiting button').length") == 0
        await tab.press("1 waiting")
        assert "Only ann can answer this." in await tab.text("#inbox")


async def test_a_hidden_tab_notifies_whoever_has_asked_for_it(devtools: str, tmp_path: Path) -> None:
    async with page(devtools, tmp_path, LAUNCH, LAUNCH, LAUNCH, tools=(Launch(),)) as (server, browser, _):
        tab = await browser.tab(server.url + "/", script=NOTIFIED)
        for number in (1, 2, 3):
            if number == 2:
                await tab.press("1 waiting")
                await tab.press("Notify me when this tab is hidden")
                await tab.until_shown("Stop notifying me")
            if number == 3:
                await tab.value(HIDDEN % "true")
            await server.json("POST", "/runs", {"input": "Launch it.", "session": f"s{number}"})
            await tab.until(f"document.querySelector('.inbox-badge')?.textContent === '{number} waiting'")
        notified = await tab.value("notified")
    assert notified == [["launch asks for approval", "launch it\nLaunch it."]]
