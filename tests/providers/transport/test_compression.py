"""Bodies that come compressed although nobody asked for that, split anywhere."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.transport.raw_servers import OK, READERS, client, post, raw_server, saying
from tailrace.errors import PeerError
from tailrace.providers.transport.compression import MAX_GROWN_BYTES, decompressor_of

TEXT = b"".join(b'data: {"n": %d, "text": "where the water goes"}\n\n' % number for number in range(60))


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


ENCODED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:]),  # two members
    "deflate": zlib.compress(TEXT),
    "DEFLATE": raw_deflate(TEXT),
    "identity": TEXT,
    "utf-8": TEXT,  # no encoding at all; servers have been seen to send it
}


def decompressed(encoding: str, pieces: list[bytes]) -> bytes:
    stream = decompressor_of(encoding)
    if stream is None:
        return b"".join(pieces)
    whole = b"".join(stream.feed(piece) for piece in pieces if piece)
    stream.close()
    return whole


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_body_is_the_same_split_at_every_byte(encoding: str) -> None:
    raw = ENCODED[encoding]
    for at in range(1, len(raw)):
        assert decompressed(encoding, [raw[:at], raw[at:]]) == TEXT


@given(cuts=st.lists(st.integers(0, len(ENCODED["gzip"])), max_size=20))
def test_any_split_gives_the_same_body(cuts: list[int]) -> None:
    raw, places = ENCODED["gzip"], sorted({0, *cuts, len(ENCODED["gzip"])})
    assert decompressed("gzip", [raw[a:b] for a, b in pairwise(places)]) == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_A22_what_is_not_in_its_encoding_or_has_no_end_is_a_peer_error(encoding: str) -> None:
    with pytest.raises(PeerError, match="not in the encoding"):
        decompressed(encoding, [TEXT])
    with pytest.raises(PeerError, match="not in the encoding"):
        decompressed(encoding, [ENCODED[encoding][:-9]])


@pytest.mark.parametrize("members", [1, 3])
def test_J126_a_bomb_is_refused_before_the_memory_is_taken(members: int) -> None:
    bomb = gzip.compress(bytes(MAX_GROWN_BYTES // members + 1)) * members
    assert len(bomb) < MAX_GROWN_BYTES / 500
    with pytest.raises(PeerError, match="decompresses to more than"):
        decompressed("gzip", [bomb])


@pytest.mark.parametrize("encoding", ["br", "zstd"])
def test_an_encoding_that_was_not_asked_for_is_named(encoding: str) -> None:
    with pytest.raises(PeerError, match=f"the encoding {encoding}, which was not asked for"):
        decompressor_of(encoding)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_body_over_a_socket(encoding: str, reader: object) -> None:
    raw = ENCODED[encoding]
    head = OK + b"Content-Encoding: %b\r\ncontent-length: %d\r\n\r\n" % (encoding.encode(), len(raw))
    pieces = [raw[at : at + 7] for at in range(0, len(raw), 7)]
    async with raw_server(saying(head, *pieces)) as url, client() as transport:
        reply = await post(transport, url)
        assert callable(reader)
        assert await reader(reply) == TEXT
        reply.close()
