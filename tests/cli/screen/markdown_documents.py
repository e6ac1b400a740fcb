"""Markdown of every kind, made of lines that like to be taken for something else."""

from __future__ import annotations

from hypothesis import strategies as st

from tailrace.cli.screen.markdown_blocks import Block, BlockSplitter

LINES = [
    "",
    "",
    "plain words",
    "more `code` and **bold**",
    "# Heading",
    "###",
    "- item",
    "- ",
    "+ other item",
    "* star",
    "1. one",
    "2. two",
    "7) seven",
    "  indented two",
    "    indented four",
    "   - nested",
    "> quoted",
    "---",
    "===",
    "***",
    "```",
    "```python",
    "~~~",
    "  ```",
    "| a | b |",
    "|---|---|",
    "| 1 | 2 |",
    "a | b",
    "--|--",
    "日本語の行",
    "[link](http://example.com)",
]
documents = st.lists(st.sampled_from(LINES), max_size=14).map("\n".join)


def blocks_of(text: str) -> list[Block]:
    """The blocks of a whole text."""
    splitter = BlockSplitter()
    return splitter.feed(text) + splitter.close()
