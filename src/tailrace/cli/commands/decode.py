"""`tailrace decode`: the content of recorded provider responses, one JSON object a line.

Owns reading files in bounded pieces and detecting their format: an event stream, the same payloads one JSON object a
line, or the JSON body of an answer that was not streamed. `wire` decodes the bytes.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from tailrace.cli.main import DONE, FAILED, INCOMPLETE, print_error
from tailrace.config.quirks import WireQuirks
from tailrace.errors import PeerError
from tailrace.messages import AnyDelta, Completion, ErrorDelta, FinishDelta, JsonObject
from tailrace.wire.dialect import WireDialect
from tailrace.wire.dialects import DIALECTS
from tailrace.wire.failure import failure_in
from tailrace.wire.peer_json import decode_object

PIECE_BYTES: Final = 64 * 1024
MAX_STREAM_BYTES: Final = 256 * 1024 * 1024  # beyond any real answer; the decoder keeps everything until the end
MAX_BODY_BYTES: Final = 32 * 1024 * 1024
# How an event stream begins: with a comment or a field (WHATWG HTML, section 9.2.5), after blank lines at most.
STREAM_START: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")
JSON_START: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[]")
# Worst last: failed, then cut, then complete.
SEVERITY: Final = (DONE, INCOMPLETE, FAILED)


class DecodedCall(msgspec.Struct):
    id: str
    name: str
    arguments: str


class DecodedUsage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0


class DecodedError(msgspec.Struct):
    kind: str
    message: str


class DecodedAnswer(msgspec.Struct):
    """One line of output."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[DecodedCall] = []
    finish_reason: str | None = None
    usage: DecodedUsage = msgspec.field(default_factory=DecodedUsage)
    complete: bool = False
    error: DecodedError | None = None


