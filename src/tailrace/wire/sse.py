"""Server-sent events, both ways, to the letter of the WHATWG specification (HTML, section 9.2): framing alone."""

from __future__ import annotations

import re

import msgspec

from tailrace.errors import PeerError

MAX_EVENT_BYTES = 32 * 1024 * 1024  # the largest single event accepted: an image in one block fits, an endless line not
_BOM = b"\xef\xbb\xbf"
_COMMENTS = re.compile(rb"(?:\A|(?<=\n\n))(?::[^\n]*\n)+\n")  # blocks of nothing else, which may be many
BLANK_LINE = b"\n\n"  # once line ends are LF: what ends an event


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One dispatched event. `data` is kept as bytes: JSON decoders want them so."""

    data: bytes
    event: str = "message"
    id: str = ""  # the last event id in force when this event was dispatched

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


class SseDecoder:
    """Bytes in, events out. Any split of the same bytes gives the same events; linear in the bytes, however they are
    cut. `feed` is `split` and then `parse`; a caller with a fast path uses the halves, or `take` for many blocks at
    once."""

    __slots__ = (*("_after_cr", "_at_start", "_buffer", "_max"), *("error", "is_between", "last_event_id"))

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._buffer = bytearray()  # the unfinished block, line ends already LF
        self._after_cr = False  # the last byte fed was CR: an LF that follows belongs to it
        self.is_between = False  # every byte so far belongs to an event that is ended: what follows begins another
        self._at_start = True  # a byte order mark may still come
        self.error: PeerError | None = None  # set once an event outgrew the cap; nothing is decoded after it
        self.last_event_id = ""

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events these bytes complete."""
        parse = self.parse
        return [event for block in self.split(data) if (event := parse(block)) is not None]

    def unfinished_block(self) -> bytes:
        """The lines that no blank line has ended yet, for a decoder that knows a terminal event by its data."""
        return bytes(self._buffer.strip(b"\n"))

    def split(self, data: bytes) -> list[bytes]:
        """The blocks these bytes complete: runs of lines that a blank line ended, joined by LF."""
        whole = without_comments(self.take(data))
        return whole[:-2].split(BLANK_LINE) if whole else []

    def take(self, data: bytes) -> bytes:
        """The same blocks as one piece of text, each with the blank line that ended it; empty where none was ended."""
        if self.error is not None:
            return b""
        if self._at_start:
            data = self._without_bom(data)
        if self._after_cr or data.find(b"\r") >= 0:  # `in` of bytes raises and catches an error first
            data = self._with_lf(data)
        buffer = self._buffer
        if not buffer and data[-2:] == BLANK_LINE:  # a read of whole events, as one token at a time comes
            whole = data
        else:
            searched = max(len(buffer) - 1, 0)  # its last byte may be the first LF of a blank line
            buffer += data
            end = buffer.rfind(BLANK_LINE, searched) + 2
            if end < 2:
                whole = b""
            else:
                whole = bytes(buffer[:end])
                del buffer[:end]
        self.is_between = not buffer and not self._after_cr
        if len(data) + len(buffer) > self._max:
            whole = self._within_cap(whole)
        return whole

    def parse(self, block: bytes) -> SseEvent | None:
        """The event of a block, or None where it dispatches none. In order: the last event id carries over."""
        if block.startswith(b"data: ") and block.find(b"\n") < 0:
            return SseEvent(block[6:], "message", self.last_event_id)
        data: list[bytes] = []
        event = b""
        for line in block.split(b"\n"):
            name, colon, value = line.partition(b":")
            if colon and value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                data.append(value)
            elif name == b"event":
                event = value
            elif name == b"id" and value.find(b"\0") < 0:
                self.last_event_id = value.decode("utf-8", "replace")
        if not data:
            return None
        kind = event.decode("utf-8", "replace") or "message"
        return SseEvent(b"\n".join(data), kind, self.last_event_id)

    def _without_bom(self, data: bytes) -> bytes:
        if not self._buffer and data and data[0] != _BOM[0]:
            self._at_start = False
            return data
        head = bytes(self._buffer) + data
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._buffer[:] = head
            return b""
        self._at_start = False
        self._buffer.clear()
        return head.removeprefix(_BOM)

    def _with_lf(self, data: bytes) -> bytes:
        if not data:
            return data
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _within_cap(self, whole: bytes) -> bytes:
        """What comes before the first event that is too long."""
        start = 0
        while (end := whole.find(BLANK_LINE, start)) >= 0:
            if end - start > self._max:
                self._refuse(whole[start:end])
                return whole[:start]
            start = end + 2
        if len(self._buffer) > self._max:
            self._refuse(bytes(self._buffer[:512]))
        return whole

    def _refuse(self, start: bytes) -> None:
        self.error = PeerError(f"an event of the stream exceeds {self._max} bytes", excerpt=start)
        self._buffer = bytearray()


def without_comments(whole: bytes) -> bytes:
    """These blocks without those that are comments alone: one by one they would hold a reader up."""
    return _COMMENTS.sub(b"", whole) if whole.startswith(b":") or whole.find(b"\n\n:") >= 0 else whole


def is_event_name(name: str) -> bool:
    """Whether a peer's name of an event can be sent on: one plain word (J121)."""
    return name.isascii() and name.isprintable()


def encode_event(data: bytes | str, *, event: str = "", id: str = "") -> bytes:  # noqa: A002 - the field's own name
    """One event as bytes. Line ends inside `data` become several `data` lines. Raises `ValueError` where `event`
    or `id` holds CR, LF or NUL: they could end the field and begin another (J121)."""
    head = ""
    for name, value in (("id", id), ("event", event)):
        if value:
            if "\n" in value or "\r" in value or "\0" in value:
                raise ValueError(f"an SSE {name} must not contain CR, LF or NUL: {value!r}")
            head += f"{name}: {value}\n"
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if raw.find(b"\n") >= 0 or raw.find(b"\r") >= 0:  # as above, and once for every event that is sent
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    return b"%bdata: %b\n\n" % (head.encode("utf-8", "replace"), raw)


def encode_comment(text: str = "") -> bytes:
    """A comment: keeps a connection alive, and no client sees it."""
    return b"".join(b": %b\n" % line.encode("utf-8", "replace") for line in text.splitlines() or [""]) + b"\n"
