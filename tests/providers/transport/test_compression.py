"""Bodies that come compressed although nobody asked for that, split anywhere."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.transport.raw_servers import OK, READERS, client, post, raw_server, saying
from tailrace.errors import PeerError
from tailrace.providers.transport.compression import FREE_BYTES, STEP_BYTES, Decompressor, decompressor_of

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
    whole = [step for piece in pieces if piece for step in steps_of(stream, piece)]
    stream.close()
    return b"".join(whole)


def steps_of(stream: Decompressor, piece: bytes) -> Iterator[bytes]:
    yield stream.feed(piece)
    while stream.has_more:
        yield stream.feed(b"")


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
    bomb = gzip.compress(bytes(8 * FREE_BYTES // members)) * members
    with pytest.raises(PeerError, match="decompresses to far more"):
        decompressed("gzip", [bomb])


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_O180_what_was_unpacked_counts_in_however_many_pieces_it_comes(encoding: str) -> None:
    packed = gzip.compress if encoding == "gzip" else zlib.compress
    bomb = packed(b": ping\n\n" * FREE_BYTES)
    decompressor = decompressor_of(encoding)
    assert decompressor is not None
    sizes: list[int] = []
    pieces = (bomb[at : at + 100] for at in range(0, len(bomb), 100))
    with pytest.raises(PeerError, match="decompresses to far more"):
        sizes.extend(len(step) for piece in pieces for step in steps_of(decompressor, piece))
    assert sum(sizes) < 2 * FREE_BYTES


@given(size=st.integers(STEP_BYTES - 2, 3 * STEP_BYTES + 2))
def test_O180_a_long_body_is_unpacked_in_steps(size: int) -> None:
    stream = decompressor_of("gzip")
    assert stream is not None
    noise = b"".join(b"%d " % number for number in range(9000))
    steps = [*steps_of(stream, gzip.compress(noise + bytes(size)))]
    stream.close()
    assert b"".join(steps) == noise + bytes(size)
    assert max(map(len, steps)) <= STEP_BYTES


async def test_O180_the_loop_has_its_turn_while_a_body_is_unpacked() -> None:
    noise = b"".join(b"%d " % number for number in range(20_000))
    raw = gzip.compress(noise + bytes(8 * STEP_BYTES))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def sink(data: bytes) -> bool:
        got.append((turns, len(data)))
        return False

    got: list[tuple[int, int]] = []
    head = OK + b"Content-Encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(raw)
    async with raw_server(saying(head, raw)) as url, client() as transport:
        reply = await post(transport, url)
        counting = asyncio.ensure_future(count_turns())
        await reply.pump(sink)
        counting.cancel()
    assert sum(size for _, size in got) == len(noise) + 8 * STEP_BYTES
    assert len({turn for turn, _ in got}) > 8


def test_O180_a_text_that_repeats_itself_is_no_bomb() -> None:
    text = TEXT * 2000
    assert decompressed("gzip", [gzip.compress(text)]) == text


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
