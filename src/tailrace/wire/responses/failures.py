"""What the dialect's own failures mean: `error` events, and responses that ended as `failed` or `cancelled`."""

from __future__ import annotations

import msgspec

from tailrace.messages import ErrorDelta, JsonObject
from tailrace.wire.error_bodies import TOO_LONG, openai_error_body
from tailrace.wire.failure import failure, failure_in

# Codes of a failed response (the API's `ResponseError`) that blame the request: it will fail again as it is.
_BLAME_THE_REQUEST = frozenset(
    {
        "bio_policy",
        "data_residency_mismatch",
        "empty_image_file",
        "failed_to_download_image",
        "image_content_policy_violation",
        "image_file_not_found",
        "image_file_too_large",
        "image_parse_error",
        "image_too_large",
        "image_too_small",
        "invalid_base64_image",
        "invalid_image",
        "invalid_image_format",
        "invalid_image_mode",
        "invalid_image_url",
        "misalignment_policy_violation",
        "unsupported_image_media_type",
    }
)


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
    """The `error` of a failed response. Its codes are a closed list, and one that OpenAI sends besides."""
    known = _BLAME_THE_REQUEST | {
        TOO_LONG,
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "vector_store_timeout",
    }
    code = error.code if error.code in known else "rate_limit_exceeded" if error.status == 429 else "server_error"
    return {"code": code, "message": error.message}
