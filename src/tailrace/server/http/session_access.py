"""Which sessions and idempotency keys a caller may name: the one place for every route that begins a run."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from tailrace.runs.charged_to import platform_of
from tailrace.server.http.api_errors import ApiError
from tailrace.server.http.auth import Identity

MAX_NAME_CHARS: Final = 256  # a store may index the names
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def check_session(name: str, caller: Identity, param: str) -> None:
    """Raises `ApiError` 400 for a control character, which not every store takes in a name; 403 for the conversation of
    a platform's chat: what is said there comes from that chat, or from an admin."""
    check_name(name, param)
    if platform_of(name) and not caller.may("admin"):
        message = f"{param}: this is the name of a platform's chat; use another, or a key with the scope 'admin'"
        raise ApiError(403, message, code="session_of_a_chat", param=param)


def scoped_key(key: str, caller: Identity) -> str:
    """The idempotency key as it is stored: each caller has its own, whatever colons are in either. Empty where none was
    given. Raises `ApiError` 400."""
    check_name(key, "idempotency_key")
    return f"{quote(caller.name, safe='')}:{key}" if key else ""


def key_was_used() -> ApiError:
    """What a request gets whose idempotency key belongs to another request."""
    return ApiError(409, "this idempotency key was used for another request", param="idempotency_key")


def check_name(name: str, param: str) -> None:
    """Raises `ApiError` 400."""
    if len(name) > MAX_NAME_CHARS:
        raise ApiError(400, f"{param}: must have at most {MAX_NAME_CHARS} characters", param=param)
    if _CONTROL.search(name):
        raise ApiError(400, f"{param}: a name has no control characters", param=param)
