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
    *("S", "A", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD", "SPAN", "BUTTON", "BR"),
}


async def node(home: Path, script: str, *args: str) -> Any:
    """What the script logs as JSON. It runs among the page's modules, beside those of an answer."""
    shutil.copytree(WEB, home / "web", dirs_exist_ok=True)
    home = home / "web" / "answer"
    shutil.copy(Path(__file__).with_name("page_dom.mjs"), home)
    (home.parent / "package.json").write_text('{"type": "module"}', encoding="utf-8")
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
const { GrowingMarkdown, render } = await import("./markdown.js");
const shown = (node) => typeof node === "string" ? node
  : [node.tagName, { ...node.attributes, ...node.dataset, ...(node.className && { class: node.className }) },
    ...node.childNodes.flatMap((child) => (isTail(child) ? child.childNodes : [child])).map(shown)];
const isTail = (node) => node.tagName === "SPAN" && !node.className; // the line of code that may go on
const joined = (tree) => JSON.stringify(tree).replaceAll('","', "");
const whole = (text) => { const target = new Node("div"); render(target, text); return target; };
"""


def text_of(tree: Any) -> str:
    return tree if isinstance(tree, str) else "".join(map(text_of, tree[2:]))


@needs_node
async def test_markdown_becomes_nodes(tmp_path: Path) -> None:
    script = RENDER + "console.log(JSON.stringify(shown(whole(process.argv[2]))));"
    tree = await node(tmp_path, script, MARKDOWN)
    text = json.dumps(tree)
    tags = re.findall(r'\["([A-Z0-9]+)"', text)
    expected = ["H2", "P", "UL", "OL", "BLOCKQUOTE", "DIV", "DIV", "HR", "P"]
    assert [block[0] for block in tree[2:]] == expected
    assert text_of(tree[7][3]) == 'def f(x):\n    return "**not bold** <b>"\n'
    assert text_of(tree[7][2]) == "pythonCopy"
    assert '["SPAN", {"class": "t-keyword"}, "def"]' in json.dumps(tree[7])
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
            assert set(attributes) <= {"href", "rel", "target", "start", "tabindex", "role", "aria-label"}
            assert re.match(r"https?://|mailto:", attributes.get("href", "https://"))


GROWING = (
    MARKDOWN
    + """
Rivers:
| River | Length | Note |
|:------|-------:|:----:|
| Rhine | 1,233 | a \\| b |
| Danube | 2,850 |
| Po | 652 | `a | b` | **c** | |
| Don | 1,870 | d ||

- [ ] to do
- [x] done, with

  ```sh
  echo "$HOME"  # says where
  ```
- plain
lazy end

> - quoted list
>   with more
> > deeper

\\[
\\int_0^1 x_1 * y_1 \\, dx
\\]

