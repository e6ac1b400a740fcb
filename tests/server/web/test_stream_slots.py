"""Which window holds a stream, decided without a browser: the rules, the worker that applies them, and what a window
says to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from server.web.node_program import needs_node, node

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
# Windows talk to the worker itself: each step is [ms, window, what, pool, id, runs]. Its time is in `at`, and the clock
# on the wall goes back meanwhile. Told: what the windows heard, how many timers run at the end, and what is remembered.
WORKER = """
let at = 0;
let connect;
let ids = 0;
const timers = new Map();
const kept = [];
globalThis.Map = class extends Map { constructor() { super(); kept.push(this); } };
const wall = Date.now();
Date.now = () => wall - 3600 * at;
performance.now = () => at;
globalThis.setTimeout = (act, ms) => { timers.set(++ids, { act, at: at + ms }); return ids; };
globalThis.clearTimeout = (id) => timers.delete(id);
globalThis.addEventListener = (_, act) => { connect = act; };
await import("../net/stream_slots_worker.js");
const heard = [];
const windows = {};
const open = (name) => {
  const port = { addEventListener: (_, act) => { port.hear = act; }, start() {} };
  port.postMessage = ({ said, id }) => heard.push([at, name, said, id]);
  connect({ ports: [port] });
  return port;
};
const passUntil = (end) => {
  for (;;) {
    const [next] = [...timers].filter(([, timer]) => timer.at <= end).sort(([, one], [, other]) => one.at - other.at);
    if (!next) break;
    timers.delete(next[0]);
    at = next[1].at;
    next[1].act();
  }
  at = end;
};
for (const [moment, name, what, pool = "stream", id = 1, runs = true] of JSON.parse(process.argv[2])) {
  passUntil(moment);
  if (name) (windows[name] ??= open(name)).hear({ data: { what, pool, id, hidden: false, runs } });
}
console.log(JSON.stringify([heard, timers.size, kept.reduce((sum, map) => sum + map.size, 0)]));
"""
# A window, and the worker as far as it hears and says something. `sent` is what the window has said.
WINDOW = """
const sent = [];
let made = 0;
let worker = null;
const page = new EventTarget();
class Port extends EventTarget {
  start() {}
  postMessage({ what, id, pool, hidden, runs }) { sent.push([what, id, pool, hidden, runs]); }
}
globalThis.SharedWorker = class extends EventTarget {
  constructor() {
    super();
    made += 1;
    if (globalThis.refuses) throw new Error("refused");
    worker = this;
    this.port = new Port();
  }
};
globalThis.document = Object.assign(new EventTarget(), { hidden: false });
globalThis.addEventListener = (...listener) => page.addEventListener(...listener);
const { tellState, withStreamSlot } = await import("../net/with_stream_slot.js");
const happens = (target, name, fields = {}) => target.dispatchEvent(Object.assign(new Event(name), fields));
const say = (said, id) => happens(worker.port, "message", { data: { said, id } });
const settled = () => new Promise((resolve) => setImmediate(resolve));
let holds = 0;
let held = null; // the signal of the last one
const hold = (signal) => {
  holds += 1;
  held = signal;
  return new Promise((resolve) => (signal.aborted ? resolve("") : signal.addEventListener("abort", () => resolve(""))));
};
const closing = new AbortController();
let busy = false;
const ask = async (pool) => {
  const result = withStreamSlot(pool, closing.signal, hold, () => busy);
  await settled();
  return [result];
};
"""


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


# ── the worker ───────────────────────────────────────────────────────────────────────────────────────────────


async def worker(home: Path, *steps: tuple[Any, ...]) -> tuple[list[list[Any]], int, int]:
    heard, timers, kept = await node(home, WORKER, json.dumps(steps))
    return heard, timers, kept


FIVE = [(0, name, "want") for name in "abcde"]
FOUR_GRANTED = [[0, name, "granted", 1] for name in "abcd"]


@needs_node
async def test_a_clock_that_is_set_back_lets_nobody_keep_a_slot_longer(tmp_path: Path) -> None:
    heard, timers, _ = await worker(tmp_path, *FIVE, (6000, ""))
    assert heard == [*FOUR_GRANTED, [1000, "a", "give", 1], [6000, "e", "granted", 1]]
    assert timers == 0, "nobody waits"


@needs_node
async def test_nothing_is_kept_of_windows_that_have_crashed_or_were_closed(tmp_path: Path) -> None:
    *_, kept = await worker(tmp_path, *FIVE)
    assert kept == 2 * 5, "each with its wish and its port"
    *_, kept = await worker(tmp_path, *FIVE, (6000, ""))  # one has been asked for its slot, and says nothing
    assert kept == 2 * 4
    *_, kept = await worker(tmp_path, *FIVE, (6000, ""), *((6001, name, "leave") for name in "bcde"))
    assert kept == 0


@needs_node
async def test_one_window_reads_the_inbox_until_another_takes_over(tmp_path: Path) -> None:
    heard, *_ = await worker(tmp_path, *((0, name, "want", "inbox") for name in "ab"), (29_999, ""))
    assert heard == [[0, "a", "granted", 1]]
    heard, *_ = await worker(tmp_path, *((0, name, "want", "inbox") for name in "ab"), (35_000, ""))
    assert heard[1:] == [[30_000, "a", "give", 1], [35_000, "b", "granted", 1]], "the first one has crashed"


@needs_node
async def test_the_inbox_does_not_put_off_what_is_due_for_streams(tmp_path: Path) -> None:
    inbox = [(500, name, "want", "inbox", 2) for name in "ab"]
    _, timers, _ = await worker(tmp_path, *FIVE, *inbox, (600, "b", "show"), (999, ""))
    assert timers == 2, "one for each of the two, however often something was told"
    heard, *_ = await worker(tmp_path, *FIVE, *inbox, (600, "b", "show", "inbox", 2), (1000, ""))
    assert [1000, "a", "give", 1] in heard


@needs_node
async def test_the_worker_is_told_where_something_runs(tmp_path: Path) -> None:
    idle = [(0, name, "want", "stream", 1, False) for name in "abcde"]
    heard, *_ = await worker(tmp_path, *idle, (9999, ""))
    assert heard == FOUR_GRANTED, "idle windows wait for each other for ten seconds"
    heard, *_ = await worker(tmp_path, *idle, (2000, "e", "show", "stream", 1, True))
    assert heard[4:] == [[2000, "a", "give", 1]], "something was asked in the one that waits"


# ── a window ─────────────────────────────────────────────────────────────────────────────────────────────────


async def window(home: Path, script: str) -> Any:
    return await node(home, WINDOW + script)


@needs_node
async def test_a_page_that_is_put_away_gives_its_slot_back_and_asks_anew_when_it_is_shown(tmp_path: Path) -> None:
    script = """
