"""Tokens in the dialect's words and back. Servers disagree on where the cached ones stand; all places are read."""

from __future__ import annotations

from tailrace.messages import JsonObject, Usage
from tailrace.wire.dialect import WireDialect
from tailrace.wire.peer_json import count_of, object_of

_NOTHING_USED = Usage()
_TOTALS_ALONE = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})  # no detail has to be looked for


def usage_of(value: object) -> Usage:
    """The `usage` object as a value; whatever is absent, null or not a count is 0."""
    if value is None:
        return _NOTHING_USED
    raw = object_of(value)
    if raw.keys() <= _TOTALS_ALONE:
        return Usage(count_of(raw.get("prompt_tokens")), count_of(raw.get("completion_tokens")))
    prompt, answer = object_of(raw.get("prompt_tokens_details")), object_of(raw.get("completion_tokens_details"))
    return Usage(
        input_tokens=count_of(raw.get("prompt_tokens")),
        output_tokens=count_of(raw.get("completion_tokens")),
        cache_read_tokens=_first(
            prompt.get("cached_tokens"),
            raw.get("prompt_cache_hit_tokens"),  # DeepSeek
            raw.get("cache_read_input_tokens"),  # Databricks, Z.ai and other hosts of Anthropic's models
            raw.get("cached_tokens"),  # Moonshot
            raw.get("num_cached_tokens"),  # Mistral
        ),
        cache_write_tokens=_first(prompt.get("cache_write_tokens"), raw.get("cache_creation_input_tokens")),
        reasoning_tokens=_first(answer.get("reasoning_tokens"), raw.get("reasoning_tokens")),
    )


def usage_body(usage: Usage, source: WireDialect) -> JsonObject:
    """The value, as `source` counts it, as a `usage` object: here the prompt's tokens include the cached ones."""
    prompt = source.usage_with_cached(usage).input_tokens
    body: JsonObject = {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
    }
    if usage.cache_read_tokens or usage.cache_write_tokens:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
        if usage.cache_write_tokens:
            body["prompt_tokens_details"]["cache_write_tokens"] = usage.cache_write_tokens
    if usage.reasoning_tokens:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body


def _first(*values: object) -> int:
    for value in values:
        if value and (count := count_of(value)):
            return count
    return 0
