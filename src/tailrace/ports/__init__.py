"""The ports of the system: what a provider, a tool and a journal must be able to do.

Protocols and their values; no implementation. A new adapter is one new file that satisfies one of these; if it needs
an edit anywhere else, the port is wrong.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias, runtime_checkable

from tailrace.messages import AnyDelta, Completion, Dialect, EventForm, JsonObject, ModelRequest
from tailrace.ports.journal import CRASH_LOOP as CRASH_LOOP
from tailrace.ports.journal import ENDED as ENDED
from tailrace.ports.journal import RUNS_LIMIT as RUNS_LIMIT
from tailrace.ports.journal import Durability as Durability
from tailrace.ports.journal import Journal as Journal
from tailrace.ports.journal import Lease as Lease
from tailrace.ports.journal import LogTail as LogTail
from tailrace.ports.journal import LogViewer as LogViewer
from tailrace.ports.journal import NewRun as NewRun
from tailrace.ports.journal import Run as Run
from tailrace.ports.journal import RunFilter as RunFilter
from tailrace.ports.journal import RunState as RunState
from tailrace.ports.journal import RunStore as RunStore
from tailrace.ports.journal import SessionPage as SessionPage
from tailrace.ports.journal import SessionRuns as SessionRuns
from tailrace.ports.journal import Signal as Signal
from tailrace.ports.journal import Signals as Signals
from tailrace.ports.journal import SmallState as SmallState
from tailrace.ports.journal import Versioned as Versioned
from tailrace.ports.journal import WriteEvents as WriteEvents
from tailrace.ports.log_pages import Batch as Batch
from tailrace.ports.log_pages import Frame as Frame
from tailrace.ports.log_pages import LogPage as LogPage
from tailrace.ports.log_pages import StoredLine as StoredLine
from tailrace.ports.tools import Budget as Budget
from tailrace.ports.tools import CallContext as CallContext
from tailrace.ports.tools import Effect as Effect
from tailrace.ports.tools import EffectKind as EffectKind
from tailrace.ports.tools import FileTool as FileTool
from tailrace.ports.tools import Tool as Tool
from tailrace.ports.tools import ToolContext as ToolContext
from tailrace.ports.tools import ToolOutcome as ToolOutcome

# ── providers ────────────────────────────────────────────────────────────────────────────────────────────────


RelayTo: TypeAlias = Callable[[EventForm], Callable[[bytes], float] | None]
"""Asked for a form: the write of what varies in an event, which returns the time, or None."""


class StreamDecoder(Protocol):
    """Bytes of one streamed answer in, deltas out. Sans-IO. Any split of the same bytes gives the same deltas, in the
    same order, once adjacent pieces of one text are joined."""

    def feed(self, data: bytes) -> list[AnyDelta]:
        """The deltas that these bytes complete. Never raises: a broken stream ends in one `ErrorDelta`. Bytes after it
        are ignored."""

    def close(self, *, cut: bool = False) -> list[AnyDelta]:
        """End of input. Without the dialect's terminal event this yields an `ErrorDelta` with `cut=True`. A terminal
        event that lacks only its last blank line counts, unless the input was `cut`: it has no end of its own, so more
        may be missing. Any other unfinished event is dropped (A15)."""

    @property
    def complete(self) -> bool:
        """The dialect's terminal event came and no error did."""

    @property
    def skipped(self) -> str:
        """Why one event of the stream was left out; empty where all could be read."""

    def rebuilt_body(self) -> JsonObject:
        """The provider's own non-streaming response body, rebuilt from what came so far."""


class AnswerStream(Protocol):
    """One streamed answer under way."""

    async def pump(self, take: Callable[[list[AnyDelta]], None]) -> None:
        """Hands deltas to `take` as they arrive, one list per read, and returns at the end of the answer. The list is
        empty for bytes that completed no delta, such as keep-alives, because the idle deadline counts them. A
        non-streaming answer has no deltas. Raises `Retryable` or `Permanent` where the stream fails, after the deltas
        before the failure, and what `take` raises, which ends the reading. An answer that can calls `take` in the very
        callback in which its bytes arrive: for a token no task is woken."""

    def relay_to(self, _relay: RelayTo, _relayed: Callable[[list[AnyDelta], list[float]], None], /) -> None:
        """Before `pump`: events of a form for which `_relay` gives a write go there as bytes, unread. `_relayed` gets
        their deltas within a second, and before any later delta, with the time of each. An answer may ignore it."""
        return

    def relayed_at(self) -> float:
        """When an event was relayed whose deltas `relayed` has not got yet; 0 where there is none."""
        return 0.0

    def completion(self) -> Completion:
        """The answer so far: complete after `pump` has returned, partial before. Works after the connection is closed
        too."""

    @property
    def skipped(self) -> str:
        """Why one event of the stream was left out; empty where all could be read."""
        return ""

    @property
    def resumable_id(self) -> str:
        """The id under which the provider keeps this answer; empty where it does not, where no id has come yet, and
        where the answer has ended."""
        return ""

    @property
    def is_queued(self) -> bool:
        """The provider has not begun with this answer, by the last thing it said."""
        return False

    def release_rest(self) -> list[AnyDelta]:
        """What was held back for a reattachment that does not follow."""
        return []


class Provider(Protocol):
    """A model endpoint that speaks one dialect."""

    name: str
    dialect: Dialect

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AnswerStream]:
        """Leaving the block closes the connection, whatever happened inside. Raises `ProviderError`."""

    async def complete(self, request: ModelRequest) -> Completion:
        """The same call without streaming. Raises `ProviderError`."""


@runtime_checkable
class TokenCounter(Protocol):
    """A provider that can be asked how long a request is, without answering it."""

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The tokens of the request's input; None where the endpoint does not count. Raises `ProviderError`."""


class FieldRefuser:
    """A provider that remembers which fields of a request an endpoint refuses. A class, as `ReattachingProvider` is."""

    __slots__ = ()

    @abstractmethod
    def left_out(self, request: ModelRequest) -> tuple[str, ...]:
        """The fields of `request` that its model is asked without."""


class ReattachingProvider:
    """A provider that keeps an answer while it makes it, and for a while afterwards: when a connection breaks, the
    answer is read on over another one, and no second answer is paid for. A class, neither a Protocol nor an `ABC`:
    every attempt asks whether its provider is one (-4 calls of 700 a request)."""

    __slots__ = ()

    @abstractmethod
    def reattach(
        self, request: ModelRequest, answer_id: str, answer: AnswerStream | None = None
    ) -> AbstractAsyncContextManager[AnswerStream]:
        """Connects to a kept answer. With `answer`, that object goes on after the last event that it has read; without
        one a new object reads from the beginning. Leaving the block closes the connection. Raises `ProviderError`:
        `Permanent` where the provider does not have the answer, or no longer."""

    @abstractmethod
    async def cancel_answer(self, answer_id: str) -> None:
        """Tells the provider to stop making the answer. Raises `ProviderError`."""
