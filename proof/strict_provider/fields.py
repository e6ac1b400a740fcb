"""The fields that each API knows, at the top of a request and in its parts, as the official SDKs type them."""

from __future__ import annotations


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


CHAT = _names(
    """
    audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages
    metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier
    stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options
    """
)
RESPONSES = _names(
    """
    access_programs background client_metadata context_management conversation image include input instructions
    max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt
    prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream
    stream_options temperature text tool_choice tools top_logprobs top_p truncation user
    """
)
RESPONSES_ITEMS: dict[str, frozenset[str]] = {
    "message": _names("type id role content status phase"),
    "reasoning": _names("type id summary content encrypted_content status"),
    "function_call": _names("type id call_id name arguments status namespace caller async"),
    "function_call_output": _names("type id call_id output status name namespace caller"),
    "custom_tool_call": _names("type id call_id name input status namespace caller async"),
    "custom_tool_call_output": _names("type id call_id output status name namespace caller"),
    "item_reference": _names("type id"),
}
RESPONSES_FUNCTION = _names("type name description parameters strict output_schema allowed_callers async defer_loading")
ANTHROPIC = _names(
    """
    cache_control container diagnostics inference_geo max_tokens messages metadata model output_config service_tier
    speed stop_sequences stream system temperature thinking tool_choice tools top_k top_p user_profile_id workspace_id
    """
)
ANTHROPIC_COUNT = _names(
    "cache_control messages model output_config speed system thinking tool_choice tools user_profile_id workspace_id"
)
ANTHROPIC_BETA: dict[str, tuple[str, ...]] = {  # a field, and how a value of `anthropic-beta` that allows it begins
    "compaction": ("compact-",),
    "context_management": ("context-management-", "compact-"),
    "fallback_credit_token": ("fallback-credit-",),
    "fallbacks": ("server-side-fallback-",),
    "mcp_servers": ("mcp-client-",),
    "thread": ("message-threads-",),
}
ANTHROPIC_VERSIONS = frozenset({"2023-01-01", "2023-06-01", "2026-10-21"})
ANTHROPIC_BLOCKS: dict[str, frozenset[str]] = {
    "text": _names("type text cache_control citations"),
    "image": _names("type source cache_control transformations"),
    "document": _names("type source cache_control citations context title"),
    "thinking": _names("type thinking signature"),
    "redacted_thinking": _names("type data"),
    "tool_use": _names("type id name input cache_control caller toolset_name"),
    "tool_result": _names("type tool_use_id content is_error cache_control toolset_name"),
    "search_result": _names("type source title content cache_control citations"),
}
ANTHROPIC_MESSAGE = frozenset({"role", "content"})
ANTHROPIC_TOOL = _names(
    """
    type name description input_schema cache_control strict allowed_callers defer_loading eager_input_streaming
    input_examples
    """
)
