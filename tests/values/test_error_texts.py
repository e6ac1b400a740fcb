"""Each row of the table is tested by its own example."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from tailrace.values.error_texts import ErrorText, Meaning, says, table


@pytest.mark.parametrize(("meaning", "row"), [(meaning, row) for meaning, rows in table().items() for row in rows])
def test_a_row_finds_its_own_example(meaning: Meaning, row: ErrorText) -> None:
    assert re.search(row.pattern, row.example, re.IGNORECASE)
    assert says(meaning, row.example)


@pytest.mark.parametrize("meaning", get_args(Meaning))
def test_every_meaning_has_rows_and_an_unrelated_error_means_none_of_them(meaning: Meaning) -> None:
    assert table()[meaning]
    assert not says(meaning, "Internal Server Error")
