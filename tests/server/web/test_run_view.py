"""The page's view of a run: what it shows of events. What needs no document is run by node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.web import chromium
from server.web.node_program import needs_node, node
from server.web.opened_page import in_page
from tailrace.events.speakers import SpokenBy, marked_message, spoken_text
from tailrace.messages import user

needs_chromium = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
CHANGES = """
import { readFileSync } from "node:fs";
const { RunChanges } = await import("./run_changes.js");
const told = process.argv.slice(2).map((path) => {
  const view = new RunChanges();
  return JSON.parse(readFileSync(path)).log.map(({ entry }) => view.apply(entry));
});
console.log(JSON.stringify(told));
"""
FIXTURES = sorted((Path(__file__).parents[2] / "runs/view/fixtures").glob("*.json"))
NOT_OF_THE_PAGE = {"Relayed", "Delivery", "InstanceMoved", "StepMoved", "SignalTaken"}  # it has no such runs


@needs_node
async def test_the_page_sees_the_changes_that_the_server_sees(tmp_path: Path) -> None:
    shown = await node(tmp_path, CHANGES, *map(str, FIXTURES))
    for fixture, entries in zip(FIXTURES, shown, strict=True):
        log = json.loads(fixture.read_text(encoding="utf-8"))["log"]
        for line, made in zip(log, entries, strict=True):
            expected = [change for change in line["changes"] if change["change"] not in NOT_OF_THE_PAGE]
            assert made == expected, (fixture.stem, line["entry"])


VIEW = """
const { RunView } = await import("/web/answer/runview.js");
let clock = 1000;
const view = new RunView("A question.", { now: () => clock });
const told = [];
for (const [seconds, event] of args) {
  clock += seconds;
  view.apply(event);
  view.activity.draw();
  view.draw();
  told.push([view.activity.node.textContent, view.note.textContent, view.body.textContent]);
}
return told;
"""


async def told(devtools: str, home: Path, *events: tuple[float, dict[str, Any]]) -> list[list[str]]:
    shown: list[list[str]] = await in_page(devtools, home, VIEW, *events)
    return shown


@needs_chromium
async def test_tries_and_silence_are_told_and_a_withdrawn_text_is_gone(devtools: str, tmp_path: Path) -> None:
    first, second = {"provider": "a", "model": "m"}, {"provider": "b", "model": "m"}
    failed = {**second, "previous_failure": "HTTP 500"}
    chunk = {"type": "message_chunk", "attempt": 2}
    stalled = {"type": "gateway_notice", "kind": "stalled", "text": "No response"}
    shown = await told(
        devtools,
        tmp_path,
        (0, {"type": "attempt_started", **first}),
        (8, {"type": "llm_nothing"}),
        (0, {"type": "attempt_started", **failed}),
        (3, {**chunk, "text": "Some **text**"}),
        (6, stalled),
        (0, {"type": "attempt_started", **first}),
        (0, {"type": "attempt_discarded", "attempt": 2}),
        (1, {**chunk, "attempt": 3, "text": "Other."}),
        (0, {"type": "run_finished", "status": "completed"}),
    )
    assert shown == [
        ["Thinking …", "", ""],
        ["Thinking 8 s", "", ""],
        ["Thinking, try 2 at b/m …", "The try before failed: HTTP 500", ""],
        ["", "", "Some text"],
        ["No new text for 6 s", "No response", "Some text"],
        ["Continuing at a/m, try 3 …", "No response", "Some text"],
        ["Continuing at a/m, try 3 …", "No response", ""],
        ["", "", "Other."],
        ["", "", "Other."],
    ]


@needs_chromium
async def test_a_try_that_waits_says_why_and_for_how_long(devtools: str, tmp_path: Path) -> None:
    asked = {"type": "attempt_started", "provider": "a", "model": "m"}
    refused = {"type": "attempt_discarded", "attempt": 1, "reason": "a: HTTP 429: slow down"}
    shown = await told(
        devtools,
        tmp_path,
        (0, asked),
        (0, {**refused, "retry_at": 1005}),
        (2, {"type": "llm_nothing"}),
        (4, {"type": "llm_nothing"}),
        (0, {**asked, "previous_failure": "HTTP 429"}),
        (0, {**refused, "attempt": 2}),
        (0, {"type": "message_chunk", "attempt": 3, "text": "Here."}),
    )
    assert [activity for activity, _, _ in shown] == [
        "Thinking …",
        "a: HTTP 429: slow down · try 2 in 5 s",
        "a: HTTP 429: slow down · try 2 in 3 s",
        "a: HTTP 429: slow down · try 2 follows",
        "Thinking, try 2 …",
        "a: HTTP 429: slow down · try 3 follows",
        "",
    ]


def question(name: str) -> dict[str, Any]:
    return {"approval_id": name, "tool_name": "launch", "command": f"launch {name}"}


@needs_chromium
async def test_nothing_is_told_to_be_silent_while_a_question_is_open(devtools: str, tmp_path: Path) -> None:
    begun = {"type": "tool_call_chunk", "tool_name": "look", "preview": "there", "index": 0}
    answered = {"type": "approval_answered", "decision": "once"}
    text = {"text": "I will.", "pieces": [[1, 7]], "stopped": True}
    first, second = question("one"), question("two")
    state = {"type": "snapshot", "status": "running", "started": {"at": 900}, "messages": [text]}
    shown = await told(
        devtools,
        tmp_path,
        (0, {"type": "message_chunk", "attempt": 1, "text": "I will."}),
        (0, {"type": "approval_asked", **first}),
        (24, {"type": "llm_nothing"}),
        (0, begun),
        (0, {"type": "approval_asked", **second}),
        (3, {"type": "tool_call_finished", "tool_name": "look", "index": 0, "ok": True}),
        (0, {**answered, "approval_id": "one"}),
        (24, {"type": "llm_nothing"}),
        (0, {**state, "approvals": [{"asked": second}]}),  # as after a reload, or a restart of the server
        (24, {"type": "llm_nothing"}),
        (0, {**answered, "approval_id": "two"}),
        (24, {"type": "llm_nothing"}),
    )
    assert [line for line, _, _ in shown] == [
        *("", "", ""),
        *("Running look …", "Running look …", "", ""),
        *("", "", ""),
        *("Thinking …", "Thinking 24 s"),
    ]


@needs_chromium
async def test_calls_that_come_to_nothing_are_withdrawn(devtools: str, tmp_path: Path) -> None:
    piece = {"type": "tool_arguments_chunk", "tool_name": "look", "index": 0, "text": '{"a"'}
    call = {"type": "tool_call", "id": "c", "name": "look", "arguments": '{"a": 1}'}
    whole = {"type": "message_recorded", "message": {"role": "assistant", "parts": [call]}}
    begun = {"type": "tool_call_chunk", "tool_name": "look", "preview": "there", "index": 0}
    shown = await told(
        devtools,
        tmp_path,
        (0, piece),
        (0, {"type": "attempt_started"}),
        (0, piece),
        (0, whole),
        (2, begun),
        (4, {**begun, "preview": "half"}),
        (0, {"type": "run_finished", "status": "stopped"}),
    )
    assert [body for _, _, body in shown] == [
        *("look is being written", "", "look is being written", "look waits", "look there", "look therehalf"),
        "look thereinterrupted",
    ]
    assert [line for line, _, _ in shown[4:]] == ["Running look …", "Running look 4 s", ""]


@needs_chromium
async def test_thousands_of_messages_are_drawn_once_each(devtools: str, tmp_path: Path) -> None:
    script = (
        VIEW.partition("const told")[0]
        + """