Costs $5 or $6, but $a_1 * b_1$ and \\(x_2\\) are as written. ![a river](https://example.org/r.png)

~~~
open fence `
"""
)


@needs_node
async def test_a_text_that_grows_looks_at_each_moment_as_if_it_had_come_whole(tmp_path: Path) -> None:
    script = (
        RENDER
        + """
const text = process.argv[2];
const long = "a *long* paragraph of `words` ".repeat(500) + "\\n- " + "an item ".repeat(1000)
  + "\\n" + "x".repeat(13000);
// Each block by itself, letter by letter; all of them in a row, and what is long, in larger pieces.
const texts = [...text.split("\\n\\n").map((block) => [block, 1]), [text, 7], [long, 701]];
for (const [text, size] of texts) {
  const target = new Node("div");
  const growing = new GrowingMarkdown(target);
  for (let end = 0; end < text.length; end += size) {
    growing.add(text.slice(end, end + size));
    growing.draw();
    if (joined(shown(target)) !== joined(shown(whole(text.slice(0, end + size))))) throw new Error(`differs at ${end}`);
  }
}
console.log("true");
"""
    )
    assert await node(tmp_path, script, GROWING) is True


@needs_node
async def test_what_has_ended_stays_and_only_the_end_is_made_anew(tmp_path: Path) -> None:
    """Of each kind of block that is open for long: how many nodes one more word makes."""
    script = (
        RENDER
        + r"""
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
  const growing = new GrowingMarkdown(new Node("div"));
  growing.add(text);
  growing.draw();
  const before = Node.made;
  growing.add("word ");
  growing.draw();
  made[name] = Node.made - before;
}
console.log(JSON.stringify(made));
"""
    )
    made = await node(tmp_path, script)
    assert max(made.pop("paragraph"), made.pop("line")) < 400, "of a long paragraph the end alone"
    assert max(made.values()) <= 8, made


LOOKS = {
    "math": ["\\[ \\int_0^1 x_1 \\, dx_1 \\]", "$$\na_1 * b_1 * c\n$$", "\\(a_1*b_1*c\\)", "$x_1*y_1*z$", "$5 and $6"],
    "image": "![a river](https://example.org/r.png)",
    "tasks": "- [ ] one\n- [x] two",
    "sides": "| a | b | c |\n|:--|--:|:-:|\n| 1 | 2 | 3 |",
    "other head": "| a | b |\n|---|\n| 1 | 2 |",
    "other row": "| a | b |\n|---|---|\n| 1 | 2 | **3** |\n| 4 |\n| 5 | `x | y` | \\| | |\n| 6 | 7 ||",
    "after a table": "| a | b |\n|---|---|\n| 1 | 2 |\nafter",
    "link": "[a `b` **c**](https://example.org) <https://example.org/x> one  \ntwo<br>three",
}


@needs_node
async def test_what_models_write_most_is_shown_as_meant(tmp_path: Path) -> None:
    script = (
        RENDER
        + """
const looks = JSON.parse(process.argv[2]);
const one = (text) => shown(whole(text)).slice(2);
const each = (text) => Array.isArray(text) ? text.map(one) : one(text);
console.log(JSON.stringify(Object.fromEntries(Object.entries(looks).map(([name, text]) => [name, each(text)]))));
"""
    )
    looks = await node(tmp_path, script, json.dumps(LOOKS))
    assert [text_of(["", {}, *tree]) for tree in looks["math"]] == LOOKS["math"], "as written"
    assert "EM" not in json.dumps(looks["math"])
    href = {"href": "https://example.org/r.png", "rel": "noopener noreferrer nofollow", "target": "_blank"}
    address = ["SPAN", {"class": "address"}, "https://example.org/r.png"]
    assert looks["image"] == [["P", {}, ["A", {**href, "class": "image"}, "a river ", address]]]
    assert [item[2][2] for item in looks["tasks"][0][2:]] == ["☐", "☑"]
    assert [item[2][1]["aria-checked"] for item in looks["tasks"][0][2:]] == ["false", "true"]
    head, body = looks["sides"][0][2][2:]
    assert [cell[1].get("class") for cell in head[2][2:]] == [None, "right", "center"]
    assert [cell[1].get("class") for cell in body[2][2:]] == [None, "right", "center"]
    assert looks["sides"][0][1]["role"] == "group"
    assert [block[0] for block in looks["other head"]] == ["P"], "a divider has the cells of its head"
    rows = [[cell[2:] for cell in row[2:]] for row in looks["other row"][0][2][3][2:]]
    bold, code = ["STRONG", {}, "3"], ["CODE", {}, "x | y"]
    assert rows == [[["1"], ["2 | ", bold]], [["4"]], [["5"], [code, " | |"]], [["6"], ["7"]]], "nothing is left out"
    assert looks["after a table"][1] == ["P", {}, "after"]
    (paragraph,) = looks["link"]
    assert [part[0] for part in paragraph[2:] if isinstance(part, list)] == ["A", "A", "BR", "BR"]
    assert [part[0] for part in paragraph[2][2:] if isinstance(part, list)] == ["CODE", "STRONG"]


# How many characters the renderer looks at, counted where it does: in patterns, searches and cuts.
COUNTED = """
let steps = 0;
const exec = RegExp.prototype.exec;
RegExp.prototype.exec = function (text) {
  const from = this.global || this.sticky ? this.lastIndex : 0;
  const found = exec.call(this, text);
  steps += 1 + (found ? found.index + found[0].length - from : this.sticky ? 0 : String(text).length - from);
  return found;
};
const count = (name, cost) => {
  const original = String.prototype[name];
  String.prototype[name] = function (...args) {
    const result = original.apply(this, args);
    steps += 1 + cost(this, args, result);
    return result;
  };
};
count("indexOf", (text, [, from = 0], found) => Math.max(0, (found < 0 ? text.length : found) - from));
count("includes", (text) => text.length);
count("slice", (_, __, result) => result.length);
count("startsWith", (_, [start]) => start.length);
for (const name of ["split", "trim", "trimStart", "replaceAll", "replace", "search", "lastIndexOf"]) {
  count(name, (text) => text.length);
}
const cost = (work) => { steps = 0; work(); return steps; };
"""
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
]


@needs_node
async def test_L140_twice_the_text_is_twice_the_work(tmp_path: Path) -> None:
    script = (
        RENDER
        + COUNTED
        + """
const twice = {};
for (const mark of JSON.parse(process.argv[2])) {
  const text = (size) => mark.repeat(size / mark.length);
  twice[mark] = cost(() => whole(text(4000))) / cost(() => whole(text(2000)));
}
console.log(JSON.stringify(twice));
"""
    )
    twice = await node(tmp_path, script, json.dumps(MARKS))
    assert {mark: ratio for mark, ratio in twice.items() if ratio > 2.3} == {}


@needs_node
async def test_L140_code_costs_its_length_in_every_language(tmp_path: Path) -> None:
    script = (
        RENDER
        + COUNTED
        + r"""
const lines = ['"a', "'a", "`", "/*", "*/", "#", "<", '"'.repeat(3), "a", "@a", "$", "1", "\\", "- ", "a: ", "-"];
const languages = ["python", "ts", "json", "bash", "html", "css", "sql", "yaml", "toml", "go", "rust", "c", "cpp",
  "java", "diff", "markdown", "no such language"];
const worst = {};
for (const language of languages) {
  for (const piece of lines) {
    const code = (size) => "```" + language + "\n" + (piece.repeat(40) + "\n").repeat(size);
    const ratio = cost(() => whole(code(8))) / cost(() => whole(code(4)));
    worst[language] = Math.max(worst[language] ?? 0, ratio);
    const long = (size) => "```" + language + "\n" + piece.repeat(size);
    worst[language] = Math.max(worst[language], cost(() => whole(long(400))) / cost(() => whole(long(200))));
  }
}
console.log(JSON.stringify(worst));
"""
    )
    worst = await node(tmp_path, script)
    assert {language: ratio for language, ratio in worst.items() if ratio > 2.3} == {}


@needs_node
async def test_L140_no_text_keeps_the_page_busy(tmp_path: Path) -> None:
    script = (
        RENDER
        + """
const marks = ["**a ", "_a ", "`a ", "~~a ", "[a](", "![", "> ", "- ", "```\\n", "|a", "https://a.", "\\\\"];
const blanks = " ".repeat(20000);
const texts = [
  ...marks.map((piece) => piece.repeat(20000 / piece.length)),
  Array.from({ length: 200 }, (_, n) => "`".repeat(n + 1)).join(" "), // runs of every length, none closed
  Array.from({ length: 10000 }, () => "*").join("a"),
  "*a".repeat(10000), "**a".repeat(7000), "_".repeat(20000), "`".repeat(20000), "[".repeat(20000), "#".repeat(20000),
  `# a${blanks}b`, `#${blanks}`, `# a${"#".repeat(20000)}b`, "```" + blanks + "`", "~".repeat(20000) + "`",
  `-${blanks}\\rb`, `- a\\n${blanks}\\rb`, `a|b\\n${blanks}x`, `a|b\\n|${" -".repeat(10000)}x`, `---${blanks}x`,
  "- a" + "\\n".repeat(20000) + "b", `[a](x${blanks}"`, "[](a".repeat(5000),
  `[${"a".repeat(20000)}](`, "![](".repeat(5000),
  "http://".repeat(3000), "\\\\*".repeat(30000),
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
        await node(tmp_path, script) < 1000
    )  # milliseconds of the processor, for 20 kB of nothing but marks; the worst of them took hours
