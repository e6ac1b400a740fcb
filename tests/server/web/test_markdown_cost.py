"""What the page's Markdown costs in a browser: what has ended is neither read nor drawn again, and a frame is short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.web import chromium
from server.web.drawn_markdown import DRAW
from server.web.opened_page import in_page, page

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")


async def test_what_has_ended_stays_and_only_the_end_is_made_anew(devtools: str, tmp_path: Path) -> None:
    """Of each kind of block that is open for long: how many nodes one more word makes."""
    script = r"""
    const beginnings = {
      list: "- an item of some words\n".repeat(500),
      nested: "- an item\n" + "  - inside it, some `words`\n".repeat(500),
      quote: "> a line of it\n>\n".repeat(500),
      code: "```python\n" + "def f(x): return 'a string' # why\n".repeat(500),
      table: "| a | b |\n|---|---|\n" + "| one | **two** |\n".repeat(500),
      paragraphs: "Some **words** of it.\n\n".repeat(500),
      paragraph: "Some **words** of it. ".repeat(2000) + "\n",
      line: "Some **words** of it. ".repeat(1999),
    };
    const made = {};
    for (const [name, text] of Object.entries(beginnings)) {
      const growing = new GrowingMarkdown(document.createElement("div"));
      growing.add(text);
      growing.draw();
      const observer = new MutationObserver(() => {});
      observer.observe(growing.target, { subtree: true, childList: true });
      growing.add("word ");
      growing.draw();
      made[name] = observer.takeRecords().reduce((sum, { addedNodes }) => sum + addedNodes.length, 0);
    }
    return made;
    """
    made = await in_page(devtools, tmp_path, DRAW + script)
    assert max(made.pop("paragraph"), made.pop("line"), made.pop("code")) < 900, "of these the end alone"
    assert max(made.values()) <= 8, made


async def test_a_table_that_grows_keeps_its_rows_and_reads_only_the_last_ones_again(
    devtools: str, tmp_path: Path
) -> None:
    script = r"""
    const growing = new GrowingMarkdown(document.createElement("div"));
    growing.add("| a | b |\n|---|---|\n" + "| one | **two** |\n".repeat(1000));
    growing.draw();
    const rows = [...growing.target.querySelectorAll("tr")];
    const unread = [];
    for (const piece of ["| three |", " **fo", "ur** |\n".repeat(3), "| five |\n".repeat(400), "\nAnd so on."]) {
      growing.add(piece);
      growing.draw();
      unread.push(growing.rest.split("\n").length);
    }
    growing.draw({ isWhole: true });
    const stays = rows.every((row, at) => row === growing.target.querySelectorAll("tr")[at]);
    const { length } = growing.target.querySelectorAll("tr");
    return [stays, length, growing.target.lastChild.textContent, Math.max(...unread)];
    """
    stays, rows, last, most_lines = await in_page(devtools, tmp_path, DRAW + script)
    assert (stays, rows, last) == (True, 1404, "And so on.")
    assert most_lines < 200


async def test_a_table_of_blanks_gets_no_more_cells_as_it_grows_than_at_once(devtools: str, tmp_path: Path) -> None:
    """A row of two characters may be one of a hundred cells: what bounds them counts those of the whole text."""
    script = r"""
    const growing = new GrowingMarkdown(document.createElement("div"));
    growing.add("|a".repeat(99) + "|\n" + "|-".repeat(99) + "|\n");
    for (let count = 0; count < 4; count++) {
      growing.add("|\n".repeat(200));
      growing.draw();
    }
    return growing.target.querySelectorAll("td").length;
    """
    assert await in_page(devtools, tmp_path, DRAW + script) < 72_000


async def test_of_an_open_block_only_the_words_that_have_changed_are_read(devtools: str, tmp_path: Path) -> None:
    """Counted by the addresses that are looked at."""
    script = r"""
    const address = "https://example.org/page";
    const beginnings = {
      list: `- an item with [a link](${address})\n`.repeat(300),
      nested: "- an item\n" + `  - inside it, [a link](${address})\n`.repeat(300),
      quote: `> [a link](${address})\n>\n`.repeat(300),
      table: "| a | b |\n|---|---|\n" + `| [one](${address}) | two |\n`.repeat(300),
      paragraph: `Words of it, and [a link](${address}). `.repeat(1000),
    };
    const looked = {};
    const { test } = RegExp.prototype;
    for (const [name, text] of Object.entries(beginnings)) {
      const growing = new GrowingMarkdown(document.createElement("div"));
      growing.add(text);
      growing.draw();
      looked[name] = 0;
      RegExp.prototype.test = function (tried) {
        if (tried === address) looked[name]++;
        return test.call(this, tried);
      };
      growing.add("word ");
      growing.draw();
      RegExp.prototype.test = test;
    }
    return looked;
    """
    looked = await in_page(devtools, tmp_path, DRAW + script)
    assert looked.pop("paragraph") < 400, "its last part alone"
    assert max(looked.values()) <= 4, looked


async def test_marks_that_stay_open_do_not_nest_without_end(devtools: str, tmp_path: Path) -> None:
    script = """
    let depth = 0;
    for (const walker = document.createTreeWalker(grown(args[0])); walker.nextNode(); ) {
      let count = 0;
      for (let node = walker.currentNode; node; node = node.parentNode) count++;
      depth = Math.max(depth, count);
    }
    return depth;
    """
    assert 40 < await in_page(devtools, tmp_path, DRAW + script, "**a _b ~~c " * 300) < 70


MARKS = [
    *(
        "**a ",
        "_a ",
        "`a ",
        "~~a ",
        "[a](",
        "[",
        "![",
        "> ",
        "- ",
        "1. ",
        "```\n",
        "|a",
        "https://a.",
        "\\",
        "$a ",
        "$$",
    ),
    *("\\[", "\\(", "<", "<br", "a|b\n", "|-", "# ", "  \n", "*a", "**a", "- [x] ", "> - ", "<http://a", "[a](b "),
    *("_", "`", "a_", "#", "&", "a\n", "[a]: ", "![](", "http://", "**_", "[](a", "~", "*"),
]
SLOWEST_MS = 600  # a quiet core takes half of it for thousands of blocks of code, and other tests run beside
TRIES = 3


async def test_L140_hostile_markdown_does_not_keep_the_page_busy(devtools: str, tmp_path: Path) -> None:
    """20 kB of nothing but marks: the time of the processor that each takes, since other programs share it."""
    blanks = " " * 20_000
    texts = [
        *(mark * (20_000 // len(mark)) for mark in MARKS),
        " ".join("`" * number for number in range(1, 200)),  # runs of every length, none closed
        *(f"# a{blanks}b", f"#{blanks}", f"# a{'#' * 20_000}b", f"```{blanks}`", f"-{blanks}\rb"),
        *(f"a|b\n|{' -' * 10_000}x", f"- a{chr(10) * 20_000}b", f'[a](x{blanks}"', f"[{'a' * 20_000}]("),
    ]
    slow: dict[str, float] = {}
    async with page(devtools, tmp_path) as (_, _, tab):
        await tab.value(f"(async () => {{ {DRAW} Object.assign(globalThis, {{ whole, grown }}); whole('warm'); }})()")
        await tab.call("Performance.enable", timeDomain="threadTicks")
        for text in texts:
            for draw in ("whole", "grown"):
                tries = 0
                while (took := await busy_ms(tab, f"void {draw}({json.dumps(text)})")) >= SLOWEST_MS:
                    if (tries := tries + 1) == TRIES:
                        slow[f"{draw} {text[:12]}"] = took
                        break
    assert slow == {}


async def busy_ms(tab: chromium.Tab, expression: str) -> float:
    """The time of the processor that the page's main thread takes meanwhile; `ScriptDuration` leaves out what DevTools
    calls."""

    async def busy_s() -> float:
        metrics = (await tab.call("Performance.getMetrics"))["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

    before = await busy_s()
    await tab.value(expression)
    return 1000 * (await busy_s() - before)


LONG = """## Part {n}

