"""Markdown cut into blocks: held to a parser that sees the whole text."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.screen.markdown_documents import blocks_of, documents
from tailrace.cli.screen.markdown_blocks import (
    MAX_CODE_LINES,
    MAX_TABLE_ROWS,
    MAX_TEXT_LINES,
    MIN_CODE_LINES,
    MIN_LIST_LINES,
    Block,
    BlockSplitter,
)
from tailrace.delivery.text.balance import balance
from tailrace.delivery.text.parser import parser

PARSER = parser()


def html(text: str) -> str:
    return str(PARSER.render(text)).replace("\n", "")


def html_of(blocks: list[Block]) -> str:
    """The blocks, each parsed alone, as one page."""
    parts = []
    for block in blocks:
        if block.kind == "markdown":
            parts.append(html(block.text))
        else:
            language = f' class="language-{escape(block.info)}"' if block.info else ""
            code = block.text + "\n" if block.text or block.joined else ""
            parts.append(f"<pre><code{language}>{escape(code)}</code></pre>".replace("\n", ""))
    return "".join(parts)


@given(documents)
def test_blocks_parsed_alone_are_the_document_parsed_whole(text: str) -> None:
    assert html_of(blocks_of(text)) == html(text)


@given(documents, st.lists(st.integers(0, 400)))
def test_any_split_gives_the_same_blocks(text: str, cuts: list[int]) -> None:
    splitter = BlockSplitter()
    found: list[Block] = []
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(edges):
        found += splitter.feed(text[start:end])
        _ = splitter.open  # looking at it changes nothing
    assert found + splitter.close() == blocks_of(text)


def test_a_block_is_done_when_the_next_begins() -> None:
    splitter = BlockSplitter()
    steps = [
        (splitter.feed(text), splitter.open) for text in ("First par", "agraph.\n\n# He", "ad\n```py\nx = 1\n", "```\n")
    ]
    assert steps == [
        ([], Block("markdown", "First par")),
        ([Block("markdown", "First paragraph.")], Block("markdown", "# He")),
        ([Block("markdown", "# Head")], Block("code", "x = 1", "py")),
        ([Block("code", "x = 1", "py")], None),
    ]
    assert splitter.close() == []


def test_a_fence_that_is_never_closed_ends_with_the_text() -> None:
    assert blocks_of("```\ncode\n\nmore") == [Block("code", "code\n\nmore")]


def test_a_long_listing_comes_in_parts_that_join() -> None:
    function = [f"def f{{}}(): # {'x' * 10}", *["    pass"] * 10, ""]
    lines = [line.format(number) for number in range(20) for line in function]
    parts = blocks_of("```python\n" + "\n".join(lines) + "\n```\n")
    assert [line for part in parts for line in part.text.split("\n")] == lines
    assert [part.joined for part in parts] == [False] + [True] * (len(parts) - 1)
    assert all(MIN_CODE_LINES <= part.text.count("\n") + 1 <= MIN_CODE_LINES + len(function) for part in parts[:-1])
    assert all(part.text.startswith("def ") for part in parts)  # cut between functions
    dense = blocks_of("```\n" + "x\n" * 450 + "```")
    assert [part.text.count("x") for part in dense] == [MAX_CODE_LINES] * 4 + [50]


def test_a_long_list_goes_on_counting() -> None:
    parts = blocks_of("\n".join(f"1. item {number}" for number in range(60)))
    assert [part.start for part in parts] == [1, 1 + MIN_LIST_LINES, 1 + 2 * MIN_LIST_LINES]
    assert [part.joined for part in parts] == [False, True, True]


def test_a_long_table_repeats_its_head() -> None:
    rows = [f"| {number} | x |" for number in range(MAX_TABLE_ROWS + 10)]
    head = ["| n | what |", "|---|---|"]
    first, second = blocks_of("\n".join([*head, *rows]))
    assert first.text.split("\n") == [*head, *rows[:MAX_TABLE_ROWS]]
    assert second.text.split("\n") == [*head, *rows[MAX_TABLE_ROWS:]]


def test_a_table_is_shown_in_whole_rows_only() -> None:
    splitter = BlockSplitter()
    seen = set()
    for char in "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n":
        splitter.feed(char)
        if splitter.open:
            seen.add(splitter.open.text)
    head = "| a | b |\n|---|---|"
    assert seen == {head, f"{head}\n| 1 | 2 |", f"{head}\n| 1 | 2 |\n| 3 | 4 |"}


@pytest.mark.parametrize(
    ("half", "shown"),
    [
        ("a **bo", "a **bo**"),
        ("a **bold**", "a **bold**"),
        ("a `co", "a `co`"),
        ("a `", "a"),
        ("a **", "a"),
        ("`**` is", "`**` is"),
        ("plain", "plain"),
    ],
)
def test_marks_that_are_still_open_are_closed(half: str, shown: str) -> None:
    assert balance(half) == shown


def test_one_item_of_a_list_is_cut_where_it_grows_without_end() -> None:
    code = "".join(f"  x{number}\n" for number in range(1000))
    blocks = blocks_of(f"- item\n\n  ```python\n{code}  ```\n- next\n")
    assert max(block.text.count("\n") for block in blocks) <= MAX_TEXT_LINES
