"""Times and tokens as front ends read them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from tailrace.messages import JsonObject, Usage


def moment(at: float) -> str:
    """ISO 8601 in UTC, of seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def token_counts(usage: Usage, *, counted_apart: int) -> JsonObject:
    """The cached tokens are among the input. `counted_apart`: how many of them `usage` does not count there."""
    sent = usage.input_tokens + counted_apart
    return {
        "inputTokens": sent,
        "outputTokens": usage.output_tokens,
        "totalTokens": sent + usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cache_read_tokens,
    }
