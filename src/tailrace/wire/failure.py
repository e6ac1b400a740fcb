"""One classifier for the errors of providers, so that a 429 means the same everywhere; and errors as OpenAI and
Anthropic word them, for clients of our server."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from tailrace.errors import ProviderError, Rejected, StreamCut, Unavailable
from tailrace.messages import ErrorDelta, JsonObject
from tailrace.values.error_texts import says
from tailrace.wire.peer_json import text_of, without_lone_surrogates

_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
# The providers' codes and types, and the HTTP status that each stands for where there is none; Anthropic's first.
_CODES: dict[int, tuple[str, ...]] = {
    400: (
        *("invalid_request_error", "invalid_request", "invalid_prompt", "bad_request"),
        *("context_length_exceeded", "content_policy_violation"),
    ),
    401: ("authentication_error", "invalid_api_key"),
    402: ("billing_error", "insufficient_quota"),
    403: ("permission_error", "permission_denied"),
    404: ("not_found_error", "model_not_found"),
    413: ("request_too_large",),
    422: ("unprocessable_entity",),
    429: ("rate_limit_error", "rate_limit_exceeded", "tokens_exceeded_error", "too_many_requests"),
    500: ("api_error", "server_error", "internal_server_error", "internal_error"),
    503: ("service_unavailable", "engine_overloaded", "server_is_overloaded"),
    504: ("timeout_error",),
    529: ("overloaded_error", "overloaded"),
}
_STATUS_OF = {code: status for status, codes in _CODES.items() for code in codes}
_MAX_MESSAGE_CHARS = 2000
TOO_LONG = "context_length_exceeded"  # OpenAI's code for a request that is longer than the model reads
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {status: codes[0] for status, codes in _CODES.items() if status != 422} | {503: "overloaded_error"}
# What Anthropic's clients act on: they shorten the conversation, or give the answer less room.
_ANTHROPIC_TOO_LONG = re.compile(
    r"prompt is too long|input length and `max_tokens` exceed context limit", re.IGNORECASE
)


def kind_of(status: int) -> Literal["retryable", "permanent"]:
    """5xx, 408, 409, 425 and 429 can be retried; every other 4xx will fail again."""
    return "retryable" if status >= 500 or status in _RETRYABLE_STATUSES or status < 400 else "permanent"


def status_of(code: str) -> int | None:
    """The HTTP status that a provider's code or type stands for; None for one that is not known."""
    return _STATUS_OF.get(code)


def failure(message: str, *, code: str = "", status: int | None = None, type_: str = "") -> ErrorDelta:
    """The error as a value. Its code or type wins over the transport's status 200 (D51)."""
    by_name = _STATUS_OF.get(code) or _STATUS_OF.get(type_)
    effective = status if status is not None and status >= 400 else by_name
    if code == "insufficient_quota":  # comes as 429, and no waiting will help
        effective = 402
    if effective in (500, 501) and says("not_the_servers_fault", message):  # the model will not learn to see
        effective = 400
    kind = kind_of(effective) if effective is not None else "retryable"
    return ErrorDelta(kind, message[:_MAX_MESSAGE_CHARS] or "the provider gave no reason", code or type_, effective)


def stream_cut(message: str = "the stream ended without its terminal event") -> ErrorDelta:
    """The bytes ended early (D48)."""
    return ErrorDelta("retryable", message, code="stream_cut", cut=True)


def protocol_error(message: str, excerpt: bytes = b"") -> ErrorDelta:
    """The peer broke its protocol. The message has the beginning of the offending bytes."""
    shown = excerpt[:120].decode("utf-8", "replace")
    return ErrorDelta("retryable", f"{message}: {shown!r}" if shown else message, code="protocol_error")


def contradiction() -> ErrorDelta:
    """The arguments of a call are not what their pieces were, and the client has seen the pieces."""
    message = "the provider's last word on a tool call's arguments differs from what it streamed; the call must not run"
    return ErrorDelta("retryable", message, code="protocol_error")


def failure_in(body: JsonObject, *, status: int | None = None) -> ErrorDelta | None:
    """The error that a JSON object reports, in any shape that providers use; None where it reports none."""
    error: Any = body.get("error")
    if error is None and "error" in (body.get("type"), body.get("object")):
        error = body
    if error is None and status is not None and status >= 400:
        error = body.get("message") or body.get("detail") or body
    if not error:
        return None
    found = _from_object(error, status) if isinstance(error, dict) else failure(str(error), status=status)
    return msgspec.structs.replace(found, request_id=without_lone_surrogates(text_of(body.get("request_id")))[:200])


def _from_object(error: JsonObject, status: int | None) -> ErrorDelta:
    code, type_ = error.get("code"), error.get("type")
    if status is None and isinstance(raw := error.get("raw_status_code"), int):  # Mistral's
        status = raw
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        status = code if status is None or status < 400 else status
        code = ""
    message = error.get("message")
    return failure(str(error if message is None else message), code=text_of(code), status=status, type_=text_of(type_))


def to_exception(error: ErrorDelta, *, provider: str = "", retry_after_s: float | None = None) -> ProviderError:
    """The error to raise for a stream or a response that failed so."""
    raised: ProviderError
    if error.cut:
        raised = StreamCut(error.message, code=error.code, provider=provider)
    elif error.kind == "permanent":
        raised = Rejected(error.message, status=error.status, code=error.code, provider=provider)
    else:
        raised = Unavailable(
            error.message, status=error.status, code=error.code, provider=provider, retry_after_s=retry_after_s
        )
    raised.request_id = error.request_id
    return raised


def openai_error_body(error: ErrorDelta, param: str | None = None) -> JsonObject:
    """`param` names the field of the request that is at fault."""
    other = "invalid_request_error" if error.kind == "permanent" else "server_error"
    kind = _OPENAI_TYPES.get(error.status or 0, other)
    message = without_lone_surrogates(error.message)
    return {"error": {"message": message, "type": kind, "param": param, "code": error.code or None}}


def anthropic_error_body(error: ErrorDelta) -> JsonObject:
    """A code that is one of the API's own types is kept. In mid-answer there is no status but the gateway's: then
    another API's code says what it is. Claude Code shortens a conversation that is too long, and asks again, where the
    message has Anthropic's words for it."""
    if error.code in _ANTHROPIC_TYPES.values():
        kind = error.code
    else:
        other = "invalid_request_error" if error.kind == "permanent" else "api_error"
        coded = _ANTHROPIC_TYPES.get(status_of(error.code) or 0, other)
        kind = _ANTHROPIC_TYPES.get(error.status or 0, coded)
    message = without_lone_surrogates(error.message)
    if error.code == TOO_LONG and not _ANTHROPIC_TOO_LONG.search(message):
        message = f"prompt is too long: {message}"
    body: JsonObject = {"type": "error", "error": {"type": kind, "message": message}}
    return {**body, "request_id": error.request_id} if error.request_id else body
