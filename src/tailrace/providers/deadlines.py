"""The deadlines of one attempt over a single timer: to the first token, between bytes (idle), between pieces of an
answer (progress), and in total. The transport has the one for connecting."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal, Protocol, Self

import msgspec

from tailrace.config.sections import CallPolicy, DefaultSeconds
from tailrace.errors import Deadline, TimedOut

Purpose = Literal["turn", "step"]
STEP_IDLE_S = 30.0
LOCAL_IDLE_S = 900.0  # a model on the same machine may take minutes over a prompt
_LARGE_CONTEXT_S = ((100_000, 300.0), (50_000, 240.0))  # past so many tokens of context
_USUAL_CONTEXT_TOKENS = _LARGE_CONTEXT_S[-1][0]
TURN_IDLE_S = 180.0
LAST_LOOKS = 8  # passes of the loop between a deadline and its verdict, in which what the socket holds is read
_NEVER = float("inf")
STOOD_STILL_S = 1.0  # a timer that fires so late fires in a process that was stopped, or in a machine that slept


class AttemptDeadlines(msgspec.Struct, frozen=True):
    """None: no such deadline."""

    first_token_s: float | None = None
    idle_s: float | None = None
    progress_s: float | None = None
    total_s: float | None = None
    idle_from_opening: bool = True  # an open stream can be idle before its first piece


def idle_timeout_s(
    explicit: float | None, *, purpose: Purpose = "turn", context_tokens: int = 0, local: bool = False
) -> float:
    """How long a stream may be silent between bytes. What the user set always wins."""
    if explicit is not None:
        return explicit
    if purpose == "step":
        return STEP_IDLE_S
    if local:
        return LOCAL_IDLE_S
    return (context_tokens and _large_context_s(context_tokens)) or TURN_IDLE_S


def deadlines_of(policy: CallPolicy, *, purpose: Purpose, context_tokens: int, local: bool) -> AttemptDeadlines:
    """The deadlines of one attempt. A large context and a local model lengthen the defaults, not what the user set."""
    idle_s = idle_timeout_s(policy.idle_timeout_s, purpose=purpose, context_tokens=context_tokens, local=local)
    first_token_s, progress_s = policy.first_token_timeout_s, policy.progress_timeout_s
    local_s = max(LOCAL_IDLE_S, idle_s) if local and purpose == "turn" else 0.0
    if first_token_s.__class__ is DefaultSeconds and (local_s or context_tokens):
        first_token_s = max(first_token_s, local_s, _large_context_s(context_tokens))
    if progress_s.__class__ is DefaultSeconds and local_s:
        progress_s = max(progress_s, local_s)
    counts = idle_counts_from_opening(policy, local=local)
    return AttemptDeadlines(first_token_s, idle_s, progress_s, policy.total_timeout_s, counts)


def idle_counts_from_opening(policy: CallPolicy, *, local: bool) -> bool:
    """Whether an open stream can be idle before its first piece: where the user set an idle deadline, and where neither
    a deadline for the first token nor a local model asks for patience."""
    if policy.idle_timeout_s is not None:
        return True
    return not local and isinstance(policy.first_token_timeout_s, DefaultSeconds)


def _large_context_s(context_tokens: int) -> float:
    if context_tokens <= _USUAL_CONTEXT_TOKENS:
        return 0.0
    return next(seconds for past, seconds in _LARGE_CONTEXT_S if context_tokens > past)


class Leniency(Protocol):
    """What a watch asks when a deadline is about to pass, and only then."""

    def is_thinking(self) -> bool:
        """Whether the model is in the middle of a hidden thought (C47)."""

    def relayed_at(self) -> float:
        """When a piece of the answer came that the watch was not told of yet; 0 where none did."""

    def lengthened(self, deadlines: AttemptDeadlines) -> AttemptDeadlines:
        """What becomes of the deadlines by what is costly to know. Asked once."""


class DeadlineWatch:
    """Interrupts its block with `TimedOut` when one of the deadlines passes.

    Before the first token `first_token` and `total` count (without a `first_token`: idle and progress, from the start).
    `idle` counts from the moment the stream is open, `progress` from the first piece of an answer: pings keep a stream
    from being idle and nothing else (E60). A process that was suspended reads what came meanwhile before it judges the
    provider by its own silence (L146). Once the answer has `begun`, a reader of tokens may set `bytes_at` and
    `advanced_at` to the loop's time itself."""

    def __init__(self, deadlines: AttemptDeadlines, *, provider: str = "", leniency: Leniency | None = None) -> None:
        self._leniency = leniency
        self._is_lengthened = False
        self.expired: Deadline | None = None
        self._deadlines = deadlines
        self._provider = provider
        self.begun = deadlines.first_token_s is None
        self._is_open = self.begun
        self._timer: asyncio.Handle | None = None
        self._fires_at = 0.0
        self._excused_bytes_at = -1.0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if (task := asyncio.current_task(self._loop)) is None:
            raise RuntimeError("a watch interrupts the task that waits: it must be entered in a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._started_at = self.bytes_at = self.advanced_at = self._loop.time()
        self._arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._leniency = None  # it may hold this watch
        if self.expired is None:
            return
        # Swallowed only if nothing else cancelled the task meanwhile, as in `asyncio.timeout`.
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise self._timed_out(self.expired) from exc

    def note_open(self) -> None:
        """The head of the response is there: from now on silence is idleness."""
        self.bytes_at = self._loop.time()
        self._is_open = True
        self._arm_after_a_step()

    def note_bytes(self, *, advanced: bool) -> None:
        """Bytes arrived; `advanced` if they held a piece of an answer."""
        self.bytes_at = now = self._loop.time()
        if advanced:
            self.advanced_at = now
            if not self.begun:
                self.begun = self._is_open = True
                self._arm_after_a_step()

    def silent_s(self) -> float:
        """Seconds since the last piece of an answer."""
        return self._loop.time() - self.advanced_at

    def _next(self) -> tuple[float, Deadline] | None:
        """The deadline that passes first."""
        deadlines, first = self._deadlines, _NEVER
        which: Deadline = "total"
        if deadlines.total_s is not None:
            first = self._started_at + deadlines.total_s
        if deadlines.progress_s is not None and self.begun and (at := self.advanced_at + deadlines.progress_s) <= first:
            first, which = at, "progress"
        if deadlines.idle_s is not None and self._is_open and (at := self.bytes_at + deadlines.idle_s) <= first:
            first, which = at, "idle"
        begins_s = None if self.begun else deadlines.first_token_s
        if begins_s is not None and (at := self._started_at + begins_s) <= first:
            first, which = at, "first_token"
        return None if first == _NEVER else (first, which)

    def _arm(self) -> None:
        """Sees to it that the timer fires by the next deadline. One that fires earlier looks again then."""
        if (due := self._next()) is None:
            return
        if self._timer is not None:
            if self._fires_at <= due[0]:
                return
            self._timer.cancel()
        self._fires_at = due[0]
        self._timer = self._loop.call_at(due[0], self._check)

    def _arm_after_a_step(self) -> None:
        """The stream has opened or begun, which brings `idle` and `progress`. Most often neither is nearer than what
        the timer was set for: -20 calls of 890 a request."""
        deadlines, fires_at = self._deadlines, self._fires_at
        if (
            self._timer is None
            or (deadlines.idle_s is not None and self.bytes_at + deadlines.idle_s < fires_at)
            or (deadlines.progress_s is not None and self.advanced_at + deadlines.progress_s < fires_at)
        ):
            self._arm()

    def _check(self, looks: int = LAST_LOOKS) -> None:
        self._timer = None
        if self._stood_still():
            self._fires_at = self._loop.time() + STOOD_STILL_S
            self._timer = self._loop.call_at(self._fires_at, self._check)
            return
        if self._leniency is not None and (relayed_at := self._leniency.relayed_at()) > self.advanced_at:
            self.bytes_at = self.advanced_at = relayed_at
        while (due := self._next()) is not None and due[0] <= self._loop.time():
            if self._leniency is not None and not self._is_lengthened:
                self._deadlines, self._is_lengthened = self._leniency.lengthened(self._deadlines), True
            elif looks and due[1] != "total":
                self._timer = self._loop.call_soon(self._check, looks - 1)
                return
            elif not self._excused(due[1]):  # asked after the last look: the answer so far is rebuilt for it
                self.expired = due[1]
                self._task.cancel()
                return
            else:
                looks = LAST_LOOKS  # of another deadline
        self._arm()

    def _stood_still(self) -> bool:
        """Whether the timer is so late that bytes may wait in the socket: said once for each silence."""
        if self._loop.time() - self._fires_at < STOOD_STILL_S or self._excused_bytes_at == self.bytes_at:
            return False
        self._excused_bytes_at = self.bytes_at
        return True

    def _excused(self, deadline: Deadline) -> bool:
        """Bytes that came while the model was in the middle of a hidden thought were progress after all (C47)."""
        if deadline not in ("first_token", "progress") or self.bytes_at <= self.advanced_at:
            return False
        if self._leniency is None or not self._leniency.is_thinking():
            return False
        self.begun = self._is_open = True
        self.advanced_at = self.bytes_at
        return True

    def _timed_out(self, deadline: Deadline) -> TimedOut:
        deadlines = self._deadlines
        match deadline:
            case "first_token":
                message = f"no first token within {deadlines.first_token_s:g} s"
            case "idle":
                where = "in the middle of the answer" if self.begun else "since the stream opened"
                message = f"no bytes for {deadlines.idle_s:g} s {where}"
            case "progress":
                message = f"keep-alives but nothing of an answer for {deadlines.progress_s:g} s"
            case _:
                message = f"no whole answer within {deadlines.total_s:g} s"
        return TimedOut(message, deadline=deadline, provider=self._provider)
