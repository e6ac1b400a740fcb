"""Tokens as front ends count them: the cached ones are among the input. Pure."""

from __future__ import annotations

from tailrace.config.load import Config
from tailrace.messages import JsonObject, Usage
from tailrace.providers.provider_dialects import dialect_of


def counts_cache_apart(config: Config, provider: str) -> bool:
    """Whether this provider's count of input tokens leaves out the cached ones."""
    return dialect_of(config, provider) == "anthropic"


def cached_tokens(usage: Usage) -> int:
    """Those that a provider counts apart, if it does."""
    return usage.cache_read_tokens + usage.cache_write_tokens


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
