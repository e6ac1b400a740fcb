"""Bodies that came compressed, decompressed as they arrive. One that grows beyond all reason ends with an error before
the memory is taken (J126)."""

from __future__ import annotations

import zlib

from tailrace.errors import PeerError

FREE_BYTES = 1024 * 1024  # that any body may decompress to
STEP_BYTES = 512 * 1024  # unpacked at once: a millisecond or two
MAX_RATIO = 200  # beyond that: how many bytes one byte of the body may stand for (O180); text reaches 20, a bomb 1,000
_NOT_AS_NAMED = "the body is not in the encoding that its header names"


def decompressor_of(encoding: str) -> Decompressor | None:
    """For this value of `content-encoding`; None where the body is to be taken as it is. Raises `PeerError` for br and
    zstd: each request asks for no encoding, and servers that compress in spite of that use gzip or deflate."""
    match encoding.strip().lower():
        case "gzip" | "x-gzip":
            return Decompressor(zlib.MAX_WBITS | 16)
        case "deflate":
            return Decompressor(0)
        case "br" | "zstd" as unasked:
            raise PeerError(f"the body is in the encoding {unasked}, which was not asked for")
        case _:
            return None


class Decompressor:
    """One body: gzip, of one member or several, or deflate, with the header of zlib or without one as some servers send
    it. `feed` and `close` raise `PeerError`."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits  # 0: the first byte tells
        self._stream = zlib.decompressobj(window_bits) if window_bits else None
        self._left = FREE_BYTES
        self._packed = b""  # what came and is not decompressed yet
        self.has_more = False  # the last step has not brought all of what came: `feed(b"")` goes on

    def feed(self, data: bytes) -> bytes:
        """What this piece brings, `STEP_BYTES` at most; it may be nothing yet."""
        data = self._packed + data
        self._left += MAX_RATIO * (len(data) - len(self._packed))
        if self._stream is None and data:
            self._window_bits = zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(self._window_bits)
        if self._stream is None or not (data or self.has_more):
            return b""
        try:
            if self._stream.eof:
                self._stream = zlib.decompressobj(self._window_bits)  # the next member
            piece = self._stream.decompress(data, STEP_BYTES)
        except zlib.error as exc:
            raise PeerError(_NOT_AS_NAMED) from exc
        self._packed = self._stream.unconsumed_tail or self._stream.unused_data
        self.has_more = bool(self._packed) or (len(piece) == STEP_BYTES and not self._stream.eof)
        self._left -= len(piece)
        if self._left <= 0:
            raise PeerError("the body decompresses to far more than any text does")
        return piece

    def close(self) -> None:
        """The body has ended."""
        if self._stream is not None and not self._stream.eof:
            raise PeerError(_NOT_AS_NAMED)
