"""Which bytes are text, and which text they are."""

from __future__ import annotations

import codecs

# The longer mark first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def byte_order_mark(data: bytes) -> tuple[str, int]:
    """The encoding that a mark at the beginning names, and the mark's length; UTF-8 and 0 where there is none."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, len(mark)
    return "utf-8", 0


def text_in(data: bytes) -> str | None:
    """The text that a file holds; None where it is binary: a NUL in what is no UTF-16."""
    encoding, mark = byte_order_mark(data)
    if encoding == "utf-8" and b"\0" in data:
        return None
    return data[mark:].decode(encoding, "replace")
