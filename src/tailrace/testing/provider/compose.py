"""A scenario and a request become a response, whole and as bytes: what is sent, not when.

Pure. Playing it, with its pauses and its break, is the server's part.
"""

from __future__ import annotations

import json
import time
import zlib
from email.utils import formatdate

import msgspec
from msgspec.structs import replace

from tailrace.messages import Dialect, JsonObject, Value
from tailrace.testing.provider.edits import EDITS
from tailrace.testing.provider.scenario import Scenario, Status
from tailrace.testing.scripted import failures
from tailrace.testing.scripted.chat import DONE
from tailrace.testing.scripted.render import body_of, events_of, frame
from tailrace.testing.scripted.request_reader import CREATED, ScriptedRequest, Sse

JSON = "application/json"
SSE = "text/event-stream; charset=utf-8"
HTML = "text/html; charset=utf-8"
PAGE = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head><body>Checking your browser.</body></html>"
GARBAGE = b"data: \x00\xff\x13<not an event>\n\n" * 8
SURROGATE = "\ue000"  # in a reply's text this private character becomes half a surrogate pair on the wire
COMMENT = b": keep-alive\n\n"
KEEP_ALIVE: dict[Dialect, bytes] = {
    "chat": COMMENT,
    "responses": b'event: keepalive\ndata: {"type":"keepalive"}\n\n',
    "anthropic": b'event: ping\ndata: {"type":"ping"}\n\n',
}


class Response(Value):
    """`pieces` are the body in the units in which it is written; `chunked` says how its end is told."""

    status: int
    content_type: str
    pieces: tuple[bytes, ...]
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    chunked: bool = False
    keep_alive: bytes = b" "  # what may stand between the pieces and says nothing

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


def compose(scenario: Scenario, dialect: Dialect, request: ScriptedRequest) -> Response:
    """Raises `UnknownScenario` where the scenario has a term that the dialect has not."""
    scenario.check(dialect)
    if (fault := instead_of_answer(scenario, dialect, request, streamed=request.streamed)) is not None:
        return fault
    if scenario.instead == "json" or not (request.streamed or scenario.instead == "sse"):
        return _plain(scenario, dialect, request)
    return _streamed(scenario, dialect, request)


def instead_of_answer(
    scenario: Scenario, dialect: Dialect, request: ScriptedRequest, *, streamed: bool
) -> Response | None:
    """What the scenario has instead of an answer, if anything."""
    if (field := next((name for name in scenario.refuses if _has(request.body, name)), None)) is not None:
        return failed(failures.refused_field(field), dialect, request)
    if scenario.status is not None:
        return _error_status(scenario.status, dialect, request)
    if scenario.instead == "html":
        return Response(200, HTML, (PAGE,))
    if scenario.instead == "bad-request":
        return failed(failures.BAD_REQUEST, dialect, request)
    if scenario.instead == "too-long":
        return failed(failures.TOO_LONG, dialect, request)
    if scenario.instead == "garbage":
        return Response(200, SSE, (GARBAGE,))
    if scenario.instead == "no-streaming" and streamed:
        return failed(failures.NO_STREAMING, dialect, request)
    return None


def _has(body: JsonObject, field: str) -> bool:
    name, _, rest = field.partition(".")
    if not rest:
        return name in body
    return isinstance(inner := body.get(name), dict) and _has(inner, rest)


def failed(failure: failures.Failure, dialect: Dialect, request: ScriptedRequest) -> Response:
    return Response(failure.status, JSON, (encode_body(failures.error_body(dialect, failure, request)),))


