"""The connections over which one attempt reads an answer that its provider keeps.

Owns when a broken connection is followed by another one, and when the answer is given up. Knows no dialect; the attempt
reads each connection, and its deadlines are the attempt's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tailrace.config.sections import CallPolicy
from tailrace.errors import ANSWER_TOO_LONG, Permanent, ProviderError, Retryable, TimedOut
from tailrace.messages import ModelRequest
from tailrace.ports import AnswerStream, ReattachingProvider
from tailrace.providers.retry.backoff import delay_s

MAX_REATTACHMENTS = 100  # of one answer, however much each of them brings
_RNG = random.Random()  # noqa: S311 - spreads retries, guards nothing


class ReattachPolicy:
    """A fold of failures and progress. At most `max_attempts` connections in a row bring nothing; the first one after
    progress is made at once. While the provider has the answer in its queue, only the total deadline ends the
    waiting."""

    def __init__(self, policy: CallPolicy, rng: random.Random = _RNG) -> None:
        self._policy = policy
        self._rng = rng
        self._made = 0
        self._in_vain = 0

    def progressed(self) -> None:
        """The connection brought a piece of the answer."""
        self._in_vain = 0

    def wait_s(self, error: ProviderError, *, queued: bool = False) -> float | None:
        """The seconds to wait before the next connection; None where the answer is given up."""
        is_over = isinstance(error, Permanent) or error.code == ANSWER_TOO_LONG
        is_over = is_over or (isinstance(error, TimedOut) and error.deadline == "total")
        too_many = self._made >= MAX_REATTACHMENTS or self._in_vain >= self._policy.max_attempts
        if is_over or (too_many and not queued):
            return None
        asked_s = error.retry_after_s if isinstance(error, Retryable) else None
        wait_s = 0.0
        if self._in_vain or asked_s is not None:
            wait_s = delay_s(self._policy, failures=max(1, self._in_vain), asked_s=asked_s, rng=self._rng)
        self._made += 1
        self._in_vain += 1
        return wait_s


class Reattachment:
    """One attempt's way back to its answer. `answer_id`: an earlier process asked for the answer, which is read from
    its beginning. `on_id` is given the id of a new answer, once."""

    def __init__(
        self, provider: ReattachingProvider, policy: CallPolicy, on_id: Callable[[str], None], answer_id: str = ""
    ) -> None:
        self._provider = provider
        self._policy = ReattachPolicy(policy)
        self._on_id = on_id
        self._answer: AnswerStream | None = None
        self._first_error: ProviderError | None = None  # a later one may be about the reattaching
        self.id = answer_id  # empty until the provider has named it

    @property
    def resumable_id(self) -> str:
        """The id of an answer that the provider keeps and, for all that is known, still makes."""
        return self.id if self._answer is None else self.id and self._answer.resumable_id

    @property
    def was_ended(self) -> bool:
        """The provider itself ended the answer that it kept."""
        return bool(self.id) and not self.resumable_id

    def note(self, answer: AnswerStream) -> None:
        """This answer is read now."""
        self._answer = answer

    def note_id(self) -> None:
        """The provider may have named the answer."""
        if not self.id and self._answer is not None and (answer_id := self._answer.resumable_id):
            self.id = answer_id
            self._on_id(answer_id)

    def progressed(self) -> None:
        if self._first_error is not None:
            self._policy.progressed()

    def connection(self, request: ModelRequest) -> AbstractAsyncContextManager[AnswerStream]:
        return self._provider.reattach(request, self.id, self._answer)

    def wait_s(self, error: ProviderError, left_s: float) -> float | None:
        """The seconds to wait after this error before the next connection; None where the answer is not resumable, or
        is given up."""
        self.note_id()
        if not self.resumable_id:
            return None
        wait_s = self._policy.wait_s(error, queued=self._answer is not None and self._answer.is_queued)
        if wait_s is None or wait_s >= left_s:
            return None
        self._first_error = self._first_error or error.with_traceback(None)  # its frames would hold this object
        return wait_s

    def cause_of(self, error: ProviderError) -> ProviderError:
        """What the attempt failed by, where this error ended its last connection. A provider that has lost the answer
        says so with a permanent error, and the request itself is not at fault."""
        is_lost = isinstance(error, Permanent) and not self.was_ended
        return self._first_error if is_lost and self._first_error is not None else error
