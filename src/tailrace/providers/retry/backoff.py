"""How long to wait before the next attempt: what the provider asked for, within reason, else exponential. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tailrace.config.sections import CallPolicy

ASKED_JITTER = 0.1  # a crowd told the same second does not come back in the same second


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """The wait that the headers ask for: milliseconds, seconds or a date (RFC 9110, 10.2.3) by the peer's own clock."""
    if (asked := _number(headers.get("retry-after-ms"))) is not None:
        return asked / 1000
    value = headers.get("retry-after")
    if value is None or (asked := _number(value)) is not None:
        return asked
    if (until := _date(value)) is None:
        return None
    return max(0.0, (until - (_date(headers.get("date")) or now)).total_seconds())


def delay_s(policy: CallPolicy, *, failures: int, asked_s: float | None, rng: random.Random) -> float:
    """The wait after so many failures at one provider. One that was asked for is cut short by the cap alone (E66)."""
    if asked_s is not None:
        return min(asked_s, policy.backoff_max_s) * (1 + ASKED_JITTER * rng.random())
    grown = policy.backoff_s * 2.0 ** min(failures - 1, 32)
    return min(grown, policy.backoff_max_s) * (0.5 + 0.5 * rng.random())


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None


def _date(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