def models(names: list[str], *, anthropic: bool) -> Response:
    """What `GET /v1/models` says, in the words of the family that asked."""
    if anthropic:
        made = "2025-10-09T08:53:20Z"
        data = [{"type": "model", "id": name, "display_name": name, "created_at": made} for name in names]
        said: JsonObject = {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    else:
        listed = [{"id": name, "object": "model", "created": CREATED, "owned_by": "tailrace"} for name in names]
        said = {"object": "list", "data": listed}
    return Response(200, JSON, (encode_body(said),))


def counted(dialect: Dialect, body: bytes) -> Response:
    """What a route for counting says: about as many tokens as the request is long."""
    said: JsonObject = {"input_tokens": len(body) // 4}
    if dialect == "responses":
        said = {"object": "response.input_tokens", **said}
    return Response(200, JSON, (encode_body(said),))


def _error_status(status: Status, dialect: Dialect, request: ScriptedRequest) -> Response:
    _, is_date, ahead = status.retry_after.partition("date:")
    value = formatdate(time.time() + float(ahead), usegmt=True) if is_date else status.retry_after
    headers = {"retry-after": value} if value else {}
    if status.html:
        return Response(status.code, HTML, (PAGE,), headers)
    return replace(failed(failures.BY_STATUS[status.code], dialect, request), headers=headers)


def _plain(scenario: Scenario, dialect: Dialect, request: ScriptedRequest) -> Response:
    whole = encode_body(body_of(dialect, scenario.reply, request))
    if "gzip" in scenario.framing:
        return Response(200, JSON, tuple(_gzipped([whole])), {"content-encoding": "gzip"})
    return Response(200, JSON, (whole,))


def _streamed(scenario: Scenario, dialect: Dialect, request: ScriptedRequest) -> Response:
    events = events_of(dialect, scenario.reply, request)
    for name in scenario.edits:
        events = EDITS[name].run(events, request)
    return streamed_events(events, scenario, dialect)


def streamed_events(events: list[Sse], scenario: Scenario, dialect: Dialect) -> Response:
    """The events in the scenario's framing."""
    pieces = [part for event in _glued(events, scenario) for part in _framed(event, scenario)]
    if "no-last-blank" in scenario.framing:
        pieces[-1] = pieces[-1].rstrip(b"\r\n")
    if "bom" in scenario.framing:
        pieces[0] = b"\xef\xbb\xbf" + pieces[0]
    headers = {"cache-control": "no-cache"}
    if "gzip" in scenario.framing:
        pieces, headers = _gzipped(pieces), {**headers, "content-encoding": "gzip"}
    chunked = "content-length" not in scenario.framing
    return Response(200, SSE, tuple(pieces), headers, chunked, KEEP_ALIVE[dialect])


def _glued(events: list[Sse], scenario: Scenario) -> list[Sse]:
    """The second and third event become one with both objects in it."""
    if "glued" not in scenario.framing or len(events) < 4:
        return events
    both = "".join(encode_body(event.data).decode() for event in events[1:3] if isinstance(event.data, dict))
    return [events[0], Sse(both, events[1].event), *events[3:]]


def _framed(event: Sse, scenario: Scenario) -> list[bytes]:
    if isinstance(event.data, dict):
        event = Sse(encode_body(event.data).decode(), event.event)
    if "multi-data" in scenario.framing and isinstance(event.data, str) and event.data != DONE:
        event = Sse(json.dumps(json.loads(event.data), indent=0).replace("\n", "\ndata: "), event.event)
    framed = frame(event)
    if "no-space" in scenario.framing:
        framed = framed.replace(b"data: ", b"data:").replace(b"event: ", b"event:")
    if "crlf" in scenario.framing:
        framed = framed.replace(b"\n", b"\r\n")
    elif "cr" in scenario.framing:
        framed = framed.replace(b"\n", b"\r")
    return [COMMENT, framed] if "comments" in scenario.framing else [framed]


def encode_body(data: JsonObject) -> bytes:
    """JSON as it stands in a body or an event."""
    encoded = msgspec.json.encode(data)
    return encoded.replace(SURROGATE.encode(), json.dumps("\ud83d")[1:-1].encode())


def _gzipped(pieces: list[bytes]) -> list[bytes]:
    """Each piece flushed, so that a client which decodes as it goes sees each event when it comes."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)  # 16: with gzip's header and trailer
    return [*(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces), packer.flush()]
