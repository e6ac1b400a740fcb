"""The journal's ports: `RunStore`, `LogTail`, `Signals` and `SmallState`. A `Journal` is one object that has the four.

Protocols and their values; no implementation. A part of the system asks for the port that it uses, and a wrapper of a
journal replaces the methods that it changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, runtime_checkable

import msgspec

from tailrace.errors import JournalError
from tailrace.events import AnyEvent, Entry, RunFailure, RunFinished, RunStatus
from tailrace.messages import JsonObject, SpentTokens, Usage
from tailrace.ports.log_pages import Batch, LogPage

Durability = Literal["memory", "committed", "fsync"]
RunState = Literal["pending", "running", "parked"] | RunStatus
ENDED: frozenset[RunState] = frozenset({"completed", "incomplete", "failed", "stopped"})


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """What a run is created from. With a known `idempotency_key` the run that has it is returned instead."""

    kind: str  # "agent", "call", "sequence"
    input: JsonObject = {}
    model: str = ""
    session: str = ""
    idempotency_key: str = ""
    durability: Durability = "committed"  # "committed" survives kill -9, "fsync" survives power loss too
    deadline_at: float | None = None  # wall clock, seconds since the epoch


class Run(msgspec.Struct, frozen=True, gc=False):
    """A run as the journal knows it now."""

    id: str
    new: NewRun
    state: RunState
    last_seq: int
    first_seq: int  # earlier token-level entries were compacted; a `Snapshot` at `first_seq - 1` replaces them
    created_at: float
    claims: int  # the number of claims; also the epoch of the newest one
    kills: int = 0  # deaths of owners in a row, each without progress (`fold.is_progress`) in its claim
    owner: str = ""  # holds the newest claim, dead or alive; empty when the run was given back
    finished: RunFinished | None = None
    parked: RunFailure | None = None  # why it is not executed until a person unparks it


class RunFilter(TypedDict, total=False):
    """Which runs `Journal.runs` lists. A condition that is left out or None does not narrow the list."""

    session: str | None
    kind: str | None
    states: Collection[RunState] | None
    ended_before: float | None  # wall clock, seconds since the epoch
    compacted: bool | None
    before: str | None  # the id of the last run of the previous page
    limit: int  # `RUNS_LIMIT` where it is left out


RUNS_LIMIT = 50


class SessionRuns(msgspec.Struct, frozen=True):
    """The runs of one kind in one session, as the journal knows them now."""

    id: str
    runs: int
    first: Run
    newest: Run
    under_way: tuple[str, ...]  # the runs that are neither ended nor parked, oldest first
    usage: Usage  # of the runs that have ended
    spent: tuple[SpentTokens, ...]  # the same by model


class SessionPage(NamedTuple):
    sessions: list[SessionRuns]
    next: str | None  # `before` of the next page; None: there is none


CRASH_LOOP = "crash_loop"  # the kind of a failure: a run is parked because its owners died


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to write to one run. A newer claim has a higher epoch and fences this one off."""

    run_id: str
    epoch: int
    owner: str


class Signal(msgspec.Struct, frozen=True):
    """A message to the owner of a run: "stop", an approval's answer, a sequence's own signals.

    The journal assigns `id`, which grows with every signal.
    """

    name: str
    payload: JsonObject = {}
    by: str = ""
    id: int = 0


Given_co = TypeVar("Given_co", Batch, LogPage, covariant=True)


class LogViewer(Protocol[Given_co]):
    """A viewer of one run: iterate over it."""

    def __aiter__(self) -> AsyncIterator[Given_co]: ...

    async def __anext__(self) -> Given_co: ...

    async def follow(self, take: Callable[[Given_co], bool], *, except_for: Collection[type[AnyEvent]] = ()) -> None:
        """Calls `take` with what is committed from now on, in the tick of its commit: no task is woken for it. Where
        many watch the run this may be some hundredths of a second later, with what was committed meanwhile. A no-op
        where there is something to iterate over first. Returns when the viewer must be iterated over again: `take`
        returned False, which leaves what it was given to the iteration; the last event is of a class in `except_for`;
        the run has ended; entries must be read from storage. `take` must return quickly; what it raises is raised
        here."""


@runtime_checkable
class Versioned(Protocol):
    """A journal whose storage has a format, which newer versions of Tailrace change."""

    @property
    def schema_version(self) -> int: ...


WriteEvents: TypeAlias = Callable[[int, Sequence[AnyEvent]], object]
"""Appends events of an attempt to the log of one run. Never blocks. Raises as `Journal.append` does."""


