"""How each dialect says that something went wrong: as the body of an error status, and as events in a stream.

The words are the services' own, as recorded or as their SDKs type them.
"""

from __future__ import annotations

from tailrace.messages import Dialect, JsonObject, Value
from tailrace.testing.scripted import responses
from tailrace.testing.scripted.request_reader import ScriptedRequest, Sse

INVALID = "invalid_request_error"  # in both families' words


class Failure(Value):
    """One kind of failure in both families' words."""

    status: int
    message: str
    openai_type: str = INVALID
    anthropic_type: str = INVALID
    openai_code: str | None = None
    param: str | None = None
    details: JsonObject | None = None  # Anthropic: what a client can act on
    anthropic_message: str = ""  # where its words are others


FAILURES: dict[str, Failure] = {
    "invalid": Failure(400, "Invalid request: messages is malformed"),
    "auth": Failure(401, "Incorrect API key provided", INVALID, "authentication_error", "invalid_api_key"),
    "permission": Failure(403, "You have no access to this model", INVALID, "permission_error", "forbidden"),
    "not-found": Failure(404, "The model does not exist", INVALID, "not_found_error", "model_not_found", "model"),
    "timeout": Failure(408, "The request timed out", "timeout", "timeout_error", "request_timeout"),
    "conflict": Failure(409, "Another request holds the lock", "conflict", "conflict_error", "conflict"),
    "too-large": Failure(413, "Request exceeds the maximum size", INVALID, "request_too_large", "request_too_large"),
    "unprocessable": Failure(422, "The request cannot be processed", openai_code="unprocessable"),
    "rate-limit": Failure(429, "Rate limit reached", "requests", "rate_limit_error", "rate_limit_exceeded"),
    "server": Failure(500, "The server had an error", "server_error", "api_error", "server_error"),
    "bad-gateway": Failure(502, "Bad gateway", "server_error", "api_error", "bad_gateway"),
    "unavailable": Failure(503, "The engine is overloaded", "server_error", "api_error", "server_is_overloaded"),
    "overloaded": Failure(529, "Overloaded", "server_error", "overloaded_error", "server_is_overloaded"),
}
BY_STATUS: dict[int, Failure] = {failure.status: failure for failure in FAILURES.values()}
TOO_LONG = Failure(
    400,
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    openai_code="context_length_exceeded",
    param="input",
    anthropic_message="prompt is too long: 214000 tokens > 200000 maximum",
)
BAD_REQUEST = Failure(400, "Bad request")
NO_STREAMING = Failure(
    400, "Streaming is not supported for this model", openai_code="unsupported_value", param="stream"
)


def refused_field(name: str) -> Failure:
    """A field of the request that the endpoint does not know."""
    message = f"Unsupported parameter: '{name}' is not supported with this model."
    return Failure(400, message, openai_code="unsupported_parameter", param=name)


def error_body(dialect: Dialect, failure: Failure, request: ScriptedRequest) -> JsonObject:
    """The body that comes with the status."""
    if dialect == "anthropic":
        message = failure.anthropic_message or failure.message
        said: JsonObject = {"type": failure.anthropic_type, "message": message}
        if failure.details is not None:
            said["details"] = failure.details
        return {"type": "error", "error": said, "request_id": request.id("req_01")}
    return {
        "error": {
            "message": failure.message,
            "type": failure.openai_type,
            "param": failure.param,
            "code": failure.openai_code,
        }
    }


def error_events(dialect: Dialect, failure: Failure, request: ScriptedRequest, *, after: int = 0) -> list[Sse]:
    """The failure inside a stream that has sent `after` events with status 200. Nothing follows it."""
    body = error_body(dialect, failure, request)
    if dialect != "responses":
        return [Sse(body, "error")] if dialect == "anthropic" else [Sse(body)]
    code = failure.openai_code or failure.openai_type
    failed = {**responses.opening(request), "status": "failed", "error": {"code": code, "message": failure.message}}
    sent = [{"type": "error", **body}, {"type": "response.failed", "response": failed}]
    return responses.numbered(sent, request, start=after)
