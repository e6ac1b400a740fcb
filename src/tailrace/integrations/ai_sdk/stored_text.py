"""Pieces of a text from a page of the log to chunks of a UI message, without decoding them.

Pure. Viewers at the same place of a log are handed the same page and write mostly the same chunks, which are made once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tailrace.ports import Frame, LogPage, StoredLine

_STORED: Final = {b"text": b'{"type":"message_chunk","text":', b"reasoning": b'{"type":"reasoning_chunk","text":'}
_MARKS: Final = {b"text": b"t", b"reasoning": b"r"}


def text_deltas(page: LogPage, kind: bytes, part_id: bytes) -> bytes | None:
    """The chunks of a page that has nothing but the next pieces of this text; None for any other page."""
    if not page or page.framed(_mark).strip(_MARKS[kind]):
        return None
    return page.framed(_delta_frame(kind, part_id))


def _mark(line: StoredLine) -> bytes:
    """One letter for what an entry is."""
    for kind, stored in _STORED.items():
        if line.json.startswith(stored):
            return _MARKS[kind]
    return b"-"


@lru_cache(maxsize=256)
def _delta_frame(kind: bytes, part_id: bytes) -> Frame:
    """The same function for the same part: a page keeps what it has made of its entries."""
    head, length = b'data: {"type":"%b-delta","id":"%b","delta":' % (kind, part_id), len(_STORED[kind])

    def delta(line: StoredLine) -> bytes:
        return head + line.json[length:] + b"\n\n"

    return delta
