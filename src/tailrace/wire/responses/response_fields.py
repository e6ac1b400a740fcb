"""The fields of a response beside its output: those that it repeats of its request, its usage, and why it is
incomplete."""

from __future__ import annotations

from tailrace.messages import Dialect, JsonObject, Usage

# The finish reasons of an incomplete answer in every dialect, and the reason that this one gives.
INCOMPLETE_REASONS = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "incomplete": "max_output_tokens",
    "pause": "max_output_tokens",
    "pause_turn": "max_output_tokens",
    "filter": "content_filter",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}

# What a request means that leaves the field out. A response has every one of them.
_ECHOED: JsonObject = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def echoed_fields(body: JsonObject) -> JsonObject:
    """The fields of a request that its response repeats, each with its default: a response has them all."""
    fields = {name: body[name] if body.get(name) is not None else default for name, default in _ECHOED.items()}
    fields["tools"] = [_whole_tool(tool) for tool in fields["tools"]]
    return fields


def _whole_tool(tool: object) -> object:
    """A function with every field that a response's has."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}


def usage_body(usage: Usage, source: Dialect) -> JsonObject:
    """`input_tokens` includes the cached tokens here and excludes them in Anthropic's dialect."""
    beside = usage.cache_read_tokens + usage.cache_write_tokens if source == "anthropic" else 0
    return {
        "input_tokens": usage.input_tokens + beside,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + beside + usage.output_tokens,
    }
