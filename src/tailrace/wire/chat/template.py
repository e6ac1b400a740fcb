"""The fast path for the bulk of a stream: chunks that differ from the one before in a single string.

A server writes hundreds of chunks around one growing text, equal but for the text. From a chunk that was parsed in
full the template learns the bytes before and after the text. A block with the same bytes around one JSON string is the
same chunk with another text, and only that string is decoded. This is exact: the string goes through the same JSON
decoder, and a place is accepted only if a probe put there parses into the same chunk with the probe as its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec

from tailrace.messages import AnyDelta, JsonObject

_decode_string = msgspec.json.Decoder(str).decode
_decode_any = msgspec.json.Decoder().decode
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PADDING = re.compile(rb'"(?:obfuscation|p)"\s*:\s*"')
_PROBE = "tailrace-probe"
_RAW_PROBE = b'"tailrace-probe"'
_RAW_PADDING = b"abc123"
Path: TypeAlias = tuple[str | int, ...]
PADDING_FIELDS = ("obfuscation", "p")  # random text against traffic analysis: OpenAI's and Mistral's name for it


class Template:
    """Bytes around the text, and where the text goes."""

    __slots__ = ("_marker", "_prefix", "_start", "_stop", "_suffix", "delta", "learnt_at", "pieces")

    def __init__(
        self, prefix: bytes, marker: bytes, suffix: bytes, pieces: list[str], delta: Callable[[str], AnyDelta]
    ) -> None:
        self._prefix = prefix  # ends with the quote that opens the text
        self._marker = marker  # what stands between the text and the padding; empty without padding
        self._suffix = suffix  # begins with the quote that closes the text or the padding
        self._start = len(prefix) - 1
        self._stop = 1 - len(suffix)
        self.pieces = pieces  # takes the decoded text
        self.delta = delta
        self.learnt_at = len(pieces)

    @property
    def was_used(self) -> bool:
        return len(self.pieces) > self.learnt_at

    def text_in(self, block: bytes) -> str | None:
        """The text, or None where the block is anything but this template around one JSON string."""
        if not block.startswith(self._prefix) or not block.endswith(self._suffix):
            return None
        try:
            if not self._marker:
                return _decode_string(block[self._start : self._stop])
            end = block.find(self._marker, self._start + 1)
            if end < 0 or not block[end + len(self._marker) : self._stop - 1].isalnum():
                return None
            return _decode_string(block[self._start : end + 1])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None


def learn(
    block: bytes, chunk: JsonObject, path: Path, pieces: list[str], delta: Callable[[str], AnyDelta]
) -> Template | None:
    """A template from a block `data: …` that was parsed into `chunk`, whose only growing text is at `path`."""
    padding = next((field for field in PADDING_FIELDS if isinstance(chunk.get(field), str)), None)
    for found in _value_of(str(path[-1])).finditer(block):
        string = _STRING.match(block, found.end() - 1)
        if string is None:
            return None
        prefix, suffix, marker = block[: string.start() + 1], block[string.end() - 1 :], b""
        expected = _with(chunk, path)
        if padding is not None:
            pad = _PADDING.search(suffix)
            rest = pad and _STRING.match(suffix, pad.end() - 1)
            if not pad or not rest:
                return None
            marker, suffix = suffix[: pad.end()], suffix[rest.end() - 1 :]
            expected[padding] = _RAW_PADDING.decode()
        tail = marker[1:] + _RAW_PADDING + suffix if marker else suffix[1:]
        if _parses_to(prefix[6:-1] + _RAW_PROBE + tail, expected):
            return Template(prefix, marker, suffix, pieces, delta)
    return None


@cache
def _value_of(field: str) -> re.Pattern[bytes]:
    """Where a string begins that may be the field's value."""
    return re.compile(rb'"%b"\s*:\s*"' % re.escape(field).encode())


def _with(chunk: JsonObject, path: Path) -> JsonObject:
    """The chunk with the probe at `path`; what is not on the path is shared."""
    root = chunk.copy()
    node: Any = root
    for step in path[:-1]:
        node[step] = node[step].copy()
        node = node[step]
    node[path[-1]] = _PROBE
    return root


def _parses_to(data: bytes, expected: JsonObject) -> bool:
    try:
        return bool(_decode_any(data) == expected)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
