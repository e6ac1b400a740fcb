"""Errors as OpenAI and Anthropic word them, for clients of our server: in a stream or as the body of a response."""

from __future__ import annotations

from tailrace.messages import ErrorDelta, JsonObject
from tailrace.wire.failure import status_of
from tailrace.wire.peer_json import without_lone_surrogates

TOO_LONG = "context_length_exceeded"  # OpenAI's code for a request that is longer than the model reads
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def openai_error_body(error: ErrorDelta, param: str | None = None) -> JsonObject:
    """`param` names the field of the request that is at fault."""
    other = "invalid_request_error" if error.kind == "permanent" else "server_error"
    kind = _OPENAI_TYPES.get(error.status or 0, other)
    message = without_lone_surrogates(error.message)
    return {"error": {"message": message, "type": kind, "param": param, "code": error.code or None}}


def anthropic_error_body(error: ErrorDelta) -> JsonObject:
    """A code that is one of the API's own types is kept. In mid-answer there is no status but the gateway's: then
    another API's code says what it is."""
    if error.code in _ANTHROPIC_TYPES.values():
        kind = error.code
    else:
        by_code = status_of(error.code) or 0
        other = "invalid_request_error" if error.kind == "permanent" else "api_error"
        coded = _ANTHROPIC_TYPES.get(529 if by_code == 503 else by_code, other)
        kind = _ANTHROPIC_TYPES.get(error.status or 0, coded)
    return {"type": "error", "error": {"type": kind, "message": without_lone_surrogates(error.message)}}
