"""Steering over the web socket: input for a response that is under way, and for its successor.

Pure. Owns which input may steer, and what becomes of it when its response ends: it is the input of a successor, it
waits for the results of calls that the client runs, or it is returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace.messages import JsonObject, Value
from tailrace.server.http.api_errors import ApiError
from tailrace.wire.responses.client_request import items_of

MAX_PENDING: Final = 32  # for one response; on a connection, twice as many, no larger together than one request
_FIELDS: Final = frozenset({"type", "previous_response_id", "input"})
_MESSAGE_FIELDS: Final = frozenset({"type", "role", "content"})
_PARTS: Final = frozenset({"input_text", "input_image", "input_file"})
_RESULTS: Final = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


class Steer(Value):
    """One accepted input."""

    id: str
    input: str | list[JsonObject]
    size: int = 0  # of its frame

    @property
    def items(self) -> list[JsonObject]:
        return items_of(self.input)


def check_input(event: JsonObject) -> str | list[JsonObject]:
    """The input of a `response.steer`. Raises `ApiError` 400 for anything but messages of the user's."""
    given = event.get("input")
    if extra := sorted(event.keys() - _FIELDS):
        raise _invalid(f"a steer has no field {extra[0][:80]!r}")
    if isinstance(given, str) and given:
        return given
    if not isinstance(given, list) or not given or not all(map(_is_user_message, given)):
        raise _invalid("input: expected a text or messages of the user's, with texts, images and files")
    return given


def _is_user_message(item: object) -> bool:
    if not isinstance(item, dict) or item.keys() - _MESSAGE_FIELDS or item.get("role") != "user":
        return False
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    known = all(isinstance(part, dict) and part.get("type") in _PARTS for part in parts)
    return item.get("type", "message") == "message" and known and bool(content) and isinstance(content, str | list)


def _invalid(message: str) -> ApiError:
    return ApiError(400, message, code="invalid_input", param="input")


def required_input(output: Sequence[JsonObject], *, approvals: bool) -> list[JsonObject]:
    """Stubs of what the client owes for calls in this output: their results, and its decisions where `approvals` are
    for the next request."""
    stubs: list[JsonObject] = []
    for item in output:
        if (kind := _RESULTS.get(item["type"])) is not None:
            stubs.append({"type": kind, "call_id": item.get("call_id"), "name": item.get("name")})
        elif approvals and item["type"] == "mcp_approval_request":
            stubs.append({"type": "mcp_approval_response", "approval_request_id": item.get("id")})
    return stubs


def with_steers(given: list[JsonObject], steers: Sequence[Steer]) -> list[JsonObject]:
    """A request's items with these before them, but after the results that it begins with: for a model of another
    dialect a call and its result are neighbours."""
    results = next((at for at, item in enumerate(given) if item.get("type") not in _RESULTS.values()), len(given))
    return [*given[:results], *(item for steer in steers for item in steer.items), *given[results:]]


def accepted_event(steer: Steer, response_id: str, number: int) -> JsonObject:
    about = {"id": steer.id, "previous_response_id": response_id}
    return {"type": "response.steer.accepted", "sequence_number": number, "steer": about}


def pending_event(steer: Steer, response_id: str, number: int, stubs: list[JsonObject]) -> JsonObject:
    reason = {"reason": "waiting_for_required_input", "required_input": stubs}
    return {**accepted_event(steer, response_id, number), "type": "response.steer.pending", **reason}


def failed_event(event: JsonObject, error: ApiError, number: int, steer_id: str = "") -> JsonObject:
    """Returns the input of a steer, as the client wrote it, with the reason."""
    about = {"previous_response_id": event.get("previous_response_id"), "input": event.get("input")}
    said = {"type": "invalid_request_error", "code": error.code, "message": str(error)}
    return {
        "type": "response.steer.failed",
        "sequence_number": number,
        "steer": {"id": steer_id, **about} if steer_id else about,
        "error": said,
    }
