"""`make simulate`: many worlds, the report about them, and a world that fails made small."""

from __future__ import annotations

from pathlib import Path

import pytest
from proof.simulation import __main__ as command
from proof.simulation.__main__ import main
from proof.simulation.coverage import FAILURES
from proof.simulation.draw import world_of
from proof.simulation.shrink import shrunk
from proof.simulation.simulation import simulate
from proof.simulation.total import Night, Total
from proof.simulation.world import Ask, Bad, Kill, Said, Stop, StoreFault, Watch, World

from simulation.mistakes import MISTAKES

FAILURES_PAGE = Path(__file__).parents[2] / "docs" / "failures.md"


def test_worlds_that_keep_the_rules_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "report.md"
    assert main(["--seeds", "6", "--from", "10", "--jobs", "1", "--report", str(page)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("6 worlds, 0 broke a rule, digest ")
    assert "6 of 6 worlds" in said.err
    assert "6 worlds, seeds 10 to 15: 0 broke a rule." in page.read_text()
    assert "make simulate SEEDS=6 FROM=10" in page.read_text()


def test_each_night_takes_the_seeds_after_the_last_and_is_added_to_the_sum(tmp_path: Path) -> None:
    total = tmp_path / "total.json"
    Total(worlds=10, next_seed=10, nights=[Night("2026-01-01", 0, 10, "code", "digest")]).save(total)
    for _ in range(2):
        assert main(["--nightly", "--seeds", "3", "--jobs", "1", "--total", str(total)]) == 0
    found = Total.load(total)
    assert (found.worlds, found.next_seed, found.failed) == (16, 16, 0)
    assert [(night.first, night.worlds) for night in found.nights] == [(0, 10), (10, 3), (13, 3)]
    assert found.steps > 0


def test_processes_share_the_worlds_and_agree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "CHUNK", 4)
    assert main(["--seeds", "14", "--jobs", "2"]) == 0
    shared = capsys.readouterr().out
    assert main(["--seeds", "14", "--jobs", "1"]) == 0
    assert capsys.readouterr().out == shared


def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "CHUNK", 3)
    assert main(["--seeds", "9", "--jobs", "1"]) == 0
    whole = capsys.readouterr().out
    run_chunk, ran = command.run_chunk, list[int]()

    def stopped(first: int, count: int, store: str) -> command.Chunk:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(first)
        return run_chunk(first, count, store)

    with_checkpoint = ["--seeds", "9", "--jobs", "1", "--checkpoint", str(tmp_path / "far")]
    monkeypatch.setattr(command, "run_chunk", stopped)
    assert main(with_checkpoint) == 130
    assert "stopped after 6 worlds; the same command goes on from there" in capsys.readouterr().err
    monkeypatch.setattr(command, "run_chunk", run_chunk)
    assert main(with_checkpoint) == 0
    again = capsys.readouterr()
    assert again.out == whole
    assert again.err.startswith("9 of 9 worlds")
    assert main(["--seeds", "10", "--checkpoint", str(tmp_path / "far")]) == 2
    assert "it is of 9 seeds from 0" in capsys.readouterr().err
    (tmp_path / "far").write_text("?")
    assert main(with_checkpoint) == 2


def test_a_long_run_goes_on_with_mended_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "CHUNK", 5)
    monkeypatch.setattr(command, "explain", lambda _seed, _store: None)
    page, run = tmp_path / "page.md", ["--seeds", "15", "--jobs", "1", "--checkpoint", str(tmp_path / "far")]
    with MISTAKES["a run has two last entries"].plant():
        assert main(run) == 1
    failed = capsys.readouterr().out.rpartition("seeds that failed: ")[2].strip("[]\n")
    monkeypatch.setattr(command, "fingerprint", lambda: "other code")
    assert main(run) == 2
    assert "go on with --mended" in capsys.readouterr().err
    assert main([*run, "--mended", "--report", str(page)]) == 0
    assert "15 worlds, seeds 0 to 14: 0 broke a rule." in page.read_text()
    assert f"| {failed} |" in page.read_text()


def test_one_seed_is_shown_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("World(")
    assert "start n0.1" in said


def test_a_number_that_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err


def test_a_world_that_fails_is_printed_as_small_as_it_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    with MISTAKES["a run has two last entries"].plant():
        assert main(["--seeds", "40", "--jobs", "1"]) == 1
    *_, rule, literal = capsys.readouterr().out.splitlines()
    assert rule.startswith("broken: ")
    assert len(literal) < 120
    assert eval(literal, {kind.__name__: kind for kind in (World, Ask, Said, Bad, Kill, StoreFault, Watch)}) is not None  # noqa: S307


def test_shrinking_keeps_who_asks_what_together() -> None:
    world = World(
        nodes=3,
        lease_s=5.0,
        happenings=(
            Ask(at=0.2, said=(Said(words=40),)),
            Ask(at=0.31, said=(Said(words=12),)),
            Watch(at=0.3, ask=1),
            Stop(at=9.0),
        ),
    )
    with MISTAKES["viewers are shown entries in another order"].plant():
        small = shrunk(world)
        assert small.broken
        assert simulate(small.world).broken == small.broken
    assert [type(one) for one in small.world.happenings] == [Ask, Watch]
    assert small.world.happenings[1] == Watch(at=0.3)
    assert small.world.nodes == 1


def test_a_world_that_keeps_the_rules_is_not_shrunk() -> None:
    assert shrunk(world_of(1)).world == world_of(1)


def test_every_failure_that_is_counted_is_on_the_list() -> None:
    known = FAILURES_PAGE.read_text()
    assert [each for ids in FAILURES.values() for each in ids if f"\n{each} | " not in known] == []
