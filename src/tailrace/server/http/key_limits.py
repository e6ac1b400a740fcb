"""What a key may use, at the door: requests over its limits are refused before anything is done for them.

Owns which routes count as requests, and the words in which vendors tell a client how much it has left.
"""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from tailrace.app.usage.limits import Allowance, KeyLimits, Refusal
from tailrace.errors import JournalError
from tailrace.journal.storage_wait import warning_level
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.request_body import LEFT
from tailrace.server.http.route import Route

log = logging.getLogger("tailrace.server")
ADMITTED: Final = web.RequestKey("admitted", Allowance)
# The routes that ask a model for something and do not stream its answer.
_WHOLE: Final = frozenset(
    {"/v1/responses/compact", "/runs", "/runs/{id}/fork", "/runs/{id}/retry", "/instances", "/instances/{id}/retry"}
)


def is_counted(route: Route) -> bool:
    """Whether the route asks a model for something. To watch, to stop and to answer is always allowed."""
    return route.method == "POST" and (route.streams or route.path in _WHOLE)


async def admit(limits: KeyLimits, name: str, request: web.Request) -> None:
    """Counts the request. Raises `ApiError` 429 for one over a limit of its key, and `JournalError`."""
    judged = await limits.admit(name)
    match judged:
        case Refusal():
            code = "rate_limit_exceeded" if judged.limit == "requests_per_minute" else "insufficient_quota"
            headers = {"Retry-After": str(judged.retry_after_s), **_refusal_headers(judged)}
            if judged.limit != "requests_per_minute":
                headers["x-should-retry"] = "false"  # SDKs would ask again within seconds, for nothing
            details = {"limit": judged.limit, "allowed": judged.allowed, "used": judged.used}
            raise ApiError(429, judged.message, code=code, headers=headers, details=details)
        case Allowance():
            request[ADMITTED], request[LEFT] = judged, _headers(judged)
        case None:
            pass


async def uncount_refused(limits: KeyLimits, request: web.Request, error: ApiError) -> None:
    """A request that is refused before a model was asked does not count. A failure of the server does: the client asks
    again, and may not do so at once."""
    admitted = request.get(ADMITTED)
    if admitted is None or error.asked or not 400 <= error.status < 500:
        return
    try:
        request[LEFT] = _headers(await limits.give_back(admitted))
    except JournalError as exc:
        log.log(warning_level(exc), "a request that was refused stays counted for its key: %s", exc)


def _refusal_headers(refused: Refusal) -> dict[str, str]:
    """Of the limit that was met. Vendors have none for money."""
    allowed, reset_s = int(refused.allowed), refused.retry_after_s
    if refused.limit == "requests_per_minute":
        return _headers(Allowance(requests=allowed, requests_left=0, requests_reset_s=reset_s))
    is_tokens = refused.limit == "tokens_per_day"
    return _headers(Allowance(tokens=allowed, tokens_left=0, tokens_reset_s=reset_s)) if is_tokens else {}


def _headers(left: Allowance) -> dict[str, str]:
    headers: dict[str, str] = {}
    if left.requests is not None:
        headers["x-ratelimit-limit-requests"] = str(left.requests)
        headers["x-ratelimit-remaining-requests"] = str(left.requests_left)
        headers["x-ratelimit-reset-requests"] = f"{left.requests_reset_s}s"
    if left.tokens is not None:
        headers["x-ratelimit-limit-tokens"] = str(left.tokens)
        headers["x-ratelimit-remaining-tokens"] = str(left.tokens_left)
        headers["x-ratelimit-reset-tokens"] = f"{left.tokens_reset_s}s"
    return headers
