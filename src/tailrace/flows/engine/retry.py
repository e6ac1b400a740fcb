"""Whether a step is tried again, and after what wait. Pure: it is told the failure and does nothing."""

from __future__ import annotations

import random

from tailrace.flows.definition.definition import Retry, seconds_of
from tailrace.flows.language.expressions import Scope, evaluate, is_true, parse_condition
from tailrace.flows.language.scope import WithNames
from tailrace.flows.steps.base import StepError

SPREAD = 0.2  # a delay is shortened by up to this share, so that a thousand instances do not come back as one


def retry_delay_s(retry: Retry | None, error: StepError, number: int, scope: Scope, rng: random.Random) -> float | None:
    """Seconds until the next try after this one, the `number`th, has failed; None where there is none."""
    if retry is None or number >= retry.max_attempts or not _wanted(retry, error, number, scope):
        return None
    limit_s = seconds_of(retry.max_backoff)
    delay_s = min(seconds_of(retry.initial_backoff) * retry.backoff_multiplier ** min(number - 1, 1000), limit_s)
    delay_s *= 1.0 - SPREAD * rng.random()
    if error.retry_after_s is not None:
        delay_s = max(delay_s, min(error.retry_after_s, limit_s))
    return delay_s


def _wanted(retry: Retry, error: StepError, number: int, scope: Scope) -> bool:
    match retry.retry_if:
        case None:
            return error.kind == "retryable"
        case str(condition):
            names = {
                "error": {"kind": error.kind, "code": error.code, "message": str(error)},
                "attempt": number,
            }
            return is_true(evaluate(parse_condition(condition), WithNames(scope, names), strict=False))
        case kinds:
            return error.kind in kinds or error.code in kinds
