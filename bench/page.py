"""Drawing an answer on the page while it streams: the main thread's work in each frame, in headless Chromium.

    python -m bench page        (or: python bench/page.py)

An answer of 50,000 characters whose last part comes at 200 tokens a second, drawn as the page draws it: the events go
through the page's own view of a run, which is drawn once per frame and scrolled to its end. Each kind of text is one
row; the last ones are the worst for an incremental renderer: a single block that is open all the time.

The processor time of a frame is that of the main thread's whole task, style and layout included, from a trace; on a
machine with other work the clock's figures say what that work does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from bench.render import answer
from bench.table import Table
from server.http_server import running_server
from server.web import chromium
from server.web.chromium import Tab, browsing

CHARACTERS = 50_000
TOKENS_PER_S = 200
CHARACTERS_PER_TOKEN = 4
SECONDS = 5

TEXTS = {
    "mixed": answer(CHARACTERS),
    "one block of code": "```python\n"
    + "def grind(grain, speed=3):  # how much flour\n    return grain * 0.72\n" * 800,
    "one list": "- open the **gate**, then wait for the `wheel` to turn\n" * 1000,
    "one table": "| grain | flour |\n|---|--:|\n" + "| a sack of rye | 12.5 |\n" * 2200,
    "one paragraph": "the water *falls* on the wheel and `turns` it, " * 1100,
    "one paragraph of open marks": "**a _b `c [d](e " * 3200,
}
# Shows all but the last part; `stream` then feeds the rest as a stream would, and tells how long each frame kept the
# main thread. `PerformanceObserver` tells of tasks over 50 ms by itself.
PREPARE = """(async () => {
  const { RunView } = await import("/web/answer/runview.js");
  const [text, tokens, perToken, seconds] = %s;
  const log = document.querySelector("[role=log]");
  log.replaceChildren();
  const view = new RunView("A question.");
  log.append(view.node);
  const at = text.length - tokens * perToken * seconds;
  let seq = 0;
  const say = (piece) => view.apply({ seq: ++seq, attempt: 1, type: "message_chunk", text: piece });
  say(text.slice(0, at));
  view.draw();
  log.scrollTop = log.scrollHeight;
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  window.stream = async () => {
    const long = [];
    const observer = new PerformanceObserver((list) => long.push(...list.getEntries().map(({ duration }) => duration)));
    observer.observe({ type: "longtask" });
    const frames = [];
    let given = at;
    const began = performance.now();
    await new Promise((resolve) => {
      const frame = () => {
        const start = performance.now();
        const due = Math.min(text.length, at + Math.floor((start - began) / 1000 * tokens) * perToken);
        for (; given < due; given += perToken) say(text.slice(given, given + perToken));
        view.draw();
        log.scrollTop = log.scrollHeight; // lays out what was drawn
        frames.push(performance.now() - start);
        if (given < text.length) requestAnimationFrame(frame);
        else resolve();
      };
      requestAnimationFrame(frame);
    });
    observer.disconnect();
    const { length } = view.node.querySelectorAll("*");
    return { frames, long, nodes: length };
  };
})()"""


async def measure(devtools: str, home: Path, texts: Mapping[str, str] = TEXTS) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    async with running_server(home) as server, browsing(devtools) as browser:
        for name, text in texts.items():
            tab = await browser.tab(server.url + "/")
            arguments = json.dumps([text[:CHARACTERS], TOKENS_PER_S, CHARACTERS_PER_TOKEN, SECONDS])
            await tab.value(PREPARE % arguments)
            async with traced(tab) as trace:
                figures[name] = await tab.value("window.stream()")
            figures[name]["processor_ms"] = frame_times(trace)
    return figures


@asynccontextmanager
async def traced(tab: Tab) -> AsyncGenerator[list[dict[str, Any]]]:
    """The events of the page's process; all of them once the block is left."""
    found: list[dict[str, Any]] = []
    whole = asyncio.Event()
    heard = tab.hear

    def hear(method: str, params: dict[str, Any]) -> None:
        found.extend(params["value"] if method == "Tracing.dataCollected" else ())
        if method == "Tracing.tracingComplete":
            whole.set()
        heard(method, params)

    tab.hear = hear  # type: ignore[method-assign]
    categories = {"includedCategories": ["toplevel", "devtools.timeline"]}
    await tab.call("Tracing.start", traceConfig=categories, transferMode="ReportEvents")
    yield found
    await tab.call("Tracing.end")
    await whole.wait()


def frame_times(trace: list[dict[str, Any]]) -> list[float]:
    """How long the main thread worked in each task that fired an animation frame, in ms of its processor time."""
    frames = [event for event in trace if event["name"] == "FireAnimationFrame" and event.get("ph") == "X"]
    threads = Counter((event["pid"], event["tid"]) for event in frames)
    main = threads.most_common(1)[0][0]
    starts = sorted(event["ts"] for event in frames if (event["pid"], event["tid"]) == main)
    tasks = {
        (event["ts"], event["dur"]): event["tdur"] / 1000
        for event in trace
        if event["name"].endswith("RunTask") and (event["pid"], event["tid"]) == main and "tdur" in event
    }
    fired = ((start, dur, ms) for (start, dur), ms in tasks.items() if bisect_left(starts, start) < len(starts))
    return sorted(ms for start, dur, ms in fired if starts[bisect_left(starts, start)] <= start + dur)


def main() -> Table | None:
    if chromium.PROGRAM is None:
        print("needs Chromium: apt-get install chromium")
        return None
    with tempfile.TemporaryDirectory() as home, chromium.started(Path(home) / "browser") as devtools:
        figures = asyncio.run(measure(devtools, Path(home) / "server"))
    title = f"{CHARACTERS:,} characters, the last at {TOKENS_PER_S} tokens a second; processor time, then by the clock"
    columns = ("answer", "frames", "median ms", "99 % ms", "worst ms", "99 % clock", "worst clock", "long", "nodes")
    table = Table(title, *columns)
    for name, figure in figures.items():
        frames, clock = figure["processor_ms"], sorted(figure["frames"])
        last = len(frames) - 1
        times = (frames[last // 2], frames[last * 99 // 100], frames[last], clock[len(clock) * 99 // 100], clock[-1])
        table.row(name, len(frames), *times, len(figure["long"]), figure["nodes"])
    return table


if __name__ == "__main__":
    print(main())
