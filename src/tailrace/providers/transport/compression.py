"""Bodies that came compressed, decompressed as they arrive.

Owns the encodings of `content-encoding`: gzip and deflate. Every piece that arrives is decompressed at once; one that
grows beyond all reason ends the body with an error before the memory is taken (J126).
"""

from __future__ import annotations

import zlib

from tailrace.errors import PeerError

MAX_GROWN_BYTES = 32 * 1024 * 1024  # what one piece, as it came from the socket, may decompress to
_NOT_AS_NAMED = "the body is not in the encoding that its header names"


def decompressor_of(encoding: str) -> Decompressor | None:
    """For this value of `content-encoding`; None where the body is to be taken as it is: no encoding, or a name that is
    none, which servers have been seen to send. Raises `PeerError` for br and zstd: each request asks for no encoding,
    and the servers that compress in spite of that use gzip or deflate."""
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
    it. Both methods raise `PeerError`."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits  # 0: the first byte tells
        self._stream = zlib.decompressobj(window_bits) if window_bits else None

    def feed(self, data: bytes) -> bytes:
        """What this piece brings; it may be nothing yet."""
        if self._stream is None:
            self._window_bits = zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
            self._stream = zlib.decompressobj(self._window_bits)
        pieces: list[bytes] = []
        left = MAX_GROWN_BYTES
        try:
            while True:
                pieces.append(piece := self._stream.decompress(data, left))
                left -= len(piece)
                if self._stream.unconsumed_tail:
                    raise _too_large()
                if not (data := self._stream.unused_data):
                    return b"".join(pieces)
                if left <= 0:
                    raise _too_large()
                self._stream = zlib.decompressobj(self._window_bits)  # the next member
        except zlib.error as exc:
            raise PeerError(_NOT_AS_NAMED) from exc

    def close(self) -> None:
        """The body has ended."""
        if self._stream is not None and not self._stream.eof:
            raise PeerError(_NOT_AS_NAMED)


def _too_large() -> PeerError:
    return PeerError(f"the body decompresses to more than {MAX_GROWN_BYTES} bytes at once")
