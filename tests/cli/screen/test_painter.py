"""Blocks in windows of any width."""

from __future__ import annotations

from collections import Counter

import pytest

from cli.screen.markdown_documents import blocks_of
from tailrace.cli.screen.painter import BlockPiece, Painter


@pytest.mark.parametrize(("width", "rows"), [(200, 1), (125, 1), (124, 2), (80, 2)])
def test_a_line_of_code_has_the_whole_window(width: int, rows: int) -> None:
    (block,) = blocks_of(f"```\n{'x' * 120}\n```\n")
    assert sum(bool(line) for line in Painter().lines([BlockPiece(block)], width)) == rows


def rows_of(text: str, width: int) -> list[str]:
    (block,) = blocks_of(text)
    lines = Painter().lines([BlockPiece(block)], width)
    return ["".join(segment.text for segment in line) for line in lines if line]


WIDE = ["name of it", "value in full", "what it means", "retried or not", "raised class", "where it stands"]


def test_a_table_has_the_whole_window() -> None:
    cells = " | ".join(f"{each} {each}" for each in WIDE)
    _head, _line, *rows = rows_of(f"| {' | '.join(WIDE)} |\n|{'---|' * 6}\n| {cells} |\n", 210)
    assert len(rows) == 1
    assert len(rows[0]) > 100


def test_columns_too_narrow_for_words_become_records() -> None:
    cells = " | ".join(f"{each} {each}" for each in WIDE)
    rows = rows_of(f"| {' | '.join(WIDE)} |\n|{'---|' * 6}\n| {cells} |\n", 60)
    assert rows == [f"  {each}: {each} {each}" for each in WIDE]


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_table_loses_nothing_in_a_narrow_window(width: int) -> None:
    cells = ["世界最大の都市圏とても長い説明", "https://example.org/a/long/path", "plain"]
    (block,) = blocks_of(f"| a | b | c |\n|---|---|---|\n| {' | '.join(cells)} |\n")
    lines = Painter().lines([BlockPiece(block, first=True)], width)
    text = "".join(segment.text for line in lines for segment in line)
    assert "…" not in text
    assert not Counter("".join(cells)) - Counter(text)
