"""One line of the log for each turn that a call takes. At info the line says what happened and the kind of the reason;
at debug it is followed by the reason as the provider gave it, in which the adapter has redacted the key."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar

from tailrace.errors import PeerError, Permanent, ProviderError, StreamCut, TimedOut
from tailrace.providers.call_listener import AttemptOutcome

log = logging.getLogger("tailrace.providers")
CURRENT_RUN: ContextVar[str] = ContextVar("CURRENT_RUN", default="")
"""The id of the run that the task executes, for the log. Set at the top of a run's task."""


def reason_kind(error: ProviderError | None) -> str:
    """What went wrong, in one word that lines can be counted by."""
    match error:
        case None:
            return "interrupted"
        case TimedOut():
            return f"{error.deadline}_timeout"
        case StreamCut():
            return "stream_cut"
        case PeerError():
            return "not_an_answer"
        case _ if error.status is not None:
            return f"http_{error.status}"
        case Permanent():
            return error.code or "rejected"
        case _:
            return error.code or "unavailable"


def log_stall(outcome: AttemptOutcome, silent_s: float) -> None:
    _say(outcome, "stalled (%s): nothing of an answer for %.0f s", reason_kind(outcome.error), silent_s)


def log_next_attempt(last: AttemptOutcome, provider: str, model: str, wait_s: float) -> None:
    """After an attempt that failed: who is asked next, and when."""
    reason, wait = reason_kind(last.error), f" in {wait_s:.2g} s" if wait_s else ""
    if (provider, model) == (last.provider, last.model):
        _say(last, "failed (%s): attempt %d follows%s", reason, last.number + 1, wait)
    else:
        _say(last, "failed (%s): fails over to %s/%s, attempt %d%s", reason, provider, model, last.number + 1, wait)
    _explain(last)


def log_reattaching(provider: str, error: ProviderError) -> None:
    log.info("%sthe connection to %s broke (%s): it is reattached to", _run(), provider, reason_kind(error))
    log.debug("%s%s: %s", _run(), provider, error)


def log_lost(outcome: AttemptOutcome) -> None:
    _say(outcome, "failed (%s): the answer that the provider keeps is given up", reason_kind(outcome.error))


def log_not_cancelled(provider: str, answer_id: str, error: Exception) -> None:
    log.info("%sthe answer %s at %s could not be cancelled", _run(), answer_id, provider)
    log.debug("%s%s: %s", _run(), provider, error)


def log_answered_whole(outcome: AttemptOutcome) -> None:
    _say(outcome, "was answered whole, without streaming")


def log_incomplete(outcomes: Sequence[AttemptOutcome], open_calls: Sequence[str]) -> None:
    last = outcomes[-1]
    tools = f", not executed: {', '.join(name or 'a call' for name in open_calls)}" if open_calls else ""
    after = _attempts(outcomes)
    _say(last, "failed (%s): the answer stays incomplete after %s%s", reason_kind(last.error), after, tools)
    _explain(last)


def log_without_media() -> None:
    log.info("%sthe model is asked again without the images and files of earlier turns", _run())


def log_failed(outcomes: Sequence[AttemptOutcome]) -> None:
    last = outcomes[-1]
    _say(last, "failed (%s): the call is given up after %s", reason_kind(last.error), _attempts(outcomes))
    _explain(last)


def _attempts(outcomes: Sequence[AttemptOutcome]) -> str:
    return "1 attempt" if len(outcomes) == 1 else f"{len(outcomes)} attempts"


def _say(outcome: AttemptOutcome, what: str, *values: object) -> None:
    if log.isEnabledFor(logging.INFO):
        happened = what % values
        log.info("%sattempt %d at %s/%s %s", _run(), outcome.number, outcome.provider, outcome.model, happened)


def _explain(outcome: AttemptOutcome) -> None:
    if outcome.error is not None:
        log.debug("%sattempt %d: %s", _run(), outcome.number, outcome.error)


def _run() -> str:
    run = CURRENT_RUN.get()
    return f"run {run}: " if run else ""
