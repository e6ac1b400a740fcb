"""The seams of the system: what a provider, a tool and a journal must be able to do.

Protocols and the values they trade in; no implementation. A new adapter is one new file that satisfies one of
these; if it needs an edit anywhere else, the port is wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

from tailrace.events import AnyEvent, Entry, RunFinished, RunStatus
from tailrace.messages import AnyDelta, Completion, Dialect, JsonObject, ModelRequest

# ── providers ────────────────────────────────────────────────────────────────────────────────────────────────


class StreamDecoder(Protocol):
    """Bytes of one streamed answer in, deltas out. Sans-IO. Any split of the same bytes gives the same deltas,
    in the same order, once adjacent pieces of one text are joined; nothing is lost when a read ends anywhere."""

    def feed(self, data: bytes) -> list[AnyDelta]:
        """The deltas these bytes complete. Never raises: a broken stream ends in one `ErrorDelta`, after which
        whatever else is fed is ignored."""

    def close(self) -> list[AnyDelta]:
        """End of input. Without the dialect's terminal event this yields an `ErrorDelta` with `cut=True`."""

    @property
    def complete(self) -> bool:
        """The dialect's terminal event came and no error did."""

    def body(self) -> JsonObject:
        """The provider's own non-streaming response body, rebuilt from what came so far."""


class Answer(Protocol):
    """One streamed answer under way."""

    def __aiter__(self) -> AsyncIterator[list[AnyDelta]]:
        """Deltas as they arrive, everything one read completed in one list. Raises `Retryable` or `Permanent`
        where the stream fails; what came before has been handed out by then."""

    def completion(self) -> Completion:
        """What has been received: the whole answer after the iterator ended, the partial one before."""


class Provider(Protocol):
    """A model endpoint that speaks one dialect."""

    name: str
    dialect: Dialect

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[Answer]:
        """Leaving the block closes the connection, whatever happened inside. Raises `ProviderError`."""

    async def complete(self, request: ModelRequest) -> Completion:
        """The same call without streaming. Raises `ProviderError`."""


# ── the journal ──────────────────────────────────────────────────────────────────────────────────────────────

Durability = Literal["memory", "committed", "fsync"]
RunState = Literal["pending", "running", "parked"] | RunStatus


class NewRun(msgspec.Struct, frozen=True):
    """What a run is created from. With a known `idempotency_key` the run that has it is returned instead."""

    kind: str  # "agent", "call", "sequence"
    input: JsonObject = {}
    model: str = ""
    session: str = ""
    idempotency_key: str = ""
    durability: Durability = "committed"
    deadline_at: float | None = None  # wall clock, seconds since the epoch


class Run(msgspec.Struct, frozen=True):
    """A run as the journal knows it now."""

    id: str
    new: NewRun
    state: RunState
    last_seq: int
    first_seq: int  # entries before it were compacted into a snapshot
    created_at: float
    claims: int  # how often it was claimed; the newest claim's epoch
    owner: str = ""
    finished: RunFinished | None = None


class Lease(msgspec.Struct, frozen=True):
    """The right to write to one run. A newer claim has a higher epoch and fences this one off."""

    run_id: str
    epoch: int
    owner: str


class Journal(Protocol):
    """Where runs and their entries are kept. One fenced, append-only log per run; viewers tail it."""

    async def create(self, new: NewRun) -> Run:
        """A run with `RunStarted` as its first entry, or the existing one with that idempotency key."""

    async def get(self, run_id: str) -> Run:
        """Raises `RunNotFound`."""

    async def runs(self, *, session: str | None = None, limit: int = 50) -> list[Run]:
        """Newest first."""

    async def claim(self, run_id: str, owner: str, *, lease_s: float = 30.0) -> Lease:
        """Raises `RunOwned` while another owner's lease lives, `RunSealed` when the run has ended."""

    async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
        """Raises `StaleEpoch` when a newer claim exists."""

    async def release(self, lease: Lease) -> None:
        """Gives the run back unfinished: anyone may claim it at once."""

    def append(self, lease: Lease, events: Sequence[AnyEvent], *, attempt: int = 1) -> int:
        """Queues the events for this loop tick's group commit and returns the last one's seq. Never blocks.
        Viewers see them after the commit. Raises `StaleEpoch` or `RunSealed` where that is known already."""

    async def commit(self, lease: Lease) -> None:
        """Returns when everything appended under this lease is as durable as the run asks for. Raises
        `StaleEpoch` if any of it was refused."""

    async def seal(self, lease: Lease, finished: RunFinished) -> Entry:
        """Appends the last entry and ends the run. Raises `JournalError` unless `fold(entries)` gives exactly
        `finished.output`."""

    async def read(self, run_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Committed entries with seq > `after`. Raises `RunNotFound`."""

    def tail(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        """Everything after the cursor, then whatever comes, all that is new in one list; ends after the last
        entry of a sealed run."""

    async def delete(self, run_id: str) -> None:
        """Removes a sealed run and its entries. Raises `RunOwned` for one that is being written."""
