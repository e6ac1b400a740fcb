"""The judge: each anomaly planted alone is named, and a clean history is clean."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof.streams import judge as judge_module
from proof.streams.judge import ANOMALIES, Verdict, judge, read_runs

WORDS = 12
Record = dict[str, Any]


def record(by: str, what: str, **more: object) -> Record:
    return {"t": 0.0, "by": by, "run": "r", "what": what, **more}


def word(by: str, n: int, attempt: int = 1) -> Record:
    return record(by, "saw" if by.startswith("viewer") else "kept", n=n, hash=f"{n}-{attempt}")


def asked(attempt: int) -> list[Record]:
    said = [record("provider", "said", attempt=attempt, n=n, hash=f"{n}-{attempt}") for n in range(1, WORDS + 1)]
    return [record("provider", "asked", attempt=attempt, length=WORDS), *said]


def history(*, cut_at: int = WORDS, viewers: int = 2) -> list[Record]:
    """A clean run: the first attempt up to `cut_at`, a second one from there on."""
    made = [record("client", "accepted"), *asked(1), *asked(2)]
    attempts = [(n, 1 if n <= cut_at else 2) for n in range(1, WORDS + 1)]
    for viewer in range(viewers):
        name = f"viewer-{viewer + 1}"
        made += [word(name, n, attempt) for n, attempt in attempts]
        made.append(record(name, "ended", how="complete"))
    made += [word("product", n, attempt) for n, attempt in attempts]
    return [*made, record("product", "status", how="complete")]


def verdict(records: list[Record]) -> Verdict:
    [(name, run)] = read_runs(json.dumps(made) for made in records).items()
    return judge(name, run)


@given(cut_at=st.integers(0, WORDS), viewers=st.integers(1, 3))
def test_a_clean_history_is_clean(cut_at: int, viewers: int) -> None:
    assert verdict(history(cut_at=cut_at, viewers=viewers)) == Verdict("r", "whole", ())


def at(records: list[Record], by: str, n: int) -> int:
    return next(place for place, made in enumerate(records) if made["by"] == by and made.get("n") == n)


def without(by: str, *numbers: int) -> Callable[[list[Record]], None]:
    def plant(records: list[Record]) -> None:
        for n in numbers:
            del records[at(records, by, n)]

    return plant


def twice(by: str) -> Callable[[list[Record]], None]:
    return lambda records: records.insert(at(records, by, 7), word(by, 7))


def swapped(records: list[Record]) -> None:
    here, there = at(records, "viewer-1", 4), at(records, "viewer-1", 5)
    records[here], records[there] = records[there], records[here]


def denied(records: list[Record]) -> None:
    for n in range(8, WORDS + 1):
        records[at(records, "product", n)]["hash"] = f"{n}-2"


def never_said(records: list[Record]) -> None:
    records[at(records, "viewer-1", 5)]["hash"] = "of another run"


def old_writer(records: list[Record]) -> None:
    """Attempt 2 has taken over at word 5; word 9 comes from attempt 1 all the same, everywhere."""
    for who in ("viewer-1", "viewer-2", "product"):
        for n in range(5, WORDS + 1):
            records[at(records, who, n)]["hash"] = f"{n}-{1 if n == 9 else 2}"


def stopped_and_went_on(records: list[Record]) -> None:
    records.insert(at(records, "viewer-1", 6), record("client", "halted"))


def end_is(how: str) -> Callable[[list[Record]], None]:
    def plant(records: list[Record]) -> None:
        next(made for made in records if made["what"] == "ended")["how"] = how

    return plant


def status_is(how: str) -> Callable[[list[Record]], None]:
    def plant(records: list[Record]) -> None:
        records[-1]["how"] = how

    return plant


def empty_and_complete(records: list[Record]) -> None:
    records[:] = [made for made in records if made["what"] not in ("saw", "kept")]


def tool_twice(records: list[Record]) -> None:
    ran = record("tool", "ran", call="c1")
    records[:0] = [record("client", "planned", tools=1), ran, ran]


def tool_unasked(records: list[Record]) -> None:
    records.insert(0, record("tool", "ran", call="c1"))


def tool_forgotten(records: list[Record]) -> None:
    records.insert(0, record("client", "planned", tools=1))


PLANTED = [
    (without("viewer-1", 6), ("lost",)),
    (without("viewer-2", 11, 12), ("lost",)),
    (without("viewer-1", 1, 2), ("lost",)),
    (without("product", 6), ("lost", "ghost")),
    (twice("viewer-1"), ("doubled",)),
    (twice("product"), ("doubled",)),
    (swapped, ("reordered",)),
    (denied, ("ghost",)),
    (never_said, ("ghost",)),
    (old_writer, ("zombie",)),
    (stopped_and_went_on, ("zombie",)),
    (end_is("waiting"), ("silent",)),
    (end_is("closed"), ("silent",)),
    (status_is("running"), ("silent",)),
    (status_is("unknown"), ("silent",)),
    (empty_and_complete, ("silent",)),
    (tool_twice, ("doubled",)),
    (tool_unasked, ("ghost",)),
    (tool_forgotten, ("lost",)),
]


@pytest.mark.parametrize(("plant", "anomalies"), PLANTED)
def test_a_planted_anomaly_is_named(plant: Callable[[list[Record]], None], anomalies: tuple[str, ...]) -> None:
    records = history()
    plant(records)
    assert verdict(records).anomalies == anomalies


def test_every_anomaly_is_planted() -> None:
    assert {name for _, anomalies in PLANTED for name in anomalies} == set(ANOMALIES)


def test_a_failure_that_is_told_is_no_anomaly() -> None:
    records = [
        record("client", "accepted"),
        *asked(1),
        *(word("viewer-1", n) for n in range(1, 6)),
        record("viewer-1", "ended", how="failed"),
        record("product", "status", how="failed"),
    ]
    assert verdict(records) == Verdict("r", "told", ())


@pytest.mark.parametrize("ran", [0, 1])
def test_a_result_of_which_the_model_was_told_that_it_is_not_known_is_no_anomaly(ran: int) -> None:
    tool = [record("tool", "ran", call="c1")] * ran
    records = [record("client", "planned", tools=1), *tool, record("provider", "told"), *history()]
    assert verdict(records) == Verdict("r", "told", ())


def test_a_tool_that_ran_twice_is_doubled_whatever_the_model_was_told() -> None:
    records = [record("provider", "told"), *history()]
    tool_twice(records)
    assert verdict(records).anomalies == ("doubled",)


def test_a_failed_run_that_keeps_other_words_than_it_showed_denies_them() -> None:
    records = [
        record("client", "accepted"),
        *asked(1),
        *(word("viewer-1", n) for n in range(1, 6)),
        record("viewer-1", "ended", how="failed"),
        *(word("product", n) for n in range(1, 4)),
        record("product", "status", how="failed"),
    ]
    assert verdict(records).anomalies == ("ghost",)


def test_a_failed_run_that_keeps_the_reason_alone_denies_nothing() -> None:
    records = [
        record("client", "accepted"),
        *asked(1),
        *(word("viewer-1", n) for n in range(1, 6)),
        record("viewer-1", "ended", how="failed"),
        record("product", "kept", n=0, hash="of an error"),
        record("product", "status", how="failed"),
    ]
    assert verdict(records) == Verdict("r", "told", ())


def test_a_run_that_is_not_over_denies_nothing() -> None:
    """It is silent for as long as the product was asked; what it will say of its words is not known."""
    records = [
        record("client", "accepted"),
        *asked(1),
        *(word("viewer-1", n) for n in range(1, 6)),
        record("viewer-1", "ended", how="broken"),
        record("product", "status", how="running"),
    ]
    assert verdict(records).anomalies == ("silent",)


def test_a_screen_that_the_protocol_clears_is_judged_by_what_follows() -> None:
    clean = history(viewers=1)
    first = at(clean, "viewer-1", 1)
    shown_before = [word("viewer-1", n) for n in range(1, 5)]
    records = [*clean[:first], *shown_before, record("viewer-1", "cleared"), *clean[first:]]
    assert verdict(records) == Verdict("r", "whole", ())


@pytest.mark.parametrize("line", ["", "{", "[]", '{"by": "viewer-1"}', '{"by": "v", "run": "r", "what": "guessed"}'])
def test_a_line_that_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        read_runs([line])


def test_the_judge_is_a_small_program_of_its_own(tmp_path: Path) -> None:
    """It runs from a folder that has nothing else, without this environment's packages."""
    source = Path(judge_module.__file__).read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 400
    (tmp_path / "judge.py").write_text(source, encoding="utf-8")
    records = history()
    without("viewer-1", 6)(records)
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(made) + "\n" for made in records), encoding="utf-8")
    judged = subprocess.run(
        [sys.executable, "-I", "-S", "judge.py", "history.jsonl"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (judged.returncode, judged.stderr) == (1, "")
    assert judged.stdout.splitlines()[0] == "r: lost: viewer-1 lacks words 6, and has word 12"
