"""What a model call reports to everything that follows it (logs, clients, metrics, traces), and how a listener ends
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, TypeAlias

import msgspec

from tailrace.errors import ProviderError
from tailrace.messages import AnyDelta, EventForm, ModelRequest, Usage
from tailrace.providers.attempt import Route, StopCall

Verdict: TypeAlias = Literal["continue", "restart", "keep"] | StopCall


class AttemptOutcome(msgspec.Struct, frozen=True):
    """How one attempt ended. `error` is None where it gave the answer, and where it was interrupted."""

    number: int  # 1, 2, 3 … within the call
    provider: str
    model: str
    usage: Usage = Usage()  # as far as it is known: also of an attempt that failed or was interrupted
    answer_id: str = ""  # the provider's; so are the model that it reports and the finish reason
    answer_model: str = ""
    finish_reason: str = ""
    streamed: bool = True
    error: ProviderError | None = None
    interrupted: bool = False  # by cancelling the task or by the listener
    first_token_s: float | None = None  # until its first piece; None for an answer that came whole


class CallListener:
    """Follows one call; this base class does nothing. Every attempt that started either stands (the next one goes on
    from its text, or it was the last) or is discarded.

    Methods are called in order, on the loop, and must return quickly. What a listener raises is no verdict: one that
    writes a log may raise `JournalError` when it has lost the run, and the call ends with that error, with no further
    report."""

    __slots__ = ()

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        """`number` counts 1, 2, 3 … within the call."""

    def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
        """Pieces of the attempt's answer, as many as arrived together. An answer that was not streamed has none, but
        for the rest of a text whose beginning was shown. `StopCall` closes the stream and ends the call."""

    def relay(self, _form: EventForm) -> Callable[[bytes], float] | None:
        """Asked in the middle of an answer: where events of this form go as bytes from now on, unread. What is written
        there is what varies in an event; it returns the time. None: each delta goes to `deltas`."""
        return None

    def relayed(self, deltas: list[AnyDelta], _times: list[float]) -> StopCall | None:
        """The deltas of events that were relayed at these times, within a second and before any later delta."""
        return self.deltas(deltas)

    def event_skipped(self, provider: str, reason: str) -> None:
        """One event of the answer could not be read and was left out."""

    def answer_resumable(self, answer_id: str) -> None:
        """The provider keeps the current attempt's answer under this id, whatever becomes of the connection."""

    def answer_lost(self, provider: str, error: ProviderError) -> None:
        """A resumable answer is given up: the attempt has failed, and what follows any failed attempt follows."""

    def resumes_later(self) -> bool:
        """Asked when the task is cancelled while the provider keeps the answer: whether a process reattaches to it
        later, and counts its usage then. Otherwise it is counted now and cancelled."""
        return False

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        """Also for an attempt that failed or is interrupted: its usage, estimated where its provider is silent."""

    def verdict(self, _error: ProviderError) -> Verdict:
        """Asked after each attempt that failed. If text was shown: `continue` goes on from it, `restart` withdraws it
        and starts over, `keep` ends the call with it. If none was, the next attempt follows."""
        return "continue"

    def attempt_discarded(self, number: int, reason: str) -> None:
        """Everything this attempt showed is withdrawn."""

    def stalled(self, provider: str, silent_s: float) -> None:
        """The provider sent nothing of an answer for so long that the attempt was given up; another one follows."""


CallMiddleware: TypeAlias = Callable[[ModelRequest, Sequence[Route], CallListener], CallListener]
"""Wraps the listener of one call, usually in a `ForwardingListener`."""


AttemptObserver: TypeAlias = Callable[[AttemptOutcome], None]
"""`Caller` calls it with each attempt that has ended, once the call's listener has recorded that; also with an attempt
that an earlier process left unfinished when it died. Must not raise."""


CallGate: TypeAlias = Callable[[ModelRequest, Sequence[Route]], AbstractAsyncContextManager[None] | None]
"""The context manager around one call; None where nothing bounds it. Entering it raises `ProviderError` for a call that
must not be made."""


class ForwardingListener(CallListener):
    """Passes everything on to `inner`, but for `relay`: one that needs no single delta passes that on too. Base class
    for middleware: override what is of interest, and pass it on."""

    __slots__ = ("_inner",)

    def __init__(self, inner: CallListener) -> None:
        self._inner = inner

    def attempt_started(self, number: int, provider: str, model: str) -> None:
        self._inner.attempt_started(number, provider, model)

    def deltas(self, deltas: list[AnyDelta]) -> StopCall | None:
        return self._inner.deltas(deltas)

    def relayed(self, deltas: list[AnyDelta], times: list[float]) -> StopCall | None:
        return self._inner.relayed(deltas, times)

    def event_skipped(self, provider: str, reason: str) -> None:
        self._inner.event_skipped(provider, reason)

    def answer_resumable(self, answer_id: str) -> None:
        self._inner.answer_resumable(answer_id)

    def answer_lost(self, provider: str, error: ProviderError) -> None:
        self._inner.answer_lost(provider, error)

    def resumes_later(self) -> bool:
        return self._inner.resumes_later()

    def attempt_ended(self, attempt: AttemptOutcome) -> None:
        self._inner.attempt_ended(attempt)

    def verdict(self, error: ProviderError) -> Verdict:
        return self._inner.verdict(error)

    def attempt_discarded(self, number: int, reason: str) -> None:
        self._inner.attempt_discarded(number, reason)

    def stalled(self, provider: str, silent_s: float) -> None:
        self._inner.stalled(provider, silent_s)
