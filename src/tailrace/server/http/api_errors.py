"""What a client is told when something fails: one error, in the words of the API that it speaks.

Owns the translation of every exception into a status and a body. Never shows a traceback, a path of this machine or a
secret: an unforeseen exception is "internal error" and a request id to look up in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Literal

import msgspec
from aiohttp import web

from tailrace import errors
from tailrace.config.sections import ProviderSettings
from tailrace.events import RunFailure, RunFinished
from tailrace.messages import ErrorDelta, JsonObject
from tailrace.runs.failures import is_too_long
from tailrace.wire.client_request import InvalidRequest, UnsupportedParameter
from tailrace.wire.dialects import ANTHROPIC, CHAT
from tailrace.wire.failure import TOO_LONG, failure
from tailrace.wire.served_dialect import ServedDialect
from tailrace.wire.sse import encode_event

# What clients ask for below a base URL that should end in /v1.
_BELOW_V1 = ("/chat/completions", "/completions", "/embeddings", "/messages", "/models", "/responses")
_SHOWN_AS_IT_IS = "/ui/"  # clients of these routes show the body of an error to the user

# What a gateway may say of a provider that failed; any other 5xx of its own is a bad gateway.
_PASSED_ON = frozenset({429, 503, 504, 529})
# The kinds of a run's failure that name no reason: whether a retry may help is for us to know.
_CODE_OF_KIND = {"retryable": "", "permanent": "", "internal": "internal_error"}
_STEER_REFUSED: dict[errors.SteerRefusal, int] = {
    "not_steerable": 409,
    "too_many_steers": 429,
    "not_taken": 503,
    "key_used": 409,
    "steer_committed": 409,
    "steer_not_found": 404,
}


class ApiError(errors.TailraceError):
    """A failure with a status of its own. `code` is for programs, `param` names the field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        details: JsonObject | None = None,
        asked: bool = False,
    ) -> None:
        """`details` is an object for programs: Anthropic's clients read it, and `/readyz` names what is not there.
        `asked`: a model was asked before it failed, so that the request counts for its key."""
        super().__init__(message)
        self.status = status
        self.code = code or _word(status)
        self.param = param
        self.headers = dict(headers or {})
        self.details = details
        self.asked = asked
        self.provider_request_id = ""  # of the call that failed: what the vendor's support asks for

    def in_words(self, message: str) -> ApiError:
        """The same error with another message."""
        error = ApiError(self.status, message)
        vars(error).update(vars(self))
        return error


def _word(status: int) -> str:
    """`not_found` for 404."""
    try:
        return HTTPStatus(status).name.lower()
    except ValueError:
        return "overloaded" if status == 529 else "error"


@lru_cache(maxsize=256)  # asked for at every request
def dialect_at(path: str) -> ServedDialect | None:
    """The dialect of the API at this path; with a `/v1` too many or too few it is the same client that asks."""
    bare = path.removeprefix("/v1").removeprefix("/v1")
    if bare.startswith(ANTHROPIC.path):
        return ANTHROPIC
    return CHAT if path.startswith(("/v1/", *_BELOW_V1)) else None  # the Responses API has the same errors


def error_format(path: str) -> str:
    """The name of the shape that errors have at this path."""
    if (dialect := dialect_at(path)) is not None:
        return dialect.error_format
    return "text" if path.startswith(_SHOWN_AS_IT_IS) else "plain"


def error_object(error: ApiError, dialect: ServedDialect | None, request_id: str = "") -> JsonObject:
    """The body of an error response; in a stream, the payload of its error event."""
    if dialect is not None:
        return dialect.error_body(error_delta(error), error.param, error.details, request_id)
    plain: JsonObject = {"kind": error.code, "message": str(error)}
    if error.param is not None:
        plain["param"] = error.param
    if error.details is not None:
        plain["details"] = error.details
    return {"error": plain, "request_id": request_id}


def error_delta(error: ApiError) -> ErrorDelta:
    """The error in the middle of a stream, for a dialect's encoder."""
    kind: Literal["permanent", "retryable"] = "permanent" if error.status < 500 else "retryable"
    return ErrorDelta(kind, str(error), error.code, error.status, request_id=error.provider_request_id)


def error_response(error: ApiError, path: str, request_id: str = "") -> web.Response:
    """Where the error's headers say that the connection closes, it does (RFC 9112, 9.6)."""
    if path.startswith(_SHOWN_AS_IT_IS):
        response = web.Response(status=error.status, text=str(error), headers=error.headers)
    else:
        body = msgspec.json.encode(error_object(error, dialect_at(path), request_id))
        response = web.Response(status=error.status, body=body, content_type="application/json", headers=error.headers)
    if error.headers.get("Connection") == "close":
        response.force_close()
    return response


def error_frame(error: ApiError, path: str, request_id: str = "") -> bytes:
    """The same as a server-sent event, for a stream that has begun (H94)."""
    dialect = dialect_at(path)
    data = msgspec.json.encode(error_object(error, dialect, request_id))
    return encode_event(data, event="error" if dialect is None else dialect.error_event)


# ── from exceptions ──────────────────────────────────────────────────────────────────────────────────────────


