"""The head of a plain request: one that can be read in one way only.

Owns what plain means. A request line that is known to the letter, HTTP/1.1, each header once and within the grammar of
RFC 9110 (5.1, 5.5), the host among them, a body of a given length that is neither encoded nor announced, nothing that
changes the protocol. Anything else is no mistake: the HTTP library reads it, and refuses what is wrong. Knows no
socket.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from tailrace.server.http.body_budget import FREE_BYTES

T = TypeVar("T")
MAX_HEAD_BYTES: Final = 8_192
MAX_FIELDS: Final = 64
MAX_BODY_BYTES: Final = FREE_BYTES  # of bodies that the budget does not count
# `*+` never gives a space back: the value's pattern takes spaces too, and each way to share them would be tried (L140).
_FIELD: Final = re.compile(
    r"^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+((?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)[ \t]*\r\n", re.MULTILINE
)
_LENGTH: Final = re.compile(r"[0-9]{1,6}")
_NEEDED: Final = frozenset({"host", "content-length"})  # RFC 9112, 3.2: a request without a Host is refused
_NOT_PLAIN: Final = frozenset(
    {"transfer-encoding", "content-encoding", "expect", "upgrade", "trailer", "te", "proxy-connection"}
)
_KEPT: Final = {None: True, "keep-alive": True, "close": False}


class PlainHead(msgspec.Struct, Generic[T], frozen=True):
    """`target`: what the request line stands for. The request is the bytes to `end`, its body those from `body_at`."""

    target: T
    headers: CIMultiDictProxy[str]
    keep_alive: bool
    body_at: int
    end: int


def parse_plain_head(data: bytes, targets: Mapping[bytes, T]) -> PlainHead[T] | None:
    """The head at the beginning of these bytes; None where it is not plain or not whole. `targets` by request line."""
    line_end = data.find(b"\r\n")
    target = targets.get(data[:line_end])
    head_end = data.find(b"\r\n\r\n", line_end, MAX_HEAD_BYTES)
    if target is None or head_end < 0:
        return None
    text = data[line_end + 2 : head_end + 2].decode("utf-8", "surrogateescape")
    fields = _FIELD.findall(text)
    if len(fields) != text.count("\n") or len(fields) > MAX_FIELDS:
        return None  # a line is no field
    names = {name.lower() for name, _ in fields}
    if len(names) != len(fields) or not names.isdisjoint(_NOT_PLAIN) or not names >= _NEEDED:
        return None
    headers = CIMultiDict(fields)
    length, connection = headers["Content-Length"], headers.get("Connection")
    kept = _KEPT.get(connection if connection is None else connection.lower())
    if kept is None or _LENGTH.fullmatch(length) is None or (body_bytes := int(length)) > MAX_BODY_BYTES:
        return None
    return PlainHead(target, CIMultiDictProxy(headers), kept, head_end + 4, head_end + 4 + body_bytes)
