"""Windows of one browser beside each other: all of them ask and are answered, though a browser has six connections to
one server. Skipped where there is no browser."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from server.web import chromium
from server.web.opened_page import RECORDER, answer, page
from server.web.test_markdown import needs_node, node
from server.web.test_page_browser import PACED, STALLED, WORDS
from tailrace.testing.provider import reply

needs_chromium = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")
STREAMS = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/stream?')).length"
STREAM_SLOTS = """
const { StreamSlots } = await import("../net/stream_slots.js");
const slots = new StreamSlots();
const told = [];
for (const [now, what, ...stream] of JSON.parse(process.argv[2])) {
  if (what) slots[what](...stream);
  const { granted, asked, gone, next } = slots.due(now);
  told.push([granted.join(""), asked.join(""), next, ...gone]);
}
console.log(JSON.stringify(told));
"""

# A worker that gives a slot to whoever asks and wants it back at once, two hundred times.
LISTENERS = """
const { getEventListeners } = await import("node:events");
let left = 200;
class Port extends EventTarget {
  start() {}
  postMessage({ what, id }) {
    if (what !== "want") return;
    for (const said of left-- > 0 ? ["granted", "give"] : ["granted"]) {
      queueMicrotask(() => this.dispatchEvent(Object.assign(new Event("message"), { data: { said, id } })));
    }
  }
}
globalThis.SharedWorker = class extends EventTarget { port = new Port(); };
globalThis.document = new EventTarget();
globalThis.addEventListener = () => {};
const { withStreamSlot } = await import("../net/with_stream_slot.js");
const { signal } = new AbortController();
let most = 0;
const hold = async (slot) => {
  most = Math.max(most, getEventListeners(signal, "abort").length);
  await new Promise((resolve) => setImmediate(resolve));
  return slot.aborted ? "" : "read";
};
const result = await withStreamSlot("stream", signal, hold);
console.log(JSON.stringify([result, left, most, getEventListeners(signal, "abort").length]));
"""
# Five windows ask the worker itself. Its time is in `at`; the clock on the wall goes back meanwhile.
WORKER = """
let at = 0;
let connect, timer;
const wall = Date.now();
Date.now = () => wall - 3600 * at;
performance.now = () => at;
globalThis.setTimeout = (act, ms) => { timer = { act, at: at + ms }; };
globalThis.clearTimeout = () => { timer = null; };
globalThis.addEventListener = (_, act) => { connect = act; };
await import("../net/stream_slots_worker.js");
const told = [];
const windows = [..."abcde"].map((name) => {
  const port = { addEventListener: (_, act) => { port.hear = act; }, start() {} };
  port.postMessage = ({ said }) => told.push([at, name, said]);
  connect({ ports: [port] });
  return port;
});
const say = (window, what) => window.hear({ data: { what, pool: "stream", id: 1, hidden: false } });
for (const window of windows) say(window, "want");
while (timer && at < 6000) {
  at = timer.at;
  timer.act();
}
console.log(JSON.stringify(told));
"""


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
        await tab.follow(tab.press("Regenerate"))
        await tab.until_shown("three")
        await tab.reload()
        await tab.until_shown("three")
        await tab.until(of_run)  # it is over, while the run goes on
        await tab.press("Stop")
        await tab.until_shown("Stopped")
        assert (await answer(tab)).startswith("one two three")
    assert tab.complaints == []


@needs_chromium
async def test_a_browser_that_refuses_shared_workers_gives_each_window_a_stream(devtools: str, tmp_path: Path) -> None:
    refusing = "window.SharedWorker = function () { throw new DOMException('refused', 'SecurityError'); };"
    async with page(devtools, tmp_path, PACED) as (server, browser, _):
        tab = await browser.tab(server.url + "/", script=refusing)
        await tab.send("Count to a hundred.")
        assert await answer(tab) == WORDS
    assert tab.complaints == []


async def decided(home: Path, *steps: tuple[Any, ...]) -> list[list[Any]]:
    told: list[list[Any]] = await node(home, STREAM_SLOTS, json.dumps(steps))
    return told


@needs_node
async def test_a_window_that_has_had_many_slots_listens_once_to_its_caller(tmp_path: Path) -> None:
    assert await node(tmp_path, LISTENERS) == ["read", -1, 1, 0]


@needs_node
async def test_four_windows_keep_their_slots_and_a_fifth_shares_them(tmp_path: Path) -> None:
    assert await decided(
        tmp_path,
        *((0, "want", "a", False), (10, "want", "b", False), (20, "want", "c", False), (30, "want", "d", False)),
        (9000, "", ""),
        (9001, "want", "e", False),  # the one that has had its slot longest goes
        (9002, "leave", "a"),
        (9003, "want", "a", False),
        (9004, "leave", "b"),
        (10_002, "want", "b", False),
        (10_003, "leave", "e"),
    ) == [
        *(["a", "", None], ["b", "", None], ["c", "", None], ["d", "", None]),
        ["", "", None],
        ["", "a", 14_001],
        ["e", "", None],
        ["", "b", 14_003],
        ["a", "", None],
        ["", "c", 15_002],
        ["b", "", 15_002],
    ]


@needs_node
async def test_hidden_windows_have_what_is_left_over_and_one_slot_at_least(tmp_path: Path) -> None:
    assert await decided(
        tmp_path,
        *((0, "want", "a", True), (0, "want", "b", True), (0, "want", "c", True), (0, "want", "d", True)),
        (1, "want", "e", False),  # who is looked at does not wait for a second
        (2, "leave", "a"),
        (3, "want", "f", False),
        (4, "leave", "b"),
        (5, "want", "g", False),
        (6, "leave", "c"),
        (7, "want", "h", False),  # three are seen already: now slots are shared
        (8, "show", "d", False),
    ) == [
        *(["a", "", None], ["b", "", None], ["c", "", None], ["d", "", None]),
        *(["", "a", 5001], ["e", "", None]),
        *(["", "b", 5003], ["f", "", None]),
        *(["", "c", 5005], ["g", "", None]),
        ["", "", 1002],
        ["", "", 1000],
    ]


@needs_node
async def test_a_window_that_does_not_answer_loses_its_slot(tmp_path: Path) -> None:
    taken = [(0, "want", name, False) for name in "abcd"]
    steps = (*taken, (2000, "want", "e", False), (6999, "", ""), (7000, "", ""))
    assert (await decided(tmp_path, *steps))[4:] == [["", "a", 7000], ["", "", 7000], ["e", "", None, "a"]]


@needs_node
async def test_a_clock_that_is_set_back_lets_nobody_keep_a_slot_longer(tmp_path: Path) -> None:
    told = await node(tmp_path, WORKER)
    assert told == [*([0, name, "granted"] for name in "abcd"), [1000, "a", "give"], [6000, "e", "granted"]]


@needs_node
async def test_idle_windows_change_slots_every_ten_seconds_and_no_sooner(tmp_path: Path) -> None:
    idle = (False, False)
    told = await decided(
        tmp_path,
        *((0, "want", name, *idle) for name in "abcde"),
        (10_000, "", ""),
        *((10_001, "leave", "a"), (10_002, "want", "a", *idle), (10_003, "leave", "b"), (10_004, "want", "b", *idle)),
        *((10_005, "leave", "c"), (10_006, "want", "c", *idle), (10_007, "leave", "d"), (10_008, "want", "d", *idle)),
    )
    assert told[3:] == [
        *(["d", "", None], ["", "", 10_000], ["", "a", 15_000]),
        *(["e", "", None], ["", "b", 15_002], ["a", "", None], ["", "c", 15_004]),
        *(["b", "", None], ["", "d", 15_006], ["c", "", None], ["", "", 20_001]),
    ]


@needs_node
async def test_a_window_in_which_something_runs_goes_before_idle_ones(tmp_path: Path) -> None:
    assert await decided(
        tmp_path,
        *((0, "want", "a", False, True), *((0, "want", name, False, False) for name in "bcde")),
        (500, "want", "f", False, True),  # it asked last, and waits for the end of a second only
        (1000, "", ""),
        (1001, "leave", "b"),
        (1500, "show", "e", False, True),  # a question was sent there
        (1501, "leave", "c"),
    ) == [
        *([name, "", None] for name in "abcd"),
        *(["", "", 10_000], ["", "", 1000]),
        *(["", "b", 6000], ["f", "", 10_000]),
        *(["", "c", 6500], ["e", "", None]),
    ]


@needs_node
async def test_an_idle_window_has_a_second_in_ten_where_something_runs_in_all_others(tmp_path: Path) -> None:
    assert await decided(
        tmp_path,
        *((0, "want", name, False, True) for name in "abcdf"),
        (1000, "want", "e", False, False),  # none has had a slot: this one goes first
        (1001, "leave", "a"),
        (1500, "want", "a", False, True),
        (2001, "", ""),
        (2002, "leave", "e"),
        (2003, "want", "e", False, False),
        (2004, "leave", "b"),
        (12_001, "", ""),  # only the idle one waits now
        (12_002, "leave", "c"),
    ) == [
        *([name, "", None] for name in "abcd"),
        *(["", "", 1000], ["", "a", 6000], ["e", "", 2001]),
        *(["", "", 2001], ["", "e", 7001], ["f", "b", 7002]),
        *(["", "", 7002], ["a", "", 12_001]),
        *(["", "c", 17_001], ["e", "", None]),
    ]
