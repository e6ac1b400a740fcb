"""The fields of a response beside its output: those that it repeats of its request, its usage, why it is incomplete,
and its error, which `error` events report too."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tailrace.messages import ErrorDelta, JsonObject, Stop, Usage
from tailrace.wire.dialect import WireDialect
from tailrace.wire.failure import TOO_LONG, failure, failure_in, openai_error_body

# Why an incomplete answer is so, by how it ended.
INCOMPLETE_REASONS: dict[Stop, str] = {
    "length": "max_output_tokens",
    "pause": "max_output_tokens",
    "filter": "content_filter",
}

# What a request means that leaves the field out. A response has every one of them.
_ECHOED: JsonObject = msgspec.json.decode(Path(__file__).with_name("response_defaults.json").read_bytes())


def echoed_fields(body: JsonObject) -> JsonObject:
    """The fields of a request that its response repeats, each with its default: a response has them all."""
    fields = _ECHOED | {name: value for name, value in body.items() if value is not None and name in _ECHOED}
    fields["tools"] = [_whole_tool(tool) for tool in fields["tools"]]
    match fields["text"]:
        case {"format": {"type": "json_schema"} as form} as text:
            fields["text"] = {**text, "format": {"description": None, **form}}
        case _:
            pass
    return fields


def _whole_tool(tool: object) -> object:
    """A function with every field that a response's has."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}


DEFAULTS = echoed_fields({})


def usage_body(usage: Usage, source: WireDialect) -> JsonObject:
    """The usage, as `source` counts it, as a `usage` object: here `input_tokens` includes the cached tokens."""
    sent = source.usage_with_cached(usage).input_tokens
    return {
        "input_tokens": sent,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": sent + usage.output_tokens,
    }


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────

# Codes of a failed response (the API's `ResponseError`) that blame the request: it will fail again as it is.
_BLAME_THE_REQUEST = frozenset(
    {
        *("empty_image_file", "failed_to_download_image", "image_content_policy_violation", "image_file_not_found"),
        *("image_file_too_large", "image_parse_error", "image_too_large", "image_too_small", "invalid_base64_image"),
        *("invalid_image", "invalid_image_format", "invalid_image_mode", "invalid_image_url"),
        *("unsupported_image_media_type", "bio_policy", "data_residency_mismatch", "misalignment_policy_violation"),
    }
)
_OTHER_CODES = frozenset({"server_error", "rate_limit_exceeded", "invalid_prompt", "vector_store_timeout", TOO_LONG})


def error_of(event: JsonObject) -> ErrorDelta:
    """The error that an `error` event reports, flat or with an `error` object (D50, D51)."""
    status = event.get("status", event.get("status_code"))
    known = status if isinstance(status, int) and 400 <= status < 600 else None
    found = failure_in({**event, "type": "error"}, status=known)
    return _typed(found if found is not None else failure("", status=known))


def error_in(response: JsonObject, status: str) -> ErrorDelta:
    """The error of a response that ended with this status (D56)."""
    found = failure_in({"error": response.get("error")})
    if found is None:
        found = failure(f"the provider ended the response as {status}", code=f"response_{status}")
    return _typed(found)


def _typed(error: ErrorDelta) -> ErrorDelta:
    if error.status is None and error.code in _BLAME_THE_REQUEST:
        return msgspec.structs.replace(error, kind="permanent", status=400)
    return error


def error_event(error: ErrorDelta) -> JsonObject:
    """The fields of an `error` event. Some clients look for them in the event, some in its `error`: both have them."""
    body = openai_error_body(error)
    return {name: body["error"][name] for name in ("code", "message", "param")} | body


def failed_response_error(error: ErrorDelta) -> JsonObject:
    """The `error` of a failed response. Its codes are a closed list, and `TOO_LONG`, which OpenAI sends besides."""
    other = "rate_limit_exceeded" if error.status == 429 else "server_error"
    is_known = error.code in _BLAME_THE_REQUEST or error.code in _OTHER_CODES
    return {"code": error.code if is_known else other, "message": error.message}
