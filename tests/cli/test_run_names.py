"""How people name a run."""

from __future__ import annotations

import re

import pytest

from tailrace.cli.run_names import find_instance, find_run, short_ids
from tailrace.errors import RunNotFound, TailraceError
from tailrace.journal.memory import MemoryJournal
from tailrace.ports import NewRun
from tailrace.testing.conformance.wall_clock import WallClock


async def test_a_run_is_named_by_its_id_a_beginning_or_last() -> None:
    clock = WallClock()
    journal = MemoryJournal(clock=clock)
    runs = []
    for kind in ("agent", "agent", "sequence", "delivery"):
        runs.append(await journal.create(NewRun(kind)))
        clock.now += 1.0
    first, second, sequence, delivery = runs
    assert await find_run(journal, "last") == sequence, "the newest, without the program's own records"
    assert await find_run(journal, "last", kind="agent") == second
    for run in runs:
        assert await find_run(journal, run.id) == run
    shared = next(at for at, (one, two) in enumerate(zip(first.id, second.id, strict=True)) if one != two)
    assert await find_run(journal, first.id[: shared + 1]) == first
    assert await find_run(journal, second.id[len("run_") : shared + 1]) == second
    instance = sequence.id.replace("run_", "ins_")
    assert await find_run(journal, instance[:-2]) == sequence
    assert [await find_instance(journal, word) for word in ("last", instance, sequence.id)] == [sequence] * 3
    with pytest.raises(RunNotFound, match="is not an instance of a sequence"):
        await find_instance(journal, first.id)
    both = re.escape(f"several runs begin with 'run_': {instance}, {second.id}, {first.id}; write more of the id")
    with pytest.raises(TailraceError, match=both):
        await find_run(journal, "run_")
    for word in ("", "nobody", "run_zz", "%", delivery.id[:-1]):
        with pytest.raises(RunNotFound):
            await find_run(journal, word)


async def test_of_many_runs_a_few_are_named() -> None:
    journal = MemoryJournal()
    for _ in range(60):
        await journal.create(NewRun("agent"))
    with pytest.raises(TailraceError, match=r"^several runs begin with '0': (run_\w+, ){4}…; write more of the id$"):
        await find_run(journal, "0")


async def test_short_names_tell_the_runs_of_a_list_apart_and_are_understood() -> None:
    clock = WallClock()
    journal = MemoryJournal(clock=clock)
    for wait_s in (3600.0, 60.0, 0.001):
        clock.now += wait_s
        await journal.create(NewRun("agent"))
    runs = await journal.runs()
    names = short_ids(runs)
    assert len(set(names.values())) == 3
    assert [await find_run(journal, names[run.id]) for run in runs] == runs
    assert short_ids([]) == {}