Some **words** of it, `code` and a [link](https://example.org/{n}), as models write: one _sentence_ after the other.

- an item with **bold** words
- another one, with `code`

```python
def part_{n}(x):
    return "a string" + str(x)  # why
```

| a | b |
|---|--:|
| row {n} | {n} |
"""
LONGEST_FRAME_MS = 50


@pytest.mark.parametrize(
    "shape", ["an answer", "one list", "one table", "one code block", "one paragraph", "open marks", "open formulas"]
)
async def test_L140_a_frame_is_short_at_50_000_characters(devtools: str, tmp_path: Path, shape: str) -> None:
    """At 200 tokens a second a frame brings four more: the processor's time to read, draw and lay them out, of 20."""
    texts = {
        "an answer": "".join(LONG.format(n=n) for n in range(180)),
        "one list": "- an item of **some** words and `code`, as long as a line\n" * 900,
        "one table": "| name | value | why |\n|---|--:|---|\n" + "| **some** name | 1,234 | `because` |\n" * 1400,
        "one code block": "```python\n" + "def f(x):\n    return 'a string' + x  # why\n" * 1200,
        "one paragraph": "the water *falls* on the wheel and `turns` it, " * 1100,
        "open marks": "**a _b `c [d](e " * 3200,
        "open formulas": "a $b \\( *c ~~d " * 3600,
    }
    begin = """(async () => {
    const { GrowingMarkdown } = await import("/web/answer/markdown/growing_markdown.js");
    const target = document.createElement("div");
    target.className = "message";
    document.getElementById("log").append(target);
    globalThis.growing = new GrowingMarkdown(target);
    })()"""
    frame = """(async (text) => {
    growing.add(text);
    growing.draw();
    const log = document.getElementById("log");
    log.scrollTop = log.scrollHeight; // lays it out
    })"""
    row = ("use` |\n", "| **some** name | 9,", "876 | `beca")
    assert len(texts[shape]) >= 50_000
    async with page(devtools, tmp_path) as (_, _, tab):
        await tab.value(begin)
        await tab.value(f"{frame}({json.dumps(texts[shape])})")
        await tab.call("Performance.enable", timeDomain="threadTicks")
        took = []
        for number in range(1, 21):  # no line is blank: the last block goes on
            more = row[number % len(row)] if shape == "one table" else "some more of it " if number % 7 else "\n"
            took.append(await busy_ms(tab, f"{frame}({json.dumps(more)})"))
    assert sorted(took)[-3] < LONGEST_FRAME_MS  # what the browser does beside may fall into one