await ask("stream");
say("granted", 1);
await settled();
for (let time = 0; time < 2; time++) { // the second time it still waits
  happens(page, "pagehide");
  await settled();
  sent.push(["away", held.aborted]);
  happens(page, "pageshow");
  await settled();
}
console.log(JSON.stringify([holds, sent.map(([what, id]) => `${what} ${id}`)]));
"""
    holds, sent = await window(tmp_path, script)
    away = ["leave 1", "leave 1", "away true", "want 2", "leave 2", "leave 2", "away true", "want 3"]
    assert sent == ["want 1", *away], "nothing is read and asked for while it is away"
    assert holds == 2


@needs_node
async def test_a_window_tells_what_runs_in_it_and_whether_it_is_seen(tmp_path: Path) -> None:
    script = """
await ask("stream");
await ask("inbox");
document.hidden = true;
happens(document, "visibilitychange");
busy = true;
tellState();
closing.abort();
await settled();
console.log(JSON.stringify(sent));
"""
    assert await window(tmp_path, script) == [
        *(["want", 1, "stream", False, False], ["want", 2, "inbox", False, False]),
        *(["show", 1, "stream", True, False], ["show", 2, "inbox", False, False]),  # the list is read by any window
        *(["show", 1, "stream", True, True], ["show", 2, "inbox", False, True]),
        *(["leave", 1, "stream", True, True], ["leave", 2, "inbox", False, True]),
    ]


@needs_node
async def test_nobody_waits_for_a_worker_that_cannot_be_loaded(tmp_path: Path) -> None:
    script = """
await ask("stream");
happens(worker, "error");
await settled();
await ask("inbox");
console.log(JSON.stringify([holds, made, sent.length]));
"""
    assert await window(tmp_path, script) == [2, 1, 1]


@needs_node
async def test_a_browser_that_refuses_workers_is_asked_for_one_once(tmp_path: Path) -> None:
    script = """
globalThis.refuses = true;
await ask("stream");
await ask("inbox");
console.log(JSON.stringify([holds, made, sent.length]));
"""
    assert await window(tmp_path, script) == [2, 1, 0]


# ── the rules, for idle windows ──────────────────────────────────────────────────────────────────────────────


@needs_node
async def test_of_two_that_are_alike_the_one_that_has_had_its_slot_longer_gives_it_back(tmp_path: Path) -> None:
    """Whoever asked first: `f` did so before `d`, and has got its slot later."""
    seen = [(0, "want", name, False) for name in "abc"]
    hidden = ((0, "want", "g", True), (1, "want", "f", True))
    told = await decided(
        tmp_path,
        *(*seen, *hidden, (2, "want", "d", False), (3, "leave", "a")),
        *((4, "show", "f", False), (5, "leave", "b"), (6, "want", "a", False)),
        *((1000, "", ""), (1001, "leave", "c"), (1002, "want", "c", False), (1003, "", "")),
    )
    assert told[6:] == [
        *(["d", "", 1000], ["", "", 1000], ["f", "", None], ["", "", 1000]),
        *(["", "c", 6000], ["a", "", None], ["", "", 1003], ["", "d", 6003]),
    ]


@needs_node
async def test_an_idle_window_takes_no_slot_before_its_holder_has_had_a_second(tmp_path: Path) -> None:
    told = await decided(
        tmp_path, *((0, "want", name, False, True) for name in "abcd"), (500, "want", "e", False, False), (1000, "", "")
    )
    assert told[4:] == [["", "", 1000], ["", "a", 6000]]


@needs_node
async def test_one_idle_window_in_ten_seconds_goes_first_even_if_it_is_closed_at_once(tmp_path: Path) -> None:
    told = await decided(
        tmp_path,
        *((0, "want", name, False, True) for name in "abcd"),
        *((1000, "want", "e", False, False), (1000, "want", "f", False, False), (1000, "want", "g", False, True)),
        *((1001, "leave", "a"), (1002, "leave", "e")),
    )
    assert [granted for granted, *_ in told[-2:]] == ["e", "g"]


@needs_node
async def test_what_is_said_of_a_window_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    assert await decided(tmp_path, (0, "show", "a", False, True), (1, "leave", "a")) == [["", "", None]] * 2


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