class Unreadable(Exception):
    """These bytes are no answer in this dialect; the message says why."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a recorded response body; - is stdin")
    parser.add_argument("--dialect", required=True, choices=list(DIALECTS), help="the provider's dialect")


def run(args: Namespace) -> int:
    wire = DIALECTS[args.dialect]
    codes = []
    for name in args.files:
        answer, code = _decode_file(name, wire)
        if answer.error is not None:
            print_error(f"{name}: {answer.error.message}")
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
        codes.append(code)
    return max(codes, key=SEVERITY.index)


def _decode_file(name: str, wire: WireDialect) -> tuple[DecodedAnswer, int]:
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as stream:
            return _decode_stream(stream, wire)
    except OSError as exc:
        return _unreadable(exc.strerror or str(exc))
    except (Unreadable, PeerError) as exc:
        return _unreadable(str(exc))


def _unreadable(why: str) -> tuple[DecodedAnswer, int]:
    return DecodedAnswer(error=DecodedError("permanent", why)), FAILED


def _decode_stream(stream: BinaryIO, wire: WireDialect) -> tuple[DecodedAnswer, int]:
    head = stream.read(PIECE_BYTES)
    if len(head) < PIECE_BYTES and not head.strip():
        return DecodedAnswer(error=DecodedError("retryable", "empty: the stream ended before it began")), INCOMPLETE
    if JSON_START.match(head):
        return _from_json(head + stream.read(MAX_BODY_BYTES + 1 - len(head)), wire)
    reader = RecordingReader(wire)
    piece, read = head, 0
    while piece and not reader.ended:
        read += len(piece)
        if read > MAX_STREAM_BYTES:
            raise Unreadable(f"larger than {MAX_STREAM_BYTES} bytes")
        reader.feed(piece)
        piece = stream.read(PIECE_BYTES)
    return reader.report(head)


def _from_json(data: bytes, wire: WireDialect) -> tuple[DecodedAnswer, int]:
    if len(data) > MAX_BODY_BYTES:
        raise Unreadable(f"a JSON body larger than {MAX_BODY_BYTES} bytes")
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        body = decode_object(data)
    except PeerError:
        if (lines := _payloads(data)) is None:
            raise
        return _from_lines(lines, wire)
    is_answer = wire.answer_field in body
    bare_error = {"error": body} if "message" in body and not is_answer else {}
    if (failed := failure_in(body) or failure_in(bare_error)) is not None:
        return DecodedAnswer(error=DecodedError(failed.kind, failed.message)), FAILED
    if not is_answer:
        raise Unreadable(f"a JSON object, but not an answer in the {wire.name} dialect{_hint_for_body(body)}")
    complete = body.get("status") not in {"queued", "in_progress"}  # a response that was asked for in the background
    return _report(wire.completion_from_body(body), complete=complete), DONE if complete else INCOMPLETE


def _payloads(data: bytes) -> list[bytes] | None:
    """The payloads of a stream, one a line, as some recorders store them; None where the first line is none."""
    lines = [line.strip() for line in data.split(b"\n") if line.strip()]
    try:
        decode_object(lines[0])
    except PeerError:
        return None
    return lines


def _from_lines(lines: list[bytes], wire: WireDialect) -> tuple[DecodedAnswer, int]:
    reader = RecordingReader(wire)
    framed = b"".join(b"data: %b\n\n" % line for line in lines)
    reader.feed(framed)
    if reader.finished:
        reader.feed(wire.end_frame)  # part of the framing, which such recorders drop
    return reader.report(framed[:PIECE_BYTES])


class RecordingReader:
    """Decodes one stream. Keeps what the report needs, no deltas."""

    def __init__(self, wire: WireDialect) -> None:
        self._wire = wire
        self._decoder = wire.decoder(WireQuirks())
        self._spoke = False  # a delta other than an error came: the stream is of this dialect
        self._error: ErrorDelta | None = None
        self.finished = False

    @property
    def ended(self) -> bool:
        return self._error is not None

    def feed(self, data: bytes) -> None:
        self._take_deltas(self._decoder.feed(data))

    def report(self, head: bytes) -> tuple[DecodedAnswer, int]:
        """The report and its exit code. `head` is the beginning of the stream."""
        self._take_deltas(self._decoder.close())
        error = self._error
        if error is not None and not self._spoke and error.code in {"stream_cut", "protocol_error"}:
            _refuse_other_formats(head, self._wire)
        answer = _report(self._wire.completion_from_body(self._decoder.rebuilt_body()), complete=self._decoder.complete)
        if error is None:
            return answer, DONE if answer.complete else INCOMPLETE
        answer.error = DecodedError(error.kind, error.message)
        return answer, INCOMPLETE if error.cut else FAILED

    def _take_deltas(self, deltas: list[AnyDelta]) -> None:
        for delta in deltas:
            if isinstance(delta, ErrorDelta):
                self._error = delta
            else:
                self._spoke = True
                self.finished = self.finished or isinstance(delta, FinishDelta)


def _refuse_other_formats(head: bytes, wire: WireDialect) -> None:
    """Raises `Unreadable` with a better reason than "cut" where the decoder understood nothing."""
    if not STREAM_START.match(head):
        raise Unreadable(f"neither an event stream nor JSON; it begins with {head[:24]!r}")
    for other in DIALECTS.values():
        if other is not wire:
            deltas = other.decoder(WireQuirks()).feed(head)
            if any(not isinstance(delta, ErrorDelta) for delta in deltas):
                raise Unreadable(f"no {wire.name} stream; it looks like --dialect {other.name}")


def _hint_for_body(body: JsonObject) -> str:
    likely = next((other.name for other in DIALECTS.values() if other.answer_field in body), None)
    return f"; it looks like --dialect {likely}" if likely else ""


def _report(completion: Completion, *, complete: bool) -> DecodedAnswer:
    return DecodedAnswer(
        text=completion.text,
        reasoning=completion.reasoning,
        tool_calls=[DecodedCall(call.id, call.name, call.arguments) for call in completion.tool_calls],
        finish_reason=completion.finish_reason or None,
        usage=DecodedUsage(completion.usage.input_tokens, completion.usage.output_tokens),
        complete=complete,
    )
