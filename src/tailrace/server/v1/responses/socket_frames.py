"""Frames of the Responses web socket: what a client may send, and events as the frames of a lane.

Pure. A server frame is the JSON of one event as server-sent events have it, with the lane's `stream_id` where the
client gave one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tailrace.messages import JsonObject
from tailrace.server.http.api_errors import ApiError, error_object
from tailrace.server.http.json_shape import scanned_shape, small_problem
from tailrace.server.http.request_body import LARGE_BYTES
from tailrace.values.validation_words import decoding_problem
from tailrace.wire.dialects import CHAT

_STREAM_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_encode: Final = msgspec.json.Encoder().encode


def parse_client_frame(frame: bytes) -> JsonObject:
    """Raises `ApiError` 400 for what is no JSON object, or nested too deeply (J126)."""
    if problem := scanned_shape(frame).problem if len(frame) > LARGE_BYTES else small_problem(frame):
        raise ApiError(400, problem, code="invalid_json")
    try:
        return msgspec.json.decode(frame, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise ApiError(400, f"the frame is no JSON object: {decoding_problem(exc)}", code="invalid_json") from exc


def stream_id_in(body: JsonObject) -> str:
    """The lane that a `response.create` names; empty: the default lane. Raises `ApiError` 400."""
    if (given := body.get("stream_id")) is None:
        return ""
    if isinstance(given, str) and _STREAM_ID.fullmatch(given):
        return given
    message = "stream_id has 1 to 256 letters, digits, underscores, hyphens and periods; leave it out for the default"
    raise ApiError(400, message, code="invalid_stream_id", param="stream_id")


def event_frames(events: bytes, stream_id: str) -> Iterator[tuple[str, bytes]]:
    """Server-sent events as frames, each with its name. An error in a stream ends in `response.failed`, so that its
    `error` event is left out: a request has one end."""
    lane = b',"stream_id":"%b"}' % stream_id.encode() if stream_id else b"}"
    for block in events.split(b"\n\n"):
        head, _, data = block.partition(b"\ndata: ")
        name = head.removeprefix(b"event: ").decode()
        if data and name != "error":
            yield name, data[:-1] + lane


def event_frame(event: JsonObject, stream_id: str) -> bytes:
    return _encode({**event, "stream_id": stream_id} if stream_id else event)


def error_frame(error: ApiError, stream_id: str = "") -> bytes:
    """The error of a request, with what its status and its headers would be over HTTP: Codex reads them beside the
    error, the SDKs in it."""
    event: JsonObject = {"type": "error", "status": error.status, "error": error_object(error, CHAT)["error"]}
    if error.headers:
        event["headers"] = event["error"]["headers"] = error.headers
    return event_frame(event, stream_id)
