"""The run of the table: what it keeps, how it goes on after an interruption, and what the page shows of it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import ClassVar

import pytest
from proof.streams import __main__ as command
from proof.streams import table
from proof.streams.faults import FAULTS
from proof.streams.http import stream
from proof.streams.product import Accepted, Ended, Product, Sight, Text
from proof.streams.products import PRODUCTS
from proof.streams.table import Cell, TableRun

NEEDS = ("resume", "stop", "tools", "durable", "store", "servers", "limits")


class Relay(Product):
    """Sends the provider's answer on, and calls a cut one complete where `lies`."""

    name = "relay"
    page = "https://example.com"
    setup = "none"
    lacks: ClassVar = dict.fromkeys(NEEDS, "a relay")
    lies = False

    async def start(self) -> None:
        """It has no process of its own."""

    async def ask(self, run: str, prompt: str, *, slow: bool = False) -> AsyncGenerator[Sight, None]:
        body = {"stream": True, "messages": [{"role": "user", "content": prompt}]}
        async with stream("POST", f"{self.place.provider_url}/chat/completions", body=body) as response:
            yield Accepted()
            async for event in response.events():
                if event.data == "[DONE]":
                    yield Ended("complete")
                    return
                delta = event.json()["choices"][0]["delta"]  # type: ignore[index]
                if self.lies and "t15." in delta.get("content", ""):
                    yield Ended("complete")
                    return
                yield Text(delta.get("content") or "")

    async def kept(self, run: str) -> None:
        """Nothing."""


class Liar(Relay):
    name = "liar"
    lies = True


class Stopper(Liar):
    """The command is interrupted when it comes to this one."""

    async def start(self) -> None:
        raise KeyboardInterrupt


class DoesNotStart(Relay):
    name = "does-not-start"

    async def start(self) -> None:
        raise RuntimeError("a trace\nno such module")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two faults, and everything that is written goes here."""
    named = [fault for fault in FAULTS if fault.name in ("healthy", "second viewer")]
    faults = tuple(fault._replace(trials=2, pace_s=0.0) for fault in named)
    for module in (command, table):
        monkeypatch.setattr(module, "FAULTS", faults)
        monkeypatch.setattr(module, "RUN", tmp_path / "run.json")
    monkeypatch.setattr(command, "UNFINISHED", tmp_path / "unfinished.json")
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    monkeypatch.setattr(table, "PAGE", tmp_path / "proof.md")
    (tmp_path / "proof.md").write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n", encoding="utf-8")
    return tmp_path


def products(monkeypatch: pytest.MonkeyPatch, *kinds: type[Product]) -> None:
    monkeypatch.setattr(command, "PRODUCTS", {kind.name: kind for kind in kinds})


def test_an_interrupted_run_goes_on_with_the_cells_that_it_has(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    products(monkeypatch, Relay, Stopper)
    with pytest.raises(KeyboardInterrupt):
        command.write_docs(1, small)
    begun = json.loads((small / "unfinished.json").read_text(encoding="utf-8"))
    assert list(begun["products"]["relay"]["cells"]) == ["healthy", "second viewer"]
    begun["products"]["relay"]["cells"]["healthy"]["outcomes"] = {"whole": 77}  # found then, and not looked for again
    (small / "unfinished.json").write_text(json.dumps(begun), encoding="utf-8")
    products(monkeypatch, Relay, Liar)
    assert command.write_docs(1, small) == 0
    run = TableRun.load(small / "run.json")
    assert run.products["relay"].cells == {
        "healthy": Cell(2, {"whole": 77}),
        "second viewer": Cell(not_offered="a relay"),
    }
    assert run.products["liar"].cells["healthy"] == Cell(2, {}, {"lost": 2})
    page = (small / "proof.md").read_text(encoding="utf-8")
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "healthy|77&nbsp;whole|**lost&nbsp;2**\nsecond viewer|–|–\n" in page
    assert not (small / "unfinished.json").exists()


def test_a_run_under_other_conditions_is_not_gone_on_with(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    products(monkeypatch, Relay, Stopper)
    with pytest.raises(KeyboardInterrupt):
        command.write_docs(1, small)
    begun = json.loads((small / "unfinished.json").read_text(encoding="utf-8"))
    begun["products"]["relay"]["versions"] = "an older one"
    begun["products"]["relay"]["cells"]["healthy"]["outcomes"] = {"whole": 77}
    (small / "unfinished.json").write_text(json.dumps(begun), encoding="utf-8")
    products(monkeypatch, Relay, Liar)
    assert command.write_docs(1, small) == 0
    assert TableRun.load(small / "run.json").products["relay"].cells["healthy"] == Cell(2, {"whole": 2})


def test_a_trial_that_cannot_be_held_is_no_failure_of_the_product(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    products(monkeypatch, DoesNotStart)
    assert command.write_docs(1, small) == 0
    run = TableRun.load(small / "run.json")
    assert run.products["does-not-start"].cells["healthy"] == Cell(not_run="no such module")
    assert "healthy|not&nbsp;run\n" in (small / "proof.md").read_text(encoding="utf-8")
    assert "- Not run (healthy): no such module" in (small / "setups.md").read_text(encoding="utf-8")


def test_a_fault_that_is_tried_later_is_added_to_the_table_and_said_to_be(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    products(monkeypatch, Relay, Liar)
    assert command.write_docs(1, small) == 0
    before = TableRun.load(small / "run.json")
    healthy = FAULTS[0]._replace(pace_s=0.0)
    added = healthy._replace(name="cut", provider="cut", trials=3)
    for module in (command, table):
        monkeypatch.setattr(module, "FAULTS", (healthy, added))
    assert command.add_to_docs([added], 1, small) == 0
    run = TableRun.load(small / "run.json")
    assert (run.requests, [*run.added]) == (before.requests, ["cut"])
    assert run.products["liar"].cells["healthy"] == before.products["liar"].cells["healthy"]
    assert run.products["relay"].cells["cut"].runs == 3
    assert f"*cut* was added {run.added['cut']}." in (small / "proof.md").read_text(encoding="utf-8")


def test_the_table_is_written_again_with_the_reasons_of_today(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    products(monkeypatch, Relay)
    assert command.write_docs(1, small) == 0
    before = TableRun.load(small / "run.json").products["relay"].cells
    monkeypatch.setattr(Relay, "lacks", {"resume": "one reader"})
    assert command.rewrite_docs() == 0
    assert TableRun.load(small / "run.json").products["relay"].cells == {
        **before,
        "second viewer": Cell(not_offered="one reader"),
    }
    assert "- Not offered (second viewer): one reader" in (small / "setups.md").read_text(encoding="utf-8")


def test_the_page_shows_one_run_and_nothing_else() -> None:
    run = TableRun.load(table.RUN)
    page = table.PAGE.read_text(encoding="utf-8")
    shown = page.partition(table.BEGIN)[2].partition(table.END)[0]
    assert shown == f"\n{table.told(run)}\n\n{table.table(run)}\n"
    assert (table.RESULTS / "setups.md").read_text(encoding="utf-8") == table.setups(run)
    assert {
        found.not_offered == command.not_offered(PRODUCTS[name], fault)
        for name, result in run.products.items()
        for fault in FAULTS
        if (found := result.cells[fault.name]).not_offered
    } == {True}
    others = [name for name in run.products if not name.startswith("tailrace")]
    assert len(others) >= 5
