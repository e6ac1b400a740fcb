"""Append, crash, claim, read, compact in any order, against a model that is a list."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from postgres_server import PostgresServer
from tailrace.errors import OutputMismatch, RunOwned, RunSealed, StaleEpoch
from tailrace.events import AnyEvent, AttemptDiscarded, Entry, MessageChunk, MessageStop, RunFinished, RunStarted
from tailrace.integrations.postgres.store import PostgresJournal
from tailrace.journal.fold import fold, is_fact
from tailrace.journal.memory import MemoryJournal
from tailrace.journal.sqlite.store import SqliteJournal
from tailrace.ports import Journal, Lease, NewRun
from tailrace.testing.conformance.sample_runs import everything
from tailrace.testing.conformance.wall_clock import WallClock

EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(MessageChunk, st.text(max_size=3)), st.builds(MessageStop), st.builds(AttemptDiscarded)
)


class Model:
    """What one run must be."""

    def __init__(self, first: Entry, lease: Lease) -> None:
        self.entries = [first]
        self.seen = 0  # what a viewer has been shown: from here on it may never change
        self.lease: Lease | None = lease
        self.epoch = lease.epoch
        self.ended = False
        self.compacted = False

    @property
    def output(self) -> str:
        return fold(self.entries).output


class JournalMachine(RuleBasedStateMachine):
    """Needs a store: how its journal is opened, and how it is left by a process that crashes."""

    runs = Bundle("runs")
    journal: Journal
    survives_crashes = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = WallClock()
        self.runner = asyncio.Runner()
        self.models: dict[str, Model] = {}

    async def open_journal(self) -> Journal:
        raise NotImplementedError

    async def leave_by_crash(self) -> None:
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        self.journal = self.runner.run(self.open_journal())

    @rule(target=runs)
    def start(self) -> str:
        run, lease = self.runner.run(self.journal.start(NewRun("call"), "me"))
        assert lease is not None
        self.models[run.id] = Model(Entry(1, RunStarted("call", at=self.clock.now)), lease)
        return run.id

    @rule(run_id=runs, events=st.lists(EVENTS, max_size=4), attempt=st.integers(1, 3), commit=st.booleans())
    def append(self, run_id: str, events: list[AnyEvent], attempt: int, commit: bool) -> None:
        model = self.models[run_id]
        if model.lease is None:
            return
        lease = model.lease

        async def act() -> None:
            last = self.journal.append(lease, events, attempt=attempt)
            model.entries += [Entry(len(model.entries) + 1 + at, event, attempt) for at, event in enumerate(events)]
            assert last == len(model.entries)
            if commit:
                await self.journal.commit(lease)
                model.seen = len(model.entries)

        self.runner.run(act())

    @rule(run_id=runs)
    def claim(self, run_id: str) -> None:
        """Somebody else: refused while the lease lives, and afterwards the old holder is."""
        model = self.models[run_id]
        if model.ended:
            self._refused(RunSealed, self.journal.claim(run_id, "other"))
            return
        old = model.lease
        if old is not None:
            self._refused(RunOwned, self.journal.claim(run_id, "other"))
            self.runner.run(self.journal.commit(old))
            model.seen = len(model.entries)
            self.clock.now += 31.0
            for other in self.models.values():
                if other is not model and other.lease is not None:
                    self.runner.run(self.journal.renew(other.lease))
        model.lease = self.runner.run(self.journal.claim(run_id, "me" if old is None else f"after {old.epoch}"))
        assert model.lease.epoch == model.epoch + 1
        model.epoch = model.lease.epoch
        if old is not None:
            self._refused(StaleEpoch, self._append_late(old))

    async def _append_late(self, lease: Lease) -> None:
        self.journal.append(lease, [MessageChunk("late")])

    def _refused(self, error: type[Exception], act: object) -> None:
        try:
            self.runner.run(act)  # type: ignore[arg-type]
        except error:
            return
        raise AssertionError(f"{error.__name__} was due")

    @rule(run_id=runs)
    def seal(self, run_id: str) -> None:
        model = self.models[run_id]
        if model.lease is None:
            return
        self._refused(OutputMismatch, self.journal.seal(model.lease, RunFinished("completed", model.output + "!")))
        finished = RunFinished("completed", model.output)
        entry = self.runner.run(self.journal.seal(model.lease, finished))
        model.entries.append(Entry(len(model.entries) + 1, finished, model.entries[-1].attempt))
        assert entry == model.entries[-1]
        model.seen, model.lease, model.ended = len(model.entries), None, True

    @rule(run_id=runs)
    def compact(self, run_id: str) -> None:
        model = self.models[run_id]
        if not model.ended:
            self._refused(RunOwned, self.journal.compact(run_id))
            return
        run = self.runner.run(self.journal.compact(run_id))
        assert run.first_seq == len(model.entries)
        model.compacted = True

    @rule()
    def crash(self) -> None:
        """What was not committed may be gone; what was seen may not, and no number of it is given out again."""
        if not self.survives_crashes:
            return
        self.runner.run(self.leave_by_crash())
        self.clock.now += 31.0
        self.open()
        for run_id, model in self.models.items():
            stored = self.runner.run(self.journal.get(run_id)).last_seq
            assert model.seen <= stored <= len(model.entries)
            del model.entries[stored:]
            model.seen, model.lease = stored, None

    @rule(run_id=runs, data=st.data())
    def read(self, run_id: str, data: st.DataObject) -> None:
        model = self.models[run_id]
        if model.lease is not None:
            self.runner.run(self.journal.commit(model.lease))
        model.seen = len(model.entries)
        after = data.draw(st.integers(0, len(model.entries)))
        entries = self.runner.run(self.journal.read(run_id, after=after))
        if model.compacted and after < len(model.entries) - 1:
            assert list(entries) == [fold(model.entries[:-1]).entry(), model.entries[-1]]
        else:
            assert list(entries) == model.entries[after:]
        if model.ended:
            assert self.runner.run(everything(self.journal.tail(run_id, after=after))) == list(entries)
        assert self.runner.run(self.journal.facts(run_id)) == [entry for entry in model.entries if is_fact(entry.event)]
        assert self.runner.run(self.journal.snapshot(run_id)) == fold(model.entries).entry()

    @invariant()
    def every_run_is_known(self) -> None:
        if self.models:
            known = self.runner.run(self.journal.runs(limit=1000))
            assert {run.id for run in known} == self.models.keys()
            assert {run.id for run in known if run.finished} == {key for key, run in self.models.items() if run.ended}

    def teardown(self) -> None:
        self.runner.run(self.journal.close())
        self.runner.close()


class MemoryMachine(JournalMachine):
    """Memory does not outlive its process: there is nothing to find after a crash."""

    survives_crashes = False

    async def open_journal(self) -> Journal:
        return MemoryJournal(clock=self.clock)


class SqliteMachine(JournalMachine):
    """The file is real. A crash is the file as it stands, copied, and a new journal on the copy."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-machine-"))
        self.generation = 0

    @property
    def path(self) -> Path:
        return self.directory / f"runs{self.generation}.db"

    async def open_journal(self) -> Journal:
        return await SqliteJournal.open(self.path, clock=self.clock)

    async def leave_by_crash(self) -> None:
        for suffix in ("", "-wal"):
            shutil.copy(f"{self.path}{suffix}", self.directory / f"runs{self.generation + 1}.db{suffix}")
        await self.journal.close()
        self.generation += 1

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


class PostgresMachine(JournalMachine):
    """The server is real. A crash is the end of the process's tasks and connections, whatever they are at."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    async def open_journal(self) -> Journal:
        return await PostgresJournal.open(self.url, clock=self.clock)

    async def leave_by_crash(self) -> None:
        journal = self.journal
        assert isinstance(journal, PostgresJournal)
        assert journal._commits._writing is not None
        tasks = [*journal._tasks, journal._commits._writing]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if journal._commits._connection is not None:
            journal._commits._connection.terminate()
        journal._readers.close()


SETTINGS = settings(max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))


def test_memory() -> None:
    run_state_machine_as_test(MemoryMachine, settings=SETTINGS)


def test_sqlite() -> None:
    run_state_machine_as_test(SqliteMachine, settings=SETTINGS)


def test_postgres(postgres_server: PostgresServer) -> None:
    class Machine(PostgresMachine):
        def __init__(self) -> None:
            super().__init__(postgres_server.url())

    run_state_machine_as_test(Machine, settings=settings(SETTINGS, max_examples=15))
