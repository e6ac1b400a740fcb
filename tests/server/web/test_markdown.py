"""The page's Markdown, run by node: what becomes of a text, and that nothing in it becomes more than text."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

NODE = shutil.which("node")
WEB = Path(__file__).parents[3] / "src/tailrace/server/web"
needs_node = pytest.mark.skipif(NODE is None, reason="needs node")

MARKDOWN = """# Title *with* `code`

A paragraph with **bold _nested_**, ~~gone~~ and https://example.org/a_b. And [a link](https://example.org "t").

- one
- two
  continued
  1. nested
  2. list

3) starts at three
4) four

> quoted
> more

```python
def f(x):
    return "**not bold** <b>"

```

| a | b |
|---|---|
| 1 | `x` |

---
snake_case_name stays, 2 * 3 * 4 too. \\*literal\\*
"""
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "![x](https://evil.example/leak?data)",
    "[x]( javascript:alert(1))",
    "<https://evil.example onclick=alert(1)>",
    '[x](https://e.example" onclick="alert(1))',
    "```<img src=x>\n<script>\n```",
    "| <b>a</b> |\n|---|\n| <svg onload=x> |",
]
ALLOWED = {
    *("DIV", "P", "H2", "H3", "H4", "H5", "H6", "UL", "OL", "LI", "PRE", "CODE", "BLOCKQUOTE", "HR", "STRONG", "EM"),
    *("S", "A", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD"),
}


async def node(home: Path, script: str, *args: str) -> Any:
    """What the script logs as JSON. The module is beside it."""
    for file in (WEB / "answer/markdown.js", Path(__file__).with_name("page_dom.mjs")):
        shutil.copy(file, home)
    (home / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (home / "test.mjs").write_text('import { Node } from "./page_dom.mjs";\n' + script, encoding="utf-8")
    assert NODE is not None
    child = await asyncio.create_subprocess_exec(
        *(NODE, "test.mjs", *args), cwd=home, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, err.decode()
    return json.loads(out)


RENDER = """
const { render } = await import("./markdown.js");
const shown = (node) => typeof node === "string" ? node
  : [node.tagName, { ...node.attributes, ...node.dataset }, ...node.childNodes.map(shown)];
const joined = (tree) => JSON.stringify(tree).replaceAll('","', "");
const whole = (text) => { const target = new Node("div"); render(target, text); return target; };
"""


@needs_node
async def test_markdown_becomes_nodes(tmp_path: Path) -> None:
    script = RENDER + "console.log(JSON.stringify(shown(whole(process.argv[2]))));"
    tree = await node(tmp_path, script, MARKDOWN)
    text = json.dumps(tree)
    tags = re.findall(r'\["([A-Z0-9]+)"', text)
    expected = ["H2", "P", "UL", "OL", "BLOCKQUOTE", "PRE", "TABLE", "HR", "P"]
    assert [block[0] for block in tree[2:]] == expected
    assert ["CODE", {"language": "python"}, 'def f(x):\n    return "**not bold** <b>"\n'] in tree[7]
    assert tree[5][1] == {"start": "3"}
    assert tree[4][3][-1][0] == "OL", "a list within a list"
    assert ["STRONG", {}, "bold ", ["EM", {}, "nested"]] in tree[3]
    assert tree[10][2:] == ["snake_case_name stays, 2 * 3 * 4 too. ", "*", "literal", "*"]
    assert set(tags) <= ALLOWED


@needs_node
async def test_J123_nothing_a_model_writes_becomes_markup(tmp_path: Path) -> None:
    script = RENDER + (
        "console.log(JSON.stringify(JSON.parse(process.argv[2]).map((text) => "
        "whole(text).all().map((node) => [node.tagName, node.attributes]))));"
    )
    for elements in await node(tmp_path, script, json.dumps(HOSTILE)):
        for tag, attributes in elements:
            assert tag in ALLOWED
            assert set(attributes) <= {"href", "rel", "target", "start"}
            assert re.match(r"https?://|mailto:", attributes.get("href", "https://"))


@needs_node
async def test_a_text_that_grows_looks_at_each_moment_as_if_it_had_come_whole(tmp_path: Path) -> None:
    script = (
        RENDER
        + """
const text = process.argv[2];
const growing = new Node("div");
for (let end = 1; end <= text.length; end++) {
  render(growing, text.slice(0, end));
  if (joined(shown(growing)) !== joined(shown(whole(text.slice(0, end))))) throw new Error(`differs at ${end}`);
}
const before = growing.childNodes[0];
render(growing, text + "more");
console.log(JSON.stringify(before === growing.childNodes[0]));
"""
    )
    assert await node(tmp_path, script, MARKDOWN) is True


@needs_node
async def test_L140_no_text_keeps_the_page_busy(tmp_path: Path) -> None:
    script = (
        RENDER
        + """
const marks = ["**a ", "_a ", "`a ", "~~a ", "[a](", "![", "> ", "- ", "```\\n", "|a", "https://a.", "\\\\"];
const blanks = " ".repeat(60000);
const texts = [
  ...marks.map((piece) => piece.repeat(60000 / piece.length)),
  Array.from({ length: 340 }, (_, n) => "`".repeat(n + 1)).join(" "), // runs of every length, none closed
  Array.from({ length: 30000 }, () => "*").join("a"),
  "*a".repeat(30000), "**a".repeat(20000), "_".repeat(60000), "`".repeat(60000), "[".repeat(60000), "#".repeat(60000),
  `# a${blanks}b`, `#${blanks}`, `# a${"#".repeat(60000)}b`, "```" + blanks + "`", "~".repeat(60000) + "`",
  `-${blanks}\\rb`, `- a\\n${blanks}\\rb`, `a|b\\n${blanks}x`, `a|b\\n|${" -".repeat(30000)}x`, `---${blanks}x`,
  "- a" + "\\n".repeat(60000) + "b", `[a](x${blanks}"`, "[](a".repeat(15000),
  `[${"a".repeat(60000)}](`, "![](".repeat(15000),
  "http://".repeat(9000), "\\\\*".repeat(100000),
];
const times = texts.map((text) => {
  const started = process.cpuUsage();
  whole(text);
  return process.cpuUsage(started).user / 1000;
});
console.log(JSON.stringify(Math.max(...times)));
"""
    )
    assert (
        await node(tmp_path, script) < 3000
    )  # milliseconds of the processor, for 60 kB of nothing but marks; the worst of them took hours
