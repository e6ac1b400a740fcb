"""One classifier for the errors of providers: by status, by type, in a body or in the middle of a stream.

Owns the table of codes; every dialect and the HTTP layer use it, so a 429 means the same everywhere.
"""

from __future__ import annotations

from typing import Any, Literal

from tailrace.errors import ProviderError, Rejected, StreamCut, Unavailable
from tailrace.messages import ErrorDelta, JsonObject

_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
# The providers' codes and types, and the HTTP status that each stands for where there is none.
_STATUS_OF: dict[str, int] = {
    "invalid_request_error": 400,
    "invalid_request": 400,
    "invalid_prompt": 400,
    "bad_request": 400,
    "context_length_exceeded": 400,
    "content_policy_violation": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "unprocessable_entity": 422,
    "timeout_error": 504,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "tokens_exceeded_error": 429,
    "too_many_requests": 429,
    "overloaded_error": 529,
    "overloaded": 529,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "internal_error": 500,
    "service_unavailable": 503,
    "engine_overloaded": 503,
    "server_is_overloaded": 503,
}
_MAX_MESSAGE_CHARS = 2000


def kind_of(status: int) -> Literal["retryable", "permanent"]:
    """5xx, 408, 409, 425 and 429 can be retried; every other 4xx will fail again."""
    return "retryable" if status >= 500 or status in _RETRYABLE_STATUSES or status < 400 else "permanent"


def failure(message: str, *, code: str = "", status: int | None = None, type_: str = "") -> ErrorDelta:
    """The error as a value. Its code or type wins over the transport's status 200 (D51)."""
    by_name = _STATUS_OF.get(code) or _STATUS_OF.get(type_)
    effective = status if status is not None and status >= 400 else by_name
    if code == "insufficient_quota":  # comes as 429, and no waiting will help
        effective = 402
    kind = kind_of(effective) if effective is not None else "retryable"
    return ErrorDelta(kind, message[:_MAX_MESSAGE_CHARS] or "the provider gave no reason", code or type_, effective)


def stream_cut(message: str = "the stream ended without its terminal event") -> ErrorDelta:
    """The bytes ended early (D48)."""
    return ErrorDelta("retryable", message, code="stream_cut", cut=True)


def protocol_error(message: str, excerpt: bytes = b"") -> ErrorDelta:
    """The peer broke its protocol. The message has the beginning of the offending bytes."""
    shown = excerpt[:120].decode("utf-8", "replace")
    return ErrorDelta("retryable", f"{message}: {shown!r}" if shown else message, code="protocol_error")


def failure_in(body: JsonObject, *, status: int | None = None) -> ErrorDelta | None:
    """The error that a JSON object reports, in any shape that providers use; None where it reports none."""
    error: Any = body.get("error")
    if error is None and body.get("type") == "error":
        error = body
    if error is None and body.get("object") == "error":
        error = body
    if error is None and status is not None and status >= 400:
        error = body.get("message") or body.get("detail") or body
    if not error:
        return None
    if isinstance(error, dict):
        return _from_object(error, status)
    return failure(str(error), status=status)


def _from_object(error: JsonObject, status: int | None) -> ErrorDelta:
    code, type_ = error.get("code"), error.get("type")
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        status = code if status is None or status < 400 else status
        code = ""
    message = error.get("message")
    if not isinstance(message, str):
        message = str(message if message is not None else error)
    return failure(
        message,
        code=code if isinstance(code, str) else "",
        status=status,
        type_=type_ if isinstance(type_, str) else "",
    )


def to_exception(error: ErrorDelta, *, provider: str = "", retry_after_s: float | None = None) -> ProviderError:
    """The error to raise for a stream or a response that failed so."""
    if error.cut:
        return StreamCut(error.message, code=error.code, provider=provider)
    if error.kind == "permanent":
        return Rejected(error.message, status=error.status, code=error.code, provider=provider)
    return Unavailable(
        error.message, status=error.status, code=error.code, provider=provider, retry_after_s=retry_after_s
    )
