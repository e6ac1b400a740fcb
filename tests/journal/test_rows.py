"""Entries become rows, and the entries' memory is the only memory that it took."""

from __future__ import annotations

import sys

import pytest

from tailrace.events import Entry, MessageChunk
from tailrace.journal.stored.rows import rows_of

TIMES = 2000


@pytest.mark.parametrize("length", [1, 3])
def test_a_row_that_is_written_leaves_nothing_behind(length: int) -> None:
    entries = [Entry(seq, MessageChunk("word "), 1) for seq in range(1, length + 1)]
    list(rows_of(entries))  # what is made once is made
    before = sys.getallocatedblocks()
    for _ in range(TIMES):
        for _row in rows_of(entries):
            pass
    assert sys.getallocatedblocks() - before < TIMES / 4, "a block for every row is a leak"
