"""Tailrace under the faults that any product can be tested with: no anomaly, and whole answers where the docs promise
them."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof.streams.__main__ import try_product
from proof.streams.faults import FAULTS
from proof.streams.history import History
from proof.streams.product import Ended, Place, Product, Text
from proof.streams.products.tailrace import Tailrace
from proof.streams.products.tailrace_streams import TailraceStreams
from proof.streams.provider import Plan, Provider
from proof.streams.table import Cell

WHOLE = ("cut", "stall", "malformed event", "429 in mid-stream", "cut in a tool call", "viewer reconnects", "kill -9")


@pytest.mark.parametrize("name", WHOLE)
async def test_every_answer_is_whole_and_shown_once(name: str, tmp_path: Path) -> None:
    await all_are_whole(Tailrace, name, tmp_path)


@pytest.mark.skipif(
    not TailraceStreams.is_installed(), reason="no client: python -m proof.streams --install tailrace-streams"
)
@pytest.mark.parametrize("name", ["cut", "viewer reconnects", "second viewer", "kill -9", "one of two hangs"])
async def test_viewers_with_the_durable_streams_client_see_the_same(name: str, tmp_path: Path) -> None:
    await all_are_whole(TailraceStreams, name, tmp_path)


async def test_I106_a_tool_that_was_running_at_a_kill_does_not_run_again(tmp_path: Path) -> None:
    """The tool had its effect, and the process died before it recorded that: the model reads so, and decides."""
    await all_are("told", Tailrace, "kill -9 in a tool", tmp_path)


async def all_are_whole(kind: type[Product], name: str, tmp_path: Path) -> None:
    await all_are("whole", kind, name, tmp_path)


async def all_are(outcome: str, kind: type[Product], name: str, tmp_path: Path) -> None:
    [fault] = [fault._replace(trials=3) for fault in FAULTS if fault.name == name]
    cells: dict[str, Cell] = {}
    await try_product(kind, [fault], 7, tmp_path, cells.__setitem__)
    assert cells == {name: Cell(3, {outcome: 3}, {})}


@pytest.mark.skipif(
    not TailraceStreams.is_installed(), reason="no client: python -m proof.streams --install tailrace-streams"
)
async def test_a_viewer_that_left_at_the_last_word_is_told_of_the_end(tmp_path: Path) -> None:
    with History(tmp_path / "history.jsonl") as history:
        provider = Provider(history)
        await provider.start()
        provider.plans["run-a"] = Plan(words=3)
        product = TailraceStreams(Place(tmp_path, provider.url, tmp_path / "log"))
        try:
            await product.start()
            seen = [sight async for sight in product.ask("run-a", "Count for run-a.")]
            cursor = [sight.cursor for sight in seen if isinstance(sight, Text)][-1]
            again = [[sight async for sight in product.attach("run-a", cursor)] for _ in range(2)]
        finally:
            await product.stop()
            await provider.stop()
    assert seen[-1] == Ended("complete")
    assert [sights[-1] for sights in again] == [Ended("complete")] * 2