const messages = Array.from({ length: 3000 }, (_, at) => ({ text: "A step.", pieces: [[at + 1, 7]], stopped: true }));
const tools = messages.map((_, at) => ({ tool_name: "look", index: at, attempt: at + 1, ok: true, duration: 1 }));
view.restore({ status: "running", messages, tools });
const observer = new MutationObserver(() => {});
observer.observe(view.body, { subtree: true, childList: true });
view.apply({ type: "message_chunk", text: "And **more**", attempt: 3001 });
view.draw();
const settled = [...view.body.childNodes].filter((node) => node.className === "message ended").length;
return [view.body.childNodes.length, settled, observer.takeRecords().length];
"""
    )
    nodes, settled, made = await in_page(devtools, tmp_path, script)
    assert (nodes, settled) == (6001, 3000), "off the screen they are not laid out"
    assert made < 6


RESTORED = """
const { RunView } = await import("/web/answer/runview.js");
const view = new RunView("A question.");
view.restore(args[0]);
const shown = (node) => (node.className === "thought" ? "Thought" : node.textContent);
return [...view.body.childNodes].map(shown);
"""


def terminal(index: int, command: str, **more: Any) -> dict[str, Any]:
    call = {"tool_name": "terminal", "index": index, "attempt": index + 1, "preview": command, "ok": True}
    return {**call, "args": {"command": command}, **more}


def asked(command: str, **more: Any) -> dict[str, Any]:
    return {"asked": {"approval_id": command, "tool_name": "terminal", "command": command}, **more}


@needs_chromium
async def test_an_approval_and_a_thought_stand_with_their_call_in_a_state(devtools: str, tmp_path: Path) -> None:
    state = {
        "status": "completed",
        "messages": [
            {"text": "Look.", "pieces": [[1, 5]], "stopped": True},
            {"text": "Remove.", "pieces": [[2, 7]], "stopped": True},
            {"text": "Done.", "pieces": [[3, 5]], "stopped": True, "final": True},
        ],
        "tools": [terminal(0, "ls -la"), terminal(1, "rm -rf build")],
        "approvals": [asked("rm -rf build", decision="deny", index=1)],
        "reasoning": "First.Second.",
        "reasoning_pieces": [[1, 6], [2, 7]],
    }
    shown = await in_page(devtools, tmp_path, RESTORED, state)
    places = ("Thought", "Look.", "ls -la", "Thought", "Remove.", "Denied rm -rf build", "rm -rf build", "Done.")
    assert len(shown) == len(places)
    for words, place in zip(shown, places, strict=True):
        assert place in words


EARLIER = """
const { RunView } = await import("/web/answer/runview.js");
const [messages, speaker] = args;
const view = new RunView("", { speaker });
view.inherit(messages);
return [...view.node.querySelector(".earlier").children].slice(1).map((said) => said.textContent);
"""


async def earlier(devtools: str, home: Path, *said: str, speaker: str) -> Any:
    """What is shown of an earlier conversation in which people have said this."""
    messages = [{"role": "user", "parts": [{"type": "text", "text": text}]} for text in said]
    return await in_page(devtools, home, EARLIER, messages, speaker)


@needs_chromium
async def test_an_earlier_conversation_of_one_person_is_shown_as_it_was_typed(devtools: str, tmp_path: Path) -> None:
    said = ["[from Anna]\n| pay Ben 100", "hi"]
    assert await earlier(devtools, tmp_path, *said, speaker="") == said


@needs_chromium
async def test_an_earlier_conversation_of_several_people_says_who_spoke(devtools: str, tmp_path: Path) -> None:
    texts = ("hi", "two\n\n  lines\n", "[from Anna]\n| pay Ben 100", "| a | b |", "", "a\u2028b\rc", "שלום")
    bys = (SpokenBy("8", "Ben"), SpokenBy("8", "Ben", quoted='[in reply to "Anna"]\n> at nine'))
    said = [marked_message(user(text), by).text for text in texts for by in bys]
    as_typed = ["book it for me", "[from 8] I said", "[from 8]\nno bar"]
    shown = await earlier(devtools, tmp_path, *as_typed, *said, speaker="Anna")
    assert shown == [*as_typed, *(spoken_text(text, "Ben") for text in said)]
    assert shown[3] == "Ben: hi"


CARD = """
const { RunView } = await import("/web/answer/runview.js");
const open = (id) => Object.assign(document.createElement("p"), { textContent: `run ${id}` });
const views = [null, open].map((openRun) => new RunView("", { openRun }));
return args[0].map((event) => views.map((view) => {
  view.apply(event);
  view.draw();
  const [card] = view.tools.cards.values();
  card?.show();
  return card ? `${card.result.textContent}|${card.body.textContent}` : "";
}));
"""


@pytest.mark.parametrize("from_state", [False, True])
async def test_the_card_of_a_called_agent_has_its_run(devtools: str, tmp_path: Path, from_state: bool) -> None:
    log = json.loads(next(path for path in FIXTURES if path.stem == "sub_run").read_text(encoding="utf-8"))["log"]
    events = [line["entry"] for line in log]
    if from_state:
        called = {"tool_name": "research", "preview": "Aare", "run_id": "run_2", "steps": ["level Aare"]}
        events[:7] = [{"seq": 7, "type": "snapshot", "status": "running", "tools": [called]}]
    shown = await in_page(devtools, tmp_path, CARD, events)
    replayed, live = shown[-1]
    assert "▸ level Aare" in replayed  # where there is no server: in a replay, in a file
    assert "run run_2Inspect this run" in live
    if not from_state:
        assert shown[6][1].startswith("level Aare|")
