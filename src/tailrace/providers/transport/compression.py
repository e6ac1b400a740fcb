"""Bodies that came compressed, decompressed as they arrive.

Owns the encodings of `content-encoding`. Every piece that arrives is decompressed at once; one that grows beyond all
reason ends the body with an error before the memory is taken (J126).
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any, Final, Protocol

from tailrace.errors import PeerError

MAX_GROWN_BYTES = 32 * 1024 * 1024  # what one piece, as it came from the socket, may decompress to
_NOT_AS_NAMED = "the body is not in the encoding that its header names"
_ZSTD: Final = ("compression.zstd", "backports.zstd")  # Python from 3.14 on has its own
_BROTLI: Final = ("brotlicffi", "brotli")


class Decompressor(Protocol):
    """One body. Both methods raise `PeerError`."""

    def feed(self, data: bytes) -> bytes:
        """What this piece brings; it may be nothing yet."""

    def close(self) -> None:
        """The body has ended."""


def decompressor_of(encoding: str) -> Decompressor | None:
    """For this value of `content-encoding`; None where the body is to be taken as it is: no encoding, or a name that is
    none, which servers have been seen to send. Raises `PeerError` for an encoding whose package is not installed."""
    match encoding.strip().lower():
        case "gzip" | "x-gzip":
            return _Zlib(zlib.MAX_WBITS | 16)
        case "deflate":
            return _Zlib(0)
        case "br":
            return _Brotli(_module("br", _BROTLI))
        case "zstd":
            return _Zstd(_module("zstd", _ZSTD))
        case _:
            return None


class _Zlib:
    """gzip, of one member or several, and deflate, with the header of zlib or without one as some servers send it."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits  # 0: the first byte tells
        self._stream = zlib.decompressobj(window_bits) if window_bits else None

    def feed(self, data: bytes) -> bytes:
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
        if self._stream is not None and not self._stream.eof:
            raise PeerError(_NOT_AS_NAMED)


class _Brotli:
    def __init__(self, brotli: Any) -> None:
        self._stream = brotli.Decompressor()
        self._error: type[Exception] = brotli.error

    def feed(self, data: bytes) -> bytes:
        try:
            try:
                grown: bytes = self._stream.process(data, output_buffer_limit=MAX_GROWN_BYTES + 1)
            except TypeError:  # a release without the limit
                grown = self._stream.process(data)
        except self._error as exc:
            raise PeerError(_NOT_AS_NAMED) from exc
        if len(grown) > MAX_GROWN_BYTES:
            raise _too_large()
        return grown

    def close(self) -> None:
        if not self._stream.is_finished():
            raise PeerError(_NOT_AS_NAMED)


class _Zstd:
    """Frames, one after the other."""

    def __init__(self, zstd: Any) -> None:
        self._new = zstd.ZstdDecompressor
        self._stream = zstd.ZstdDecompressor()
        self._error: type[Exception] = zstd.ZstdError

    def feed(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        left = MAX_GROWN_BYTES
        try:
            while data:
                if self._stream.eof:
                    self._stream = self._new()
                pieces.append(piece := self._stream.decompress(data, max_length=left))
                left -= len(piece)
                if left <= 0:
                    raise _too_large()
                data = self._stream.unused_data if self._stream.eof else b""
        except self._error as exc:
            raise PeerError(_NOT_AS_NAMED) from exc
        return b"".join(pieces)

    def close(self) -> None:
        if not self._stream.eof:
            raise PeerError(_NOT_AS_NAMED)


def _module(encoding: str, names: tuple[str, str]) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise PeerError(f"the body is in the encoding {encoding}, which needs the package {names[-1].partition('.')[0]}")


def _too_large() -> PeerError:
    return PeerError(f"the body decompresses to more than {MAX_GROWN_BYTES} bytes at once")
