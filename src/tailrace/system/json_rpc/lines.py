"""Lines of JSON-RPC: what is a message, and the error that answers what is none.

Pure. The SDKs' own readers drop a line that is not JSON without an answer, end at the first `[]`, or keep a line of any
length; so each line is judged here before an SDK sees it. What passes has the form that the SDKs rely on.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from tailrace.values.validation_words import decoding_problem

MAX_LINE_BYTES: Final = 32 * 2**20  # a prompt with several images is one line
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603

RpcMessage: TypeAlias = dict[str, Any]
_SHOWN_CHARS = 200


class NotRpc(msgspec.Struct, frozen=True):
    """A line that is no message; `reply` is the line that says so, with its line end."""

    reply: bytes


class LineSplitter:
    """Bytes in, lines out. Any split of the same bytes gives the same lines. A line that is too long is dropped while
    it comes, and reported once, as None."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        *ended, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for piece in ended:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def close(self) -> list[bytes | None]:
        """The last line, where it has no line end."""
        return [self._take()] if self._size else []

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max_bytes:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take(self) -> bytes | None:
        line = b"".join(self._pieces) if self._size <= self._max_bytes else None
        self._pieces.clear()
        self._size = 0
        return line


def read_line(line: bytes | None) -> RpcMessage | NotRpc | None:
    """The message on a line; None for a blank line. `line` is None for one that was too long."""
    if line is None:
        return refused(INVALID_REQUEST, f"the line is longer than {MAX_LINE_BYTES} bytes")
    if not line.strip():
        return None
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        return refused(
            PARSE_ERROR, f"the line is not JSON: {decoding_problem(exc)[:_SHOWN_CHARS] or 'nested too deeply'}"
        )
    if isinstance(message, list):
        return refused(INVALID_REQUEST, "batches are not supported: send one message a line")
    if not isinstance(message, dict):
        return refused(INVALID_REQUEST, "a message is a JSON object")
    return _checked(message)


def _checked(message: RpcMessage) -> RpcMessage | NotRpc:
    number = message.get("id")
    if not _is_id(number):
        return refused(INVALID_REQUEST, "the id is a text, a whole number or null")
    if "method" in message:
        if not isinstance(message["method"], str):
            return refused(INVALID_REQUEST, "the method is a text", number)
        return message
    if "id" in message and ("result" in message or "error" in message):
        error = message.get("error")
        if "result" not in message and not isinstance(error, dict):
            message["error"] = {"code": INTERNAL_ERROR, "message": str(error)[:_SHOWN_CHARS]}
        return message
    return refused(INVALID_REQUEST, "neither a request (method) nor a response (id with result or error)", number)


def _is_id(number: object) -> bool:
    return number is None or isinstance(number, str) or (isinstance(number, int) and not isinstance(number, bool))


def refused(code: int, message: str, number: object = None) -> NotRpc:
    """The error for a message that cannot be used; `number` is its id."""
    return NotRpc(rpc_line({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}))


def rpc_line(message: RpcMessage) -> bytes:
    return msgspec.json.encode(message) + b"\n"