class RunStore(Protocol):
    """Where runs are created, claimed, written and ended: one fenced, append-only log per run.

    Written, then shown: no viewer sees an entry before it is as durable as its run asks for (`NewRun.durability`;
    a run in "memory" is recorded when it is sealed). Sequence numbers count 1, 2, 3 … within a run. A number that a
    viewer has seen is never given to another entry, not even after a crash.
    """

    # ── a run's life ──

    async def create(self, new: NewRun) -> Run:
        """A pending run with `RunStarted` as its first entry, or the existing one with that idempotency key.

        Within a session, ids grow in the order of the commits that create its runs, in whichever processes and
        whatever their clocks say: once a run is created, `runs(session=…, before=its id)` lists every run that comes
        before it, then and later. By this a session's turns are taken one at a time (I101). A run of durability
        "memory" is ordered among the runs of its own process alone."""

    async def start(self, new: NewRun, owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease | None]:
        """Creates and claims the run in one commit, so that no other process can claim it in between. The lease is None
        where the idempotency key names an existing run."""

    def begin(self, _new: NewRun, _owner: str, *, lease_s: float = 30.0) -> tuple[Run, Lease] | None:  # noqa: ARG002
        """As `start`, without a wait: the run is created by the commit of its first entries, which `commit` waits for,
        and its writers and viewers learn of a failure as of any other entry. None where only `start` can tell what
        comes before it: in a session, with an idempotency key, or while storage fails."""
        return None

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
        """Fences off the previous owner. Raises `RunOwned` while another owner is alive and its lease has not expired
        (the same owner may claim again), `RunSealed` when the run has ended, `RunParked`."""

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        """`runs.lease.held` does this on time. Raises `StaleEpoch` when a newer claim exists."""

    async def release(self, lease: Lease) -> None:
        """Gives the run back unfinished, after everything appended is committed: any owner may claim it at once.
        Does nothing when the run has ended. Where another owner has claimed it, which counted as a death of this one,
        that death is no longer counted, and a run that was parked for it (`CRASH_LOOP`) is pending again: a process
        that was only too busy to renew its lease has not died of the run."""

    async def park(self, lease: Lease, failure: RunFailure, *, kills: int = 0) -> None:
        """Puts the run aside: its log says so, and it cannot be claimed until `unpark`. Where fewer than `kills` deaths
        are counted by now, because an owner that seemed dead has come back, it is pending instead."""

    async def unpark(self, run_id: str) -> Run:
        """Makes a parked run pending again and resets its `kills`. A no-op for any other run."""

    # ── writing ──

    def append(self, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
        """Queues the events for this loop tick's group commit and returns the last one's seq. Never blocks.
        Viewers see them after the commit. Raises `StaleEpoch` or `RunSealed` where that is known already."""

    def writer(self, lease: Lease) -> WriteEvents:
        """`append` under this lease, for a caller that appends token after token: the run is looked for once. Raises
        nothing itself."""

    async def commit(self, lease: Lease) -> None:
        """Returns when all entries appended under this lease are as durable as the run asks for. Raises `StaleEpoch`
        if one of them was refused. Cancelling it does not withdraw them."""

    async def seal(self, lease: Lease, finished: RunFinished) -> Entry:
        """Appends the last entry and ends the run, durably. Raises `OutputMismatch` unless `fold(entries)` gives
        exactly `finished.output`; the run is then still open."""

    def seal_soon(self, lease: Lease, finished: RunFinished, then: Callable[[JournalError | None], None]) -> None:
        """As `seal`, without waiting: `then` is called when the run has ended, with the error where it has not; it
        must not raise. Raises what is known at once. Runs of durability "memory" that end at about the same time are
        stored together."""

    # ── which runs there are ──

    async def get(self, run_id: str) -> Run:
        """Raises `RunNotFound`, as does every method that takes an id."""

    async def runs(self, **wanted: Unpack[RunFilter]) -> list[Run]:
        """Newest first."""

    async def sessions(
        self, kind: str, *, search: str = "", before: str | None = None, limit: int = RUNS_LIMIT
    ) -> SessionPage:
        """The sessions with runs of this kind, the one with the newest run first. `before` is the newest run of the
        last session that was looked at. With `search`, those in which a question or an answer has this text, in upper
        or lower case; a search that takes long ends early, and its page may be short of `limit` although there is a
        next one."""

    async def session(self, session: str, kind: str) -> SessionRuns | None:
        """None where it has no run of this kind."""

    async def next_run(self, session: str, kind: str, after: str) -> Run:
        """Waits until the session has a run of this kind whose id is greater than `after`, begun in this process or
        another one, and returns the oldest of them. Never polls."""

    async def orphans(self) -> list[Run]:
        """Unfinished runs that any owner may claim, oldest first: never claimed, given back, lease run out, owner
        dead. Parked ones are not among them."""

    # ── retention ──

    async def compact(self, run_id: str) -> Run:
        """Drops the token-level entries of a sealed run for good; facts, state and numbering stay. Raises `RunOwned`
        for a run that has not ended."""

    async def delete(self, run_id: str) -> None:
        """Removes a sealed run and all its entries. Raises `RunOwned` for one that has not ended."""


class LogTail(Protocol):
    """The log of a run for its readers: once, or live from a cursor on. Every method raises `RunNotFound` for an
    unknown id."""

    async def read(self, run_id: str, *, after: int = 0) -> Batch:
        """Committed entries with seq > `after`. A cursor that points at compacted entries is
        answered with a `Snapshot` first, which replaces them."""

    async def facts(self, run_id: str) -> list[Entry]:
        """The committed entries that compaction keeps, in order, whether the run is compacted or not: all but chunks,
        hints and notices. A runner resumes from these, and a session's history is built from them."""

    async def facts_of_runs(self, run_ids: Sequence[str]) -> list[list[Entry]]:
        """The `facts` of each of these runs, in one read."""

    async def times(self, run_id: str) -> list[tuple[int, float]]:
        """When entries were committed: pairs of a seq and the wall clock's time, in the order of the log. The time of
        an entry is that of the last pair whose seq is not greater than its own; an entry before the first pair has
        none. Compaction keeps the times of the facts. For a run in "memory" they are exact after a pause, and at most
        half a second early in a steady stream."""

    async def snapshot(self, run_id: str) -> Entry:
        """The folded state at the newest committed seq."""

    def tail(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> LogViewer[Batch]:
        """The entries after the cursor, then new ones as they are committed. All that is new is one batch, a long
        history several. Ends after the last entry of a sealed run. With `snapshot` it begins with the current state
        and ignores the cursor. A cursor that points at compacted entries is answered as in `read`. Raises `CursorAhead`
        when the cursor names an entry that was never written. A slow viewer costs one cursor and loses nothing. Never
        polls for a run that this process executes."""

    def tail_pages(self, run_id: str, *, after: int = 0, snapshot: bool = False) -> LogViewer[LogPage]:
        """The same entries as they are stored, in small pages that viewers share, for a viewer that only passes them
        on. It costs a cursor while it holds no page: let go of each before waiting for a slow client (L141)."""


class Signals(Protocol):
    """Messages to the owner of a run."""

    async def signal(self, run_id: str, signal: Signal) -> Signal:
        """Leaves a message for the owner of the run, in this process or another, now or later. Returns it with
        its id. Raises `RunSealed` when the run has ended."""

    async def signals(self, lease: Lease, *, after: int = 0) -> list[Signal]:
        """Waits for signals with id > `after` and returns all there are, oldest first. They are kept until the run
        is sealed, so a new owner sees them again. Raises `StaleEpoch` as soon as the lease is known to be lost and
        `RunSealed` when the run ends."""

    def when_signalled(self, lease: Lease, begin: Callable[[], None] | None) -> None:
        """Calls `begin` once, as soon as `signals` may have something to return or to raise: at once where that may be
        so already. Replaces the one given before; None takes that back."""

    async def kept_signals(self, lease: Lease) -> list[Signal]:
        """All signals that the run has been sent, oldest first, without waiting for one. Raises as `signals` does."""


class SmallState(Protocol):
    """State that belongs to no run, shared by all processes: values by namespace and key, and counters by name."""

    async def get_value(self, namespace: str, key: str) -> bytes | None:
        """For approvals, pairings, settings of chats. None where there is no value."""

    async def list_values(self, namespace: str) -> dict[str, bytes]:
        """All values of the namespace by key."""

    async def swap_value(self, namespace: str, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Replaces the value where it is still `old`; None stands for no value. Returns whether it did. Atomic, also
        between processes. `journal.key_values` retries with the newer value."""

    async def next_value(self, namespace: str, key: str, known: bytes | None) -> bytes | None:
        """Waits until the value is another than `known`, by a change in this process or another one, and returns it. A
        value that is changed and changed back may be missed."""

    async def add_to_counters(self, amounts: Mapping[str, float]) -> dict[str, float]:
        """Adds to these numbers, all in one step, and returns what each is then. One that is not there is 0; adding 0
        reads it. Processes that add at once are given different numbers."""

    async def counters(self, prefix: str, first: str = "") -> dict[str, float]:
        """Those whose names begin so, from the name `first` on."""

    async def remove_counters(self, prefix: str, before: str) -> None:
        """Those whose names begin with `prefix` and are less than `before`, but for one that is being changed."""


class Journal(RunStore, LogTail, Signals, SmallState, Protocol):
    """The four ports in one object.

    A journal belongs to the event loop it was opened in. Every method may raise `JournalError` when storage fails,
    and `CorruptLog` when the record cannot be trusted; after that nothing is overwritten.
    """

    @property
    def process(self) -> str:
        """What other processes can tell by that this one is dead; empty where they cannot."""

    def is_dead(self, process: str) -> bool:
        """Whether the process that gave this as its `process` is certainly dead. False where that cannot be known: by
        a lease or a heartbeat alone."""

    async def check(self) -> None:
        """Raises `StorageFailed` with the reason where entries cannot be read or written now. Cheap: meant to be called
        every few seconds."""

    async def close(self) -> None:
        """Commits what is queued and closes the storage. Runs that are still held stay claimed until their leases
        expire or their owner is seen dead: release them first. Ends the waiting viewers."""
