"""Wall-clock times as front ends read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(at: float) -> str:
    """ISO 8601 in UTC, of seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