def as_api_error(exc: Exception) -> ApiError:
    """What to tell the client about this. Anything unforeseen is an internal error and says no more."""
    match exc:
        case ApiError():
            return exc
        case web.HTTPException():
            return _of_http(exc)
        case errors.ProviderError():
            error = _of_provider(exc)
            error.provider_request_id = exc.request_id
            return error
        case errors.JournalError():
            return _of_journal(exc)
        case errors.ConfigError():
            return _of_config(exc)
        case errors.SteerRefused():
            return ApiError(_STEER_REFUSED[exc.code], str(exc), code=exc.code)
        case errors.ForkRefused():
            return ApiError(400, str(exc), code="not_forkable")
        case UnsupportedParameter():
            return ApiError(400, str(exc), code="unsupported_parameter", param=exc.param)
        case InvalidRequest():
            return ApiError(400, str(exc), code="invalid_request", param=exc.param, details=exc.details)
        case TimeoutError():
            return ApiError(504, "timed out")
        case _:
            return ApiError(500, "internal error", code="internal_error")


def no_route(path: str) -> ApiError:
    """A base URL with a `/v1` too many or too few is what leads here most often."""
    hint = "; /docs and /openapi.json list those that there are"
    if path.startswith("/v1/v1/"):
        hint = ": the base URL of this client must not end in /v1"
    elif path.startswith(_BELOW_V1):
        hint = ": the base URL of this client must end in /v1"
    return ApiError(404, f"no such route{hint}")


def _of_journal(exc: errors.JournalError) -> ApiError:
    match exc:
        case errors.RunNotFound():
            return ApiError(404, str(exc))
        case errors.RunSealed() | errors.RunOwned() | errors.RunParked():
            return ApiError(409, str(exc))
        case errors.CursorAhead():
            return ApiError(409, str(exc), code="cursor_ahead")
        case errors.StorageFailed():
            return ApiError(503, exc.reason, code="journal_unavailable", headers={"Retry-After": "5"})
        case _:
            return ApiError(503, "the journal cannot be used right now", code="journal_unavailable")


def _of_http(exc: web.HTTPException) -> ApiError:
    if isinstance(exc, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(exc.allowed_methods))
        return ApiError(405, f"{exc.method} is not allowed here; try {allowed}", headers={"Allow": allowed})
    return ApiError(exc.status, exc.reason.lower())


def _of_config(exc: errors.ConfigError) -> ApiError:
    """A model that this server cannot ask is refused as a mistake of the request: clients try a 5xx again, some of them
    for minutes and without a word, and Codex a 404 too, although only the operator can change this."""
    of_provider = exc.key.startswith("providers.")  # whose name may have dots in it: clients choose it
    is_setting = exc.key.rpartition(".")[2] in ProviderSettings.__struct_fields__
    if exc.key == "model" or (of_provider and not is_setting):
        return ApiError(404, str(exc), code="model_not_found", param="model")
    if of_provider:
        message = f"this server is not set up for that model: {exc}"
        return ApiError(400, message, code="not_configured", param="model")
    return ApiError(503, str(exc), code="not_configured", headers={"x-should-retry": "false"})


def refusal(status: int, message: str, code: str, provider: str = "") -> ApiError:
    """What a provider has refused for good. A header tells clients not to retry: Claude Code would, a 401 for minutes.
    The message says whose key was refused, since the client has one too."""
    if status == 401:
        message = f"{provider or 'the provider'} refused this server's key: {message}"
    if status != 413 and is_too_long(RunFailure(code, message, status=status)):  # 413: too many bytes
        code = TOO_LONG
    return ApiError(status, message, code=code, headers={"x-should-retry": "false"}, asked=True)


def is_said_in_stream(error: ApiError, request: web.Request) -> bool:
    """Whether a stream that has not begun begins with this error, instead of being a status (D52). Codex shortens its
    conversation after a response that failed because it is too long, which is how OpenAI says it; a 400 leaves it at a
    loss, in its own compaction too. Every other client is given the status."""
    is_codex = request.headers.get("originator", "").lower().startswith("codex")
    return error.code == TOO_LONG and request.path == "/v1/responses" and is_codex


def _of_provider(exc: errors.ProviderError) -> ApiError:
    """A provider's refusal is passed on with its status; its failures are those of a gateway."""
    if not isinstance(exc, errors.Retryable):
        status = exc.status if exc.status is not None and 400 <= exc.status < 500 else 502
        return refusal(status, str(exc), exc.code, exc.provider or ", ".join(exc.tried))
    if isinstance(exc, errors.TimedOut):
        return ApiError(504, str(exc), code="timeout")
    status = exc.status if exc.status in _PASSED_ON and exc.status is not None else 502
    return ApiError(status, str(exc), code=exc.code, headers=retry_after(exc.retry_after_s), asked=True)


def failed_run_error(finished: RunFinished, provider: str = "") -> ApiError:
    """What to tell the client about a run that its log says has failed or broke off. `provider` is the one that it
    asked last. Where the provider gave no code, the status is the word for it."""
    if (error := finished.error) is None:
        return ApiError(502, "the run failed")
    code = error.code or _CODE_OF_KIND.get(error.kind, error.kind)
    known = failure("", code=error.kind, status=error.status or None)
    status = error.status or known.status or 502
    if finished.status == "failed" and known.kind == "permanent":
        return refusal(status, error.message.removeprefix(f"{provider}: "), code, provider)
    passed_on = status == 504 or (finished.status == "failed" and (400 <= status < 500 or status in (503, 529)))
    headers = retry_after(error.retry_after_s)
    return ApiError(status if passed_on else 502, error.message, code=code, headers=headers, asked=True)


def retry_after(seconds: float | None) -> dict[str, str]:
    """The header that passes on the wait which a provider asked for (K139)."""
    return {} if seconds is None else {"Retry-After": str(max(1, round(seconds)))}
