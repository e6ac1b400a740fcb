"""Tailrace under the faults that any product can be tested with: no anomaly, and whole answers where the docs promise
them."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof.streams.__main__ import try_product
from proof.streams.faults import FAULTS
from proof.streams.products.tailrace import Tailrace
from proof.streams.table import Cell

WHOLE = ("cut", "stall", "malformed event", "429 in mid-stream", "cut in a tool call", "viewer reconnects", "kill -9")


@pytest.mark.parametrize("name", WHOLE)
async def test_every_answer_is_whole_and_shown_once(name: str, tmp_path: Path) -> None:
    [fault] = [fault._replace(trials=3) for fault in FAULTS if fault.name == name]
    cells: dict[str, Cell] = {}
    await try_product(Tailrace, [fault], 7, tmp_path, cells.__setitem__)
    assert cells == {name: Cell(3, {"whole": 3}, {})}
