"""How deep JSON is nested and how many values it has, known before any of them is made (J126, L140).

Pure, linear and never recursive. Small texts with few brackets are judged by counting bytes; only the others are looked
into. The scan of a large text goes in short steps: in a thread it never holds the interpreter for long.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final, NamedTuple

from tailrace.wire.peer_json import find_wide

MAX_DEPTH: Final = 128  # far below what the interpreter survives, far above any real request
MAX_VALUES: Final = 250_000  # names included: some tens of milliseconds to decode
MAX_WIDE_BYTES: Final = 8 << 20  # of long strings that are not ASCII: decoded, one character makes all of them wide
LONG_BYTES: Final = 1 << 20  # shorter strings are not looked into
STEP_BYTES: Final = 1 << 16
_ESCAPE_BYTES: Final = 6

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_INSIDE_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_OUTSIDE_STRING = re.compile(rb'[^"]*+')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class JsonShape(NamedTuple):
    """Of the text outside its strings. A scan ends where a limit is passed."""

    depth: int
    values: int
    wide: int = 0  # bytes of long strings that are not ASCII

    @property
    def problem(self) -> str:
        """Why this is not decoded; empty where it may be."""
        if self.depth > MAX_DEPTH:
            return f"JSON nested more than {MAX_DEPTH} deep"
        if self.wide > MAX_WIDE_BYTES:
            return f"JSON with more than {MAX_WIDE_BYTES} bytes of long texts that are not ASCII"
        return f"JSON with more than {MAX_VALUES} values" if self.values > MAX_VALUES else ""


def small_shape(body: bytes) -> JsonShape:
    """The shape of the text outside its strings, in a few passes that each hold the interpreter: for small bodies."""
    text = _STRING.sub(b"", body)
    steps = text.translate(_STEPS, _NO_BRACKETS)
    depth = max(accumulate(memoryview(steps).cast("b")), default=0)
    return JsonShape(depth, sum(map(text.count, (b"[", b"{", b",", b":"))))


def small_problem(body: bytes) -> str:
    """Why a small text is not decoded; empty where it may be. Most have fewer brackets than the depth allows, and fewer
    bytes than values."""
    if len(body) <= MAX_VALUES and body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return ""
    return small_shape(body).problem


def scanned_shape(body: bytes) -> JsonShape:
    """The shape of the text outside its strings."""
    at = depth = deepest = values = wide = 0
    while at < len(body):
        outside = _OUTSIDE_STRING.match(body, at, at + STEP_BYTES)
        text = outside[0] if outside else b""
        at += len(text)
        values += sum(map(text.count, (b"[", b"{", b",", b":")))
        if steps := text.translate(_STEPS, _NO_BRACKETS):
            depths = list(accumulate(memoryview(steps).cast("b"), initial=depth))
            deepest, depth = max(deepest, *depths), depths[-1]
        if body[at : at + 1] == b'"':
            start, at = at, _end_of_string(body, at + 1)
            if at - start > LONG_BYTES and _is_wide(body, start, at):
                wide += at - start
        if (shape := JsonShape(deepest, values, wide)).problem:
            return shape
    return JsonShape(deepest, values, wide)


def _is_wide(body: bytes, start: int, end: int) -> bool:
    for at in range(start, end, STEP_BYTES):
        piece = body[at : min(end, at + STEP_BYTES + _ESCAPE_BYTES)]
        if not piece.isascii() or (b"\\u" in piece and find_wide(piece)):
            return True
    return False


def _end_of_string(body: bytes, at: int) -> int:
    """Where the text goes on behind a string whose first character is at `at`."""
    while at < len(body):
        inside = _INSIDE_STRING.match(body, at, at + STEP_BYTES)
        at = inside.end() if inside else at
        if body[at : at + 1] == b'"':
            return at + 1
        if body[at : at + 1] == b"\\" and at + 1 >= len(body):
            return len(body)
    return at
