"""Tokens as front ends count them: the cached ones are among the input. Pure."""

from __future__ import annotations

from tailrace.messages import JsonObject, Usage


def token_counts(usage: Usage, *, counted_apart: int) -> JsonObject:
    """`counted_apart`: how many cached tokens `usage` does not count among the input."""
    sent = usage.input_tokens + counted_apart
    return {
        "inputTokens": sent,
        "outputTokens": usage.output_tokens,
        "totalTokens": sent + usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "cachedInputTokens": usage.cache_read_tokens,
    }
